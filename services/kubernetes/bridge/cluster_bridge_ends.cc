// How what is held ends: what was only assumed, and pods that are to leave.
#include "services/base/kj_time.h"
#include "services/kubernetes/bridge/cluster_bridge.h"
#include "services/kubernetes/pods/pod_names.h"

namespace qgpu {
namespace {

constexpr std::size_t kSettlingMax = 64;  // at once

}  // namespace

// --- assumptions ---

void ClusterBridge::settleAt(kj::TimePoint when, const Node& node, const NodeTask& held) {
  assumed_.emplace(when, Assumption{node.kube.name, keyOfTask(held.spec), held.spec.clusterTask,
                                    held.spec.clusterEpoch});
}

// Null where it is over, seen, or another attempt's.
ClusterBridge::NodeTask* ClusterBridge::stillAssumed(const Assumption& assumed) {
  const auto node = nodes_.find(assumed.node);
  if (node == nodes_.end()) return nullptr;
  const auto found = node->second.held.find(assumed.request);
  if (found == node->second.held.end() || found->second.seen) return nullptr;
  const TaskSpec& spec = found->second.spec;
  const bool same = spec.clusterTask == assumed.task && spec.clusterEpoch == assumed.epoch;
  return same ? &found->second : nullptr;
}

void ClusterBridge::settleDue() {
  while (!assumed_.empty() && assumed_.begin()->first <= timer_.now() && settling_ < kSettlingMax) {
    const auto due = assumed_.extract(assumed_.begin());
    settle(due.mapped());
  }
}

// A bind that is under way may still write, and ends by itself.
void ClusterBridge::settle(const Assumption& assumed) {
  NodeTask* held = stillAssumed(assumed);
  if (held == nullptr || held->settling) return;
  if (options_.bindOf(podUidOf(held->spec.requestId))) {
    assumed_.emplace(timer_.now() + toKj(options_.settleEvery), assumed);
    return;
  }
  held->settling = true;
  ++settling_;
  tasks_.add(writer_.settle(held->pod, assumed.node).then([this, assumed](Result<bool> bound) {
    onSettled(assumed, bound);
  }));
}

void ClusterBridge::onSettled(const Assumption& assumed, const Result<bool>& bound) {
  --settling_;
  ++(!bound ? settled_.unknown : *bound ? settled_.bound : settled_.unbound);
  NodeTask* held = stillAssumed(assumed);
  if (held == nullptr) return;
  held->settling = false;
  const bool begun = options_.bindOf(podUidOf(held->spec.requestId)).has_value();
  if (bound && !*bound && !begun) {
    log_.info("kube-assumption-over", {{"task", assumed.task}, {"name", held->spec.name}});
    return release(assumed.node, assumed.request);
  }
  // It is bound, and the watch will show it; or nobody knows.
  assumed_.emplace(timer_.now() + toKj(options_.settleEvery), assumed);
}

// --- evictions ---

void ClusterBridge::beginEviction(Node& node, const std::string& request, NodeTask& held) {
  if (held.evicting) return;
  held.evicting = true;
  held.evictAt = timer_.now();
  evicting_.insert({node.kube.name, request});
  writer_.tellPod(podEvent(held.pod, EventReason::Preempted, {node.kube.name, held.why}));
  log_.info("kube-evict", {{"pod", held.pod.nameSpace + "/" + held.pod.name}, {"why", held.why}});
}

void ClusterBridge::evictDue() {
  for (const auto& [name, request] : evicting_) {
    NodeTask& held = nodes_.at(name).held.at(request);
    if (!held.asking && held.evictAt <= timer_.now()) evict(name, request, held);
  }
}

void ClusterBridge::evict(const std::string& name, const std::string& request, NodeTask& held) {
  held.asking = true;
  held.evictAt = timer_.now() + toKj(options_.evictEvery);
  tasks_.add(writer_.evictPod(held.pod).then([this, name, request](Status status) {
    Node& node = nodes_[name];
    const auto found = node.held.find(request);
    if (!status) {
      log_.warn("kube-eviction", {{"node", name}, {"why", status.error().message}});
    }
    if (found == node.held.end()) return;
    found->second.asking = false;
  }));
}

}  // namespace qgpu
