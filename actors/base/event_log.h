#pragma once
// The node's story: the newest events in a ring of fixed length, numbered in the order in which
// they are told. What is asked for is "everything after N", so a reader that lagged sees a gap.

#include <cstdint>
#include <deque>
#include <vector>

#include "actors/base/codec.h"
#include "actors/base/event_kinds.h"

namespace qgpu {

inline constexpr std::size_t kEventTextMax = 160;  // of what comes from an outsider

class EventLog {
 public:
  static constexpr std::size_t kKept = 1024;
  static constexpr std::size_t kPerReply = 256;  // a reader comes again for more

  // Numbers grow; an event that is older than the last one is a bug.
  void add(EventRecord event) {
    QGPU_CHECK(events_.empty() || event.seq > events_.back().seq, "events are numbered in order");
    events_.push_back(std::move(event));
    if (events_.size() > kKept) events_.pop_front();
  }

  // The oldest kPerReply events with a number above `since`.
  std::vector<const EventRecord*> after(std::uint64_t since) const {
    std::vector<const EventRecord*> found;
    for (const EventRecord& event : events_) {
      if (event.seq <= since) continue;
      found.push_back(&event);
      if (found.size() == kPerReply) break;
    }
    return found;
  }

  std::size_t size() const { return events_.size(); }

 private:
  std::deque<EventRecord> events_;
};

}  // namespace qgpu
