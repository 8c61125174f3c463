#pragma once
// What would happen if: questions that are tried on a copy of the ledger and change nothing. One is
// answered at a time, over as many turns as it takes, so that the cluster is served in between.
//
// Who calls: Requests (ask), SchedulerActor (its Plan ticks), Reports (remedies). Kept here: C5
// (questions that wait are bounded, and so is the work of a turn), C2.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "actors/placement/what_if.h"
#include "actors/scheduler/evictions.h"

namespace qgpu {

class Plans {
 public:
  static constexpr std::size_t kPlansMax = 16;       // questions that wait
  static constexpr std::size_t kTrialsPerTurn = 32;  // tasks of one, tried in one turn

  // `tick`: the kind of the Tick message by which the actor is told to call step().
  Plans(Rounds& rounds, const ClusterLedger& ledger, const Members& members, const Tasks& tasks,
        const Evictions& evictions, std::uint32_t tick)
      : rounds_(rounds),
        ledger_(ledger),
        members_(members),
        tasks_(tasks),
        evictions_(evictions),
        tick_(tick) {}

  // Begins after the commit of this round. Overloaded where kPlansMax wait.
  void ask(const Asker& asker, schema::ClusterRequest::Reader request);
  // One turn makes the copy, the next ones try.
  void step(Turn& turn);
  // Sends the tick where something waits and none is on its way.
  void wake(Turn& turn);
  // The tick was lost with the rows of a turn that failed.
  void tickLost() { told_ = false; }
  // What a person could change so that it fits; empty: nothing was found.
  std::string remedyFor(const ClusterAsk& ask) const;

 private:
  struct Plan {
    Asker asker;
    std::function<Result<std::unique_ptr<WhatIf>>()> begin;
    std::unique_ptr<WhatIf> trial;  // once it began
  };

  Result<std::unique_ptr<WhatIf>> place(const ClusterSpec& spec, std::uint32_t count) const;
  Result<std::unique_ptr<WhatIf>> drain(const std::string& node, const std::string& card) const;
  Result<std::unique_ptr<WhatIf>> evict(std::uint64_t task) const;
  void reply(const Asker& asker, const WhatIf& trial);

  Rounds& rounds_;
  const ClusterLedger& ledger_;
  const Members& members_;
  const Tasks& tasks_;
  const Evictions& evictions_;
  const std::uint32_t tick_;
  std::deque<Plan> plans_;
  bool told_ = false;
};

}  // namespace qgpu
