#pragma once
// How often something took how long, since the start: counts between bounds that are the same for
// every card, and their sum, as a histogram of Prometheus has them. Close to the two promises, 1 ms
// from an online task's submit and 100 ms of its idleness, the bounds are close to each other.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/units.h"

namespace qgpu {

// Ascending; each count is of what took at most as long.
inline constexpr std::array kLatencyBounds = {
    micros(10),  micros(20),  micros(50),  micros(100), micros(200), micros(500), millis(1),
    millis(2),   millis(5),   millis(10),  millis(20),  millis(50),  millis(100), millis(101),
    millis(105), millis(110), millis(150), millis(200), millis(500), seconds(1)};

struct LatencyTimes {
  std::uint64_t sumNs = 0;
  std::array<std::uint64_t, kLatencyBounds.size() + 1> counts{};  // the last: above all bounds

  void add(Nanos sample) {
    const auto bound = std::lower_bound(kLatencyBounds.begin(), kLatencyBounds.end(), sample);
    ++counts[static_cast<std::size_t>(bound - kLatencyBounds.begin())];
    sumNs += static_cast<std::uint64_t>(sample.value);
  }
};

}  // namespace qgpu
