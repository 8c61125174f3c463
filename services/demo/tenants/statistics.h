#pragma once
// The arithmetic behind the demo's figures: percentiles, unions of intervals, and shares of a card
// over windows of a sampled counter. Pure; times are ns of CLOCK_MONOTONIC.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace qgpu::demo {

// The smallest value that at least `permille` of all values do not exceed (nearest rank); 0 of
// none.
std::int64_t percentile(std::vector<std::int64_t> values, std::int64_t permille);

struct Percentiles {
  std::int64_t p50 = 0;
  std::int64_t p99 = 0;
  std::size_t n = 0;
};
Percentiles percentiles(const std::vector<std::int64_t>& values);

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

// How much of `window` no interval covers. Intervals may overlap and stand in any order.
std::int64_t uncovered(Interval window, std::vector<Interval> intervals);

// A task's used time as it was at some instant.
struct Sample {
  std::int64_t atNs = 0;
  std::int64_t usedNs = 0;
};
using Series = std::vector<Sample>;  // in the order of time

// Used time at `atNs`, on the straight line between the samples around it; the nearest sample's
// outside of all. The series is not empty.
std::int64_t usedAt(const Series& series, std::int64_t atNs);

// What was used within the windows together, in ns.
std::int64_t usedIn(const Series& series, const std::vector<Interval>& windows);

// Share of the card in the windows together, in permille, rounded to the nearest.
std::int64_t shareOver(const Series& series, const std::vector<Interval>& windows);

struct Extremes {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// Lowest and highest share over all windows of `lengthNs` that begin at `from` or at a later sample
// and end at the last sample or before; nothing if no such window fits.
std::optional<Extremes> slidingShares(const Series& series, std::int64_t from,
                                      std::int64_t lengthNs);

// The most by which used time exceeded `sharePermille` of the time, over all windows between two
// samples (the figure that A4 bounds), in ns.
std::int64_t excessOver(const Series& series, std::int64_t sharePermille);

}  // namespace qgpu::demo
