#pragma once
// The preempt verb's question: which pods would have to go from a node so that the pod gets cards
// there. kube-scheduler knows sums over nodes only, and may want to evict pods that free no single
// card, or see no need to evict. A pure core; it tries on a copy of the ledger.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/placement/pod_fit.h"
#include "actors/placement/preemption.h"
#include "services/kubernetes/extender/wire.h"

namespace qgpu {

// The tasks of each pod, by its UID, and the pod of each task.
struct PodTasks {
  std::map<std::string, std::vector<TaskId>> tasksOf;
  std::map<TaskId, std::string> podOf;
};

// Of the nodes that kube-scheduler names, those on which the pod would fit: with the pods that it
// would evict there anyway, or where these free no card with the fewest offline ones that do, in
// place of the named pods that hold cards or else beside those of them that are needed. Nodes
// without such a set are left out; counts of broken budgets are kept. `mayEvict` is asked about
// offline tasks alone; with one task its whole pod goes.
std::vector<NodeVictims> podVictims(const ClusterLedger& ledger, const PodAsk& ask,
                                    const PodTasks& pods, const MayEvict& mayEvict,
                                    const std::vector<NodeVictims>& named);

}  // namespace qgpu
