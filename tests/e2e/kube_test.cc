// A real qgpu-scheduler on Kubernetes: its API server is the stand-in, on a thread of this process.

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
