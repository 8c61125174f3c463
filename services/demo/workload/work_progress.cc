#include "services/demo/workload/work_progress.h"

#include <time.h>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {

namespace {
constexpr std::size_t kStandstillsMax = 100'000;
}

ProgressWatch::ProgressWatch(const volatile std::uint32_t* word)
    : word_(word), thread_([this] { watch(); }) {}

ProgressWatch::~ProgressWatch() {
  stop();
}

void ProgressWatch::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void ProgressWatch::watch() {
  std::uint32_t before = *word_;
  std::int64_t lastNs = monotonicNs();
  while (!stop_) {
    const timespec pause{0, kLookNs};
    nanosleep(&pause, nullptr);
    const std::int64_t now = monotonicNs();
    const std::uint32_t word = *word_;
    if (word == before) continue;
    if (seen_ && now - lastNs >= kStandstillNs && standstills_.size() < kStandstillsMax) {
      standstills_.push_back({lastNs, now});
    }
    seen_ = true;
    before = word;
    lastNs = now;
  }
}

}  // namespace qgpu::demo
