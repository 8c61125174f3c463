// Who is woken, and who is left alone, on a real scheduler's ledger.
#include "services/kubernetes/extender/waiting_pods.h"

#include <gtest/gtest.h>

#include "tests/unit/services/kubernetes/extender/extender_world.h"

namespace qgpu::waiting_pods_test {
namespace {

using testing::ExtenderWorld;
using PodSpec = ExtenderWorld::PodSpec;

struct WaitingPodsTest : ::testing::Test {
  WaitingPodsTest() { world.extender.setReady(true); }

  static PodSpec pod(const std::string& uid, const std::string& asks = "memory=4 core=30") {
    return {uid, {{"c", asks}}, "", "", ""};
  }
  void waits(PodSpec spec, std::int32_t priority = 0) {
    spec.priority = priority;
    const auto demands = readPod(world.pod(spec), {});
    ASSERT_TRUE(demands.ok()) << demands.error().message;
    world.extender.waits(*demands);
  }
  // kube-scheduler tries it.
  void tried(const PodSpec& spec) { world.filter(spec, {"a"}); }
  void mark(bool cordoned) {
    Peer peer;
    peer.mayChange = true;
    auto asked = world.actor.ask(peer, [&](schema::ClusterRequest::Builder request) {
      auto target = cordoned ? request.initCordon() : request.initUncordon();
      target.setNode("a");
      target.setCard("0");
    });
    const auto answer = asked.wait(world.kj.waitScope());
    ASSERT_TRUE(answer.ok()) << answer.error().message;
  }
  bool isWoken(const std::string& uid) {
    return world.api.pods[uid].annotations.contains(kWokenAnnotation);
  }
  void looks(int times) {
    world.kj.timer().afterDelay(times * WaitingPods::kLook).wait(world.kj.waitScope());
  }

  ExtenderWorld world{{{"a", 1, 16}}};
};

// Until a node has such cards, nothing tells two such pods apart but the names.
TEST_F(WaitingPodsTest, APodThatNamesAModelIsWokenOnceSuchACardComes) {
  PodSpec t4 = pod("t4"), a10 = pod("a10");
  t4.models = "T4";
  a10.models = "A10";
  for (const PodSpec& spec : {t4, a10}) {
    waits(spec);
    tried(spec);
  }
  world.join({"b", 1, 16, true, 0, "A10"});
  EXPECT_TRUE(world.served([&] { return isWoken("a10"); }));
  looks(8);
  EXPECT_FALSE(isWoken("t4"));
}

TEST_F(WaitingPodsTest, WhoCouldGoIsWokenOnceAndNobodyElse) {
  mark(true);
  const PodSpec fits = pod("fits"), large = pod("large", "memory=17 core=30");
  for (const PodSpec& spec : {fits, large}) {
    waits(spec);
    tried(spec);
  }
  looks(8);
  EXPECT_EQ(world.extender.waiting().woken(), 0u) << "there is no room";
  mark(false);
  EXPECT_TRUE(world.served([&] { return isWoken("fits"); }));
  looks(8);
  EXPECT_FALSE(isWoken("large"));
  EXPECT_EQ(world.extender.waiting().woken(), 1u);
  // Refused again, by others: the next time that the node opens.
  tried(fits);
  mark(true);
  tried(fits);
  looks(1);
  mark(false);
  EXPECT_TRUE(world.served([&] { return world.extender.waiting().woken() == 2; }));
}

TEST_F(WaitingPodsTest, WhoNobodyJudgedIsWokenWhereItFits) {
  waits(pod("new"));
  EXPECT_TRUE(world.served([&] { return isWoken("new"); }));
  EXPECT_EQ(world.extender.waiting().woken(), 1u);
}

TEST_F(WaitingPodsTest, WhoIsPassedOnIsLeftAloneUntilItIsNotBound) {
  waits(pod("p"));
  tried(pod("p"));
  looks(8);
  EXPECT_FALSE(isWoken("p"));
  world.extender.waiting().notBound("p");
  EXPECT_TRUE(world.served([&] { return isWoken("p"); }));
}

TEST_F(WaitingPodsTest, WhoIsBoundOrGoneIsForgotten) {
  mark(true);
  waits(pod("p"));
  tried(pod("p"));
  world.extender.waiting().waitsNoMore("p");
  EXPECT_EQ(world.extender.waiting().size(), 0u);
  mark(false);
  looks(4);
  EXPECT_FALSE(isWoken("p"));
}

TEST_F(WaitingPodsTest, HighPriorityFirstAndTheOthersWhileThereIsRoom) {
  mark(true);
  const std::size_t count = 2 * WaitingPods::kAtOnce + 4;
  for (std::size_t i = 0; i < count; ++i) {
    const PodSpec spec = pod("p" + std::to_string(i));
    waits(spec, i + 1 == count ? 1000 : 0);
    tried(spec);
  }
  mark(false);
  ASSERT_TRUE(world.served([&] { return world.extender.waiting().woken() != 0; }));
  EXPECT_EQ(world.extender.waiting().woken(), WaitingPods::kAtOnce);
  EXPECT_TRUE(world.served([&] { return isWoken("p" + std::to_string(count - 1)); }));
  EXPECT_FALSE(isWoken("p" + std::to_string(count - 2)));
  EXPECT_TRUE(world.served([&] { return world.extender.waiting().woken() == count; }));
}

// A card that is closed and opens again between two looks was closed all the same.
TEST_F(WaitingPodsTest, WhoWasRefusedBetweenTwoLooksIsWoken) {
  looks(2);
  waits(pod("p"));
  mark(true);
  tried(pod("p"));
  mark(false);
  EXPECT_TRUE(world.served([&] { return isWoken("p"); }));
}

TEST_F(WaitingPodsTest, AServerThatDoesNotAnswerIsAskedAgain) {
  world.api.annotateFails = {ErrorCode::Unavailable};
  waits(pod("p"));
  EXPECT_TRUE(world.served([&] { return isWoken("p"); }));
}

// It has another version then than the one that bind read.
TEST_F(WaitingPodsTest, WhoIsWokenWhileItIsBoundIsBoundAllTheSame) {
  waits(pod("p"));
  tried(pod("p"));
  world.api.meanwhileRead = [&] {
    world.api.pods["p"].resourceVersion = "7";
    waits(pod("p"));
  };
  EXPECT_EQ(world.post("bind", ExtenderWorld::bindingArgs("p", "a")), R"({"Error":""})");
  // What asks something else is another pod.
  waits(pod("q"));
  tried(pod("q"));
  world.api.meanwhileRead = [&] {
    world.api.pods["q"].resourceVersion = "7";
    waits(pod("q", "memory=5 core=30"));
  };
  EXPECT_NE(world.post("bind", ExtenderWorld::bindingArgs("q", "a")), R"({"Error":""})");
}

}  // namespace
}  // namespace qgpu::waiting_pods_test
