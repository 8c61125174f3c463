#pragma once
// What online bursts over an offline program came to, by the stamps of both programs. Pure.

#include <cstdint>
#include <vector>

#include "services/demo/tenants/statistics.h"
#include "services/demo/workload/work_report.h"

namespace qgpu::demo {

struct HybridStamps {
  std::int64_t onlineIdleNs = 0;  // of the manager
  std::vector<Interval> windows;  // the rounds, in the order of time; not empty
  std::vector<Burst> bursts;
  std::vector<Standstill> standstills;  // of the offline task
};

// Time in the windows outside every [first submit, last end + online idle].
std::int64_t restOf(const HybridStamps& stamps);
// From the end of each burst to the offline task's next progress, where no other burst came first.
std::vector<std::int64_t> releasesOf(const HybridStamps& stamps);
// From each burst's submit to the offline task's last progress before it stood still; not below 0.
std::vector<std::int64_t> stopsOf(const HybridStamps& stamps);

}  // namespace qgpu::demo
