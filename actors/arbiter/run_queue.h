#pragma once
// The tasks of one card that want it and may be granted, and which of them is next: the one with
// the least virtual time among those whose bucket has room. It exists apart from the arbiter so
// that choosing is a small, dense scan, done only when its last answer no longer holds.
//
// Kept here: A7 and A8 in part (nextReady() names the time at which somebody may run again), A13
// (the order of insertion never matters).

#include <cstdint>
#include <vector>

#include "runtime/units.h"

namespace qgpu {

class RunQueue {
 public:
  struct Entry {
    std::uint32_t slot = 0;        // the arbiter's index of the task, below its task limit
    std::uint32_t tier = 0;        // a lower tier always goes first
    std::int64_t virtualTime = 0;  // ns; then the least of these ...
    std::uint64_t id = 0;          // ... and then of these: whoever runs falls behind anyway
    Nanos readyAt{0};              // not to be granted before; kNever: not at all
    bool before(const Entry& other) const {
      if (tier != other.tier) return tier < other.tier;
      if (virtualTime != other.virtualTime) return virtualTime < other.virtualTime;
      return id < other.id;
    }
  };

  bool empty() const { return entries_.empty(); }
  bool contains(std::uint32_t slot) const { return find(slot) != nullptr; }
  const Entry* find(std::uint32_t slot) const;
  void insert(const Entry& entry, Nanos now);
  void erase(std::uint32_t slot);  // harmless if it is not there
  std::vector<Entry> takeAll();    // leaves the queue empty
  // The next to be granted at `now`, or nullptr. `now` must not run backwards.
  const Entry* first(Nanos now);
  // When the next of those that may not run at `now` may; valid after first(now).
  Nanos nextReady() const { return nextReady_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  void consider(std::uint32_t index, Nanos now);
  void rescan(Nanos now);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> position_;  // by slot: index in entries_, or kNone
  std::uint32_t best_ = kNone;
  bool stale_ = false;
  Nanos nextReady_ = kNever;
};

}  // namespace qgpu
