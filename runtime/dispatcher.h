#pragma once
// The dispatcher runs the actors of one loop, one message at a time, and carries their messages to
// each other and to the actors of other loops. An ActorSystem joins the dispatchers of a process.
//
// Between each two loops lie two rings (control and ordinary); messages are built in the
// receiver's ring and read there. A sleeping loop is woken once per batch. Each turn of the loop
// is bounded, so that descriptors, timers and KJ are served whatever the actors do.
//
// Kept here: C5 (an actor's ordinary mailbox holds kMailboxMax messages from each loop, then the
// sender is refused; control is never refused), C6 (FIFO per sender, receiver and lane), D2
// (output gate), C8 (no turn after stop).
//
// Threads: build the system, its dispatchers and most actors before any loop runs. While a loop
// runs, its dispatcher belongs to its thread. The Journal answers nothing any more when a
// dispatcher is destroyed. Destroy actors and dispatchers after the loops' threads were joined.

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/actor.h"
#include "runtime/loop.h"
#include "runtime/mailbox_ring.h"
#include "runtime/message.h"
#include "runtime/output_gate.h"

namespace qgpu {

inline constexpr std::size_t kActorsMax = 65'536;  // alive at once
inline constexpr std::size_t kLoopsMax = 8;
inline constexpr std::uint32_t kMailboxMax = 1'024;        // ordinary, per sending loop and actor
inline constexpr std::size_t kControlBacklogMax = 65'536;  // beyond the ring; a breach is a bug
inline constexpr std::size_t kTimersMax = 4'096;           // per actor

class Dispatcher;

// What one loop's dispatcher has done since it was made.
struct DispatcherCounters {
  std::uint64_t handled = 0;        // turns
  std::uint64_t refused = 0;        // ordinary sends that found the mailbox or the ring full
  std::uint64_t wakes = 0;          // of other loops
  std::uint64_t undeliverable = 0;  // the receiver was gone
  std::uint64_t commitsFailed = 0;
};

// What the loops know of an actor. An entry is never freed; its index is reused under a new id.
struct ActorEntry {
  std::atomic<std::uint32_t> id{0};  // generation << 16 | index; 0: nobody
  std::uint32_t home = 0;            // loop
  // Ordinary messages taken out of the mailbox, per sending loop; written by the home loop.
  std::array<std::atomic<std::uint32_t>, kLoopsMax> consumed{};
  // The rest is the home loop's alone.
  Actor* actor = nullptr;
  std::uint32_t timers = 0;
  Prng prng{0};
};

// Messages from one loop to another, or to itself: one for each ordered pair of loops. The sender's
// dispatcher writes, the receiver's reads.
struct Channel {
  Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  struct Waiting {  // a record that found the ring full
    Record record;
    std::uint64_t body;
  };
  struct LaneOut {
    explicit LaneOut(std::size_t words) : ring(words) {}
    MailboxRing ring;
    std::deque<Waiting> backlog;  // the sender's, in order, ahead of anything newer
  };
  LaneOut control;
  LaneOut ordinary;
  std::atomic<bool> senderWaits{false};  // for room
  std::uint64_t turnOfMark = 0;          // the sender's: where the turn's ordinary records begin
  std::uint64_t mark = 0;
};

// The dispatchers of one process or one simulated machine, and the addresses of their actors. Made
// first and destroyed last; a daemon and each test has one.
class ActorSystem {
 public:
  // `seed` of the actors' random numbers.
  explicit ActorSystem(std::uint64_t seed = 1);
  ActorSystem(const ActorSystem&) = delete;
  ActorSystem& operator=(const ActorSystem&) = delete;
  ~ActorSystem();

  // Any thread: no dispatcher starts another turn (C8).
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  friend class Dispatcher;
  std::uint32_t join(Dispatcher& dispatcher);
  ActorEntry* newEntry(std::uint32_t& index);
  ActorEntry* entryAt(std::uint32_t index) const {
    return entries_[index].load(std::memory_order_acquire);
  }

  const std::uint64_t seed_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint32_t> entriesUsed_{0};
  std::unique_ptr<std::atomic<ActorEntry*>[]> entries_;
  std::array<Dispatcher*, kLoopsMax> dispatchers_{};
  std::uint32_t dispatcherCount_ = 0;
  // channels_[from][to]
  std::array<std::array<std::unique_ptr<Channel>, kLoopsMax>, kLoopsMax> channels_;
};

// Runs the actors of one loop; at most kLoopsMax in a system. `system` and `loop` outlive it.
class Dispatcher final : public TurnHost, private LoopGuest {
 public:
  Dispatcher(ActorSystem& system, Loop& loop);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;
  ~Dispatcher();

  Loop& loop() { return loop_; }

  // Where the rows of this loop's actors go. Without one, persist() is a bug.
  void setJournal(Journal& journal) { journal_ = &journal; }

  // Registers an actor; it gets messages on this loop until remove(). From this loop's thread, or
  // before the loops run.
  ActorId add(Actor& actor);
  // An address first, its actor later: for actors that must know each other. Messages that arrive
  // in between are lost (counted as undeliverable).
  ActorId reserve();
  // The actor of a reserved address; once, and it outlives the dispatcher or is removed.
  void attach(ActorId id, Actor& actor);
  // The actor gets no more turns; its timers are cancelled; what it sent still arrives.
  void remove(ActorId id);

  DispatcherCounters counters() const;  // any thread; a moment's view

  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) override;
  void finishSend() override;
  capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) override;
  void finishTimer() override;
  void cancelTimer(ActorId self, TimerId id) override;
  capnp::MessageBuilder* beginPersist(ActorId self, RowKey key) override;
  void finishPersist() override;

 private:
  // What this loop, as a sender, knows of a receiver.
  struct Route {
    ActorEntry* entry = nullptr;
    std::uint32_t sent = 0;          // ordinary messages ever, wraps
    std::uint32_t consumedSeen = 0;  // of them, taken out as far as this loop has looked
  };
  enum class SendTo : std::uint8_t { Ring, Gate, Backlog, Nobody };
  struct Sending {
    ActorId from{};
    ActorId to{};
    Lane lane = Lane::Control;
    SendTo where = SendTo::Nobody;
    std::uint32_t home = 0;  // loop of the receiver
    Route* route = nullptr;
    capnp::word* cell = nullptr;
  };
  struct ActorTimer {
    ActorId actor{};
    Loop::TimerKey key = 0;
    Words words;
  };
  // LoopGuest
  void turn() override;
  bool maySleep() override;

  bool stopped() const { return system_.stopped() || loop_.stopping(); }
  Channel& channelTo(std::uint32_t loop) { return *system_.channels_[self_][loop]; }
  Channel& channelFrom(std::uint32_t loop) const { return *system_.channels_[loop][self_]; }
  Route* routeTo(ActorId to);
  ActorEntry* ownEntry(ActorId id) const;
  bool mailboxFull(Route& route);
  capnp::MessageBuilder* refuse();
  capnp::MessageBuilder* beginInScratch(SendTo where);
  capnp::MessageBuilder* beginOrdinary();
  capnp::MessageBuilder* beginControl();
  void commitToRing(MailboxRing& ring);
  void push(Channel& channel, Lane lane, const Record& record, std::uint64_t body);
  void publishControl(std::uint32_t loop);
  void publishOrdinary();

  int drainControl(int budget);
  int drainOrdinary(int budget);
  void deliver(const Record& record, const capnp::word* body);
  void deliverTimer(std::uint64_t id);
  void runTurn(ActorId to, ActorId from, const capnp::word* words);
  void endTurn(ActorId self);
  void persistTurn(ActorId self);
  void commitDone(ActorId self, const Status& status);
  void release(OwnedMessage message);
  void fireTimer(std::uint64_t id);

  bool moveBacklogs();
  bool inputWaits() const;
  void wakeIfAsleep(std::uint32_t loop);
  void wakeSendersThatWait();

  ActorSystem& system_;
  Loop& loop_;
  std::uint32_t self_ = 0;  // index of this loop
  Journal* journal_ = nullptr;
  std::vector<Route> routes_;
  std::deque<std::uint32_t> freeIndices_;

  Sending sending_;
  std::optional<CellBuilder> cell_;
  ScratchBuilder scratch_;

  ActorId turnOf_ = ActorId::kNobody;  // whose turn it is now
  std::uint64_t turnSerial_ = 0;
  Nanos now_;
  KnownCells cellsToSelf_;       // ordinary ones
  std::vector<StoredRow> rows_;  // of the turn
  RowKey rowKey_;
  std::vector<OwnedMessage> turnHeld_;  // sent in the turn of an actor whose gate is closed
  OutputGate gate_;

  std::unordered_map<std::uint64_t, ActorTimer> timers_;
  std::uint64_t lastTimer_ = 0;
  Nanos timerAt_;
  ActorId timerActor_{};

  std::uint32_t unpublished_ = 0;  // ordinary messages to other loops
  std::uint32_t nextFrom_ = 0;     // round robin over the sending loops
  alignas(64) std::atomic<bool> asleep_{false};

  std::atomic<std::uint64_t> handled_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> wakes_{0};
  std::atomic<std::uint64_t> undeliverable_{0};
  std::atomic<std::uint64_t> commitsFailed_{0};
};

// Sends from outside a turn: for an adapter (a socket, a gate port) on the host's own loop.
// `self` is the address that the adapter registered as an actor. Nothing waits for a commit.
class Outlet final : public Sender {
 public:
  Outlet(TurnHost& host, ActorId self) : Sender(host, self) {}
};

}  // namespace qgpu
