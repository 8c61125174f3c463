#include "tests/sim/checkers/check_rates.h"

#include <string>

namespace qgpu::sim {

void RateCheck::onBoot(const Boot&, Nanos) { told_.clear(); }

void RateCheck::onSent(const Carried& message, Nanos now) {
  if (message.lane != Lane::Control || !message.message.isBusy()) return;
  const std::uint64_t task = message.message.getBusy().getTask();
  Told& told = told_[task];
  if (now - told.since >= kWindow) told = Told{now, 0};
  if (++told.times != kBusyMax) return;
  verdict_.violated("C7", "task " + std::to_string(task) + " is told busy " +
                              std::to_string(kBusyMax) + " times within " +
                              std::to_string(kWindow / millis(1)) + " ms");
}

}  // namespace qgpu::sim
