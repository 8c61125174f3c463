#pragma once
// One slot for the life of a task on this node: its attached processes, what it uses, its state.
// Slots are a fixed pool; the node gives a slot to a bound task with taskKnown and takes it back
// with taskClosed. Every message about another task than the slot's is stale and changes nothing.
//
// The task actor tells the node when the first process came, when the last one left, and what was
// nonsense in the task's report page. It tells the newest fact; older ones that could not leave
// are overtaken. Kept here: P9 (its part: the node learns that nobody is attached), A10, C7.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/base/codec.h"
#include "actors/card/task_states.h"
#include "runtime/actor.h"

namespace qgpu {

// All that it keeps is of the task that has the slot now; taskKnown of another one resets it.
class TaskActor final : public Actor {
 public:
  static constexpr std::size_t kProcessesMax = 64;  // of one task, as its report page has slots
  static constexpr std::size_t kFaultMax = 160;     // characters of a fault that are passed on
  static constexpr Nanos kResend = millis(20);      // of a fact that the node's mailbox refused

  static constexpr Nanos kUseMax = millis(200);  // then a report goes with the counters at hand
  static constexpr std::size_t kAsksMax = 32;    // reports that wait for fresh counters

  // `attach`: the gate port, which reads the counters of a task's report page when asked.
  TaskActor(ActorId node, ActorId attach) : node_(node), attach_(attach) {}

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  // Where the task stands, and its number; Pending and 0 while the slot is free.
  TaskPhase phase() const { return states_.phase(); }
  std::uint64_t task() const { return task_; }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onTaskKnown(schema::TaskKnown::Reader known, Turn& turn);
  void onTaskClosed(schema::TaskClosed::Reader closed, Turn& turn);
  void onProcessAttached(schema::ProcessAttached::Reader attached, Turn& turn);
  void onProcessGone(schema::ProcessGone::Reader gone, Turn& turn);
  void onMoved(schema::Moved::Reader moved, Turn& turn);
  void onUsed(schema::Used::Reader used, Turn& turn);
  void onReportAsked(schema::ReportAsked::Reader asked, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  void reset();
  void tellFact(Turn& turn);
  void report(std::uint64_t corr, Turn& turn);
  void reportAll(Turn& turn);
  bool mine(std::uint64_t task) const { return task != 0 && task == task_; }

  enum class TickKind : std::uint32_t { Fact, Report };

  const ActorId node_;
  const ActorId attach_;
  TaskStates states_;
  std::uint64_t task_ = 0;                            // 0: the slot is free
  TaskPhase cardPhase_ = TaskPhase::Attached;         // what the card said last; Attached: nothing
  std::map<std::uint32_t, std::uint32_t> processes_;  // report slot -> pid
  TaskFigures use_;
  std::string fault_;                // the last one seen
  bool faultOwed_ = false;           // the node was not told of it yet
  std::vector<std::uint64_t> asks_;  // correlation ids of reports that wait
  bool factOwed_ = false;            // a fact was refused; a timer runs
};

}  // namespace qgpu
