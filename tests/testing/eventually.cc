#include "tests/testing/eventually.h"

#include <algorithm>
#include <poll.h>
#include <time.h>

namespace qgpu::testing {
namespace {

constexpr long kFirstPauseNs = 200'000, kPauseNsMax = 5'000'000;

}  // namespace

std::int64_t monotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

bool eventually(const std::function<bool()>& probe, std::chrono::milliseconds limit) {
  const std::int64_t end = monotonicNs() + std::chrono::nanoseconds(limit).count();
  for (timespec pause{0, kFirstPauseNs}; !probe();) {
    if (monotonicNs() > end) return false;
    ::ppoll(nullptr, 0, &pause, nullptr);
    pause.tv_nsec = std::min(2 * pause.tv_nsec, kPauseNsMax);
  }
  return true;
}

}  // namespace qgpu::testing
