#pragma once
// Groups of tasks that start together: who is in each, and how many of those that wait are due, to
// be placed at once. A group is whole once so many of its tasks as its size says are bound. Then it
// has started, and its tasks go as others do, but that those which wait at once are placed at once,
// as far as they make it whole. It ends with the last task that has started and stays: the next one
// of its name begins a new group. Nothing is stored of it but what its tasks say
// (Job.groupStarted), so a restart finds it as it was.
//
// Who calls: Tasks, which tells every change of a task and decides; Waiting (why a group waits). A
// pure core: "now" is an argument. Kept here: P11, as far as it counts.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/scheduler/model.h"

namespace qgpu {

class Groups {
 public:
  struct Group {
    std::uint32_t size = 0;
    std::set<std::uint64_t> waiting;
    std::set<std::uint64_t> placed;  // assumed or bound
    std::size_t bound = 0;           // of these, by the word of their nodes
    std::size_t started = 0;         // of those that stay, with a place while it was whole
    std::size_t all = 0;
    Nanos pausedUntil{0};

    bool hasStarted() const { return started != 0; }
    // Some hold a place, and others that are needed have none.
    bool torn() const { return !hasStarted() && !placed.empty() && placed.size() < size; }
  };

  // `key`: ClusterAsk.group. Null: nobody is in it.
  const Group* find(const std::string& key) const;
  // The oldest of those that wait which have to be placed at once; empty: they wait on for others.
  std::vector<std::uint64_t> due(const Group& group) const;

  // Of a task in a group, before it changes and after.
  void remove(const std::string& key, std::uint64_t task, const Job& job);
  void add(const std::string& key, std::uint64_t task, const Job& job);

  // One that changed since it was looked at; empty: none.
  std::string takeChanged();
  bool anyChanged() const { return !changed_.empty(); }
  // Nothing of it is placed until then, which is never before that of an earlier call.
  void pause(const std::string& key, Nanos until);
  // Those whose pause is over count as changed.
  void pausesOver(Nanos now);

 private:
  // Not where it ends for good: what is submitted meanwhile begins anew.
  static bool staysStarted(const Job& job) {
    return job.groupStarted && (job.state != PlaceState::Ending || job.again);
  }

  std::map<std::string, Group> groups_;
  std::set<std::string> changed_;
  std::deque<std::pair<Nanos, std::string>> paused_;
};

inline const Groups::Group* Groups::find(const std::string& key) const {
  const auto found = groups_.find(key);
  return found == groups_.end() ? nullptr : &found->second;
}

inline std::vector<std::uint64_t> Groups::due(const Group& group) const {
  const std::size_t here = group.placed.size() + group.waiting.size();
  // What has started may have fewer tasks than it began with.
  const std::size_t goal =
      group.hasStarted() ? std::min<std::size_t>(group.size, here) : group.size;
  std::size_t count = 0;
  if (group.placed.size() < goal) {
    count = here < goal ? 0 : goal - group.placed.size();
  } else if (group.hasStarted() && !group.waiting.empty()) {
    count = 1;
  }
  std::vector<std::uint64_t> tasks;
  for (const std::uint64_t task : group.waiting) {
    if (tasks.size() == count) break;
    tasks.push_back(task);
  }
  return tasks;
}

inline void Groups::add(const std::string& key, std::uint64_t task, const Job& job) {
  const bool placed = job.state == PlaceState::Assumed || job.state == PlaceState::Bound;
  Group& group = groups_[key];
  group.size = std::max(group.size, job.spec.groupSize);
  if (job.state == PlaceState::Waiting) group.waiting.insert(task);
  if (placed) group.placed.insert(task);
  if (job.state == PlaceState::Bound) ++group.bound;
  if (staysStarted(job)) ++group.started;
  ++group.all;
  changed_.insert(key);
}

inline void Groups::remove(const std::string& key, std::uint64_t task, const Job& job) {
  const auto found = groups_.find(key);
  Group& group = found->second;
  group.waiting.erase(task);
  group.placed.erase(task);
  if (job.state == PlaceState::Bound) --group.bound;
  if (staysStarted(job)) --group.started;
  changed_.insert(key);
  if (--group.all == 0) groups_.erase(found);
}

inline std::string Groups::takeChanged() {
  if (changed_.empty()) return {};
  return std::move(changed_.extract(changed_.begin()).value());
}

inline void Groups::pause(const std::string& key, Nanos until) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  found->second.pausedUntil = until;
  paused_.emplace_back(until, key);
}

inline void Groups::pausesOver(Nanos now) {
  while (!paused_.empty() && paused_.front().first <= now) {
    changed_.insert(std::move(paused_.front().second));
    paused_.pop_front();
  }
}

}  // namespace qgpu
