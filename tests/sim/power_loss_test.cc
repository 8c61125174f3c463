// The store under power cuts, as `qgpu-sim powerloss` runs it.
#include "tests/sim/power_loss.h"

#include <gtest/gtest.h>

namespace qgpu::sim::power_loss_test {
namespace {

TEST(PowerLoss, D1_FindsAllThatWasAcknowledgedAfterFiveHundredCuts) {
  const PowerLossSummary summary = cutPower(1, 500);
  EXPECT_EQ(summary.failure, "") << "point " << summary.failedPoint;
  EXPECT_EQ(summary.points, 500u);
  EXPECT_GT(summary.batches, 1'000u);
  EXPECT_GT(summary.inRecovery, 0u);
  EXPECT_GT(summary.unacknowledged, 0u);
}

TEST(PowerLoss, DoesTheSameAgain) {
  const PowerLossSummary one = cutPower(7, 20);
  const PowerLossSummary other = cutPower(7, 20);
  EXPECT_EQ(one.batches, other.batches);
  EXPECT_EQ(one.unacknowledged, other.unacknowledged);
}

}  // namespace
}  // namespace qgpu::sim::power_loss_test
