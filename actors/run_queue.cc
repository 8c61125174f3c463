#include "actors/run_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace qgpu {

bool RunQueue::Entry::before(const Entry& other) const {
  if (tier != other.tier) return tier < other.tier;
  if (virtualTime != other.virtualTime) return virtualTime < other.virtualTime;
  return id < other.id;
}

const RunQueue::Entry* RunQueue::find(std::uint32_t slot) const {
  if (slot >= position_.size() || position_[slot] == kNone) return nullptr;
  return &entries_[position_[slot]];
}

void RunQueue::insert(const Entry& entry, Nanos now) {
  QGPU_CHECK(!contains(entry.slot), "a task waits once");
  if (entry.slot >= position_.size()) position_.resize(entry.slot + 1, kNone);
  const std::uint32_t index = static_cast<std::uint32_t>(entries_.size());
  position_[entry.slot] = index;
  entries_.push_back(entry);
  if (!stale_) consider(index, now);
}

void RunQueue::erase(std::uint32_t slot) {
  if (!contains(slot)) return;
  const std::uint32_t index = position_[slot];
  const std::uint32_t tail = static_cast<std::uint32_t>(entries_.size() - 1);
  if (best_ == index || entries_[index].readyAt == nextReady_) {
    stale_ = true;
  }
  if (best_ == tail) best_ = index;
  entries_[index] = entries_[tail];
  position_[entries_[index].slot] = index;
  entries_.pop_back();
  position_[slot] = kNone;
}

std::vector<RunQueue::Entry> RunQueue::takeAll() {
  std::fill(position_.begin(), position_.end(), kNone);
  best_ = kNone;
  stale_ = false;
  nextReady_ = kNever;
  return std::exchange(entries_, {});
}

void RunQueue::consider(std::uint32_t index, Nanos now) {
  const Entry& entry = entries_[index];
  if (entry.readyAt > now) {
    nextReady_ = std::min(nextReady_, entry.readyAt);
  } else if (best_ == kNone || entry.before(entries_[best_])) {
    best_ = index;
  }
}

const RunQueue::Entry* RunQueue::first(Nanos now) {
  if (stale_ || nextReady_ <= now) {
    best_ = kNone;
    nextReady_ = kNever;
    stale_ = false;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) consider(i, now);
  }
  return best_ == kNone ? nullptr : &entries_[best_];
}

}  // namespace qgpu
