#include "actors/arbiter/run_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"

namespace qgpu {

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
  if (stale_ || nextReady_ <= now) rescan(now);
  return best_ == kNone ? nullptr : &entries_[best_];
}

void RunQueue::rescan(Nanos now) {
  stale_ = false;
  const Entry* best = nullptr;
  Nanos next = kNever;
  for (const Entry& entry : entries_) {
    if (entry.readyAt > now) {
      next = std::min(next, entry.readyAt);
    } else if (best == nullptr || entry.before(*best)) {
      best = &entry;
    }
  }
  best_ = best == nullptr ? kNone : static_cast<std::uint32_t>(best - entries_.data());
  nextReady_ = next;
}

}  // namespace qgpu
