// Claims on one node (claims_world.h), and tenants that attach with what a claim gave them.

#include <atomic>
#include <filesystem>

#include "services/attach/testing/guest_client.h"
#include "tests/e2e/kubernetes/claims_world.h"
#include "tests/e2e/kubernetes/elsewhere.h"

namespace qgpu::e2e::claims_test {
namespace {

namespace fs = std::filesystem;

TEST_F(Claims, ANodeOfferedToClaimsHasASliceAndNoAnnotation) {
  start();
  if (HasFatalFailure()) return;
  EXPECT_EQ(info.type, "DRAPlugin");
  EXPECT_EQ(info.name, "qgpu.io");
  EXPECT_EQ(info.versions,
            (std::vector<std::string>{"v1.DRAPlugin", "v1alpha1.DRAResourceHealth"}));
  const Json devices = slice()["spec"]["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]["name"], "sim-0");
  EXPECT_EQ(devices[0]["capacity"]["memory"]["value"], "16Gi");
  EXPECT_FALSE(api.find("nodes", "", kNode)["metadata"]["annotations"].contains("qgpu.io/cards"));
}

TEST_F(Claims, AClaimIsATaskOfItsCardUntilItIsTakenBack) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-1", {{"memory", "4Gi"}, {"core", "30"}, {"tasks", "1"}});
  const auto prepared = prepare("train");
  ASSERT_EQ(prepared.error, "") << manager->log();
  ASSERT_EQ(prepared.devices.size(), 1u);
  EXPECT_EQ(prepared.devices[0].request, "gpu");
  EXPECT_EQ(prepared.devices[0].pool, kNode);
  EXPECT_EQ(prepared.devices[0].device, "sim-1");
  EXPECT_EQ(prepared.devices[0].share, "share-train");
  ASSERT_EQ(prepared.cdiDevices, std::vector<std::string>{"qgpu.io/claim=uid-train-0"});

  const Json tasks = manager->tasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0]["name"], "web/train/gpu");
  EXPECT_EQ(tasks[0]["card"], "sim-1");
  EXPECT_EQ(tasks[0]["class"], "ordinary");

  // The same again, as for each pod that shares the claim.
  const std::string token = container(prepared, "train").token();
  EXPECT_FALSE(token.empty());
  const auto again = prepare("train");
  EXPECT_EQ(again.error, "");
  EXPECT_EQ(container(again, "train").token(), token);
  EXPECT_EQ(manager->tasks().size(), 1u);

  EXPECT_EQ(unprepare("train"), "");
  EXPECT_TRUE(manager->tasks().empty());
  EXPECT_FALSE(fs::exists(cdiDir() + "/qgpu.io-claim-uid-train.json"));
  EXPECT_EQ(unprepare("train"), "") << "it is taken back already";
}

TEST_F(Claims, AContainerOfAClaimAttachesAndAClaimInUseIsNotTakenBack) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  const auto prepared = prepare("train");
  ASSERT_EQ(prepared.error, "");
  PlainTenant tenant(dir.path() + "/tenant");
  Child program(tenant.command(), onHost(container(prepared, "train")));
  ASSERT_TRUE(eventually([&] { return tenant.attached(); })) << manager->log();
  EXPECT_NE(unprepare("train").find("processes of the claim's task"), std::string::npos);
  EXPECT_TRUE(tenant.launchesOn());
  tenant.end();
  program.wait();
  EXPECT_TRUE(eventually([&] { return unprepare("train").empty(); })) << manager->log();
}

TEST_F(Claims, ARefusedClaimSaysWhy) {
  start();
  if (HasFatalFailure()) return;
  EXPECT_NE(prepare("nobody").error.find("nobody"), std::string::npos);
  allocate("none", "sim-9", {{"memory", "2Gi"}, {"core", "50"}});
  EXPECT_EQ(prepare("none").error, "this node has no card of device 'sim-9'");
  allocate("fast", "sim-0", {{"memory", "2Gi"}}, "online");
  EXPECT_NE(prepare("fast").error.find("this node has no label mixed-qgpu-enable=enable"),
            std::string::npos);
  allocate("large", "sim-0", {{"memory", "17Gi"}, {"core", "50"}});
  EXPECT_NE(prepare("large").error, "");
  EXPECT_TRUE(manager->tasks().empty());
  // And who looks at the claim is told.
  const Json told = event("QGPUClaimRefused", "fast");
  ASSERT_FALSE(told.is_null());
  EXPECT_EQ(told["involvedObject"], Json({{"apiVersion", "resource.k8s.io/v1"},
                                          {"kind", "ResourceClaim"},
                                          {"namespace", kSpace},
                                          {"name", "fast"},
                                          {"uid", "uid-fast"}}));
  const std::string said = told["message"];
  EXPECT_TRUE(said.starts_with("not prepared on node n1: claim web/fast, request 'gpu' is online"))
      << said;
}

// It would pass over them without a word.
TEST_F(Claims, NoneIsPreparedForARuntimeThatGivesNoCdiDevices) {
  api.change("nodes", "", kNode, [](Json& node) {
    node["status"]["nodeInfo"]["containerRuntimeVersion"] = "containerd://1.6.20~ds1";
  });
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  EXPECT_TRUE(prepare("train").error.starts_with(
      "containerd://1.6.20~ds1 gives containers no CDI devices"));
  EXPECT_TRUE(manager->tasks().empty());
}

TEST_F(Claims, PreparedClaimsOutliveTheManager) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  const auto before = prepare("train");
  ASSERT_EQ(before.error, "");
  const std::string token = container(before, "train").token();
  manager->kill();
  manager->start();
  ASSERT_TRUE(eventually([&] { return kubelet.find("qgpu.io", info); })) << manager->log();
  ASSERT_TRUE(eventually([&] { return prepare("train").error.empty(); })) << manager->log();
  EXPECT_EQ(container(before, "train").token(), token);
  EXPECT_EQ(manager->tasks().size(), 1u);
}

TEST_F(Claims, WhatBecomesOfAClaimIsToldToThePodsThatUseIt) {
  start();
  if (HasFatalFailure()) return;
  const Json consumed = {{"memory", "2Gi"}, {"core", "50"}};
  allocate("train", "sim-0", consumed, "ordinary", Json::array({user("p1")}));
  const auto prepared = prepare("train");
  ASSERT_EQ(prepared.error, "");
  const Json got = event("QGPUAllocated", "p1");
  ASSERT_FALSE(got.is_null());
  EXPECT_EQ(got["message"], "request gpu of claim train has sim-0");
  EXPECT_EQ(got["involvedObject"]["kind"], "Pod");
  EXPECT_EQ(got["involvedObject"]["uid"], "uid-p1");
  EXPECT_EQ(got["involvedObject"]["namespace"], kSpace);

  // Another one shares it.
  allocate("train", "sim-0", consumed, "ordinary", Json::array({user("p1"), user("p2")}));
  ASSERT_EQ(prepare("train").error, "");
  EXPECT_EQ(event("QGPUAllocated", "p2")["message"], got["message"]);
  EXPECT_EQ(event("QGPUAllocated", "p1")["count"], got["count"]) << "it has it already";

  auto client =
      GuestClient::attach(manager->runDir() + "/attach.sock", container(prepared, "train").token());
  ASSERT_TRUE(client.ok()) << client.error().message;
  std::atomic_ref(client->slot().refused).fetch_add(7);
  for (const char* pod : {"p1", "p2"}) {
    const std::string said = event("QGPUMemoryOverrun", pod)["message"];
    EXPECT_TRUE(said.starts_with("request gpu of claim train: 7 allocations failed")) << said;
  }
}

TEST_F(Claims, MetricsAndEventsOfAClaimNameItsPodOverARestart) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}}, "ordinary",
           Json::array({user("p1")}));
  const auto prepared = prepare("train");
  ASSERT_EQ(prepared.error, "");
  const auto labelled = [&] {
    const std::string labels =
        std::string(",namespace=\"") + kSpace + "\",pod=\"p1\",container=\"gpu\"} ";
    return manager->get("/metrics").find(labels) != std::string::npos;
  };
  EXPECT_TRUE(labelled()) << manager->get("/metrics");
  manager->kill();
  manager->start();
  EXPECT_TRUE(eventually(labelled)) << manager->log();
  auto client =
      GuestClient::attach(manager->runDir() + "/attach.sock", container(prepared, "train").token());
  ASSERT_TRUE(client.ok()) << client.error().message;
  std::atomic_ref(client->slot().refused).fetch_add(1);
  EXPECT_FALSE(event("QGPUMemoryOverrun", "p1").is_null());
}

TEST_F(Claims, ASliceThatSomebodyTookAwayIsThereAgain) {
  start();
  if (HasFatalFailure()) return;
  const std::map<std::string, bool> well = {{"sim-0", true}, {"sim-1", true}};
  EXPECT_EQ(kubelet.health(), well);
  ASSERT_TRUE(manager->ask("cordon sim-0")["ok"]);
  ASSERT_TRUE(eventually([&] { return slice()["spec"]["devices"][0].contains("taints"); }))
      << slice();
  EXPECT_EQ(slice()["spec"]["devices"][0]["taints"][0]["value"], "cordoned");
  ASSERT_TRUE(eventually([&] { return kubelet.health() != well; }));
  EXPECT_FALSE(kubelet.health().at("sim-0"));
  api.remove("resourceslices", "", kSlice);
  ASSERT_TRUE(manager->ask("uncordon sim-0")["ok"]);
  EXPECT_TRUE(eventually([&] { return !slice().is_null(); }));
}

TEST_F(Claims, AllRightsThatTheManagerHasForThemAreUsed) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  ASSERT_EQ(prepare("train").error, "");
  EXPECT_EQ(unprepare("train"), "");
  ASSERT_TRUE(manager->ask("cordon sim-0")["ok"]);
  ASSERT_TRUE(eventually([&] { return slice()["spec"]["devices"][0].contains("taints"); }));
  label("qgpu.io/claims", "disable");
  ASSERT_TRUE(eventually([&] { return slice().is_null(); })) << manager->log();
  EXPECT_EQ(unused(api, kRightsForClaims), Rights());
}

// NVIDIA's driver, whose devices kube-scheduler counts apart from ours.
TEST_F(Claims, ACardThatAnotherDriverGivesIsGivenByUsNeitherWay) {
  const auto of = [](const std::string& name, const std::string& node) {
    return Json{{"metadata", {{"name", name}}},
                {"spec",
                 {{"driver", "gpu.nvidia.com"},
                  {"nodeName", node},
                  {"devices", Json::array({{{"name", "gpu-0"}}})}}}};
  };
  api.put("resourceslices", of("n2-gpu.nvidia.com", "n2"));
  start();
  if (HasFatalFailure()) return;
  api.put("resourceslices", of("n1-gpu.nvidia.com", kNode));
  ASSERT_TRUE(eventually([&] { return slice().is_null(); })) << manager->log();
  const Json told = event("QGPUNodeRefused", kNode);
  EXPECT_NE(told["message"].get<std::string>().find("gpu.nvidia.com"), std::string::npos) << told;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  EXPECT_NE(prepare("train").error, "");
  label("qgpu.io/claims", "disable");
  api.remove("resourceslices", "", "n1-gpu.nvidia.com");
  EXPECT_FALSE(event("QGPUNodeServed", kNode).is_null());
  EXPECT_TRUE(eventually([&] {
    return api.find("nodes", "", kNode)["metadata"]["annotations"].contains("qgpu.io/cards");
  }));
  EXPECT_TRUE(manager->tasks().empty());
}

TEST_F(Claims, AManagerThatIsToldToLabelsItsNodeAndKeepsWhatOthersWrote) {
  const auto labels = [&]() -> Json { return api.find("nodes", "", kNode)["metadata"]["labels"]; };
  const auto change = [&](const std::function<void(Json&)>& how) {
    api.change("nodes", "", kNode, how);
  };
  change([](Json& node) { node["metadata"]["labels"].erase("qgpu-device-enable"); });
  start({"--label-node"});  // and its slice is there, as on a node that has the label
  if (HasFatalFailure()) return;
  EXPECT_EQ(labels()["qgpu-device-enable"], "enable");
  EXPECT_EQ(labels()["qgpu.io/claims"], "enable");
  label("qgpu-device-enable", "disable");
  ASSERT_TRUE(eventually([&] { return slice().is_null(); })) << manager->log();
  EXPECT_EQ(labels()["qgpu-device-enable"], "disable");
  // One that others serve is not named as ours.
  change([](Json& node) {
    node["metadata"]["labels"].erase("qgpu-device-enable");
    node["status"]["allocatable"]["nvidia.com/gpu"] = "2";
  });
  EXPECT_FALSE(event("QGPUNodeRefused", kNode).is_null());
  EXPECT_FALSE(labels().contains("qgpu-device-enable"));
  change([](Json& node) { node["status"]["allocatable"].erase("nvidia.com/gpu"); });
  EXPECT_TRUE(eventually([&] { return labels().contains("qgpu-device-enable"); }));
}

TEST_F(Claims, NeitherWayGivesCardsWhileTasksOfTheOtherLive) {
  start();
  if (HasFatalFailure()) return;
  allocate("train", "sim-0", {{"memory", "2Gi"}, {"core", "50"}});
  ASSERT_EQ(prepare("train").error, "");
  const auto annotated = [&] {
    return api.find("nodes", "", kNode)["metadata"]["annotations"].contains("qgpu.io/cards");
  };
  label("qgpu.io/claims", "disable");
  ASSERT_TRUE(eventually([&] { return slice().is_null(); })) << manager->log();
  EXPECT_FALSE(annotated());
  allocate("more", "sim-1", {{"memory", "2Gi"}, {"core", "50"}});
  EXPECT_NE(prepare("more").error, "");
  EXPECT_EQ(unprepare("train"), "");
  EXPECT_TRUE(eventually(annotated)) << manager->log();
}

}  // namespace
}  // namespace qgpu::e2e::claims_test
