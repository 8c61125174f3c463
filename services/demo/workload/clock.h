#pragma once
// The clock of every stamp in the demo, in ns. CLOCK_MONOTONIC is one and the same in all processes
// of a machine, so stamps of a tenant and of the demo compare.

#include <cstdint>
#include <time.h>

namespace qgpu::demo {

inline std::int64_t readClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline std::int64_t monotonicNs() {
  return readClock(CLOCK_MONOTONIC);
}

}  // namespace qgpu::demo
