#pragma once
// The recent latencies of one kind on one card, for reports: percentiles over the last kKept
// samples, exact, in memory that never grows. It decides nothing.

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/units.h"

namespace qgpu {

class LatencyRecord {
 public:
  static constexpr std::size_t kKept = 1024;

  void add(Nanos sample) {
    samples_[count_ % kKept] = std::max<std::int64_t>(0, sample.value);
    ++count_;
  }

  // All samples ever, also those that are no longer kept.
  std::uint64_t count() const { return count_; }

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
};

}  // namespace qgpu
