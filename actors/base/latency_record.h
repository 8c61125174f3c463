#pragma once
// The latencies of one kind on one card, for reports: percentiles over the last kKept samples,
// exact, and how many of all ever took how long, in memory that never grows. It decides nothing.

#include <algorithm>
#include <array>
#include <cstdint>

#include "actors/base/latency_times.h"
#include "runtime/units.h"

namespace qgpu {

class LatencyRecord {
 public:
  static constexpr std::size_t kKept = 1024;

  void add(Nanos sample) {
    sample = std::max(sample, Nanos(0));
    samples_[count_ % kKept] = sample.value;
    ++count_;
    times_.add(sample);
  }

  // All samples ever, also those that are no longer kept.
  std::uint64_t count() const { return count_; }

  const LatencyTimes& times() const { return times_; }

  // The smallest kept sample that at least `permille` of them do not exceed; 0 without samples.
  Nanos percentile(Permille permille) const {
    const std::size_t kept = std::min<std::size_t>(count_, kKept);
    if (kept == 0) return Nanos(0);
    auto sorted = samples_;
    const std::int64_t rank = (static_cast<std::int64_t>(kept) * permille.value + 999) / 1000;
    const auto nth = sorted.begin() + std::max<std::int64_t>(1, rank) - 1;
    std::nth_element(sorted.begin(), nth, sorted.begin() + kept);
    return Nanos(*nth);
  }

 private:
  std::array<std::int64_t, kKept> samples_{};
  std::uint64_t count_ = 0;
  LatencyTimes times_;
};

}  // namespace qgpu
