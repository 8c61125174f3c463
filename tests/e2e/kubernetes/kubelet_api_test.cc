// The manager in a Kubernetes cluster that a test plays (kubelet_api.h): cards as an annotation,
// labels that act at once, pods from their binding to their end.

#include "tests/e2e/kubernetes/kubelet_api.h"

#include <atomic>
#include <thread>

namespace qgpu::e2e::kubelet_api_test {
namespace {

TEST_F(KubeletApi, ServesItsKubeletByItselfWhereThereIsAClusterAndTellsItsCards) {
  ASSERT_EQ(cards().size(), 2u);
  EXPECT_EQ(cards()[0]["uuid"], "sim-0");
  EXPECT_EQ(cards()[1]["nominal_gib"], 16);
  EXPECT_EQ(cards()[0]["health"], "ready");
}

TEST_F(KubeletApi, ACordonedCardShowsInTheAnnotationAndWhoRemovesThatGetsItBack) {
  ASSERT_TRUE(manager->ask("cordon sim-1")["ok"]);
  EXPECT_TRUE(
      eventually([&] { return cards().size() == 2 && cards()[1]["health"] == "cordoned"; }));
  Json node = api.find("nodes", "", "n1");
  node["metadata"]["annotations"].erase("qgpu.io/cards");
  api.put("nodes", node);
  EXPECT_TRUE(eventually([&] { return cards().size() == 2; }));
}

// Kubelet fails a pod for good that is bound to it before it knows the devices again.
TEST_F(KubeletApi, WhileItsKubeletIsAwayTheNodeTakesNothingNew) {
  kubelet.stop();
  EXPECT_TRUE(eventually([&] { return healths() == "starting starting "; })) << healths();
  kubelet.start();
  EXPECT_TRUE(eventually([&] { return healths() == "ready ready "; })) << healths();
  EXPECT_EQ(healthy("qgpu-core"), 200u) << "devices are known before anything new comes";
}

TEST_F(KubeletApi, AManagerThatEndsTakesNothingNewUntilTheNextOneIsThere) {
  ASSERT_TRUE(manager->ask("cordon sim-1")["ok"]);
  ASSERT_TRUE(eventually([&] { return healths() == "ready cordoned "; })) << healths();
  ASSERT_EQ(manager->stop(), 0) << manager->log();
  EXPECT_EQ(healths(), "starting cordoned ");
  manager->start();
  EXPECT_TRUE(eventually([&] { return healths() == "ready cordoned "; })) << healths();
}

TEST_F(KubeletApi, EverySpellingOfThePolicyLabelActsWithinASecond) {
  const std::string name = std::string(kPrefix) + "/qgpu-schedule-policy";
  const std::pair<const char*, const char*> spellings[] = {
      {"fs", "fixed-share"},          {"be", "best-effort"},
      {"bs", "burst-share"},          {"best-effort", "best-effort"},
      {"fixed-share", "fixed-share"}, {"burst-share", "burst-share"}};
  for (const auto& [spelling, policy] : spellings) {
    label(name, spelling);
    EXPECT_LE(msUntil([&, is = policy] { return policyOf(0) == is && policyOf(1) == is; }), 1000)
        << spelling;
  }
  label(name, "");
  EXPECT_LE(msUntil([&] { return policyOf(0) == "best-effort"; }), 1000);
}

TEST_F(KubeletApi, AnUnknownPolicyIsBestEffortAndAnEventOfTheNode) {
  const std::string name = std::string(kPrefix) + "/qgpu-schedule-policy";
  label(name, "fs");
  msUntil([&] { return policyOf(0) == "fixed-share"; });
  label(name, "fastest");
  msUntil([&] { return policyOf(0) == "best-effort"; });
  ASSERT_TRUE(eventually([&] { return !api.event("QGPUPolicyUnknown").is_null(); }));
  const Json told = api.event("QGPUPolicyUnknown");
  EXPECT_EQ(told["involvedObject"]["kind"], "Node");
  EXPECT_EQ(told["involvedObject"]["name"], "n1");
  EXPECT_NE(told["message"].get<std::string>().find("fastest"), std::string::npos);
}

TEST_F(KubeletApi, TheMixedLabelBringsGreedyDevicesAndTakesThemAway) {
  EXPECT_EQ(kubelet.devices("qgpu-core-greedy").size(), 0u);
  label("mixed-qgpu-enable", "enable");
  EXPECT_LE(msUntil([&] { return healthy("qgpu-core-greedy") == 200; }), 1000);
  label("mixed-qgpu-enable", "");
  EXPECT_LE(msUntil([&] { return kubelet.devices("qgpu-core-greedy").empty(); }), 1000);
}

TEST_F(KubeletApi, ANodeThatIsDisabledOrServesWholeCardsHasNoDevices) {
  label("qgpu-device-enable", "");
  msUntil([&] { return healthy("qgpu-core") == 0; });
  label("qgpu-device-enable", "enable");
  msUntil([&] { return healthy("qgpu-core") == 200; });
  Json node = api.find("nodes", "", "n1");
  node["status"]["allocatable"]["nvidia.com/gpu"] = "2";
  api.put("nodes", node);
  msUntil([&] { return healthy("qgpu-core") == 0; });
  EXPECT_TRUE(eventually([&] { return !api.event("QGPUNodeRefused").is_null(); }));
}

TEST_F(KubeletApi, APodRunsAsItWasBoundIsToldOfAndEndsWithItsPhase) {
  bindPod("u1", "sim-1", 30, 4);
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}), "");
  const Json task = manager->task("web/train-0/main");
  EXPECT_EQ(task["card"], "sim-1");
  EXPECT_EQ(task["share_permille"], 300);
  ASSERT_TRUE(eventually([&] { return !api.event("QGPUAllocated").is_null(); }));
  EXPECT_EQ(api.event("QGPUAllocated")["involvedObject"]["uid"], "u1");
  phase("Succeeded");  // kubelet may list its devices for long
  EXPECT_TRUE(eventually([&] { return manager->tasks().empty(); }));
}

// A rule that it breaks since is no reason to end what it has.
TEST_F(KubeletApi, APodWhoseClassIsEditedWhileItRunsStartsAgainAsItWasBound) {
  bindPod("u1", "sim-1", 30, 4);
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}), "");
  const Json before = manager->task("web/train-0/main");
  api.change("pods", "web", "train-0", [](Json& pod) {
    pod["metadata"]["annotations"][std::string(kPrefix) + "/app-class"] = "online";
  });
  bindPod("u2", "sim-0", 30, 4, "", {"web", "other", "main"});  // told after it
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}, {"web", "other", "main"}), "");
  EXPECT_EQ(manager->task("web/train-0/main")["id"], before["id"]);
  EXPECT_EQ(kubelet.startContainer(kMain).error, "") << "its container starts again";
  phase("Succeeded");
  EXPECT_TRUE(eventually([&] { return manager->tasks().size() == 1; }));
}

TEST_F(KubeletApi, AnOfflinePodWaitsForTheMixedLabelAndIsToldWhy) {
  label("mixed-qgpu-enable", "enable");
  msUntil([&] { return healthy("qgpu-core-greedy") == 200; });
  bindPod("u1", "sim-0", 40, 4, "offline");
  ASSERT_EQ(start({{"qgpu-core-greedy", 40}, {"qgpu-memory", 4}}), "");
  EXPECT_EQ(manager->task("web/train-0/main")["class"], "offline");
}

TEST_F(KubeletApi, TheMixedLabelDecidesForWhoeverBinds) {
  const auto bind = [&](Child& child) { return child.wait().value_or(-1); };
  const std::vector<std::string> online = {"--class", "online", "--memory", "1", "--", "/bin/true"};
  const auto refused = manager->runTask(online);
  EXPECT_EQ(bind(*refused), 125);
  EXPECT_NE(refused->output().find("label the node mixed-qgpu-enable=enable"), std::string::npos)
      << refused->output();
  EXPECT_EQ(manager->ask("status")["mixed"], false);
  label("mixed-qgpu-enable", "enable");
  ASSERT_TRUE(eventually([&] { return manager->ask("status")["mixed"] == true; }));
  EXPECT_EQ(bind(*manager->runTask(online)), 0);
  label("mixed-qgpu-enable", "");
  ASSERT_TRUE(eventually([&] { return manager->ask("status")["mixed"] == false; }));
  EXPECT_EQ(bind(*manager->runTask(online)), 125);
  bindPod("u1", "sim-0", 40, 4, "offline");
  EXPECT_NE(start({{"qgpu-core-greedy", 40}, {"qgpu-memory", 4}}), "");
}

TEST_F(KubeletApi, APodWhoseWordComesLateStartsAllTheSame) {
  const auto allocated = kubelet.admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
  ASSERT_EQ(allocated.error, "");
  KubeletStandIn::Answer answer;
  std::atomic<bool> done{false};
  std::thread caller([&] {
    answer = kubelet.startContainer(kMain);
    done = true;
  });
  EXPECT_FALSE(eventually([&] { return done.load(); }, std::chrono::milliseconds(500)));
  bindPod("u1", "sim-0", 30, 4);
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  caller.join();
  EXPECT_EQ(answer.error, "");
}

TEST_F(KubeletApi, WhileTheServerIsAwayPodsRunOnAndNewOnesWait) {
  bindPod("u1", "sim-1", 30, 4);
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}), "");
  api.cut();
  EXPECT_FALSE(eventually([&] { return manager->tasks().empty(); }, std::chrono::seconds(1)));
  EXPECT_EQ(healthy("qgpu-core"), 200u);
  ASSERT_EQ(kubelet.startContainer(kMain).error, "") << "what is known starts again";
  api.restart();
  const std::string name = std::string(kPrefix) + "/qgpu-schedule-policy";
  label(name, "fs");
  EXPECT_TRUE(eventually([&] { return policyOf(0) == "fixed-share"; }, std::chrono::seconds(30)));
}

}  // namespace
}  // namespace qgpu::e2e::kubelet_api_test
