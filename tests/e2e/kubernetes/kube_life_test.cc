// A pod's whole life, with the real scheduler, manager and device plugin together: from filter to
// the end of its processes, and what each of them, and the API server, hold in between.

#include <fstream>

#include "tests/e2e/kubernetes/kube_world.h"

namespace qgpu::e2e::kube_life_test {
namespace {

struct KubeLife : KubeWorld {
  PlainTenant tenant{dir.path() + "/tenant"};
};

TEST_F(KubeLife, APodGoesFromFilterToItsEndAndEveryViewIsTheSame) {
  startAll();
  create("train", {30, 5}, tenant.command());
  const Json before = pod("train");
  const Json args{{"Pod", before}, {"Nodes", nullptr}, {"NodeNames", {kNode}}};
  EXPECT_EQ(scheduler->post("filter", args)["NodeNames"], Json{kNode});
  EXPECT_EQ(scheduler->post("priorities", args), (Json{{{"Host", kNode}, {"Score", 10}}}));
  const Json asked = pod("train");
  EXPECT_EQ(asked["spec"], before["spec"]) << "neither has an effect";
  EXPECT_FALSE(asked["metadata"].value("annotations", Json::object()).contains("qgpu.io/assigned"));
  EXPECT_TRUE(scheduler->tasks().empty());

  EXPECT_EQ(cycle("train"), (Json{{"Error", ""}}));
  const Json bound = pod("train");
  EXPECT_EQ(bound["spec"]["nodeName"], kNode);
  const Json assigned =
      Json::parse(bound["metadata"]["annotations"]["qgpu.io/assigned"].get<std::string>());
  const std::string card = assigned["main"][0];

  ASSERT_TRUE(reaches("train", "Running")) << kubelet.trouble("train");
  ASSERT_TRUE(eventually([&] { return tenant.attached(); }));
  const Json task = manager->task("web/train/main");
  EXPECT_EQ(task["card"], card);
  EXPECT_EQ(task["share_permille"], 300);
  EXPECT_EQ(task["mem_bytes"], std::uint64_t{5} << 30);
  EXPECT_TRUE(eventually([&] { return manager->task("web/train/main")["processes"] == 1; }));
  EXPECT_TRUE(tenant.launchesOn());
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 5u);
  for (const char* reason : {"QGPUScheduled", "QGPUAllocated"}) {
    EXPECT_TRUE(eventually([&] { return !api.event(reason).is_null(); })) << reason;
  }

  tenant.end();
  ASSERT_TRUE(reaches("train", "Succeeded"));
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 0u);
  EXPECT_TRUE(eventually([&] { return scheduler->tasks().empty(); }));
  EXPECT_TRUE(eventually([&] { return manager->tasks().empty(); }));
  EXPECT_EQ(tenant.record().overQuota.load(), 0u);
}

TEST_F(KubeLife, AnOpenClProgramOnARealCardEndsWithItsResultsRight) {
  startAll("opencl", {"--max-tasks-per-card=8"});
  create("train", {40, 1},
         {binary("qgpu-work"), "--seconds=1", "--memory-mib=16", "--json", "--loops-per-ms=1000"});
  ASSERT_TRUE(schedule("train"));
  ASSERT_TRUE(eventually([&] { return manager->task("web/train/main")["processes"] == 1; }))
      << kubelet.trouble("train");
  EXPECT_TRUE(agrees());
  EXPECT_TRUE(reaches("train", "Succeeded"));
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 0u);
}

TEST_F(KubeLife, APodThatFindsNoRoomWaitsAndRunsWhenAnotherHasEnded) {
  startAll("sim:1x16");
  PlainTenant second(dir.path() + "/second");
  create("first", {60, 12}, tenant.command());
  create("second", {60, 12}, second.command());
  ASSERT_TRUE(schedule("first"));
  ASSERT_TRUE(reaches("first", "Running"));
  const Json refused = cycle("second");
  EXPECT_EQ(refused["FailedNodes"][kNode].get<std::string>().rfind("MemShort", 0), 0u) << refused;
  tenant.end();
  ASSERT_TRUE(schedule("second"));
  ASSERT_TRUE(reaches("second", "Running")) << kubelet.trouble("second");
  EXPECT_TRUE(agrees());
  second.end();
  EXPECT_TRUE(reaches("second", "Succeeded"));
  EXPECT_TRUE(agrees());
}

TEST_F(KubeLife, TheRoomOfAContainerThatEndedIsFreeWhileItsPodRunsOn) {
  startAll("sim:1x16");
  PlainTenant other(dir.path() + "/other");
  createPod("pair",
            {container("a", {30, 5}, tenant.command()), container("b", {40, 6}, other.command())});
  ASSERT_TRUE(schedule("pair"));
  ASSERT_TRUE(reaches("pair", "Running")) << kubelet.trouble("pair");
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 11u);
  tenant.end();
  EXPECT_TRUE(eventually([&] { return boundGib() == 6; }));
  EXPECT_TRUE(agrees());
  EXPECT_TRUE(other.launchesOn());
  other.end();
  EXPECT_TRUE(reaches("pair", "Succeeded"));
  EXPECT_TRUE(agrees());
}

// --- init containers: kubelet's PodResources does not list them ---

TEST_F(KubeLife, AnInitContainerUsesTheRoomOfAMainOne) {
  startAll("sim:1x16");
  for (const Asks& asks : {Asks{20, 4}, Asks{40, 6}}) {  // less than the main one, and the same
    PlainTenant warm(dir.path() + "/warm" + std::to_string(asks.gib));
    PlainTenant main(dir.path() + "/main" + std::to_string(asks.gib));
    const std::string name = "warmed-" + std::to_string(asks.gib);
    createPod(name, {container("main", {40, 6}, main.command())},
              {container("warm", asks, warm.command())});
    ASSERT_TRUE(schedule(name));
    ASSERT_TRUE(eventually([&] { return warm.attached(); })) << kubelet.trouble(name);
    EXPECT_TRUE(agrees());
    EXPECT_EQ(boundGib(), 6u);
    warm.end();
    ASSERT_TRUE(reaches(name, "Running")) << kubelet.trouble(name);
    ASSERT_TRUE(eventually([&] { return main.attached(); }));
    EXPECT_EQ(manager->tasks().size(), 1u);
    main.end();
    EXPECT_TRUE(reaches(name, "Succeeded"));
    EXPECT_TRUE(agrees());
  }
}

TEST_F(KubeLife, AnInitContainerThatIsSlowToAttachKeepsItsTask) {
  startAll("sim:1x16");
  const std::string go = dir.path() + "/go";
  PlainTenant warm(dir.path() + "/warm");
  std::vector<std::string> slow = {
      "/bin/sh", "-c", "while [ ! -e " + go + " ]; do sleep 0.05; done; exec \"$@\"", "sh"};
  for (const std::string& word : warm.command()) slow.push_back(word);
  createPod("warmed", {container("main", {40, 6}, tenant.command())},
            {container("warm", {20, 4}, slow)});
  ASSERT_TRUE(schedule("warmed"));
  ASSERT_TRUE(eventually([&] { return boundGib() == 6; })) << kubelet.trouble("warmed");
  EXPECT_FALSE(eventually([&] { return boundGib() == 0; }, std::chrono::seconds(1)));
  std::ofstream(go) << "go";
  EXPECT_TRUE(eventually([&] { return warm.attached(); }));
  warm.end();
  ASSERT_TRUE(reaches("warmed", "Running"));
  tenant.end();
  EXPECT_TRUE(reaches("warmed", "Succeeded"));
}

// Both have the same devices of qgpu-core, and each its own quota.
TEST_F(KubeLife, AnInitContainerWithMoreMemoryHasARoomOfItsOwn) {
  startAll("sim:1x16");
  PlainTenant warm(dir.path() + "/warm");
  createPod("warmed", {container("main", {30, 4}, tenant.command())},
            {container("warm", {30, 8}, warm.command())});
  ASSERT_TRUE(schedule("warmed"));
  ASSERT_TRUE(eventually([&] { return warm.attached(); })) << kubelet.trouble("warmed");
  const auto processesOf = [&](const char* name) {
    const Json task = manager->task(name);
    return task.is_null() ? Json() : task["processes"];
  };
  EXPECT_TRUE(eventually([&] { return processesOf("web/warmed/warm") == 1; })) << manager->tasks();
  EXPECT_EQ(manager->task("web/warmed/warm")["mem_bytes"], std::uint64_t{8} << 30);
  warm.end();
  ASSERT_TRUE(reaches("warmed", "Running")) << kubelet.trouble("warmed");
  EXPECT_TRUE(eventually([&] { return processesOf("web/warmed/main") == 1; })) << manager->tasks();
  EXPECT_TRUE(agrees());
  EXPECT_EQ(boundGib(), 4u);
  tenant.end();
  EXPECT_TRUE(reaches("warmed", "Succeeded"));
  EXPECT_TRUE(agrees());
}

}  // namespace
}  // namespace qgpu::e2e::kube_life_test
