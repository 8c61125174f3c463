// A pod that waits is bound as soon as there is room for it, whatever made the room: kube-scheduler
// has no event for most of it, and is woken for this pod alone. And no pod is bound where kubelet
// does not count the devices, since that fails it for good. A policy makes no room for pods: it
// refuses only who asks for no share, and each pod asks for one or is online (pod_rules.h).

#include <functional>
#include <gtest/gtest.h>
#include <optional>

#include "tests/e2e/kubernetes/kube_world.h"
#include "tests/e2e/kubernetes/small_kube_scheduler.h"

namespace qgpu::e2e::kube_wake_test {
namespace {

using Version = SmallKubeScheduler::Version;

struct KubeWake : KubeWorld, ::testing::WithParamInterface<Version> {
  void begin(const std::string& cards, std::vector<std::string> more = {}) {
    startAll(cards, std::move(more));
    kube.emplace(api, GetParam(), [this](const std::string& name) { return tryPod(name); });
  }
  void TearDown() override { kube.reset(); }

  // Refused at its only node, for a reason that begins so.
  bool refused(const std::string& name, const std::string& why) {
    return eventually([&] {
      const Json answer = kube->lastAnswer(name);
      return answer.is_object() && answer.contains("FailedNodes") &&
             answer["FailedNodes"].value(kNode, "").starts_with(why);
    });
  }
  // It is asked for in vain until something changes; what kube-scheduler did about it then.
  void settled(const std::string& name, const std::string& why) {
    ASSERT_TRUE(refused(name, why)) << kube->lastAnswer(name);
    std::size_t before = 0;
    ASSERT_TRUE(eventually([&] {
      return std::exchange(before, kube->tries(name)) == kube->tries(name) && before != 0;
    }));
  }
  bool runs(const std::string& name) { return reaches(name, "Running"); }
  void label(const std::string& name, const std::string& value) {
    api.change("nodes", "", kNode, [&](Json& node) { node["metadata"]["labels"][name] = value; });
  }
  // Milliseconds of this machine's time from `change` until the pod is bound.
  std::int64_t msUntilBound(const std::string& name, const std::function<void()>& change) {
    const std::int64_t began = monotonicNs();
    change();
    EXPECT_TRUE(eventually([&] { return pod(name)["spec"].contains("nodeName"); }))
        << name << kube->lastAnswer(name);
    return (monotonicNs() - began) / 1'000'000;
  }

  PlainTenant first{dir.path() + "/first"};
  PlainTenant second{dir.path() + "/second"};
  std::optional<SmallKubeScheduler> kube;
};

TEST_P(KubeWake, AManagerThatIsBackWhenKubeletCountsItsDevices) {
  begin("sim:1x16");
  ASSERT_EQ(manager->stop(), 0) << manager->log();
  create("next", {30, 5}, first.command());
  settled("next", "ManagerStarting: card 0 ManagerStarting (its manager is starting");
  kubelet.devices().setCounts(false);
  manager->start();
  ASSERT_TRUE(eventually([&] { return served(); })) << "kubelet was told";
  EXPECT_FALSE(eventually([&] { return phase("next") != "Pending"; }, std::chrono::seconds(1)))
      << pod("next");
  EXPECT_TRUE(refused("next", "ManagerStarting"));
  kubelet.devices().setCounts(true);
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next") << kubelet.trouble("next");
  EXPECT_TRUE(agrees());
}

TEST_P(KubeWake, AManagerThatWasKilledAndIsBackWhenKubeletCountsItsDevices) {
  begin("sim:1x16");
  manager->kill();
  kubelet.devices().setCounts(false);
  manager->start();
  const auto starting = [&] {
    const Json node = api.find("nodes", "", kNode);
    const std::string cards = node["metadata"]["annotations"].value("qgpu.io/cards", "");
    return cards.find("\"starting\"") != std::string::npos;
  };
  ASSERT_TRUE(eventually(starting));
  create("next", {30, 5}, first.command());
  settled("next", "ManagerStarting");
  kubelet.devices().setCounts(true);
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next") << kubelet.trouble("next");
}

TEST_P(KubeWake, ACordonThatIsLiftedAndNobodyElseIsMoved) {
  begin("sim:1x16");
  ASSERT_TRUE(manager->ask("cordon sim-0")["ok"]);
  create("large", {30, 17}, second.command());
  create("next", {30, 5}, first.command());
  settled("next", "CardCordoned");
  settled("large", "CardTooSmall");
  const std::size_t tries = kube->tries("large");
  ASSERT_TRUE(manager->ask("uncordon sim-0")["ok"]);
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next");
  if (GetParam() == Version::V1_26) {
    EXPECT_EQ(kube->tries("large"), tries);
    EXPECT_FALSE(pod("large")["metadata"]["annotations"].contains("qgpu.io/woken"));
  }
}

TEST_P(KubeWake, ARoomWhoseContainerEndedWhileItsPodRunsOn) {
  begin("sim:2x16");  // kubelet and kube-scheduler would have enough in sum
  PlainTenant third(dir.path() + "/third");
  createPod("pair",
            {container("a", {60, 5}, first.command()), container("b", {60, 6}, second.command())});
  ASSERT_TRUE(runs("pair")) << kube->lastAnswer("pair");
  create("next", {60, 5}, third.command());
  settled("next", "CoreShort");
  first.end();
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next");
  EXPECT_EQ(phase("pair"), "Running");
  EXPECT_TRUE(agrees());
}

TEST_P(KubeWake, ALabelThatLetsOnlinePodsIn) {
  begin("sim:1x16");
  create("next", {0, 5, "online"}, first.command());
  settled("next", "NotMixedNode");
  label("mixed-qgpu-enable", "enable");
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next");
}

TEST_P(KubeWake, AKindOfCardThatIsFreeAgain) {
  label("mixed-qgpu-enable", "enable");
  begin("sim:2x16");
  PlainTenant third(dir.path() + "/third");
  createPod("pair",
            {container("a", {60, 5}, first.command()), container("b", {60, 6}, second.command())});
  ASSERT_TRUE(runs("pair")) << kube->lastAnswer("pair");
  create("next", {0, 5, "online"}, third.command());
  settled("next", "WrongTenancy");
  first.end();
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next");
  EXPECT_EQ(phase("pair"), "Running");
  EXPECT_TRUE(agrees());
}

TEST_P(KubeWake, ACordonThatIsLiftedAndAKindThatIsFreeWithinASecond) {
  label("mixed-qgpu-enable", "enable");
  begin("sim:2x16");
  PlainTenant third(dir.path() + "/third");
  ASSERT_TRUE(manager->ask("cordon sim-0")["ok"]);
  ASSERT_TRUE(manager->ask("cordon sim-1")["ok"]);
  createPod("pair",
            {container("a", {60, 5}, first.command()), container("b", {60, 6}, second.command())});
  settled("pair", "CardCordoned");
  EXPECT_LE(msUntilBound("pair",
                         [&] {
                           EXPECT_TRUE(manager->ask("uncordon sim-0")["ok"]);
                           EXPECT_TRUE(manager->ask("uncordon sim-1")["ok"]);
                         }),
            1000);
  ASSERT_TRUE(runs("pair")) << kube->lastAnswer("pair");
  create("next", {0, 5, "online"}, third.command());
  settled("next", "WrongTenancy");
  EXPECT_LE(msUntilBound("next", [&] { first.end(); }), 1000);
}

TEST_P(KubeWake, ALabelAndDevicesThatAreCountedWithinASecond) {
  begin("sim:1x16");
  create("labelled", {0, 5, "online"}, first.command());
  settled("labelled", "NotMixedNode");
  EXPECT_LE(msUntilBound("labelled", [&] { label("mixed-qgpu-enable", "enable"); }), 1000);
  ASSERT_TRUE(runs("labelled")) << kube->lastAnswer("labelled");
  ASSERT_EQ(manager->stop(), 0) << manager->log();
  kubelet.devices().setCounts(false);
  create("next", {0, 5, "online"}, second.command());
  settled("next", "ManagerStarting");
  manager->start();
  ASSERT_TRUE(eventually([&] { return served(); })) << "kubelet was told";
  EXPECT_LE(msUntilBound("next", [&] { kubelet.devices().setCounts(true); }), 1000);
}

TEST_P(KubeWake, PodsOfAGroupStartTogetherOnceAllAreHereAndFit) {
  begin("sim:1x16");
  PlainTenant third(dir.path() + "/third");
  create("other", {30, 5}, third.command());
  ASSERT_TRUE(runs("other")) << kube->lastAnswer("other");
  const auto ofGroup = [&](const std::string& name, const PlainTenant& tenant) {
    createPod(name, {container("main", {40, 6}, tenant.command())}, {}, "",
              {{"qgpu.io/group", "train"}, {"qgpu.io/group-size", "2"}});
  };
  ofGroup("rank-0", first);
  settled("rank-0", "GroupWaits: 1 of 2 pods of its group are here");
  ofGroup("rank-1", second);
  settled("rank-1", "GroupWaits: 2 pods of its group are to start at once, and 1 fit");
  EXPECT_EQ(phase("rank-0"), "Pending");
  third.end();
  for (const char* name : {"rank-0", "rank-1"}) {
    EXPECT_TRUE(runs(name)) << kube->lastAnswer(name);
  }
  EXPECT_TRUE(agrees());
}

TEST_P(KubeWake, ASchedulerThatIsBack) {
  begin("sim:1x16");
  ASSERT_EQ(scheduler->stop(), 0);
  create("next", {30, 5}, first.command());
  ASSERT_TRUE(eventually([&] { return kube->tries("next") != 0; }));
  scheduler->start();
  EXPECT_TRUE(runs("next")) << kube->lastAnswer("next");
}

INSTANTIATE_TEST_SUITE_P(KubeScheduler, KubeWake, ::testing::Values(Version::V1_26, Version::V1_36),
                         [](const auto& of) {
                           return of.param == Version::V1_26 ? "V1_26" : "V1_36";
                         });

}  // namespace
}  // namespace qgpu::e2e::kube_wake_test
