// What takes its time: an API server that is gone for a minute, pods that are being deleted.

#include <signal.h>

#include "tests/e2e/kubernetes/kube_world.h"

namespace qgpu::e2e::kube_away_test {
namespace {

constexpr auto kAway = std::chrono::seconds(60);

struct KubeAway : KubeWorld {
  PlainTenant first{dir.path() + "/first"};
  PlainTenant second{dir.path() + "/second"};
  void SetUp() override { startAll("sim:1x16"); }
  void runs(const std::string& name, const std::vector<std::string>& command) {
    create(name, {60, 12}, command);
    ASSERT_TRUE(schedule(name));
    ASSERT_TRUE(reaches(name, "Running")) << kubelet.trouble(name);
  }
};

// The longest that this test may take is what it is about: other failures of the API server are
// short ones.
TEST_F(KubeAway, ForAMinutePodsRunOnAndANewOneWaitsAndThenRuns) {
  runs("first", first.command());
  ASSERT_TRUE(eventually([&] { return first.attached(); }));
  create("second", {30, 2}, second.command());
  const std::int64_t cut = monotonicNs();
  api.cut();
  kubelet.stop();
  kubelet.start();
  EXPECT_TRUE(eventually([&] { return served(); })) << "a new kubelet is served as before";
  bool waits = false;
  const auto over = [&] { return monotonicNs() - cut >= std::chrono::nanoseconds(kAway).count(); };
  while (!over()) {
    const Json bind = cycle("second");
    waits = waits || (bind.is_object() && bind.value("Error", "") != "");
    ASSERT_TRUE(first.launchesOn());
    ASSERT_EQ(manager->tasks().size(), 1u);
    ASSERT_EQ(kubelet.processes("first"), 1u);
    eventually(over, std::chrono::seconds(1));
  }
  EXPECT_TRUE(waits) << "a pod was bound by nobody";
  EXPECT_EQ(phase("second"), "Pending");
  api.restart();
  ASSERT_TRUE(schedule("second"));
  ASSERT_TRUE(reaches("second", "Running")) << kubelet.trouble("second");
  EXPECT_TRUE(agrees());
  EXPECT_TRUE(first.launchesOn());
  EXPECT_LT(first.record().longestGapNs.load(), 5'000'000'000);
  first.end();
  second.end();
  EXPECT_TRUE(reaches("first", "Succeeded"));
  EXPECT_TRUE(reaches("second", "Succeeded"));
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 0u);
}

TEST_F(KubeAway, ADeletedPodKeepsItsCardUntilItsProcessesAreGone) {
  std::vector<std::string> stubborn = {"/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh"};
  for (const std::string& word : first.command()) stubborn.push_back(word);
  runs("first", stubborn);
  ASSERT_TRUE(eventually([&] { return first.attached(); }));
  api.change("pods", kSpace, "first",
             [](Json& object) { object["spec"]["terminationGracePeriodSeconds"] = 60; });
  create("second", {60, 12}, second.command());
  erase("first");
  const auto keeps = [&] {
    Json refused;
    ASSERT_TRUE(eventually([&] {  // once a scheduler knows its nodes, and kubelet the devices
      refused = cycle("second");
      return refused.is_object() &&
             refused["FailedNodes"].value(kNode, "").rfind("MemShort", 0) == 0;
    })) << refused;
    EXPECT_TRUE(agrees());
    EXPECT_EQ(boundGib(), 12u);
    EXPECT_TRUE(first.launchesOn());
  };
  keeps();
  scheduler->kill();
  scheduler->start();
  ASSERT_TRUE(scheduler->waitFor(kNode, "alive"));
  ASSERT_TRUE(eventually([&] { return scheduler->tasks().size() == 1; })) << "deleted, not gone";
  keeps();
  manager->kill();
  manager->start();
  keeps();
  first.end();
  EXPECT_TRUE(vanishes("first"));
  ASSERT_TRUE(schedule("second"));
  ASSERT_TRUE(reaches("second", "Running")) << kubelet.trouble("second");
  EXPECT_TRUE(agrees());
  second.end();
  EXPECT_TRUE(reaches("second", "Succeeded"));
}

}  // namespace
}  // namespace qgpu::e2e::kube_away_test
