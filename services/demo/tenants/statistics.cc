#include "services/demo/tenants/statistics.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/units.h"

namespace qgpu::demo {

std::int64_t percentile(std::vector<std::int64_t> values, std::int64_t permille) {
  if (values.empty()) return 0;
  const auto n = static_cast<std::int64_t>(values.size());
  const std::int64_t rank = std::clamp<std::int64_t>((n * permille + 999) / 1000, 1, n);
  const auto chosen = values.begin() + (rank - 1);
  std::nth_element(values.begin(), chosen, values.end());
  return *chosen;
}

Percentiles percentiles(const std::vector<std::int64_t>& values) {
  return {percentile(values, 500), percentile(values, 990), values.size()};
}

std::int64_t uncovered(Interval window, std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](Interval a, Interval b) { return a.begin < b.begin; });
  std::int64_t free = 0;
  std::int64_t at = window.begin;
  for (const Interval& taken : intervals) {
    free += std::clamp<std::int64_t>(std::min(taken.begin, window.end) - at, 0, window.end - at);
    at = std::clamp(taken.end, at, window.end);
  }
  return free + window.end - at;
}

std::int64_t usedAt(const Series& series, std::int64_t atNs) {
  QGPU_CHECK(!series.empty(), "a share is taken of sampled time");
  const auto after = std::lower_bound(series.begin(), series.end(), atNs,
                                      [](Sample s, std::int64_t t) { return s.atNs < t; });
  if (after == series.end()) return series.back().usedNs;
  if (after == series.begin()) return after->usedNs;
  const Sample before = *(after - 1);
  if (after->atNs == before.atNs) return after->usedNs;
  return before.usedNs +
         mulDiv(after->usedNs - before.usedNs, atNs - before.atNs, after->atNs - before.atNs);
}

std::int64_t usedIn(const Series& series, const std::vector<Interval>& windows) {
  std::int64_t used = 0;
  for (const Interval& window : windows) {
    used += usedAt(series, window.end) - usedAt(series, window.begin);
  }
  return used;
}

std::int64_t shareOver(const Series& series, const std::vector<Interval>& windows) {
  std::int64_t length = 0;
  for (const Interval& window : windows) length += window.end - window.begin;
  if (length <= 0) return 0;
  return (mulDiv(usedIn(series, windows), 2000, length) + 1) / 2;
}

std::optional<Extremes> slidingShares(const Series& series, std::int64_t from,
                                      std::int64_t lengthNs) {
  if (series.empty()) return std::nullopt;
  std::optional<Extremes> found;
  const auto look = [&](std::int64_t begin) {
    if (begin < series.front().atNs || begin + lengthNs > series.back().atNs) return;
    const std::int64_t share = shareOver(series, {{begin, begin + lengthNs}});
    if (!found) found = Extremes{share, share};
    found->low = std::min(found->low, share);
    found->high = std::max(found->high, share);
  };
  look(from);
  for (const Sample& sample : series) {
    if (sample.atNs > from) look(sample.atNs);
  }
  return found;
}

std::int64_t excessOver(const Series& series, std::int64_t sharePermille) {
  std::int64_t least = INT64_MAX;
  std::int64_t worst = 0;
  for (const Sample& sample : series) {
    const std::int64_t due = mulDiv(sample.atNs - series.front().atNs, sharePermille, 1000);
    const std::int64_t ahead = sample.usedNs - due;
    least = std::min(least, ahead);
    worst = std::max(worst, ahead - least);
  }
  return worst;
}

}  // namespace qgpu::demo
