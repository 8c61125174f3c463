#pragma once
// The tasks that wait, and why: a stable code and a sentence about the card that is nearest to
// taking them, as the first line of explain() has it. It is found when the first task of a shape
// begins to wait, and anew at a look once rooms have changed, a bounded number of cards each time.
// Of a group it says whether it lacks tasks or room for all at once.
// So lists, events, metrics and the audit say the same, and none of them judges a card.
//
// Also counts what was decided, by its reason, for metrics. Who calls: Tasks (who waits), Requests
// and Reports (why), SchedulerActor (at its looks).

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/placement/cluster_ledger.h"
#include "actors/placement/wait_queue.h"
#include "actors/scheduler/groups.h"
#include "actors/scheduler/members.h"

namespace qgpu {

class Waiting {
 public:
  static constexpr std::size_t kJudgedPerLook = 262'144;         // cards, of shapes that wait
  enum class Decided : std::uint8_t { Placed, Waits, Refused };  // as schema::ClusterInfo::Result

  Waiting(ClusterLedger& ledger, const Members& members, const Groups& groups)
      : ledger_(ledger), members_(members), groups_(groups) {}

  WaitQueue& queue() { return queue_; }
  const WaitQueue& queue() const { return queue_; }

  // Why it fits nowhere now. `ask` has passed ClusterLedger::check().
  WaitQueue::Why whyOf(const ClusterAsk& ask) const;
  // Anew for all tasks of this shape that wait.
  void judge(const ClusterAsk& ask) { queue_.setWhy(ask, whyOf(ask)); }
  // Of a task that waits; judged now if nobody has yet.
  const WaitQueue::Why& why(std::uint64_t task, const Job& job);
  // As ClusterTask has it: of a task that waits a code, its own story and what its shape lacks; of
  // any other its own story.
  std::string reason(std::uint64_t task, const Job& job) const;
  // Every shape anew once rooms have changed, kJudgedPerLook cards in each call.
  void look();

  void count(Decided result, Reason reason);
  void writeReasons(schema::ClusterInfo::Builder info) const;

 private:
  std::optional<WaitQueue::Why> whyGroupWaits(const ClusterAsk& ask) const;

  ClusterLedger& ledger_;
  const Members& members_;
  const Groups& groups_;
  WaitQueue queue_;
  std::array<std::array<std::uint64_t, kReasons>, 3> decided_{};  // by Decided and Reason
  std::optional<WaitQueue::Key> next_;                            // behind it the next look goes on
  std::uint64_t judgedAt_ = 0;  // changes of the ledger, as that began
};

}  // namespace qgpu
