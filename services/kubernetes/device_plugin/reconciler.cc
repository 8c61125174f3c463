#include "services/kubernetes/device_plugin/reconciler.h"

#include <algorithm>

namespace qgpu {
namespace {

// Since when each of `now` is so; what is not so any more is forgotten.
template <typename Key>
void follow(std::map<Key, Nanos>& since, const std::set<Key>& now, Nanos at) {
  std::erase_if(since, [&now](const auto& entry) { return !now.contains(entry.first); });
  for (const Key& key : now) since.emplace(key, at);
}

bool hasSome(const ContainerDevices& container, const Placeholder& placeholder) {
  for (const auto& [resource, ids] : container.ids) {
    for (const std::string& id : placeholder.ids) {
      if (std::binary_search(ids.begin(), ids.end(), id)) return true;
    }
  }
  return false;
}

}  // namespace

std::set<std::string> listedKeys(const std::vector<ContainerDevices>& listed,
                                 const std::vector<Placeholder>& held) {
  std::set<std::string> keys;
  for (const ContainerDevices& container : listed) {
    for (const auto& [resource, ids] : container.ids) {
      keys.insert(Placeholders::keyOf(resource, ids));
    }
    for (const Placeholder& placeholder : held) {
      const bool its = placeholder.task != 0 && placeholder.owner.container.empty() &&
                       placeholder.owner.nameSpace == container.name.nameSpace &&
                       placeholder.owner.pod == container.name.pod;
      if (its && hasSome(container, placeholder)) keys.insert(placeholder.key);
    }
  }
  return keys;
}

ReconcilePlan Reconciler::step(Nanos now, const std::set<std::string>& listed,
                               const std::vector<Placeholder>& placeholders,
                               const std::vector<PodTask>& tasks) {
  std::set<std::string> missing;
  std::set<std::uint64_t> claimed;
  std::set<std::uint64_t> busy;
  for (const PodTask& task : tasks) {
    if (task.processes != 0) busy.insert(task.id);
  }
  for (const Placeholder& placeholder : placeholders) {
    if (listed.contains(placeholder.key))
      claimed.insert(placeholder.task);
    else
      missing.insert(placeholder.key);
  }
  std::set<std::uint64_t> unclaimed;
  for (const PodTask& task : tasks) {
    if (!claimed.contains(task.id)) unclaimed.insert(task.id);
  }
  follow(missing_, missing, now);
  follow(unclaimed_, unclaimed, now);
  ReconcilePlan plan;
  if (now < trustedFrom_) return plan;
  const auto due = [&](Nanos since) { return now - since >= times_.goneAfter; };
  for (const auto& [task, since] : unclaimed_) {
    if (due(since) && !busy.contains(task)) plan.end.push_back(task);
  }
  for (const Placeholder& placeholder : placeholders) {
    const auto since = missing_.find(placeholder.key);
    if (since == missing_.end() || !due(since->second)) continue;
    if (!busy.contains(placeholder.task)) plan.remove.push_back(placeholder.key);
  }
  return plan;
}

}  // namespace qgpu
