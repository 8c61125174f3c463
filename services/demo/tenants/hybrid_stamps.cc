#include "services/demo/tenants/hybrid_stamps.h"

#include <algorithm>

namespace qgpu::demo {

std::int64_t restOf(const HybridStamps& stamps) {
  std::vector<Interval> taken;
  for (const Burst& burst : stamps.bursts) {
    taken.push_back({burst.submitNs, burst.endNs + stamps.onlineIdleNs});
  }
  std::int64_t rest = 0;
  for (const Interval& window : stamps.windows) rest += uncovered(window, taken);
  return rest;
}

std::vector<std::int64_t> releasesOf(const HybridStamps& stamps) {
  std::vector<std::int64_t> releases;
  for (std::size_t i = 0; i < stamps.bursts.size(); i++) {
    const std::int64_t end = stamps.bursts[i].endNs;
    const std::int64_t next =
        i + 1 < stamps.bursts.size() ? stamps.bursts[i + 1].submitNs : stamps.windows.back().end;
    for (const Standstill& still : stamps.standstills) {
      if (still.resumedNs <= end || still.lastNs > end) continue;
      if (still.resumedNs < next) releases.push_back(still.resumedNs - end);
      break;
    }
  }
  return releases;
}

std::vector<std::int64_t> stopsOf(const HybridStamps& stamps) {
  std::vector<std::int64_t> stops;
  for (const Burst& burst : stamps.bursts) {
    for (const Standstill& still : stamps.standstills) {
      if (still.resumedNs <= burst.endNs || still.lastNs > burst.endNs) continue;
      stops.push_back(std::max<std::int64_t>(0, still.lastNs - burst.submitNs));
      break;
    }
  }
  return stops;
}

}  // namespace qgpu::demo
