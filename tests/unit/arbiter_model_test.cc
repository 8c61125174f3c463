// Long runs of the closed loop: the shares that tenants really get.

#include "tests/unit/arbiter_model.h"

#include <gtest/gtest.h>

namespace qgpu {
namespace {

ModelTask tenant(std::uint64_t id, std::int64_t share, TaskClass taskClass = TaskClass::Ordinary) {
  ModelTask task;
  task.spec.id = TaskId{id};
  task.spec.taskClass = taskClass;
  task.spec.share = Permille(share);
  return task;
}

double percent(Nanos part, Nanos whole) {
  return 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value);
}

class WithSettleCost : public testing::TestWithParam<Nanos> {};
INSTANTIATE_TEST_SUITE_P(Costs, WithSettleCost, testing::Values(Nanos(0), micros(200), millis(5)),
                         [](const auto& param) {
                           return std::to_string(param.param.value / 1000) + "us";
                         });

TEST_P(WithSettleCost, FixedShareGivesEachBusyTaskItsShare) {
  ArbiterConfig config;
  config.policy = Policy::FixedShare;
  std::vector<ModelTask> tasks{tenant(1, 300), tenant(2, 600)};
  for (ModelTask& task : tasks) task.settle = GetParam();
  ArbiterModel model(config, tasks);
  model.runUntil(seconds(10));
  EXPECT_NEAR(percent(model.charged(0), seconds(10)), 30, 0.5);
  EXPECT_NEAR(percent(model.charged(1), seconds(10)), 60, 0.5);
}

TEST_P(WithSettleCost, BestEffortGivesThreeBusyTasksAThirdEach) {
  std::vector<ModelTask> tasks{tenant(1, 100), tenant(2, 500), tenant(3, 10)};
  for (ModelTask& task : tasks) task.settle = GetParam();
  ArbiterModel model(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(percent(model.charged(i), seconds(10)), 33.3, 0.5);
  }
}

TEST_P(WithSettleCost, BurstShareFallsBackWhenTheOwnerReturns) {
  ArbiterConfig config;
  config.policy = Policy::BurstShare;
  std::vector<ModelTask> tasks{tenant(1, 500), tenant(2, 500)};
  for (ModelTask& task : tasks) task.settle = GetParam();
  tasks[1].pauseAt = seconds(3);
  tasks[1].resumeAt = seconds(6);
  ArbiterModel model(config, tasks);
  model.runUntil(seconds(3) + millis(100));
  const Nanos before = model.worked(0);
  model.runUntil(seconds(6));
  EXPECT_GE(percent(model.worked(0) - before, seconds(3) - millis(100)), 98);
  model.runUntil(seconds(6) + millis(100));
  for (int i = 0; i < 30; ++i) {
    const Nanos from = model.charged(0), other = model.charged(1);
    ArbiterModel window = model;
    window.runUntil(model.now() + seconds(1));
    // One slice and its settling are the grain of any window.
    const double grain = GetParam() >= millis(5) ? 2 : 1;
    EXPECT_NEAR(percent(window.charged(0) - from, seconds(1)), 50, grain);
    EXPECT_NEAR(percent(window.charged(1) - other, seconds(1)), 50, grain);
    model.runUntil(model.now() + millis(37));
  }
}

TEST(ArbiterLoop, InteractiveTenantGetsAFifthBesideTwoBatchTenants) {
  std::vector<ModelTask> tasks{tenant(1, 300), tenant(2, 300), tenant(3, 300)};
  tasks[0].kernel = millis(1);
  tasks[0].gap = millis(1);
  ArbiterModel model(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  EXPECT_GE(percent(model.worked(0), seconds(10)), 20);
}

TEST(ArbiterLoop, OfflineWorkGetsNearlyAllOfTheTimeThatOnlineLeaves) {
  std::vector<ModelTask> tasks{tenant(1, 0, TaskClass::Online), tenant(2, 500, TaskClass::Offline)};
  tasks[0].kernel = millis(5);
  tasks[0].gap = millis(400);
  ArbiterModel model(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  const auto card = model.arbiter().card(model.now());
  EXPECT_EQ(card.used + card.idle + card.online, seconds(10));
  EXPECT_GE(percent(model.worked(1), seconds(10) - card.online), 99);
}

}  // namespace
}  // namespace qgpu
