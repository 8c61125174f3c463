#include "services/kubelet_plugin/reconciler.h"

namespace qgpu {
namespace {

// Since when each of `now` is so; what is not so any more is forgotten.
template <typename Key>
void follow(std::map<Key, Nanos>& since, const std::set<Key>& now, Nanos at) {
  std::erase_if(since, [&now](const auto& entry) { return !now.contains(entry.first); });
  for (const Key& key : now) since.emplace(key, at);
}

}  // namespace

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
