#include "services/kubernetes/extender/victims.h"

#include <algorithm>
#include <optional>
#include <set>

namespace qgpu {
namespace {

// Tries on one copy of the ledger, node after node, and leaves it as it was.
class Trial {
 public:
  Trial(const ClusterLedger& ledger, const PodAsk& ask, const PodTasks& pods,
        const MayEvict& mayEvict)
      : ledger_(ledger.clone()), ask_(ask), pods_(pods), mayEvict_(mayEvict) {}

  // The node's victims, its own and ours; nothing where the pod fits even so.
  std::optional<NodeVictims> on(NodeId node, const NodeVictims& named) {
    for (const std::string& uid : named.podUids) release(uid);
    std::optional<NodeVictims> found;
    if (fitsNow(node)) {
      found = named;  // it needs them all, for sums or for what is not ours
    } else if (ask_.demands.front().ask.taskClass != TaskClass::Offline) {
      found = others(node, named);
    }
    restore();
    return found;
  }

 private:
  // Who goes where the named ones free no card: others in their place, or else beside them. A card
  // that is free is room in every sum of ours. Whoever is still needed, for processors perhaps, is
  // named again once the cards are free, and then stays.
  std::optional<NodeVictims> others(NodeId node, const NodeVictims& named) {
    restore();
    NodeVictims all = named;
    std::erase_if(all.podUids, [&](const auto& uid) { return pods_.tasksOf.contains(uid); });
    if (makeRoom(node, all) && fitsNow(node)) return all;
    restore();
    all = named;
    for (const std::string& uid : named.podUids) release(uid);
    if (!makeRoom(node, all) || !fitsNow(node)) return std::nullopt;
    for (const std::string& uid : named.podUids) {
      if (pods_.tasksOf.contains(uid) && fitsWith(uid, node)) std::erase(all.podUids, uid);
    }
    return all;
  }

  // Where it does, the pod has its cards back.
  bool fitsWith(const std::string& uid, NodeId node) {
    putBack(uid);
    if (fitsNow(node)) return true;
    release(uid);
    return false;
  }

  bool fitsNow(NodeId node) { return PodFit(ledger_, ask_).cards(node).has_value(); }

  void release(const std::string& uid) {
    const auto tasks = pods_.tasksOf.find(uid);
    if (tasks == pods_.tasksOf.end()) return;
    for (const TaskId task : tasks->second) {
      const Spot* spot = ledger_.spot(task);
      if (spot == nullptr) continue;
      released_[uid].emplace_back(task, *spot);
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
      one.models = ask_.models;
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
      placed_.push_back(TaskId{kTrialTasks + placed_.size()});
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
    while (!released_.empty()) putBack(std::string(released_.begin()->first));
  }

  void putBack(const std::string& uid) {
    for (const auto& [task, spot] : released_[uid]) ledger_.bind(task, spot, "");
    released_.erase(uid);
  }

  ClusterLedger ledger_;
  const PodAsk& ask_;
  const PodTasks& pods_;
  const MayEvict& mayEvict_;
  std::map<std::string, std::vector<std::pair<TaskId, Spot>>> released_;  // by pod
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
