#pragma once
// Answers to what clients ask: lists of nodes, cards and tasks, explanations, events. It has no
// state of its own. Answers are written when they leave, from what is known then.
//
// Who calls: Requests, once the round in which the question came is committed, so that nobody reads
// what may be undone.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/scheduler/evictions.h"
#include "actors/scheduler/plans.h"

namespace qgpu {

class Reports {
 public:
  Reports(const SchedulerOptions& options, Rounds& rounds, ClusterLedger& ledger,
          const Members& members, const Places& places, const Waiting& waiting, const Tasks& tasks,
          const Evictions& evictions, const Plans& plans)
      : options_(options),
        rounds_(rounds),
        ledger_(ledger),
        members_(members),
        places_(places),
        waiting_(waiting),
        tasks_(tasks),
        evictions_(evictions),
        plans_(plans) {}

  // `uptime`: of this scheduler.
  void info(const Asker& asker, Nanos uptime);
  void nodes(const Asker& asker, const ListPart& part);
  void cards(const Asker& asker, const ListPart& part);
  // All that live; a page ends behind the task that is its `next`.
  void allTasks(const Asker& asker, const ListPart& part);
  // Also those that ended not long ago. NotFound where none of them is known.
  void tasks(const Asker& asker, const std::vector<std::uint64_t>& ids);
  void events(const Asker& asker, std::uint64_t since);
  void explainTask(const Asker& asker, std::uint64_t task);
  void explainSpec(const Asker& asker, const ClusterSpec& spec);

 private:
  void explain(const Asker& asker, std::uint64_t task, const ClusterAsk& ask,
               const std::string& said, const std::string& remedy);
  void writeNode(MemberId member, schema::ClusterNode::Builder builder) const;
  void writeCard(const ClusterMember& node, std::size_t card,
                 schema::ClusterCard::Builder builder) const;
  void writeTask(std::uint64_t task, const Job& job, schema::ClusterTask::Builder builder) const;
  void writeVerdict(const ClusterVerdict& verdict, schema::Explanation::Builder builder) const;

  const SchedulerOptions& options_;
  Rounds& rounds_;
  ClusterLedger& ledger_;
  const Members& members_;
  const Places& places_;
  const Waiting& waiting_;
  const Tasks& tasks_;
  const Evictions& evictions_;
  const Plans& plans_;
};

}  // namespace qgpu
