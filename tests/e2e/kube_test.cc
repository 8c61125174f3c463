// A real qgpu-scheduler on Kubernetes: its API server is the stand-in, on a thread of this process,
// and kube-scheduler's part is curl's.

#include <fstream>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <thread>

#include "runtime/kj_bridge.h"
#include "services/extender/pod_rules.h"
#include "services/kube/cards_annotation.h"
#include "services/kube/testing/api_stand_in.h"
#include "tests/e2e/harness.h"

namespace qgpu::e2e {
namespace {

using testing::ApiStandIn;

// The stand-in serves on a thread of its own; everybody else speaks to it through with().
class Server {
 public:
  Server() : thread_([this] { serve(); }) { ready_.get_future().wait(); }
  ~Server() {
    loop_.stop();
    thread_.join();
  }
  void with(std::function<void(ApiStandIn&)> work) {
    std::promise<void> done;
    loop_.post([&] {
      work(*server_);
      done.set_value();
    });
    done.get_future().wait();
  }
  unsigned port() const { return port_; }

 private:
  void serve() {
    KjBridge kj(loop_);
    ApiStandIn server(kj.io().getNetwork(), kj.timer(), nullptr, kj.waitScope());
    server_ = &server;
    port_ = server.port();
    ready_.set_value();
    loop_.run();
  }

  Loop loop_;
  ApiStandIn* server_ = nullptr;
  unsigned port_ = 0;
  std::promise<void> ready_;
  std::thread thread_;
};

struct KubeScheduler : ::testing::Test {
  KubeScheduler() {
    const std::string port = std::to_string(server.port());
    std::ofstream(dir.path() + "/config")
        << "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, "
           "namespace: kube-system}}]\nclusters: [{name: k, cluster: {server: 'http://127.0.0.1:"
        << port << "'}}]\nusers: [{name: u, user: {token: t}}]\n";
    server.with([](ApiStandIn& api) {
      CardsAnnotation told;
      told.cards.push_back({"GPU-1", 0, "T4", "nvidia", gibibytes(16), 16,
                            schema::Policy::BEST_EFFORT, schema::Suspend::GATE,
                            schema::CardState::READY});
      Json node = ApiStandIn::node("n1");
      node["metadata"]["annotations"][kCardsAnnotation] = writeCardsAnnotation(told);
      api.put("nodes", node);
      Json pod = ApiStandIn::pod("web", "p", "u1");
      pod["spec"]["nodeName"] = "n1";
      pod["metadata"]["annotations"][kAssignedAnnotation] = R"({"main":["GPU-1"]})";
      api.put("pods", pod);
    });
  }
  ~KubeScheduler() override {
    if (HasFailure() && child) fprintf(stderr, "scheduler:\n%s\n", child->output().c_str());
  }

  void start() {
    child = std::make_unique<Child>(
        std::vector<std::string>{binary("qgpu-scheduler"), "--run-dir=" + dir.path() + "/run",
                                 "--dbfile=" + dir.path() + "/scheduler.db", "--http=127.0.0.1:0",
                                 "--rpc=127.0.0.1:0"},
        Environment{{"KUBECONFIG", dir.path() + "/config"}});
  }
  Json ask(const std::string& line) {
    const std::string answer = askSocket(dir.path() + "/run/scheduler.sock", line);
    return Json::parse(answer, nullptr, false);
  }
  bool holdsThePod() {
    return eventually([this] {
      const Json answer = ask("tasks");
      return answer.is_object() && answer["ok"] == true && answer["tasks"].size() == 1 &&
             answer["tasks"][0]["name"] == "web/p/main" && answer["tasks"][0]["state"] == "bound";
    });
  }
  // As kube-scheduler asks its extender; null where nobody answers, as after a kill.
  Json post(const std::string& verb, const Json& body) {
    const std::string output = child->output();
    const std::size_t from = output.find("http=") + 5;
    const std::string address = output.substr(from, output.find_first_of(" \n", from) - from);
    std::ofstream(dir.path() + "/body") << body;
    const Finished answer = run({"/usr/bin/curl", "-s", "-H", "Content-Type: application/json",
                                 "--data-binary", "@" + dir.path() + "/body",
                                 "http://" + address + "/scheduler/" + verb});
    return answer.status == 0 ? Json::parse(answer.output, nullptr, false) : Json();
  }
  Json args(const Json& pod) { return {{"Pod", pod}, {"Nodes", nullptr}, {"NodeNames", {"n1"}}}; }
  // A cycle of kube-scheduler for this pod; what bind answers.
  Json cycle(const Json& pod) {
    Json filtered;
    eventually([&] {   // until the scheduler has read what the API server knows
      filtered = post("filter", args(pod));
      return filtered.is_object() && filtered["NodeNames"] == Json{"n1"};
    });
    if (!filtered.is_object() || filtered["NodeNames"] != Json{"n1"}) return filtered;
    return post("bind", {{"PodName", pod["metadata"]["name"]},
                         {"PodNamespace", pod["metadata"]["namespace"]},
                         {"PodUID", pod["metadata"]["uid"]},
                         {"Node", "n1"}});
  }
  Json stored(const std::string& name) {
    Json pod;
    server.with([&](ApiStandIn& api) { pod = api.find("pods", "web", name); });
    return pod;
  }
  bool holds(std::size_t tasks) {
    return eventually([&] {
      const Json answer = ask("tasks");
      if (!answer.is_object() || answer["ok"] != true) return false;
      for (const Json& task : answer["tasks"]) {
        if (task["state"] != "bound") return false;
      }
      return answer["tasks"].size() == tasks;
    });
  }
  std::string holder() {
    std::string out;
    server.with([&](ApiStandIn& api) {
      const Json lease = api.find("leases", "kube-system", "qgpu-scheduler");
      if (!lease.is_null()) out = lease["spec"]["holderIdentity"];
    });
    return out;
  }

  TempDir dir;
  Server server;
  std::unique_ptr<Child> child;
};

TEST_F(KubeScheduler, HoldsWhatThePodsHoldOverEveryKindOfRestart) {
  start();
  ASSERT_TRUE(holdsThePod());
  EXPECT_NE(holder(), "");
  const Json before = ask("tasks")["tasks"][0];
  child->signal(SIGKILL);
  child->wait();
  start();
  ASSERT_TRUE(holdsThePod()) << "its own lease is not waited for";
  EXPECT_EQ(ask("tasks")["tasks"][0]["id"], before["id"]);
  child->signal(SIGTERM);
  EXPECT_EQ(child->wait(std::chrono::seconds(10)), 0);
  EXPECT_EQ(holder(), "") << "given back";
  start();
  ASSERT_TRUE(holdsThePod());
  server.with([](ApiStandIn& api) { api.remove("pods", "web", "p"); });
  EXPECT_TRUE(eventually([this] { return ask("tasks")["tasks"].empty(); }));
  server.with([](ApiStandIn& api) { EXPECT_EQ(api.evictions(), 0u); });
}

TEST_F(KubeScheduler, BindsAPodToItsCardAndKnowsItAfterwards) {
  start();
  ASSERT_TRUE(holdsThePod());
  Json pod = ApiStandIn::pod("web", "q", "u2");
  server.with([&](ApiStandIn& api) { api.put("pods", pod); });
  const Json scores = post("priorities", args(pod));
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
  const Json refused = post("filter", args(large));
  EXPECT_EQ(refused["FailedNodes"]["n1"].get<std::string>().rfind("MemShort", 0), 0u) << refused;
  server.with([](ApiStandIn& api) { api.remove("pods", "web", "q"); });
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
    server.with([&](ApiStandIn& api) {
      api.put("pods", pod);
      api.onRequest = [this, &api, step] {
        if (api.heard.back().find(step) == std::string::npos) return;
        child->signal(SIGKILL);
        api.onRequest = nullptr;
      };
    });
    EXPECT_TRUE(cycle(pod).is_null()) << "killed at " << step;
    ASSERT_TRUE(child->wait(std::chrono::seconds(10)).has_value()) << step;
    start();
    ASSERT_TRUE(eventually([this] { return ask("tasks").is_object(); }));
    if (stored(name)["spec"].value("nodeName", "") != "n1") {
      EXPECT_EQ(cycle(pod), (Json{{"Error", ""}})) << step;
    }
    EXPECT_EQ(stored(name)["spec"]["nodeName"], "n1") << step;
    EXPECT_TRUE(holds(++pods)) << step << ": " << ask("tasks");
    EXPECT_TRUE(eventually([&] {
      return ask("cards")["cards"][0]["mem_bound_bytes"] == pods * gibibytes(5).value;
    })) << ask("cards");
  }
}

TEST_F(KubeScheduler, ABadKubeconfigIsOneLineAndNothingIsTouched) {
  std::ofstream(dir.path() + "/config") << "current-context: gone\n";
  start();
  EXPECT_EQ(child->wait(std::chrono::seconds(10)), 2);
  EXPECT_NE(child->output().find("contexts has no \"gone\"; or say --kubernetes=off"),
            std::string::npos)
      << child->output();
}

}  // namespace
}  // namespace qgpu::e2e
