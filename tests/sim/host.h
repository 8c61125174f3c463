#pragma once
// The loops of the simulated world: a virtual clock, every message in flight, and a seed that
// chooses which of the actors that have mail is next. It is a TurnHost, so the actors are the same
// code as in a daemon; it keeps what a dispatcher keeps (C5, C6, D2, C8) and nothing else.
//
// Time passes with each turn, by an amount that the seed chooses, and jumps to the next timer when
// nobody has mail. Two scopes of timers: the manager's end with it, the world's (guests, disks,
// faults) go on.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/actor.h"
#include "runtime/message.h"
#include "runtime/output_gate.h"
#include "runtime/timer_queue.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

enum class Home : std::uint8_t { Main, Card };       // which loop of the manager
enum class Scope : std::uint8_t { Manager, World };  // whose timer

// Random numbers of the world, apart from those of actors: uniform, by integers only.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : prng_(seed) {}
  std::uint64_t word() { return prng_.next(); }
  std::uint64_t below(std::uint64_t n) {  // 0 .. n-1
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(prng_.next()) * n) >> 64);
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low + 1)));
  }
  Nanos between(Nanos low, Nanos high) { return Nanos(between(low.value, high.value)); }
  // Spread over magnitudes: as often 10..20 us as 1..2 ms.
  Nanos magnitude(Nanos low, Nanos high);
  bool percent(std::uint64_t p) { return below(100) < p; }
  template <typename T>
  const T& pick(const std::vector<T>& of) {
    return of[below(of.size())];
  }

 private:
  Prng prng_;
};

struct HostOptions {
  std::uint64_t seed = 1;
  std::uint32_t mailboxMax = 1024;
  Nanos start = seconds(1);  // what this machine's clock shows at first
  Nanos turnMin{200};        // what a turn takes
  Nanos turnMax = micros(2);
};

class Host final : public TurnHost {
 public:
  Host(HostOptions options, Watch& watch);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host();

  Nanos now() const { return now_; }

  // --- who is here ---
  ActorId reserve(Home home);
  void attach(ActorId id, Actor& actor);
  ActorId add(Actor& actor, Home home);
  void setJournal(Journal* journal) { journal_ = journal; }
  // The manager is gone: actors, mail, the manager's timers and batches without an answer.
  void clearManager();

  // --- messages from adapters (clients, gate port): as Outlet, outside any turn ---
  template <typename Build>
  SendResult send(ActorId from, ActorId to, Build&& build) {
    capnp::MessageBuilder* message = beginSend(from, to, Lane::Ordinary);
    if (message == nullptr) return SendResult::Refused;
    build(message->initRoot<schema::Envelope>());
    finishSend();
    return SendResult::Sent;
  }
  template <typename Build>
  void sendUrgent(ActorId from, ActorId to, Build&& build) {
    build(beginSend(from, to, Lane::Control)->initRoot<schema::Envelope>());
    finishSend();
  }

  // --- timers of adapters, guests and faults ---
  using Key = std::uint64_t;  // never 0
  Key at(Scope scope, Nanos when, std::function<void()> work);
  Key after(Scope scope, Nanos delay, std::function<void()> work) {
    return at(scope, now_ + delay, std::move(work));
  }
  void cancel(Scope scope, Key key);

  // --- running ---
  // One turn, or one timer. False: nothing is left to happen at or before `until`, and the clock
  // stands at `until`.
  bool step(Nanos until);
  // The actors of this loop have no turn before `until`, nor do adapters' timers, which are the
  // card loop's.
  void stall(Home home, Nanos until);
  void wake() { stalledUntil_ = {}; }
  // For worlds of several hosts: when step() would next do something, and that nothing of this
  // host's happens before `time`.
  std::optional<Nanos> nextEvent();
  void idleUntil(Nanos time) { now_ = std::max(now_, time); }
  bool mailWaits() const { return !ready_.empty(); }
  std::uint64_t turns() const { return turns_; }
  std::uint64_t events() const { return turns_ + fired_; }
  std::uint64_t hash() const { return hash_; }
  // Mixed into hash(): what a guest or a disk did.
  void mix(std::uint64_t word);

  // TurnHost
  capnp::MessageBuilder* beginSend(ActorId from, ActorId to, Lane lane) override;
  void finishSend() override;
  capnp::MessageBuilder* beginTimer(ActorId self, Nanos delay, TimerId& id) override;
  void finishTimer() override;
  void cancelTimer(ActorId self, TimerId id) override;
  capnp::MessageBuilder* beginPersist(ActorId self, RowKey key) override;
  void finishPersist() override;

 private:
  struct Resident {
    Actor* actor = nullptr;
    Home home = Home::Main;
    std::array<std::uint32_t, 3> mail{};  // ordinary, by the sender's home; 2: no actor
    Prng prng{0};
  };
  struct Mail {
    Words words;
    std::uint64_t serial = 0;
    std::uint64_t timer = 0;  // 0: was sent
  };
  // Messages of one sender to one receiver on one lane: FIFO (C6).
  struct Queue {
    ActorId from{};
    ActorId to{};
    Lane lane = Lane::Ordinary;
    std::size_t readyAt = SIZE_MAX;  // position in ready_
    std::deque<Mail> mail;
  };
  struct ActorTimer {
    ActorId actor{};
    Words words;
  };
  struct HeldBack {  // sent in the turn that is not over
    OwnedMessage message;
    std::uint64_t serial = 0;
  };
  using Work = std::function<void()>;

  Resident& resident(ActorId id);
  std::size_t homeOf(ActorId id) const;
  std::uint32_t queueOf(ActorId from, ActorId to, Lane lane);
  void put(ActorId from, ActorId to, Lane lane, Mail mail);
  void makeReady(std::uint32_t queue);
  void unready(std::uint32_t queue);
  std::optional<std::uint32_t> choose();
  void deliver(std::uint32_t queue);
  void endTurn(ActorId self);
  void hold(OwnedMessage message, std::uint64_t serial);
  void commitDone(ActorId self, std::uint64_t batch, const Status& status);
  std::optional<Nanos> nextTimer();
  void fireDue();

  const HostOptions options_;
  Watch& watch_;
  Dice dice_;
  Nanos now_;
  std::vector<Resident> residents_;  // by id - first_
  std::uint32_t first_ = 1;          // addresses are not used again after a restart
  Journal* journal_ = nullptr;

  std::unordered_map<std::uint64_t, std::uint32_t> queueIndex_;  // never iterated
  std::vector<Queue> queues_;
  std::vector<std::uint32_t> ready_;
  std::array<Nanos, 2> stalledUntil_{};
  TimerQueue<ActorTimer> actorTimers_;
  std::unordered_set<std::uint64_t> firedTimers_;  // fired, their message not delivered yet
  TimerQueue<Work> managerTimers_;
  TimerQueue<Work> worldTimers_;
  OutputGate gate_;
  std::unordered_map<const capnp::word*, std::uint64_t> heldSerials_;  // of what waits at gate_
  ScratchBuilder scratch_;

  ActorId sendFrom_{};
  ActorId sendTo_{};
  Lane sendLane_ = Lane::Control;
  std::uint64_t timerBuilt_ = 0;
  RowKey rowKey_;
  ActorId turnOf_ = ActorId::kNobody;
  std::vector<HeldBack> turnSends_;
  std::vector<StoredRow> turnRows_;
  std::uint64_t batches_ = 0;
  std::uint64_t life_ = 0;  // answers of an earlier life's journal are not heard
  std::uint64_t serial_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t fired_ = 0;
  std::uint64_t hash_ = 14695981039346656037ULL;
};

}  // namespace qgpu::sim
