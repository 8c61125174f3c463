// Kubelet, played by a test over the real gRPC, the real device plugin and a real manager: lists
// and health, containers that become tasks, restarts of everybody, and what is over.

#include <algorithm>
#include <capnp/ez-rpc.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>

#include "schema/node.capnp.h"
#include "services/kubernetes/device_plugin/testing/kubelet_stand_in.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/container.h"

namespace qgpu::e2e::kubelet_test {
namespace {

using qgpu::testing::KubeletStandIn;
using Counts = KubeletStandIn::Counts;
using PodApi = KubeletStandIn::PodApi;
namespace fs = std::filesystem;

constexpr const char* kPrefix = "tke.cloud.tencent.com";
constexpr std::uint64_t kGiB = 1ULL << 30;

struct Planned {
  std::string container;
  std::vector<std::string> cards;
  std::uint64_t gib = 0;
  std::uint32_t percent = 0;
};

// Folder, kubelet, and a manager that starts the plugin.
struct Kubelet : ::testing::Test {
  TempFolder dir;
  std::unique_ptr<Manager> manager;
  std::unique_ptr<KubeletStandIn> kubelet;
  std::vector<std::string> managerFlags = {"--cards=sim:2x16"};
  std::string pluginConfig;

  void SetUp() override { kubelet = stand(PodApi::V1); }

  std::unique_ptr<KubeletStandIn> stand(PodApi api) {
    return std::make_unique<KubeletStandIn>(dir.path() + "/kubelet", kPrefix, api);
  }
  void startManager() {
    std::vector<std::string> flags = managerFlags;
    if (!pluginConfig.empty()) {
      std::ofstream(dir.path() + "/plugin.conf") << pluginConfig;
      flags.push_back("--kubelet-config=" + dir.path() + "/plugin.conf");
    }
    flags.push_back("--kubelet=on");
    flags.push_back("--kubelet-dir=" + dir.path() + "/kubelet");
    manager = std::make_unique<Manager>(flags);
  }
  // Everything, with the plugin that the manager starts.
  void startAll() {
    kubelet->start();
    startManager();
    ASSERT_TRUE(eventually([&] { return serves({"qgpu-core", "qgpu-memory"}); })) << manager->log();
  }
  bool serves(const std::vector<std::string>& resources) {
    return std::all_of(resources.begin(), resources.end(),
                       [this](const std::string& resource) { return healthy(resource) != 0; });
  }
  bool isServed() { return serves({"qgpu-core", "qgpu-memory"}); }
  std::size_t healthy(const std::string& resource) {
    std::size_t count = 0;
    for (const auto& [id, is] : kubelet->devices(resource)) count += is ? 1 : 0;
    return count;
  }

  void withHandler(
      const std::function<void(schema::KubeletHandler::Client&, kj::WaitScope&)>& use) {
    capnp::EzRpcClient client("unix:" + manager->runDir() + "/manager.rpc");
    auto handler = client.getMain<schema::Node>().kubeletRequest().send().getHandler();
    use(handler, client.getWaitScope());
  }
  void assign(const std::string& uid, const std::string& pod, schema::TaskClass taskClass,
              const std::vector<Planned>& containers) {
    withHandler([&](schema::KubeletHandler::Client& handler, kj::WaitScope& wait) {
      auto request = handler.assignRequest();
      auto plan = request.initPod();
      plan.setUid(uid);
      plan.setNamespace("default");
      plan.setName(pod);
      plan.setClass(taskClass);
      auto list = plan.initContainers(static_cast<kj::uint>(containers.size()));
      for (kj::uint i = 0; i < list.size(); ++i) {
        const Planned& from = containers[i];
        list[i].setName(from.container);
        auto cards = list[i].initCards(static_cast<kj::uint>(from.cards.size()));
        for (kj::uint c = 0; c < cards.size(); ++c) cards.set(c, from.cards[c]);
        list[i].setMemBytes(from.gib * kGiB);
        list[i].setSharePermille(from.percent * 10);
      }
      request.send().wait(wait);
    });
  }
  void assignOrdinary(const std::string& uid, const std::string& pod, const std::string& card,
                      std::uint64_t gib, std::uint32_t percent) {
    assign(uid, pod, schema::TaskClass::ORDINARY, {{"main", {card}, gib, percent}});
  }

  // The plugin that runs now; 0: none does.
  pid_t pluginPid() const {
    const std::string children = "/proc/" + std::to_string(manager->pid()) + "/task/" +
                                 std::to_string(manager->pid()) + "/children";
    const std::string pids = contentOf(children);
    return pids.empty() ? 0 : std::stoi(pids);
  }

  std::uint64_t boundGib() {
    std::uint64_t bytes = 0;
    for (const Json& card : manager->cards()) {
      bytes += card["mem_bound_bytes"].get<std::uint64_t>();
    }
    return bytes / kGiB;
  }
};

const ContainerName kMain{"default", "train-0", "main"};

TEST_F(Kubelet, EachCardHasAHundredOfCoreAndOneForEachGibibyteAndNoGreedyOnes) {
  startAll();
  EXPECT_TRUE(eventually([&] { return kubelet->devices("qgpu-core").size() == 200; }));
  EXPECT_TRUE(eventually([&] { return kubelet->devices("qgpu-memory").size() == 32; }));
  EXPECT_TRUE(kubelet->devices("qgpu-core").contains("sim-1_c99"));
  EXPECT_EQ(kubelet->registered(), (std::vector<std::string>{"qgpu-core", "qgpu-memory"}));
}

TEST_F(Kubelet, AMixedNodeHasGreedyDevicesAsWell) {
  managerFlags.push_back("--mixed");
  startAll();
  EXPECT_TRUE(eventually([&] { return kubelet->devices("qgpu-core-greedy").size() == 200; }));
}

TEST_F(Kubelet, ACordonedCardIsUnhealthyAndComesBack) {
  startAll();
  EXPECT_TRUE(eventually([&] { return healthy("qgpu-core") == 200; }));
  ASSERT_TRUE(manager->ask("cordon sim-0")["ok"]);
  EXPECT_TRUE(eventually([&] { return healthy("qgpu-core") == 100; }));
  EXPECT_TRUE(eventually([&] { return healthy("qgpu-memory") == 16; }));
  EXPECT_FALSE(kubelet->devices("qgpu-core").at("sim-0_c0"));
  ASSERT_TRUE(manager->ask("uncordon sim-0")["ok"]);
  EXPECT_TRUE(eventually([&] { return healthy("qgpu-core") == 200; }));
}

TEST_F(Kubelet, PrefersDevicesOfOneCard) {
  startAll();
  const std::vector<std::string> chosen = kubelet->prefer(
      "qgpu-core", {"sim-0_c1", "sim-0_c2", "sim-1_c1", "sim-1_c2", "sim-1_c3"}, {}, 3);
  EXPECT_EQ(chosen, (std::vector<std::string>{"sim-1_c1", "sim-1_c2", "sim-1_c3"}));
}

TEST_F(Kubelet, CoreAndMemoryOfOneContainerAreOneTaskWithItsQuotaAndShare) {
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-1", 4, 30);
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
  ASSERT_TRUE(admitted.ok()) << admitted.error;
  EXPECT_EQ(manager->tasks().size(), 0u) << "nobody knows yet whose devices these are";
  const auto started = kubelet->startContainer(kMain);
  ASSERT_TRUE(started.ok()) << started.error;
  const Json tasks = manager->tasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0]["name"], "default/train-0/main");
  EXPECT_EQ(tasks[0]["card"], "sim-1");
  EXPECT_EQ(tasks[0]["share_permille"], 300);
  EXPECT_EQ(tasks[0]["mem_bytes"], 4 * kGiB);
  EXPECT_EQ(Container(admitted).token().size(), 32u);
}

TEST_F(Kubelet, AContainerGetsTheLibraryTheDoorAndNoOtherSocket) {
  startAll();
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 10}, {"qgpu-memory", 1}});
  ASSERT_TRUE(admitted.ok()) << admitted.error;
  for (const auto& [resource, setup] : admitted.setups) {
    const auto& env = setup.environment;
    EXPECT_EQ(env.at("LD_PRELOAD"), env.at("OPENCL_LAYERS"));
    const std::string library = setup.mounts.at(env.at("LD_PRELOAD"));
    EXPECT_EQ(contentOf(library), contentOf(testing::library())) << library;
    const fs::path socket = env.at("QGPU_SOCKET");
    const std::string actor = setup.mounts.at(socket.parent_path());
    EXPECT_TRUE(fs::is_socket(actor + "/" + socket.filename().string())) << actor;
    EXPECT_EQ(std::distance(fs::directory_iterator(actor), fs::directory_iterator()), 1) << actor;
  }
}

TEST_F(Kubelet, AContainerThatNobodyToldOfIsRefusedAndSaysWhy) {
  startAll();
  assignOrdinary("uid-1", "other", "sim-0", 4, 30);
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
  ASSERT_TRUE(admitted.ok()) << admitted.error;
  const auto started = kubelet->startContainer(kMain);
  EXPECT_NE(started.error.find("default/train-0"), std::string::npos) << started.error;
  EXPECT_NE(started.error.find("qgpu-scheduler"), std::string::npos) << started.error;
  EXPECT_EQ(manager->tasks().size(), 0u);
}

TEST_F(Kubelet, DevicesOfNobodyAreRefused) {
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-0", 4, 30);
  const std::string error = kubelet->preStart("qgpu-core", {"sim-0_c1", "sim-0_c2"});
  EXPECT_NE(error.find("PodResources lists no container"), std::string::npos) << error;
}

TEST_F(Kubelet, OtherAmountsThanTheSchedulersAreRefused) {
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-0", 4, 30);
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 5}}).error, "");
  const auto started = kubelet->startContainer(kMain);
  EXPECT_NE(started.error.find("5 of qgpu-memory"), std::string::npos) << started.error;
  EXPECT_NE(started.error.find("decided upon 4"), std::string::npos) << started.error;
}

TEST_F(Kubelet, WholeCardsAreThoseThatWereChosen) {
  managerFlags = {"--cards=sim:3x16"};
  startAll();
  assign("uid-1", "train-0", schema::TaskClass::ORDINARY, {{"main", {"sim-0", "sim-2"}, 0, 100}});
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 200}}).error, "");
  const auto started = kubelet->startContainer(kMain);
  ASSERT_TRUE(started.ok()) << started.error;
  EXPECT_EQ(manager->tasks()[0]["card"], "sim-0,sim-2");
}

TEST_F(Kubelet, ContainersOfOnePodMaySitOnSeveralCards) {
  startAll();
  assign("uid-1", "train-0", schema::TaskClass::ORDINARY,
         {{"a", {"sim-0"}, 2, 20}, {"b", {"sim-1"}, 3, 50}});
  const ContainerName a{"default", "train-0", "a"};
  const ContainerName b{"default", "train-0", "b"};
  ASSERT_EQ(kubelet->admit(a, {{"qgpu-core", 20}, {"qgpu-memory", 2}}).error, "");
  ASSERT_EQ(kubelet->admit(b, {{"qgpu-core", 50}, {"qgpu-memory", 3}}).error, "");
  ASSERT_EQ(kubelet->startContainer(b).error, "");
  ASSERT_EQ(kubelet->startContainer(a).error, "");
  EXPECT_EQ(manager->task("default/train-0/a")["card"], "sim-0");
  EXPECT_EQ(manager->task("default/train-0/b")["card"], "sim-1");
}

TEST_F(Kubelet, OnlineAndOfflinePodsNeedAMixedNode) {
  managerFlags.push_back("--mixed");
  startAll();
  ASSERT_TRUE(eventually([&] { return healthy("qgpu-core-greedy") == 200; }));
  assign("uid-1", "serve", schema::TaskClass::ONLINE, {{"main", {"sim-0"}, 2, 0}});
  assign("uid-2", "batch", schema::TaskClass::OFFLINE, {{"main", {"sim-0"}, 3, 40}});
  const ContainerName serve{"default", "serve", "main"};
  const ContainerName batch{"default", "batch", "main"};
  ASSERT_EQ(kubelet->admit(serve, {{"qgpu-memory", 2}}).error, "");
  ASSERT_EQ(kubelet->admit(batch, {{"qgpu-core-greedy", 40}, {"qgpu-memory", 3}}).error, "");
  const auto served = kubelet->startContainer(serve);
  EXPECT_TRUE(served.ok()) << served.error;
  const auto batched = kubelet->startContainer(batch);
  EXPECT_TRUE(batched.ok()) << batched.error;
  EXPECT_EQ(manager->task("default/serve/main")["class"], "online");
  EXPECT_EQ(manager->task("default/batch/main")["share_permille"], 400);
}

TEST_F(Kubelet, AContainerThatStartsAgainKeepsItsTaskAndToken) {
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-1", 4, 30);
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  const std::string token = Container(admitted).token();
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  EXPECT_EQ(Container(admitted).token(), token);
  EXPECT_EQ(manager->tasks().size(), 1u);
}

TEST_F(Kubelet, ARestartedKubeletIsToldAgainWithinASecondAndNobodyEnds) {
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-1", 4, 30);
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}}).error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  for (int round = 0; round < 3; ++round) {
    kubelet->stop();
    kubelet->start();
    const std::int64_t began = monotonicNs();
    ASSERT_TRUE(eventually([&] { return isServed(); }));
    RecordProperty("told_again_ms", static_cast<int>((monotonicNs() - began) / 1'000'000));
    EXPECT_LE(monotonicNs() - began, 1'000'000'000);
  }
  EXPECT_EQ(manager->tasks().size(), 1u);
}

TEST_F(Kubelet, AKubeletThatKnowsOnlyV1alpha1IsUnderstood) {
  kubelet = stand(PodApi::V1Alpha1);
  startAll();
  assignOrdinary("uid-1", "train-0", "sim-1", 4, 30);
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}}).error, "");
  const auto started = kubelet->startContainer(kMain);
  EXPECT_TRUE(started.ok()) << started.error;
}

// --- everybody may die ---

// What is over is over soon.
struct Quick : Kubelet {
  void SetUp() override {
    Kubelet::SetUp();
    pluginConfig = "(reconcile = \"50ms\", goneAfter = \"200ms\", settle = \"100ms\")";
  }
  void killPlugin() {
    const pid_t pid = pluginPid();
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return pluginPid() != pid; }));
  }
  void killManager() {
    manager->kill();
    manager->start();
  }
  // Killed, and kubelet is served again.
  void dies(bool managerDies) {
    const std::size_t before = kubelet->registrations();
    if (managerDies)
      killManager();
    else
      killPlugin();
    ASSERT_TRUE(eventually([&] { return kubelet->registrations() >= before + 2 && isServed(); }));
  }
  // A new manager knows of pods what the API server tells; here nobody else does.
  void assignTrain() { assignOrdinary("uid-1", "train-0", "sim-1", 4, 30); }
};

TEST_F(Quick, ATaskEndsOnceKubeletListsItsContainerNoMore) {
  startAll();
  assignTrain();
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
  ASSERT_EQ(admitted.error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  EXPECT_FALSE(eventually([&] { return manager->tasks().empty(); }, std::chrono::seconds(1)));
  kubelet->forget(kMain);
  EXPECT_TRUE(eventually([&] { return manager->tasks().empty(); }));
  EXPECT_EQ(boundGib(), 0u);
  EXPECT_TRUE(eventually([&] { return Container(admitted).token().empty(); }))
      << "its placeholder stayed";
}

TEST_F(Quick, TheNextPodOfTheSameNameIsAnotherTask) {
  startAll();
  assignTrain();
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}}).error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  const Json first = manager->tasks()[0]["id"];
  kubelet->forget(kMain);
  assignOrdinary("uid-2", "train-0", "sim-0", 2, 10);
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 10}, {"qgpu-memory", 2}}).error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  EXPECT_TRUE(eventually([&] { return manager->tasks().size() == 1; }));
  EXPECT_NE(manager->tasks()[0]["id"], first);
  EXPECT_EQ(manager->tasks()[0]["card"], "sim-0");
}

TEST_F(Quick, AContainerOfATaskThatEndedMayStartAgain) {
  startAll();
  assignTrain();
  ASSERT_EQ(kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}}).error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  const Json task = manager->tasks()[0]["id"];
  ASSERT_TRUE(manager->ask("evict " + task.dump())["ok"]);
  ASSERT_TRUE(eventually([&] { return manager->tasks().empty(); }));
  const auto again = kubelet->startContainer(kMain);
  EXPECT_EQ(again.error, "");
  EXPECT_EQ(manager->tasks().size(), 1u);
}

TEST_F(Quick, WhoeverIsKilledAfterWhicheverStepGrantsAreOfThoseThatLive) {
  startAll();
  for (const bool managerDies : {false, true}) {
    for (const char* after : {"allocate", "prestart", "release"}) {
      SCOPED_TRACE(std::string(managerDies ? "manager" : "plugin") + " killed after " + after);
      const std::string step = after;
      assignTrain();
      const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 4}});
      ASSERT_EQ(admitted.error, "");
      if (step == "allocate") {
        dies(managerDies);
        assignTrain();
      }
      ASSERT_EQ(kubelet->startContainer(kMain).error, "");
      const std::string token = Container(admitted).token();
      EXPECT_EQ(token.size(), 32u);
      EXPECT_EQ(boundGib(), 4u);
      if (step == "prestart") {
        dies(managerDies);
        assignTrain();
        ASSERT_EQ(kubelet->startContainer(kMain).error, "");  // kubelet had no answer
        EXPECT_EQ(Container(admitted).token(), token);
        EXPECT_EQ(manager->tasks().size(), 1u);
        EXPECT_EQ(boundGib(), 4u);
      }
      kubelet->forget(kMain);
      if (step == "release") dies(managerDies);
      ASSERT_TRUE(eventually([&] { return manager->tasks().empty(); }));
      EXPECT_EQ(boundGib(), 0u);
    }
  }
}

TEST_F(Quick, AKilledPluginComesBackAndAStoppedManagerTakesItAlong) {
  startAll();
  for (int i = 0; i < 2; ++i) dies(false);
  const pid_t pid = pluginPid();
  EXPECT_EQ(manager->stop(), 0) << manager->log();
  EXPECT_NE(::kill(pid, 0), 0) << "the plugin outlived its manager";
}

// A process that a container runs, with what the container would find.
TEST_F(Quick, AProcessOfAContainerAttachesByItsTokenFileAndKeepsItsTask) {
  managerFlags = {"--cards=opencl", "--max-tasks-per-card=8"};
  startAll();
  const std::string card = manager->cards()[0]["id"];
  assignOrdinary("uid-1", "train-0", card, 1, 30);
  const auto admitted = kubelet->admit(kMain, {{"qgpu-core", 30}, {"qgpu-memory", 1}});
  ASSERT_EQ(admitted.error, "");
  ASSERT_EQ(kubelet->startContainer(kMain).error, "");
  Child work({binary("qgpu-work"), "--seconds=0", "--loops-per-ms=1000"},
             admitted.environmentOnHost());
  ASSERT_TRUE(eventually([&] { return manager->tasks()[0]["processes"] == 1; })) << work.output();
  kubelet->forget(kMain);
  EXPECT_FALSE(eventually([&] { return manager->tasks().empty(); }, std::chrono::seconds(1)))
      << "a process of it lives";
  work.signal(SIGKILL);
  work.wait();
  EXPECT_TRUE(eventually([&] { return manager->tasks().empty(); }));
}

}  // namespace
}  // namespace qgpu::e2e::kubelet_test
