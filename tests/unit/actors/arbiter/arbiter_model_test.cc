// Long runs of the closed loop: the shares that tenants really get.

#include "tests/unit/actors/arbiter/arbiter_model.h"

#include <gtest/gtest.h>

namespace qgpu::arbiter_model_test {
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
  EXPECT_EQ(model.failure(), "");
  EXPECT_NEAR(percent(model.charged(0), seconds(10)), 30, 0.5);
  EXPECT_NEAR(percent(model.charged(1), seconds(10)), 60, 0.5);
}

TEST_P(WithSettleCost, BestEffortGivesThreeBusyTasksAThirdEach) {
  std::vector<ModelTask> tasks{tenant(1, 100), tenant(2, 500), tenant(3, 10)};
  for (ModelTask& task : tasks) task.settle = GetParam();
  ArbiterModel model(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
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
  EXPECT_EQ(model.failure(), "");
  EXPECT_GE(percent(model.worked(0), seconds(10)), 20);
}

TEST(ArbiterLoop, OfflineWorkGetsNearlyAllOfTheTimeThatOnlineLeaves) {
  std::vector<ModelTask> tasks{tenant(1, 0, TaskClass::Online), tenant(2, 500, TaskClass::Offline)};
  tasks[0].kernel = millis(5);
  tasks[0].gap = millis(400);
  ArbiterModel model(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
  const auto card = model.arbiter().card(model.now());
  EXPECT_EQ(card.used + card.idle + card.online, seconds(10));
  EXPECT_GE(percent(model.worked(1), seconds(10) - card.online), 99);
}

// The same with kernels, gaps and settlings that vary, from a fixed list of seeds.
class WithSeed : public testing::TestWithParam<std::uint64_t> {
 protected:
  // Kernels of 0.1 to 3 ms; settling lasts up to the kernel in flight.
  static ArbiterModel busyCard(ArbiterConfig config, std::vector<ModelTask> tasks) {
    for (ModelTask& task : tasks) task.kernel = micros(100);
    return ArbiterModel(config, std::move(tasks), GetParam(), millis(3));
  }
  // Of two busy tasks with these shares, in permille.
  static void keepsShares(int first, int second) {
    ArbiterConfig config;
    config.policy = Policy::FixedShare;
    ArbiterModel model = busyCard(config, {tenant(1, first), tenant(2, second)});
    model.runUntil(seconds(10));
    EXPECT_EQ(model.failure(), "");
    EXPECT_NEAR(percent(model.charged(0), seconds(10)), first / 10.0, 0.5);
    EXPECT_NEAR(percent(model.charged(1), seconds(10)), second / 10.0, 0.5);
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, WithSeed, testing::Values(1, 2, 3, 5, 8, 13, 21, 34));

TEST_P(WithSeed, FixedShareKeepsSharesWhenSettlingVaries) {
  keepsShares(300, 600);
}

TEST_P(WithSeed, FixedShareKeepsSharesThatAreFarApart) {
  keepsShares(100, 900);
}

TEST_P(WithSeed, FixedShareOfManyTasksAddsUpToTheWholeCard) {
  ArbiterConfig config;
  config.policy = Policy::FixedShare;
  std::vector<ModelTask> tasks;
  for (std::uint64_t id = 1; id <= 8; ++id) tasks.push_back(tenant(id, id == 8 ? 300 : 100));
  ArbiterModel model = busyCard(config, tasks);
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(percent(model.charged(i), seconds(10)), i == 7 ? 30 : 10, 0.5) << i;
  }
}

TEST_P(WithSeed, BestEffortIsFairWhenSettlingVaries) {
  ArbiterModel model = busyCard(ArbiterConfig{}, {tenant(1, 0), tenant(2, 10), tenant(3, 990)});
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(percent(model.charged(i), seconds(10)), 33.3, 0.5);
  }
}

// A5: while a task stays backlogged, it is never further behind its share than L.
TEST_P(WithSeed, A5_BurstShareOwesABackloggedTaskNoMoreThanItsLag) {
  ArbiterConfig config;
  config.policy = Policy::BurstShare;
  std::vector<ModelTask> tasks{tenant(1, 500), tenant(2, 300), tenant(3, 200)};
  for (std::size_t i = 1; i < 3; ++i) {  // the others come and go beside the first
    tasks[i].gap = millis(static_cast<std::int64_t>(i) * 40);
  }
  ArbiterModel model = busyCard(config, tasks);
  const Nanos lag = 2 * (config.sliceMax + millis(3));
  Nanos best = kNever, worst{0};  // of how far it is ahead: charged - share x time
  for (Nanos t = millis(1); t <= seconds(10); t += millis(1)) {
    model.runUntil(t);
    const Nanos ahead = model.charged(0) - scale(t, Permille(500));
    worst = best == kNever ? Nanos(0) : std::max(worst, best - ahead);
    best = best == kNever ? ahead : std::max(best, ahead);
  }
  EXPECT_EQ(model.failure(), "");
  EXPECT_LE(worst, lag);
}

TEST_P(WithSeed, BurstShareDividesIdleTimeInProportionToShares) {
  ArbiterConfig config;
  config.policy = Policy::BurstShare;
  ArbiterModel model = busyCard(config, {tenant(1, 400), tenant(2, 200), tenant(3, 0)});
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
  EXPECT_NEAR(percent(model.charged(0), seconds(10)), 66.7, 0.7);
  EXPECT_NEAR(percent(model.charged(1), seconds(10)), 33.3, 0.7);
  EXPECT_EQ(model.charged(2), Nanos(0));
}

TEST_P(WithSeed, HybridCardServesOnlineAtOnceAndOfflineOtherwise) {
  std::vector<ModelTask> tasks{tenant(1, 0, TaskClass::Online), tenant(2, 0, TaskClass::Online),
                               tenant(3, 500, TaskClass::Offline),
                               tenant(4, 500, TaskClass::Offline)};
  tasks[0].gap = millis(300);
  tasks[1].gap = millis(700);
  ArbiterModel model = busyCard(ArbiterConfig{}, tasks);
  model.runUntil(seconds(10));
  EXPECT_EQ(model.failure(), "");
  const auto card = model.arbiter().card(model.now());
  EXPECT_EQ(card.used + card.idle + card.online, seconds(10));
  const Nanos offline = model.charged(2) + model.charged(3);
  EXPECT_GE(percent(offline, seconds(10) - card.online), 99);
  EXPECT_NEAR(percent(model.charged(2), offline), 50, 1);
}

}  // namespace
}  // namespace qgpu::arbiter_model_test
