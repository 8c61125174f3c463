#pragma once
// What others on the scheduler's loop may read of it between its turns, and nothing more: the
// extender answers kube-scheduler from it, as it asks many times a second about nodes that have not
// changed. Whatever changes anything is asked for by message. SchedulerActor is the one
// implementation.

#include <cstdint>

#include "actors/placement/cluster_ledger.h"
#include "actors/scheduler/model.h"

namespace qgpu {

class ClusterView {
 public:
  virtual const ClusterLedger& ledger() const = 0;
  // A task that lives; null: none of this number. Valid until the scheduler's next turn.
  virtual const Job* task(std::uint64_t id) const = 0;

 protected:
  ~ClusterView() = default;
};

}  // namespace qgpu
