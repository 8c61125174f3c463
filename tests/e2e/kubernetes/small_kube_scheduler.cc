#include "tests/e2e/kubernetes/small_kube_scheduler.h"

#include <chrono>

namespace qgpu::e2e {
namespace {

constexpr auto kSchedulerTurn = std::chrono::milliseconds(5);

bool isBound(const Json& pod) {
  return pod["spec"].contains("nodeName");
}

}  // namespace

SmallKubeScheduler::SmallKubeScheduler(ServedApi& api, Version version, Try tries)
    : api_(api), version_(version), try_(std::move(tries)), thread_([this] { run(); }) {}

SmallKubeScheduler::~SmallKubeScheduler() {
  over_ = true;
  thread_.join();
  for (std::thread& bind : binds_) bind.join();
}

std::size_t SmallKubeScheduler::tries(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(pod);
  return found == known_.end() ? 0 : found->second.times;
}

Json SmallKubeScheduler::lastAnswer(const std::string& pod) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(pod);
  return found == known_.end() ? Json() : found->second.answer;
}

SmallKubeScheduler::Seen SmallKubeScheduler::look() {
  Seen now;
  api_.with([&](testing::ApiStandIn& api) {
    for (const Json& node : api.all("nodes")) now.nodes[node["metadata"]["name"]] = node;
    for (const Json& pod : api.all("pods")) now.pods[pod["metadata"]["name"]] = pod;
  });
  return now;
}

// What was seen before a try counts for it: whatever changes while it is under way moves the pod.
void SmallKubeScheduler::run() {
  Seen before = look();
  std::set<std::string> active;
  for (const auto& [name, pod] : before.pods) active.insert(name);
  while (!over_) {
    for (const std::string& name : std::exchange(active, {})) {
      const auto pod = before.pods.find(name);
      if (pod == before.pods.end() || isBound(pod->second) || isOver(pod->second)) continue;
      if (!pod->second["metadata"].contains("deletionTimestamp")) tryPod(name);
    }
    std::this_thread::sleep_for(kSchedulerTurn);
    Seen now = look();
    const bool all = movesAll(before, now);
    for (const auto& [name, pod] : now.pods) {
      const auto known = before.pods.find(name);
      const bool changed = known == before.pods.end() || podParts(known->second) != podParts(pod);
      if (all || changed) active.insert(name);
    }
    before = std::move(now);
  }
}

void SmallKubeScheduler::tryPod(const std::string& pod) {
  {
    const std::lock_guard lock(mutex_);
    if (known_[pod].binds) return;
  }
  Tried tried = try_(pod);
  if (!tried.bind) return take(pod, std::move(tried.answer));
  {
    const std::lock_guard lock(mutex_);
    known_[pod].binds = true;
  }
  binds_.emplace_back([this, pod, bind = std::move(tried.bind)] { take(pod, bind()); });
}

void SmallKubeScheduler::take(const std::string& pod, Json answer) {
  const std::lock_guard lock(mutex_);
  Known& known = known_[pod];
  ++known.times;
  known.binds = false;
  known.answer = std::move(answer);
}

Json SmallKubeScheduler::nodeParts(const Json& node) const {
  Json conditions = Json::object();
  for (const Json& one : node["status"].value("conditions", Json::array())) {
    conditions[one["type"].get<std::string>()] = one["status"];
  }
  Json parts{{"allocatable", node["status"].value("allocatable", Json())},
             {"labels", node["metadata"].value("labels", Json())},
             {"taints", node["spec"].value("taints", Json())},
             {"closed", node["spec"].value("unschedulable", false)},
             {"conditions", conditions}};
  if (version_ == Version::V1_36) {
    parts["annotations"] = node["metadata"].value("annotations", Json());
  }
  return parts;
}

Json SmallKubeScheduler::podParts(Json pod) const {
  if (version_ == Version::V1_36) return pod;
  pod.erase("status");
  for (const char* name : {"resourceVersion", "generation", "managedFields", "finalizers"}) {
    pod["metadata"].erase(name);
  }
  return pod;
}

bool SmallKubeScheduler::movesAll(const Seen& before, const Seen& now) const {
  for (const auto& [name, node] : now.nodes) {
    const auto known = before.nodes.find(name);
    if (known == before.nodes.end() || nodeParts(known->second) != nodeParts(node)) return true;
  }
  for (const auto& [name, pod] : before.pods) {
    if (!isBound(pod) || isOver(pod)) continue;
    const auto left = now.pods.find(name);
    if (left == now.pods.end() || isOver(left->second)) return true;
    if (version_ == Version::V1_36 && left->second != pod) return true;
  }
  return false;
}

}  // namespace qgpu::e2e
