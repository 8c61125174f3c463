// A scheduler that stands by: what it answers itself, and how long one waits there.
#include "services/api/rpc/acting_scheduler.h"

#include <gtest/gtest.h>

#include "services/api/rpc/standing_by.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"

namespace qgpu::acting_scheduler_test {
namespace {

struct Nobody final : RequestSink {
  SendResult send(Build) override { return SendResult::Refused; }
};

struct StandsBy : testing::ClusterRpcFixture {
  ~StandsBy() noexcept override { standing.stop(); }

  bool settles() {
    bool done = false;
    auto waits = standing.settled().then([&] { done = true; }).eagerlyEvaluate(nullptr);
    return served([&] { return done; });
  }

  Nobody own;
  ActingScheduler standing{bridge.io().getNetwork(),
                           bridge.timer(),
                           {.askedMax = 1, .within = seconds(10), .settles = seconds(10)}};
};

TEST_F(StandsBy, WhoWaitsIsToldOnceOneActs) {
  bool first = false, second = false;
  auto one = standing.settled().then([&] { first = true; }).eagerlyEvaluate(nullptr);
  auto two = standing.settled().then([&] { second = true; }).eagerlyEvaluate(nullptr);
  standing.setActing("", [] {});
  EXPECT_FALSE(first);
  { const auto left = kj::mv(one); }  // who leaves takes nobody's place
  standing.setActing("127.0.0.1:1", [] {});
  ASSERT_TRUE(served([&] { return second; }));
  EXPECT_FALSE(first);
  EXPECT_TRUE(settles()) << "at once, while one acts";
}

TEST_F(StandsBy, WhoWaitsIsToldWhenItActsItself) {
  bool told = false;
  auto waits = standing.settled().then([&] { told = true; }).eagerlyEvaluate(nullptr);
  standing.setOwn(own);
  ASSERT_TRUE(served([&] { return told; }));
  EXPECT_TRUE(settles());
}

TEST_F(StandsBy, NobodyWaitsForEver) {
  ActingScheduler soon(bridge.io().getNetwork(), bridge.timer(), {.settles = millis(1)});
  bool told = false;
  auto waits = soon.settled().then([&] { told = true; }).eagerlyEvaluate(nullptr);
  ASSERT_TRUE(served([&] { return told; }));
  EXPECT_TRUE(soon.acting().empty());
}

}  // namespace
}  // namespace qgpu::acting_scheduler_test
