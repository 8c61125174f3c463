#include "tests/crash/bindings.h"

#include <set>

namespace qgpu::crash {
namespace {

std::optional<std::string> wrongFigures(const Listed& listed, const Entry& asked) {
  const std::string who = "task " + std::to_string(listed.task) + " (" + listed.name + ")";
  if (asked.task != 0 && asked.task != listed.task) {
    return who + " was acknowledged as task " + std::to_string(asked.task);
  }
  const Wish& wish = asked.wish;
  if (listed.memoryBytes != std::uint64_t{wish.memoryGib} << 30) {
    return who + " has " + std::to_string(listed.memoryBytes) + " bytes, bound with " +
           std::to_string(wish.memoryGib) + " GiB";
  }
  if (listed.sharePermille != wish.corePercent * 10) {
    return who + " has " + std::to_string(listed.sharePermille) + " permille, bound with " +
           std::to_string(wish.corePercent) + " percent";
  }
  if (listed.taskClass != wish.taskClass) return who + " is " + listed.taskClass + " now";
  if (!wish.card.empty() && listed.card != wish.card) return who + " is on card " + listed.card;
  return std::nullopt;
}

}  // namespace

void Bindings::asked(const Wish& wish) {
  const std::lock_guard lock(mutex_);
  entries_[wish.name] = Entry{wish, Phase::Asked, 0, ""};
}

void Bindings::bound(const std::string& name, std::uint64_t task, const std::string& token) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(name);
  entry.phase = Phase::Bound;
  entry.task = task;
  entry.token = token;
  acknowledged_++;
}

void Bindings::refused(const std::string& name) {
  const std::lock_guard lock(mutex_);
  entries_.at(name).phase = Phase::Ended;
}

void Bindings::endAsked(const std::string& name) {
  const std::lock_guard lock(mutex_);
  entries_.at(name).phase = Phase::EndAsked;
}

void Bindings::ended(const std::string& name) {
  const std::lock_guard lock(mutex_);
  entries_.at(name).phase = Phase::Ended;
  acknowledged_++;
}

Bindings::Entries Bindings::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

std::size_t Bindings::acknowledged() const {
  const std::lock_guard lock(mutex_);
  return acknowledged_;
}

std::optional<std::string> Bindings::compare(const Entries& before, const Entries& after,
                                             const std::vector<Listed>& list) {
  std::set<std::string> seen;
  for (const Listed& listed : list) {
    const auto asked = after.find(listed.name);
    if (asked == after.end()) return "task '" + listed.name + "' was never asked for";
    if (!seen.insert(listed.name).second) return "request '" + listed.name + "' has two tasks";
    const auto known = before.find(listed.name);
    if (known != before.end() && known->second.phase == Phase::Ended) {
      return "task " + std::to_string(listed.task) + " (" + listed.name +
             ") has ended, or was refused, and is there";
    }
    if (const auto wrong = wrongFigures(listed, asked->second)) return wrong;
  }
  for (const auto& [name, entry] : before) {
    const bool held = entry.phase == Phase::Bound && after.at(name).phase == Phase::Bound;
    if (held && !seen.contains(name)) {
      return "task " + std::to_string(entry.task) + " (" + name + ") was acknowledged and is lost";
    }
  }
  return std::nullopt;
}

}  // namespace qgpu::crash
