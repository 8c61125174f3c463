#pragma once
// The card actor: one GPU card. A thin shell around the arbiter: it carries what gates report into
// it and its decisions to the gate port, in the same turn and on the control lane, so that nothing
// stands between an online submit and the holds that it causes.
//
// Stamps of gates are clamped to what is possible; messages about tasks that are not here, or
// about orders that were replaced, change nothing. Moves of tasks are told on the ordinary lane:
// what is refused there is kept, the newest for each task, and sent again.
//
// Where its memory may be overcommitted it also carries out what CardPaging decides: a task whose
// memory is not on the card is away for the arbiter, from the turn in which it is told to go.
//
// What it carries out it also writes down in the card's trace (card_trace.h), which clients are
// answered from; nothing is decided by it.
//
// Kept here: A2 and A3 (the hold leaves in the turn of the first online submit), A10, C5.

#include <cstdint>
#include <map>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "actors/base/codec.h"
#include "actors/base/latency_record.h"
#include "actors/card/card_paging.h"
#include "actors/card/card_trace.h"
#include "runtime/actor.h"

namespace qgpu {

// Whom a card speaks to.
struct CardPeers {
  ActorId gatePort{};
  ActorId node{};
};

// The manager has one for each card, all on the card loop, as the simulator has.
class CardActor final : public Actor {
 public:
  static constexpr Nanos kResend = millis(10);       // of moves that a full mailbox refused
  static constexpr Nanos kPreemptMax = seconds(10);  // a longer one is a nonsense stamp

  // `index` is the card's position on this node; `now` is loop time. `traceKept`: entries of its
  // trace. `overcommitted`: its memory may be.
  CardActor(std::uint32_t index, const ArbiterConfig& config, CardPeers peers, Nanos now,
            std::size_t traceKept = CardTrace::kKept,
            std::optional<ResidencyConfig> overcommitted = std::nullopt)
      : index_(index),
        peers_(peers),
        arbiter_(config, now),
        paging_(overcommitted),
        trace_(traceKept) {}

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  // For tests and the simulator's checkers.
  const Arbiter& arbiter() const { return arbiter_; }
  std::size_t tasks() const { return tasks_.size(); }
  const CardTrace& trace() const { return trace_; }
  const CardPaging& paging() const { return paging_; }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onJoined(schema::Joined::Reader joined, Turn& turn);
  void onLeft(schema::Left::Reader left, Turn& turn);
  void onPolicyChosen(schema::PolicyChosen::Reader chosen, Turn& turn);
  void onBusy(schema::Busy::Reader busy, Turn& turn);
  void onQuiet(schema::Quiet::Reader quiet, Turn& turn);
  void onSettled(schema::Settled::Reader settled, Turn& turn);
  void onOwnerDied(schema::OwnerDied::Reader died, Turn& turn);
  void onRetiredLate(schema::RetiredLate::Reader retired, Turn& turn);
  void onGateDone(schema::GateDone::Reader done, Turn& turn);
  void onReportAsked(schema::ReportAsked::Reader asked, Turn& turn);
  void onTraceAsked(schema::TraceAsked::Reader asked, Turn& turn);
  void onMemoryRefused(schema::MemoryRefused::Reader refused, Turn& turn);
  void onPaged(schema::Paged::Reader paged, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  // What the arbiter does not know of a task, or knows no longer.
  struct CardTask {
    ActorId actor{};
    TaskClass taskClass = TaskClass::Ordinary;
    std::uint32_t epoch = 0;      // of its last order
    Nanos reportedAt{0};          // no earlier stamp of it is believed
    std::uint32_t holdEpoch = 0;  // of its last hold; 0: it settled
    Nanos holdAt{0};
    std::uint64_t causeNs = 0;  // of that hold, until its store was reported
    bool quarantined = false;
    schema::TaskState state = schema::TaskState::IDLE;
    bool moveOwed = false;  // listed in movesOwed_
  };

  CardTask* find(std::uint64_t task);
  // A stamp of a gate, not before `from` and not after now.
  static Nanos clamp(std::uint64_t stamp, Nanos from, Nanos now);
  void introduce(std::uint64_t task, Turn& turn);
  // What a gate told in this turn, and when that was.
  struct GateReport {
    std::uint64_t task;  // 0: nothing was
    Nanos at;
  };
  // Carries the arbiter's decisions out. `cause`: the submit behind the holds, or 0.
  void carryOut(Turn& turn, Nanos cause, GateReport report = {});
  void order(const GateDecision& gate, Turn& turn, Nanos cause);
  void carryPaging(Turn& turn);
  void orderPaging(const ResidencyOrder& order, Turn& turn);
  void watchMemory(std::uint64_t task, Turn& turn);
  void askForEnd(TaskId task, Turn& turn);
  void note(const ArbiterNote& note, Nanos now);
  void record(const ArbiterNote& note, Nanos now, Nanos cause, const GateReport& report);
  void tellMoves(Turn& turn);
  void arm(Turn& turn);
  void writeFigures(Nanos now, schema::CardStatus::Builder status) const;

  const std::uint32_t index_;
  const CardPeers peers_;
  Arbiter arbiter_;
  CardPaging paging_;
  Decisions decisions_;  // of this turn; kept for its memory
  std::map<std::uint64_t, CardTask> tasks_;
  std::vector<std::uint64_t> movesOwed_;  // tasks whose actor was not told of their state yet
  Nanos resendAt_ = kNever;
  Nanos armedFor_ = kNever;
  TimerId timer_ = TimerId::kNone;
  Nanos onlineQuietAt_{0};  // online's last retired work, as reported
  LatencyRecord settle_;    // hold to settled
  LatencyRecord preempt_;   // online submit to the other gate shut
  LatencyRecord release_;   // online's last retired work to the others' resume
  CardTrace trace_;
};

}  // namespace qgpu
