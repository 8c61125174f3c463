#include "services/kubernetes/extender/seen_pods.h"

#include <utility>

namespace qgpu {

SeenPod seenPod(PodDemands pod) {
  SeenPod seen;
  seen.ask.application = pod.application;
  seen.ask.models = pod.models;
  seen.demandOf.resize(pod.containers.size());
  for (std::size_t i = 0; i < pod.containers.size(); ++i) {
    if (pod.containers[i].sharesWith) continue;
    seen.demandOf[i] = seen.ask.demands.size();
    seen.ask.demands.push_back({pod.containers[i].name, pod.containers[i].ask});
  }
  for (std::size_t i = 0; i < pod.containers.size(); ++i) {
    const auto& host = pod.containers[i].sharesWith;
    if (host) seen.demandOf[i] = seen.demandOf[*host];
  }
  seen.pod = std::move(pod);
  return seen;
}

void SeenPods::add(SeenPod pod, kj::TimePoint now) {
  const std::string uid = pod.pod.uid;
  if (uid.empty()) return;  // nobody can bind it
  pods_.insert_or_assign(uid, Entry{std::move(pod), now});
  order_.emplace_back(now, uid);
  while (!order_.empty()) {
    const auto& [at, oldest] = order_.front();
    const auto found = pods_.find(oldest);
    const bool stale = found == pods_.end() || found->second.at != at;
    if (!stale && pods_.size() <= kPodsMax && now - at <= kKept) break;
    if (!stale) pods_.erase(found);
    order_.pop_front();
  }
}

const SeenPod* SeenPods::find(const std::string& uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : &found->second.pod;
}

}  // namespace qgpu
