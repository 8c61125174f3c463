// A real qgpu-scheduler on Kubernetes: its API server is the stand-in, on a thread of this process,
// and kube-scheduler's part is curl's.

#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>

#include "services/kubernetes/bridge/role_label.h"
#include "services/kubernetes/pods/cards_annotation.h"
#include "services/kubernetes/pods/pod_rules.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/served_api.h"

namespace qgpu::e2e::kube_test {
namespace {

using testing::ApiStandIn;

struct KubeScheduler : ::testing::Test {
  KubeScheduler() {
    CardsAnnotation told;
    AnnotatedCard& card = told.cards.emplace_back();
    card.id = "GPU-1";
    card.model = "T4";
    card.backend = "nvidia";
    card.mem = gibibytes(16);
    card.nominalGib = 16;
    Json node = ApiStandIn::node("n1");
    node["metadata"]["annotations"][kCardsAnnotation] = writeCardsAnnotation(told);
    api.put("nodes", node);
    Json pod = ApiStandIn::pod("web", "p", "u1");
    pod["spec"]["nodeName"] = "n1";
    pod["metadata"]["annotations"][kAssignedAnnotation] = R"({"main":["GPU-1"]})";
    api.put("pods", pod);
  }
  Environment environment() const {
    return {{"KUBECONFIG", api.kubeconfig(dir.path() + "/c", "qgpu-scheduler")}};
  }

  void start() {
    scheduler = std::make_unique<Scheduler>(std::vector<std::string>{}, environment());
  }
  bool holdsThePod() {
    return eventually([this] {
      const Json answer = scheduler->ask("tasks");
      return answer.is_object() && answer["ok"] == true && answer["tasks"].size() == 1 &&
             answer["tasks"][0]["name"] == "web/p/main" && answer["tasks"][0]["state"] == "bound";
    });
  }
  Json args(const Json& pod) { return {{"Pod", pod}, {"Nodes", nullptr}, {"NodeNames", {"n1"}}}; }
  // A cycle of kube-scheduler for this pod; what bind answers.
  Json cycle(const Json& pod) {
    Json filtered;
    eventually([&] {  // until the scheduler has read what the API server knows
      filtered = scheduler->post("filter", args(pod));
      return filtered.is_object() && filtered["NodeNames"] == Json{"n1"};
    });
    if (!filtered.is_object() || filtered["NodeNames"] != Json{"n1"}) return filtered;
    return scheduler->post("bind", {{"PodName", pod["metadata"]["name"]},
                                    {"PodNamespace", pod["metadata"]["namespace"]},
                                    {"PodUID", pod["metadata"]["uid"]},
                                    {"Node", "n1"}});
  }
  Json stored(const std::string& name) { return api.find("pods", "web", name); }
  bool holds(std::size_t tasks) {
    return eventually([&] {
      const Json answer = scheduler->ask("tasks");
      if (!answer.is_object() || answer["ok"] != true) return false;
      for (const Json& task : answer["tasks"]) {
        if (task["state"] != "bound") return false;
      }
      return answer["tasks"].size() == tasks;
    });
  }
  std::string holder() {
    const Json lease = api.find("leases", "kube-system", "qgpu-scheduler");
    return lease.is_null() ? "" : lease["spec"]["holderIdentity"];
  }

  TempFolder dir;
  ServedApi api;
  std::unique_ptr<Scheduler> scheduler;
};

TEST_F(KubeScheduler, HoldsWhatThePodsHoldOverEveryKindOfRestart) {
  start();
  ASSERT_TRUE(holdsThePod());
  EXPECT_NE(holder(), "") << "in kube-system, though KUBECONFIG names no namespace";
  const Json before = scheduler->ask("tasks")["tasks"][0];
  scheduler->kill();
  scheduler->start();
  ASSERT_TRUE(holdsThePod()) << "its own lease is not waited for";
  EXPECT_EQ(scheduler->ask("tasks")["tasks"][0]["id"], before["id"]);
  EXPECT_EQ(scheduler->stop(), 0);
  EXPECT_EQ(holder(), "") << "given back";
  scheduler->start();
  ASSERT_TRUE(holdsThePod());
  api.remove("pods", "web", "p");
  EXPECT_TRUE(eventually([this] { return scheduler->ask("tasks")["tasks"].empty(); }));
  api.with([](ApiStandIn& server) { EXPECT_EQ(server.evictions(), 0u); });
}

// As `kubectl rollout status` wants it, and the Service of deploy/kubernetes.
TEST_F(KubeScheduler, WhoWaitsForAnotherIsReadyAndLabelledUntilItLeads) {
  api.put("pods", ApiStandIn::pod("kube-system", "me", "u2"));
  const auto labelled = [this](const std::string& role) {
    const Json labels = api.find("pods", "kube-system", "me")["metadata"]["labels"];
    return labels.value(RoleLabel::kLabel, "none") == role;
  };
  Json lease = {{"metadata", {{"namespace", "kube-system"}, {"name", "qgpu-scheduler"}}},
                {"spec", {{"holderIdentity", "other"}, {"renewTime", "now"}}}};
  api.put("leases", lease);
  Environment pod = environment();
  pod["POD_NAME"] = "me";
  pod["POD_NAMESPACE"] = "kube-system";
  scheduler = std::make_unique<Scheduler>(std::vector<std::string>{}, pod);
  EXPECT_TRUE(eventually([&] { return scheduler->get("/readyz") == "ok: other acts\n200"; }));
  EXPECT_TRUE(labelled("follows"));
  const Json answer = scheduler->post("filter", args(stored("p")));
  EXPECT_NE(answer.dump().find("not all known yet"), std::string::npos) << answer;
  lease["spec"]["holderIdentity"] = "";
  api.put("leases", lease);
  EXPECT_TRUE(eventually([&] { return scheduler->get("/readyz") == "ok\n200"; }));
  EXPECT_TRUE(eventually([&] { return labelled("leads"); }));
}

TEST_F(KubeScheduler, BindsAPodToItsCardAndKnowsItAfterwards) {
  start();
  ASSERT_TRUE(holdsThePod());
  Json pod = ApiStandIn::pod("web", "q", "u2");
  api.put("pods", pod);
  const Json scores = scheduler->post("priorities", args(pod));
  EXPECT_EQ(scores, (Json{{{"Host", "n1"}, {"Score", 10}}}));
  EXPECT_EQ(cycle(pod), (Json{{"Error", ""}}));
  const Json bound = stored("q");
  EXPECT_EQ(bound["spec"]["nodeName"], "n1");
  EXPECT_EQ(bound["metadata"]["annotations"][kAssignedAnnotation], R"({"main":["GPU-1"]})");
  EXPECT_TRUE(holds(2));
  EXPECT_EQ(cycle(pod), (Json{{"Error", ""}})) << "again, as after a lost answer";
  EXPECT_TRUE(holds(2));
  // 16 GiB, of which two pods have 5 each.
  Json large = ApiStandIn::pod("web", "r", "u3");
  large["spec"]["containers"][0]["resources"]["limits"]["tke.cloud.tencent.com/qgpu-memory"] = "7";
  const Json refused = scheduler->post("filter", args(large));
  EXPECT_EQ(refused["FailedNodes"]["n1"].get<std::string>().rfind("MemShort", 0), 0u) << refused;
  api.remove("pods", "web", "q");
  EXPECT_TRUE(holds(1));
}

// Killed while the API server is asked to annotate, and while it is asked to bind: what it does
// then happens without the scheduler, which must know it in its next life.
TEST_F(KubeScheduler, AKillWithinABindLeavesNothingTwiceAndNothingLost) {
  start();
  ASSERT_TRUE(holdsThePod());
  std::size_t pods = 1;
  for (const char* step : {"PATCH /api/v1/namespaces/web/pods/", "/binding"}) {
    const std::string name = "k" + std::to_string(pods);
    const Json pod = ApiStandIn::pod("web", name, "uid-" + name);
    api.with([&](ApiStandIn& server) {
      server.put("pods", pod);
      server.onRequest = [this, &server, step] {
        if (server.heard.back().find(step) == std::string::npos) return;
        ::kill(scheduler->pid(), SIGKILL);
        server.onRequest = nullptr;
      };
    });
    EXPECT_TRUE(cycle(pod).is_null()) << "killed at " << step;
    scheduler->kill();
    scheduler->start();
    if (stored(name)["spec"].value("nodeName", "") != "n1") {
      EXPECT_EQ(cycle(pod), (Json{{"Error", ""}})) << step;
    }
    EXPECT_EQ(stored(name)["spec"]["nodeName"], "n1") << step;
    EXPECT_TRUE(holds(++pods)) << step << ": " << scheduler->ask("tasks");
    EXPECT_TRUE(eventually([&] {
      return scheduler->ask("cards")["cards"][0]["mem_bound_bytes"] == pods * gibibytes(5).value;
    })) << scheduler->ask("cards");
  }
}

TEST_F(KubeScheduler, WhatBecomesOfAPodIsToldAsItsEvents) {
  start();
  ASSERT_TRUE(holdsThePod());
  const auto told = [&](const std::string& reason, const std::string& uid) {
    EXPECT_TRUE(eventually([&] { return !api.event(reason).is_null(); })) << reason;
    const Json event = api.event(reason);
    EXPECT_EQ(event["involvedObject"]["uid"], uid);
    EXPECT_EQ(event["source"]["component"], "qgpu-scheduler");
    return event["type"].get<std::string>() + " " + event["message"].get<std::string>();
  };
  const Json pod = ApiStandIn::pod("web", "q", "u2");
  api.put("pods", pod);
  EXPECT_EQ(cycle(pod), (Json{{"Error", ""}}));
  EXPECT_EQ(told("QGPUScheduled", "u2"), "Normal bound to node n1: main on GPU-1");

  Json wrong = ApiStandIn::pod("web", "r", "u3");
  wrong["spec"]["containers"][0]["resources"]["limits"]["tke.cloud.tencent.com/qgpu-core"] = "150";
  scheduler->post("filter", args(wrong));
  EXPECT_EQ(told("QGPURejected", "u3").find("Warning "), 0u);

  const Json unwanted = ApiStandIn::pod("web", "s", "u4");
  api.with([&](ApiStandIn& server) {
    server.put("pods", unwanted);
    server.onRequest = [&server] {
      if (server.heard.back().find("/pods/s/binding") == std::string::npos) return;
      server.refusals.push_back({422, "Invalid", "a policy forbids it", ""});
      server.onRequest = nullptr;
    };
  });
  EXPECT_NE(cycle(unwanted)["Error"], "");
  EXPECT_NE(told("QGPUBindRolledBack", "u4").find("a policy forbids it"), std::string::npos);

  ASSERT_TRUE(holds(2));
  const Json tasks = scheduler->ask("tasks");
  for (const Json& task : tasks["tasks"]) {
    if (task["name"] != "web/p/main") continue;
    const Json deleted = scheduler->ask("delete " + task["id"].dump());
    EXPECT_EQ(deleted["ok"], true) << deleted;
  }
  EXPECT_EQ(told("QGPUPreempted", "u1"), "Warning asked to leave node n1: deleted");
}

TEST_F(KubeScheduler, ABadKubeconfigIsOneLineAndNothingIsTouched) {
  std::ofstream(dir.path() + "/config") << "current-context: gone\n";
  const Finished refused = run({binary("qgpu-scheduler"), "--run-dir=" + dir.path() + "/run",
                                "--dbfile=" + dir.path() + "/scheduler.db"},
                               {{"KUBECONFIG", dir.path() + "/config"}});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("contexts has no \"gone\"; or say --kubernetes=off"),
            std::string::npos)
      << refused.output;
}

}  // namespace
}  // namespace qgpu::e2e::kube_test
