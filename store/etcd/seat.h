#pragma once
// Which of several schedulers of a cluster acts: the one whose key `acting` stands in etcd. The key
// hangs on a lease that its owner keeps alive, so it goes when the owner is gone, and then whoever
// looks first has it. There is one clock that counts: etcd's. Where the owner's process is known to
// have ended, whoever knows that ends the lease. A scheduler looks, and keeps alive, by step(),
// which makes one round of calls and says when to come again; who calls it has a thread
// (services/etcd/seat_keeper.h) or virtual time (the simulator).
//
// What being seated is worth: changes are stored only under `guard()`, so that a scheduler that
// lost its seat changes nothing, even where it does not know yet. What it says without a change,
// above all that it heard a node, it may say only until `heldUntil()`: no other scheduler begins
// before that. After a round without an answer the seat may be lost or not; it counts again with
// the first lease that is kept alive.
//
// Kept here: C1 (one scheduler acts; whoever was seated before is told apart by the key's
// revision).

#include <cstdint>
#include <optional>
#include <string>

#include "store/etcd/kv.h"

namespace qgpu {

struct SeatOptions {
  std::string prefix;             // of all keys of the cluster, with a '/' at its end
  std::string identity;           // of this process, unlike any other's, also of an earlier life
  std::string address;            // where it serves RPC, HOST:PORT
  Nanos ttl = seconds(2);         // etcd takes no less
  Nanos lookEvery = millis(100);  // while another one is seated
};

// Of the key `acting`: who it is, and where.
struct SeatHolder {
  std::string identity;
  std::string address;
  bool operator==(const SeatHolder&) const = default;
};
std::string encodeHolder(const SeatHolder& holder);
std::optional<SeatHolder> decodeHolder(const std::string& value);

class Seat {
 public:
  enum class State : std::uint8_t { Waiting, Seated, Lost };

  // `kv` outlives it.
  Seat(Kv& kv, SeatOptions options) : kv_(kv), options_(std::move(options)) {}

  // One round, at `now` of a clock that also runs while this process is stopped. When to come
  // again; kNever once it is lost.
  Nanos step(Nanos now);
  // Gives the seat back, so that another may have it at once. For a clean end.
  void leave();
  // The process of this identity runs no more, for certain: if it is seated, the next look takes
  // its seat. Of one that runs this would break what heldUntil() says.
  void ended(std::string identity) { ended_ = std::move(identity); }

  State state() const { return state_; }
  // While seated: what each change of the store is guarded by.
  KvCondition guard() const;
  // While seated: until then no other scheduler begins, by the clock of step().
  Nanos heldUntil() const { return heldUntil_; }
  // Who was seated when it last looked; nothing where nobody was, or where it was itself.
  const std::optional<SeatHolder>& other() const { return other_; }
  // Why the last round had no answer; ok where it had one.
  const Status& health() const { return health_; }

  static std::string keyOf(const std::string& prefix) { return prefix + "acting"; }

 private:
  Nanos look(Nanos now);
  bool isEnded(const SeatHolder& who) const;
  Nanos take(Nanos now);
  Nanos keep(Nanos now);
  Nanos failed(const Error& why);
  void seated(std::int64_t created, Nanos since);

  Kv& kv_;
  const SeatOptions options_;
  State state_ = State::Waiting;
  std::int64_t lease_ = 0;    // 0: none
  std::int64_t created_ = 0;  // revision of our key
  Nanos leaseSince_;          // before the call that granted or last kept it
  Nanos heldUntil_;
  std::optional<SeatHolder> other_;
  std::string ended_;  // of whom that is known; empty: of nobody
  Status health_ = ok();
};

}  // namespace qgpu
