// What `kubectl describe pod` shows of qgpu on a node, from the real manager to a real API server's
// manners: what a pod got, what it was refused, when others had its card, what went wrong. Programs
// are the attach protocol itself, so that a test decides when they work.

#include <atomic>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "services/attach/testing/guest_client.h"
#include "tests/e2e/kubernetes/elsewhere.h"
#include "tests/e2e/kubernetes/kubelet_api.h"

namespace qgpu::e2e::pod_events_test {
namespace {

const ContainerName kOther{"web", "train-1", "main"};

// A program that launches short work for as long as it lives.
class Busy {
 public:
  explicit Busy(GuestClient& client)
      : thread_([this, &client] {
          bool runs = false;  // one launch always does, until it has to wait
          while (!over_) {
            const bool passed = client.admit(10);
            if (runs) client.retire();
            runs = passed;
          }
          if (runs) client.retire();
        }) {}
  ~Busy() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

struct PodEvents : KubeletApi {
  GuestClient program(const ContainerName& who = kMain) {
    auto client =
        GuestClient::attach(manager->runDir() + "/attach.sock", admitted[who.pod].token());
    EXPECT_TRUE(client.ok()) << client.error().message;
    return std::move(*client);
  }
  // Time that the task of a pod has used, by /metrics; -1: it is not there.
  double usedBy(const ContainerName& who) {
    std::istringstream page(manager->get("/metrics"));
    const std::string pod = ",pod=\"" + who.pod + "\",";
    for (std::string line; std::getline(page, line);) {
      if (!line.starts_with("qgpu_task_used_seconds_total{")) continue;
      if (line.find(pod) != std::string::npos) return std::stod(line.substr(line.rfind(' ')));
    }
    return -1;
  }
  // Two pods on one card, both started.
  void startBoth() {
    bindPod("u1", "sim-0", 50, 4);
    bindPod("u2", "sim-0", 50, 4, "", kOther);
    ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
    ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}, kOther), "");
  }
  static std::string messageOf(const Json& event) { return event["message"]; }
  // Of the pods' namespace; -1: it is not there.
  double counted(const std::string& what) {
    const std::string page = manager->get("/metrics");
    const std::string sample =
        "\nqgpu_namespace_" + what + "_total{namespace=\"" + kMain.nameSpace + "\"} ";
    const std::size_t at = page.find(sample);
    return at == std::string::npos ? -1 : std::stod(page.substr(at + sample.size()));
  }
};

TEST_F(PodEvents, WhatAPodGotIsToldWithItsCards) {
  bindPod("u1", "sim-1", 30, 4);
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}), "");
  const Json event = told("QGPUAllocated", "u1");
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(event["source"]["component"], "qgpu-manager");
  EXPECT_EQ(messageOf(event), "container main has sim-1");
}

TEST_F(PodEvents, MetricsOfATaskNameItsContainerOverARestartAndThoseOfNoPodNone) {
  bindPod("u1", "sim-1", 30, 4);
  ASSERT_EQ(start({{"qgpu-core", 30}, {"qgpu-memory", 4}}), "");
  const auto labelled = [&](const std::string& labels) {
    return manager->get("/metrics").find(labels) != std::string::npos;
  };
  const std::string ofMain =
      ",namespace=\"" + kMain.nameSpace + "\",pod=\"" + kMain.pod + "\",container=\"main\"} ";
  EXPECT_TRUE(labelled(ofMain)) << manager->get("/metrics");
  manager->kill();
  manager->start();
  EXPECT_TRUE(eventually([&] { return labelled(ofMain); })) << manager->get("/metrics");
  ASSERT_TRUE(manager->ask("run {\"name\":\"hand\",\"owner\":\"none\"}")["ok"]);
  EXPECT_TRUE(labelled(",namespace=\"\",pod=\"\",container=\"\"} ")) << manager->get("/metrics");
}

TEST_F(PodEvents, WhatANamespaceUsedIsCountedAndStaysWhenItsPodIsOver) {
  bindPod("u1", "sim-0", 50, 4);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  EXPECT_TRUE(eventually([&] { return counted("memory_gib_seconds") > 4; }));
  phase("Succeeded");
  ASSERT_TRUE(eventually([&] { return manager->tasks().empty(); })) << manager->log();
  EXPECT_GT(counted("memory_gib_seconds"), 4);
  EXPECT_EQ(counted("used_seconds"), 0);
  bindPod("u2", "sim-0", 50, 4, "", kOther);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}, kOther), "");
  GuestClient client = program(kOther);
  const Busy busy(client);
  EXPECT_TRUE(eventually([&] { return counted("used_seconds") > 0; })) << manager->get("/metrics");
}

TEST_F(PodEvents, OfTwoPodsOnOneCardEachHasAFigureOfItsOwn) {
  startBoth();
  GuestClient first = program();
  GuestClient second = program(kOther);
  EXPECT_EQ(usedBy(kMain), 0);
  const Busy busy(first);
  EXPECT_TRUE(eventually([&] { return usedBy(kMain) > 0; })) << manager->get("/metrics");
  EXPECT_EQ(usedBy(kOther), 0);
}

TEST_F(PodEvents, AStartThatIsRefusedIsToldWithItsReason) {
  bindPod("u1", "sim-1", 30, 4);
  EXPECT_NE(start({{"qgpu-core", 60}, {"qgpu-memory", 4}}), "") << "more than was decided";
  const Json event = told("QGPURefused", "u1");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_TRUE(messageOf(event).starts_with("container main: ")) << messageOf(event);
}

TEST_F(PodEvents, AStartThatIsRefusedAgainIsTheSameEventWithACount) {
  bindPod("u1", "sim-1", 30, 4);
  for (int times = 1; times <= 2; ++times) {
    EXPECT_NE(start({{"qgpu-core", 60}, {"qgpu-memory", 4}}), "");
    EXPECT_TRUE(eventually([&] {
      const Json refused = event("QGPURefused", "u1");
      return !refused.is_null() && refused["count"] == times;
    })) << times;
  }
  EXPECT_EQ(unused(api, kRightsForEvents), Rights());
}

TEST_F(PodEvents, BeingHeldIsOneEventThatSumsUpAndIsNotToldToThePodThatWasNot) {
  startBoth();
  GuestClient first = program();
  GuestClient second = program(kOther);
  {
    const Busy one(first);
    const Busy two(second);
    const Json event = told("QGPUSuspended", "u1");
    EXPECT_EQ(event["type"], "Normal");
    EXPECT_TRUE(messageOf(event).starts_with("container main was held for "));
    told("QGPUSuspended", "u2");
    EXPECT_FALSE(
        eventually([&] { return event["count"] != this->event("QGPUSuspended", "u1")["count"]; },
                   std::chrono::seconds(3)))
        << "the next one comes after a minute";
  }
  std::size_t events = 0;
  for (const Json& one : api.all("events")) events += one["reason"] == "QGPUSuspended" ? 1 : 0;
  EXPECT_EQ(events, 2u);
}

TEST_F(PodEvents, AProgramThatRunsOnAfterAHoldIsQuarantinedAndReturns) {
  startBoth();
  GuestClient first = program();
  ASSERT_TRUE(first.admit(10'000)) << "and it never ends";
  GuestClient second = program(kOther);
  const Busy two(second);
  const Json event = told("QGPUQuarantined", "u1");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_TRUE(messageOf(event).starts_with("container main: ran on after a hold"))
      << messageOf(event);
  EXPECT_TRUE(this->event("QGPUReturned", "u1").is_null());
  first.retire();
  EXPECT_EQ(told("QGPUReturned", "u1")["type"], "Normal");
  EXPECT_TRUE(this->event("QGPUQuarantined", "u2").is_null());
}

TEST_F(PodEvents, AllocationsThatFailAreToldWithTheirNumberAndTheQuota) {
  bindPod("u1", "sim-0", 50, 4);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  GuestClient client = program();
  std::atomic_ref(client.slot().refused).fetch_add(7);
  const Json event = told("QGPUMemoryOverrun", "u1");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(messageOf(event),
            "container main: 7 allocations failed so far, since they would pass 4096 MiB, its "
            "share of memory");
}

TEST_F(PodEvents, APodThatEndsOfAnAllocationThatFailedIsToldSo) {
  bindPod("u1", "sim-0", 50, 4);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  {
    GuestClient client = program();
    std::atomic_ref(client.slot().refused).fetch_add(1);
  }
  kubelet.forget(kMain);
  phase("Failed");
  EXPECT_TRUE(messageOf(told("QGPUMemoryOverrun", "u1")).starts_with("container main: 1 alloc"));
}

// The real minute: a container whose program never loads the library.
TEST_F(PodEvents, AContainerOfWhichNothingAttachesIsToldAndCounted) {
  startBoth();
  const GuestClient attached = program(kOther);
  const auto isTold = [&] { return !event("QGPUUnattached", "u1").is_null(); };
  ASSERT_TRUE(eventually(isTold, std::chrono::seconds(90))) << manager->log();
  const Json event = this->event("QGPUUnattached", "u1");
  EXPECT_EQ(event["type"], "Warning");
  const std::string what = "container main: no process of it has attached for 60 s";
  EXPECT_TRUE(messageOf(event).starts_with(what)) << messageOf(event);
  EXPECT_TRUE(this->event("QGPUUnattached", "u2").is_null());
  EXPECT_NE(manager->get("/metrics").find("qgpu_unattached_tasks_total 1\n"), std::string::npos);
}

TEST_F(PodEvents, WhatAManagerBoundBeforeItsRestartIsToldOfByTheNextOne) {
  bindPod("u1", "sim-0", 50, 4);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  told("QGPUAllocated", "u1");
  manager->kill();
  manager->start();
  GuestClient client = program();
  std::atomic_ref(client.slot().refused).fetch_add(1);
  told("QGPUMemoryOverrun", "u1");
}

TEST_F(PodEvents, ANewPolicyIsToldToThePodsOfTheNode) {
  bindPod("u1", "sim-0", 50, 4);
  ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  label(std::string(kPrefix) + "/qgpu-schedule-policy", "fs");
  const Json event = told("QGPUPolicyChanged", "u1");
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(messageOf(event), "the cards of its node follow fixed-share");
}

TEST_F(PodEvents, ANodeThatServesWholeCardsIsToldWhyItIsRefusedAndThatItIsServedAgain) {
  Json node = api.find("nodes", "", "n1");
  node["status"]["allocatable"]["nvidia.com/gpu"] = "2";
  api.put("nodes", node);
  const Json event = told("QGPUNodeRefused", "n1");
  EXPECT_EQ(event["involvedObject"]["kind"], "Node");
  EXPECT_NE(messageOf(event).find("nvidia.com/gpu"), std::string::npos);
  node = api.find("nodes", "", "n1");
  node["status"]["allocatable"].erase("nvidia.com/gpu");
  api.put("nodes", node);
  EXPECT_EQ(told("QGPUNodeServed", "n1")["type"], "Normal");
}

// --- NVIDIA's cards, by the stand-in of their library ---

const std::string kCard = "GPU-5f1b1b0c-0000-4000-8000-000000000001";

struct NvidiaEvents : PodEvents {
  NvidiaEvents() {
    backend = "nvidia";
    environment["LD_LIBRARY_PATH"] = std::string(QGPU_STAND_IN_DIR);
    environment["QGPU_STAND_IN_CARDS"] = dir.path() + "/cards";
    machine("0");
  }
  // uuid|name|bytes|used|mig|lost|errors|xid; whole or not at all, since it is watched.
  void machine(const std::string& xid) {
    const std::string file = dir.path() + "/cards";
    std::ofstream(file + ".next") << kCard << "|Tesla T4|15843721216|0|0|0|0|" << xid << "\n";
    ASSERT_EQ(::rename((file + ".next").c_str(), file.c_str()), 0);
  }
  void startPod() {
    bindPod("u1", kCard, 50, 4);
    ASSERT_EQ(start({{"qgpu-core", 50}, {"qgpu-memory", 4}}), "");
  }
};

TEST_F(NvidiaEvents, AFaultOfTheCardIsToldWithItsXidAndSoIsItsReturn) {
  startPod();
  machine("79");
  const Json event = told("QGPUCardFault", "u1");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(messageOf(event),
            "card " + kCard + ": Xid 79 (card): it fell off the bus; it takes no new tasks");
  told("QGPUCardFault", "n1");
  EXPECT_TRUE(eventually([&] { return cards()[0]["health"] == "cordoned"; }));
  ASSERT_TRUE(manager->ask("uncordon " + kCard)["ok"]);
  EXPECT_EQ(messageOf(told("QGPUCardRecovered", "u1")),
            "card " + kCard + ": it takes new tasks again");
}

TEST_F(NvidiaEvents, AFaultOfAProgramIsToldAndTheCardStaysInUse) {
  startPod();
  machine("31");
  const Json event = told("QGPUProgramFault", "u1");
  EXPECT_NE(messageOf(event).find("Xid 31 (program): "), std::string::npos) << messageOf(event);
  EXPECT_TRUE(this->event("QGPUCardFault").is_null());
  EXPECT_EQ(cards()[0]["health"], "ready");
}

}  // namespace
}  // namespace qgpu::e2e::pod_events_test
