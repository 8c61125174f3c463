#pragma once
// Who may use one card now. The arbiter is the pure core of a card actor: events go in with the
// time at which they are handled, orders come out; it has no clock, no I/O and no randomness, so
// the same inputs always give the same orders (A13).
//
// The words: a *slice* is the time in which one non-online task's gate is open. A slice ends with
// a hold; until the holder has *settled* nobody else is granted. *Used* runs from gate open, or a
// moment later (resumeCost), to settled and is charged to the holder. An online task's gate is
// never shut.
//
// Kept here: A1 (one open non-online gate), A3 (online first, in the same turn), A4 to A9
// (policies, fallback, work conservation, starvation, accounts), A10 (epochs fence), A11
// (quarantine), A12 (one terminal event per hold), A13 (purity), M1 (who is away has no open gate).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/arbiter/run_queue.h"
#include "actors/arbiter/share_meter.h"
#include "actors/model.h"
#include "runtime/units.h"

namespace qgpu {

// How one card is shared. The defaults here are those of the daemon's flags too.
struct ArbiterConfig {
  Policy policy = Policy::BestEffort;
  Nanos onlineIdle = millis(100);  // the card is released this long after online's last work
  Nanos sliceMin = millis(2);      // also the least time before a wake-up preempts the holder
  Nanos sliceMax = millis(30);
  Nanos lingerMax = micros(500);  // an idle holder keeps its slice min(this, 2 x its usual gap)
  Nanos settleMax = millis(100);  // after it the card goes on and the overrun is charged ...
  std::int64_t settleFactor = 4;  // ... or after this many of its longest measured settlings
  // Where a hold stops work in the middle: for how long it first lets what is in flight end by
  // itself, unless somebody online waits. At most settleMax; 0: stops it at once.
  Nanos patience{0};
  // At the start of each slice no work is done for so long: the program has to wake, and to launch
  // again. It is a cost of switching as what a hold takes to settle is, and charged to nobody,
  // since a share is work done.
  Nanos resumeCost{0};
  // Where a hold stops work in the middle: for how long the work in flight of a task whose memory
  // is to leave the card may run on behind its shut gate. 0: what is in flight ends by itself.
  Nanos drainFor{0};
};

// The same for a card whose holds stop work in the middle. Kernels that are shorter than half a
// slice are not stopped at a slice's end, so that programs which tune themselves by timing their
// kernels tune right.
ArbiterConfig whereHoldsStopWork(ArbiterConfig config);

struct ArbiterTask {
  TaskId id = TaskId::kNone;
  TaskClass taskClass = TaskClass::Ordinary;
  Permille share{0};       // of the card; 0 for online
  bool exclusive = false;  // whole cards: its gate is always open, nobody else is on the card
};

// One order for a task's gate. Opens and holds have an epoch of their own each, growing on this
// card; Hasten repeats that of the hold whose patience it ends.
struct GateDecision {
  enum class Kind : std::uint8_t { Open, Hold, Hasten };
  Kind kind = Kind::Hold;
  TaskId task = TaskId::kNone;
  std::uint32_t epoch = 0;
  bool notify = false;     // Open: nobody uses the card, tell at the first submit
  bool contended = false;  // Open: somebody else wants it, or an online task is attached
  Nanos patience{0};       // Hold: how long what is in flight may run on before it is stopped
  bool operator==(const GateDecision&) const = default;
};

// Something worth a trace line, a counter or a task's state table.
struct ArbiterNote {
  enum class Kind : std::uint8_t {
    Ready,
    Running,
    Idle,
    Suspending,
    Suspended,  // moves of a task (A12: each hold ends once)
    Overrun,    // did not settle in time: quarantined until its next retirement
    QuarantineOver,
    OnlineActive,
    OnlineIdle,
  };
  Kind kind = Kind::Idle;
  TaskId task = TaskId::kNone;
  Nanos amount{0};
  bool operator==(const ArbiterNote&) const = default;
};

struct Decisions {
  std::vector<GateDecision> gates;  // in the order in which they must be carried out
  std::vector<ArbiterNote> notes;
  void clear() {
    gates.clear();
    notes.clear();
  }
  void note(ArbiterNote::Kind kind, TaskId task, Nanos amount = Nanos(0)) {
    notes.push_back({kind, task, amount});
  }
};

class Arbiter {
 public:
  static constexpr std::size_t kTasksMax = 1024;  // per card; admission refuses more

  explicit Arbiter(ArbiterConfig config, Nanos now, std::uint32_t firstEpoch = 1);

  // --- who is here. A task joins quiet, its gate as the returned orders say. ---
  void join(const ArbiterTask& task, Nanos now, Decisions& out);
  void leave(TaskId task, Nanos now, Decisions& out);
  void setPolicy(Policy policy, Nanos now, Decisions& out);  // at the end of the running slice

  // --- what gates report. Unknown tasks and old epochs change nothing (A10). ---
  // Has work in flight or a launch waiting, since `since` (<= now). Again and again is harmless.
  void busy(TaskId task, Nanos since, Nanos now, Decisions& out);
  // Nothing in flight and nothing waiting, since `since`: its last retired work (<= now). Said
  // again of an online task with a later `since`, it puts the others off (A3).
  void quiet(TaskId task, Nanos since, Nanos now, Decisions& out);
  // The hold with this epoch took effect at `at`: nothing of the task runs any more. Needed once
  // for every Hold, also one that overran or that found the task quiet, but not for a Hold that
  // died() or leave() returned for its own task.
  void settled(TaskId task, std::uint32_t epoch, Nanos at, Nanos now, Decisions& out);
  // The task's only process died: its slice is over, and it wants nothing. An open gate is shut,
  // with nothing to settle.
  void died(TaskId task, Nanos now, Decisions& out);
  // A quarantined task retired work.
  void retired(TaskId task, Nanos now, Decisions& out);

  // --- memory: the task is away from now on, or back. Who is away is held and never granted,
  // whatever it wants; its open gate is shut, with a Hold to settle as any. Said again it changes
  // nothing, and nothing of a task whose gate is never shut (M1).
  // Where a hold stops work in the middle, what that stopped would never end. So who is to leave
  // has one turn behind its shut gate, a *drain*: a Hold of the patience drainFor, to settle as
  // any. It comes before all others of the card; Drains waits for online to fall idle and is ended
  // by it, DrainsNow is not, since online may be who waits for the memory. ---
  enum class Away : std::uint8_t { Back, Waits, Drains, DrainsNow };
  void setAway(TaskId task, Away away, Nanos now, Decisions& out);

  // --- time ---
  void expire(Nanos now, Decisions& out);  // does what is due; harmless when nothing is
  Nanos nextDeadline() const;              // kNever when nothing waits for time

  // --- status ---
  struct TaskView {
    ArbiterTask task;
    bool wants = false;
    bool gateOpen = false;
    bool quarantined = false;
    bool away = false;
    Nanos used{0};  // closed slices and the running one up to the last event
    Nanos held{0};  // wanted the card and had no open gate
    Nanos overrun{0};
    std::uint64_t turns = 0;
  };
  struct CardView {
    TaskId holder = TaskId::kNone;  // whose non-online gate is open or settling
    bool settling = false;
    bool onlineActive = false;
    Nanos used{0};  // the three labels of A9; they add up to the time elapsed
    Nanos idle{0};
    Nanos online{0};
    std::uint64_t holds = 0;
    std::uint64_t overruns = 0;
    Policy policy = Policy::BestEffort;
  };
  std::optional<TaskView> task(TaskId id, Nanos now) const;
  CardView card(Nanos now) const;
  const ArbiterConfig& config() const { return config_; }
  // A digest of all that decides: two arbiters with equal digests behave alike (state hashing).
  std::uint64_t digest() const;

 private:
  // What the non-online side of the card does. Parked: the gate of a task that wants nothing is
  // still open because nobody else wants the card; its slice is over and it is charged nothing.
  enum class Phase : std::uint8_t { Free, Running, Parked, Settling };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Task {
    ArbiterTask spec;
    ShareMeter meter;
    bool present = false;
    bool wants = false;
    bool open = false;
    bool notify = false;     // of the gate word, while open
    bool contended = false;  // of the gate word, while open
    bool quarantined = false;
    bool away = false;    // not all of its memory is on the card
    bool drains = false;  // it is to have a drain ...
    bool urgent = false;  // ... beside online too
    bool late = false;    // over its settle bound; lateEpoch has not settled yet
    std::uint32_t lateEpoch = 0;
    Nanos lateSince{0};  // debt is charged up to here
    static constexpr std::uint64_t kDidNotWake = UINT64_MAX;
    std::uint64_t wokeIn = kDidNotWake;  // the slice in which it last began to want the card
    Nanos quietSince = kNever;           // kNever: never had work
    Nanos longestSettle{0};
    std::uint64_t turns = 0;
  };
  enum class Label : std::uint8_t { Used, Idle, Online };

  // Time and labels.
  Nanos clamp(Nanos now) const;
  void tick(Nanos now);
  template <typename Each>
  void eachSpan(Nanos now, Each each) const;  // each(from, until, label), in order
  Nanos onlineDeadline() const;
  // Choosing.
  Task* find(TaskId id, std::uint32_t* slot = nullptr);
  static std::uint32_t tierUnder(Policy policy, const Task& task);
  static Permille weightUnder(Policy policy, const Task& task);
  std::uint32_t tier(const Task& task) const { return tierUnder(config_.policy, task); }
  Nanos slice() const;
  bool hasRoom(const Task& task) const;
  bool wokeInSlice(const Task& task) const {
    return phase_ == Phase::Running && task.wants && task.wokeIn == sliceNumber_;
  }
  bool contended() const { return !queue_.empty() || onlineTasks_ > 0; }
  void enqueue(std::uint32_t slot);
  const RunQueue::Entry* contender() { return queue_.first(last_); }
  void advanceVirtual(std::uint32_t tierIndex);
  // Moves of the non-online side.
  void decide(Decisions& out);
  void reviewSlice(Decisions& out);
  bool yields(const Task& holder, const RunQueue::Entry& other) const;
  void grant(Decisions& out);
  void beginSlice(Decisions& out);
  void measureSlice();
  void park(Decisions& out);
  void hold(Nanos patience, Decisions& out);
  void askDrain(Task& task, bool drains);
  std::uint32_t nextDrain() const;
  void drain(std::uint32_t slot, Decisions& out);
  void finish(Decisions& out);
  void overrun(Decisions& out);
  void drop(std::uint32_t slot, Decisions& out);
  void chargeLate(std::uint32_t slot);
  void endLate(std::uint32_t slot);
  void release(std::uint32_t slot, Decisions& out);
  // Online, orders, the rest.
  void onlineBusy(Task& task, Nanos since, Decisions& out);
  void endOnline(Decisions& out);
  void open(Task& task, bool notify, bool contended, Decisions& out);
  void shut(Task& task, Nanos patience, Decisions& out);
  void applyPolicy();
  void refreshDeadline();
  std::uint32_t takeEpoch();

  ArbiterConfig config_;
  std::optional<Policy> pendingPolicy_;
  std::vector<Task> tasks_;  // slots, reused
  std::vector<std::uint32_t> vacant_;
  std::unordered_map<std::uint64_t, std::uint32_t> slots_;  // by id; never iterated
  RunQueue queue_;                       // who wants the card, may have it, and does not hold it
  std::int64_t virtualNow_[2] = {0, 0};  // by tier; a task that wakes is placed beside it

  Phase phase_ = Phase::Free;
  std::uint32_t holder_ = kNone;   // slot; not kNone unless Free
  std::uint64_t sliceNumber_ = 0;  // of the running slice, counted anew at each measureSlice()
  Nanos sliceStart_{0};
  Nanos sliceEnd_{0};
  Nanos workFrom_{0};         // the slice is charged from here
  Nanos lingerEnd_ = kNever;  // the holder wants nothing and its slice ends here
  Nanos capAt_ = kNever;      // the holder's bucket reaches one slice here
  Nanos holdAt_{0};
  Nanos stopAt_{0};  // when the hold's patience is over: until then work may end by itself
  std::uint32_t holdEpoch_ = 0;
  Nanos settleDeadline_ = kNever;
  bool draining_ = false;      // this hold is a drain ...
  bool drainsUrgent_ = false;  // ... that online does not end
  std::uint32_t drains_ = 0;   // tasks that are to have one
  Nanos switchCost_{0};        // moving average of what a hold costs: stopping, and being told so

  bool onlineActive_ = false;
  std::uint32_t onlineTasks_ = 0;
  std::uint32_t onlineWanting_ = 0;
  Nanos lastOnline_{0};  // the later of online's last submit and last retired work

  Nanos last_{0};  // the time of the last event: time never runs backwards
  Nanos deadline_ = kNever;
  std::uint32_t nextEpoch_;
  Nanos used_{0}, idle_{0}, online_{0};
  std::uint64_t holds_ = 0, overruns_ = 0;
};

}  // namespace qgpu
