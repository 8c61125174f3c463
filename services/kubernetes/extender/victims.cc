#include "services/kubernetes/extender/victims.h"

#include <algorithm>
#include <optional>
#include <set>

namespace qgpu {
namespace {

constexpr std::uint64_t kTrialTask = std::uint64_t{1} << 63;  // no task has such a number

// Tries on one copy of the ledger, node after node, and leaves it as it was.
class Trial {
 public:
  Trial(const ClusterLedger& ledger, const PodAsk& ask, const PodTasks& pods,
        const MayEvict& mayEvict)
      : ledger_(ledger.clone()), ask_(ask), pods_(pods), mayEvict_(mayEvict) {}

  // The node's victims, its own and ours; nothing where the pod fits even so.
  std::optional<NodeVictims> on(NodeId node, const NodeVictims& named) {
    NodeVictims all = named;
    for (const std::string& uid : named.podUids) release(uid);
    bool fits = fitsNow(node);
    if (!fits && ask_.demands.front().ask.taskClass != TaskClass::Offline) {
      fits = makeRoom(node, all) && fitsNow(node);
    }
    restore();
    if (!fits) return std::nullopt;
    return all;
  }

 private:
  bool fitsNow(NodeId node) { return PodFit(ledger_, ask_).cards(node).has_value(); }

  void release(const std::string& uid) {
    const auto tasks = pods_.tasksOf.find(uid);
    if (tasks == pods_.tasksOf.end()) return;
    for (const TaskId task : tasks->second) {
      const Spot* spot = ledger_.spot(task);
      if (spot == nullptr) continue;
      released_.emplace_back(task, *spot);
      ledger_.release(task);
    }
  }

  // The demands one after the other, the largest first; each evicts what it lacks.
  bool makeRoom(NodeId node, NodeVictims& all) {
    std::vector<const LedgerAsk*> demands;
    for (const auto& demand : ask_.demands) demands.push_back(&demand.ask);
    std::stable_sort(demands.begin(), demands.end(), [](const auto* a, const auto* b) {
      return std::tuple(isWhole(*a), a->cards, a->mem) > std::tuple(isWhole(*b), b->cards, b->mem);
    });
    bool made = true;
    for (const LedgerAsk* demand : demands) {
      ClusterAsk one;
      one.task = *demand;
      one.node = ledger_.facts(node).name;
      Result<Spot> spot = ledger_.place(one);
      if (!spot) {
        const std::optional<Eviction> eviction = leastEviction(ledger_, one, mayEvict_);
        made = eviction && evict(*eviction, all);
        if (!made) break;
        spot = ledger_.place(one);
        made = spot.ok();
        if (!made) break;
      }
      placed_.push_back(TaskId{kTrialTask + placed_.size()});
      ledger_.bind(placed_.back(), *spot, "");
    }
    for (const TaskId task : placed_) ledger_.release(task);
    placed_.clear();
    return made;
  }

  bool evict(const Eviction& eviction, NodeVictims& all) {
    for (const TaskId victim : eviction.victims) {
      const auto pod = pods_.podOf.find(victim);
      if (pod == pods_.podOf.end()) return false;  // no pod: Kubernetes can't evict it
      if (std::find(all.podUids.begin(), all.podUids.end(), pod->second) != all.podUids.end()) {
        continue;  // gone already with another of its tasks
      }
      all.podUids.push_back(pod->second);
      release(pod->second);
    }
    return true;
  }

  void restore() {
    for (const auto& [task, spot] : released_) ledger_.bind(task, spot, "");
    released_.clear();
  }

  ClusterLedger ledger_;
  const PodAsk& ask_;
  const PodTasks& pods_;
  const MayEvict& mayEvict_;
  std::vector<std::pair<TaskId, Spot>> released_;
  std::vector<TaskId> placed_;
};

}  // namespace

std::vector<NodeVictims> podVictims(const ClusterLedger& ledger, const PodAsk& ask,
                                    const PodTasks& pods, const MayEvict& mayEvict,
                                    const std::vector<NodeVictims>& named) {
  std::vector<NodeVictims> found;
  const MayEvict isPod = [&](TaskId task) { return pods.podOf.contains(task) && mayEvict(task); };
  Trial trial(ledger, ask, pods, isPod);
  for (const NodeVictims& node : named) {
    const std::optional<NodeId> id = ledger.findNode(node.node);
    if (!id) continue;
    if (std::optional<NodeVictims> victims = trial.on(*id, node)) {
      found.push_back(std::move(*victims));
    }
  }
  return found;
}

}  // namespace qgpu
