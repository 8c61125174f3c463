#pragma once
// A min-heap of deadlines with values. One serves a loop (values are callbacks), one the test
// fixture (values are messages), so that both order timers alike: by deadline, then by creation.
// A cancelled entry leaves the heap lazily; the heap never holds more than twice the live ones.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/units.h"

namespace qgpu {

// Deadlines are points on the owner's clock; the queue has none of its own. add() and cancel() cost
// O(log n), amortized. Not for several threads.
template <typename Value>
class TimerQueue {
 public:
  using Id = std::uint64_t;  // never 0, never reused

  // A new timer. `at` may lie in the past: then it is due at once.
  Id add(Nanos at, Value value) {
    const Id id = ++lastId_;
    live_.emplace(id, std::move(value));
    heap_.push_back({at, id});
    std::push_heap(heap_.begin(), heap_.end(), later);
    return id;
  }

  // Takes a timer out before it fires and gives its value back; nothing where it has fired or was
  // cancelled.
  std::optional<Value> cancel(Id id) {
    const auto found = live_.find(id);
    if (found == live_.end()) return std::nullopt;
    std::optional<Value> value(std::move(found->second));
    live_.erase(found);
    if (id == seen_) seen_ = 0;
    if (heap_.size() > 2 * live_.size() + kSlack) dropCancelled();
    return value;
  }

  // The value of a timer that has neither fired nor been cancelled, else nullptr.
  Value* find(Id id) {
    const auto found = live_.find(id);
    return found == live_.end() ? nullptr : &found->second;
  }

  // Cancels every timer whose value matches.
  template <typename Match>
  void eraseIf(Match&& match) {
    std::erase_if(live_, [&](const auto& entry) { return match(entry.second); });
    seen_ = 0;
    dropCancelled();
  }

  // The earliest deadline of a timer that lives; nothing without timers. Forgets cancelled ones.
  std::optional<Nanos> next() {
    while (!heap_.empty() && heap_.front().id != seen_) {
      if (live_.contains(heap_.front().id))
        seen_ = heap_.front().id;
      else
        popFront();
    }
    if (heap_.empty()) return std::nullopt;
    return heap_.front().at;
  }

  // A timer that is due; it is no longer in the queue.
  struct Due {
    Id id;
    Value value;
  };
  // Takes out the earliest timer whose deadline is not after `now`. Call it until it gives nothing.
  std::optional<Due> popDue(Nanos now) {
    const std::optional<Nanos> at = next();
    if (!at || *at > now) return std::nullopt;
    const Id id = heap_.front().id;
    popFront();
    const auto found = live_.find(id);
    std::optional<Due> due(Due{id, std::move(found->second)});
    live_.erase(found);
    return due;
  }

  // Timers that neither fired nor were cancelled.
  std::size_t size() const { return live_.size(); }

 private:
  struct Entry {
    Nanos at;
    Id id;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at > b.at : a.id > b.id;
  }
  void popFront() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  void dropCancelled() {
    std::erase_if(heap_, [this](const Entry& e) { return !live_.contains(e.id); });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }

  static constexpr std::size_t kSlack = 64;  // cancelled entries that a small heap may keep
  std::vector<Entry> heap_;
  std::unordered_map<Id, Value> live_;
  Id lastId_ = 0;
  Id seen_ = 0;  // at the front of the heap it is known to live, without a look-up
};

}  // namespace qgpu
