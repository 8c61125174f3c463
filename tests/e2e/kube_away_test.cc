// What takes its time: pods that are being deleted.

#include "tests/e2e/kube_world.h"

namespace qgpu::e2e {
namespace {

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
    ASSERT_TRUE(eventually([&] {  // once a scheduler knows its nodes
      refused = cycle("second");
      return refused.is_object() && !refused["FailedNodes"].empty();
    })) << refused;
    EXPECT_EQ(refused["FailedNodes"].value(kNode, "").rfind("MemShort", 0), 0u) << refused;
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
}  // namespace qgpu::e2e
