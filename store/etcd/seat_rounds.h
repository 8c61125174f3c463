#pragma once
// What is made of the rounds of a Seat: who hears of what has changed, and whether this scheduler
// may say now what others rely on. Who calls round() has a thread (services/etcd/seat_keeper.h) or
// virtual time (the simulator).
//
// Kept here: C1 (what is no change of the store is said only while no other scheduler can act).

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "store/etcd/seat.h"

namespace qgpu {

class SeatRounds {
 public:
  // Runs a closure where the scheduler is; in order.
  using Post = std::function<void(std::function<void()>)>;
  struct Calls {                                    // each posted
    std::function<void(KvCondition guard)> seated;  // once
    std::function<void(std::string why)> lost;      // once, and last
    std::function<void(SeatHolder who)> other;      // acts, when that changes; empty: nobody
    std::function<void(Status health)> health;      // etcd stopped answering, or answers again
  };

  // `kv` outlives it.
  SeatRounds(Kv& kv, SeatOptions options, Post post, Calls calls)
      : post_(std::move(post)), calls_(std::move(calls)), seat_(kv, std::move(options)) {}

  // As Seat::step(): one round of calls, at `now` of a clock that also runs while this process is
  // stopped, and when to come again.
  Nanos round(Nanos now);
  // Gives the seat back. For a clean end.
  void leave();
  // As Seat::ended().
  void ended(std::string identity) { seat_.ended(std::move(identity)); }

  // Seated, and nobody else can be: to be asked before anything is said that others rely on and
  // that is no change of the store. By the clock of round(); from any thread.
  bool holds(Nanos now) const;

 private:
  void tell();

  const Post post_;
  const Calls calls_;
  Seat seat_;
  std::atomic<std::int64_t> heldUntil_{0};
  Seat::State told_ = Seat::State::Waiting;
  std::optional<SeatHolder> toldOther_;
  bool toldHealth_ = true;
};

}  // namespace qgpu
