#pragma once
// What tests of the webhook share: an API server's stand-in with a webhook configuration, and curl,
// which reaches the webhook as an API server does: by the name of its Service, trusting the
// caBundle alone.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <stdlib.h>
#include <string>
#include <vector>

#include "services/base/base64.h"
#include "services/base/wall_time.h"
#include "services/kubernetes/webhook/webhook_keeper.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::testing {

inline constexpr const char* kHost = "qgpu-scheduler.kube-system.svc";
inline constexpr const char* kConfigurations = "validatingwebhookconfigurations";

inline constexpr const char* kBrokenPod =
    R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",)"
    R"("kind":{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE","object":)"
    R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":)"
    R"({"limits":{"tke.cloud.tencent.com/qgpu-core":"150"}}}]}}}})";

inline constexpr const char* kBrokenClaim =
    R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",)"
    R"("kind":{"group":"resource.k8s.io","version":"v1","kind":"ResourceClaim"},)"
    R"("operation":"CREATE","object":{"spec":{"devices":{"requests":[{"name":"gpu","exactly":)"
    R"({"deviceClassName":"offline.qgpu.io"}}]}}}}})";

// A pod that is right, about to be created in namespace "team".
inline std::string podReview(const std::string& percent, bool dryRun = false) {
  const Json limits{{"tke.cloud.tencent.com/qgpu-core", percent},
                    {"tke.cloud.tencent.com/qgpu-memory", "5"}};
  const Json container{{"name", "c"}, {"resources", {{"limits", limits}}}};
  const Json pod{{"metadata", {{"name", "p"}}},
                 {"spec", {{"containers", Json::array({container})}}}};
  return Json{{"kind", "AdmissionReview"},
              {"apiVersion", "admission.k8s.io/v1"},
              {"request",
               {{"uid", "u1"},
                {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
                {"operation", "CREATE"},
                {"namespace", "team"},
                {"dryRun", dryRun},
                {"object", pod}}}}
      .dump();
}

struct WebhookFixture : KubeFixture {
  WebhookFixture() {
    Json configuration{{"metadata", {{"name", "qgpu-scheduler"}}}};
    configuration["webhooks"] = Json::array(
        {Json{{"name", "others.example.org"}, {"clientConfig", Json::object()}},
         Json{{"name", "pods.qgpu.io"}, {"clientConfig", {{"service", {{"name", "x"}}}}}}});
    configuration["webhooks"].push_back(
        {{"name", "claims.qgpu.io"}, {"clientConfig", {{"service", {{"name", "x"}}}}}});
    server->put(kConfigurations, configuration);
    const auto ofQgpu = [](const char* name) {
      return Json{{"name", name}, {"clientConfig", {{"service", {{"name", "x"}}}}}};
    };
    server->put(kMutating, {{"metadata", {{"name", "qgpu-scheduler"}}},
                            {"webhooks", Json::array({ofQgpu("by-claims.pods.qgpu.io"),
                                                      ofQgpu("scheduler.pods.qgpu.io")})}});
    server->put("secrets", emptySecret());
    labelTeam({{"qgpu.io/claims", "enable"}});
  }
  void labelTeam(const Json& labels) {
    server->put("namespaces", {{"metadata", {{"name", "team"}, {"labels", labels}}}});
  }
  // As deploy/kubernetes has it.
  static Json emptySecret() {
    return {{"metadata", {{"name", "qgpu-scheduler-webhook"}, {"namespace", "kube-system"}}}};
  }
  ~WebhookFixture() noexcept override { EXPECT_EQ(log.errors(), 0u); }

  WebhookServer& webhook() {
    if (!served_) {
      auto listener = TcpListener::open("127.0.0.1:0", "--webhook");
      EXPECT_TRUE(listener.ok());
      served_ = std::make_unique<WebhookServer>(PodRules{}, client(plain()), kj.lowLevel(),
                                                kj.timer(), std::move(*listener));
    }
    return *served_;
  }
  WebhookKeeper& keeper() {
    keepers.push_back(std::make_unique<WebhookKeeper>(
        WebhookNames{}, PodRules{}, client(plain()), webhook(), [this]() { return now; }, log));
    return *keepers.back();
  }
  Status look(WebhookKeeper& one) { return wait(one.look()); }

  Json published(std::size_t at = 1) const {
    return server->find(kConfigurations, "", "qgpu-scheduler")["webhooks"][at];
  }
  // Where the API server asks for changed pods; 0: by claims, 1: of a scheduler.
  std::string changingPath(std::size_t at) const {
    const Json webhook = server->find(kMutating, "", "qgpu-scheduler")["webhooks"][at];
    return webhook["clientConfig"]["service"].value("path", "");
  }
  std::string bundle() const {
    const auto text = fromBase64(published()["clientConfig"].value("caBundle", ""));
    return text.value_or("");
  }
  Json secret() const { return server->find("secrets", "kube-system", "qgpu-scheduler-webhook"); }

  // curl, which trusts `ca` alone, and posts `body`.
  std::vector<std::string> curl(const std::string& ca, const std::string& body,
                                const std::string& more = "", const std::string& host = kHost,
                                const std::string& path = kPodsPath) {
    std::ofstream(folder / "ca.pem") << ca;
    std::ofstream(folder / "body") << body;
    const std::string port = programPort.empty() ? std::to_string(webhook().port()) : programPort;
    std::vector<std::string> argv = {"/usr/bin/curl", "--silent",
                                     "--max-time",    "15",
                                     "--cacert",      folder / "ca.pem",
                                     "--connect-to",  host + ":443:127.0.0.1:" + port,
                                     "--data-binary", "@" + folder / "body",
                                     "--write-out",   " [%{http_code}]"};
    if (!more.empty()) argv.push_back(more);
    argv.push_back("https://" + host + path);
    return argv;
  }
  // What it is answered; "status N" for its own failures.
  static std::string said(Child& curl) {
    const int status = curl.status().value_or(-1);
    return status == 0 ? curl.output() : "status " + std::to_string(status);
  }
  std::string post(const std::string& ca, const std::string& body, const std::string& more = "",
                   const std::string& host = kHost, const std::string& path = kPodsPath) {
    Child asks(curl(ca, body, more, host, path));
    EXPECT_TRUE(served([&]() { return !asks.alive(); }));
    return said(asks);
  }

  // What KUBECONFIG names, for the stand-in.
  std::string kubeconfig() const {
    std::ofstream(folder / "kubeconfig")
        << "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:" << server->port() << "'}}]\n"
        << "users: [{name: u, user: {token: t}}]\n"
        << "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    return folder / "kubeconfig";
  }

  const TempFolder folder{"webhook"};
  std::string programPort;                // of a webhook that is not ours; empty: webhook()
  std::int64_t now = unixMsNow() / 1000;  // curl looks at the clock too
  Log log{LogLevel::Info, [](LogLevel, const std::string&) {}};
  std::unique_ptr<WebhookServer> served_;
  std::vector<std::unique_ptr<WebhookKeeper>> keepers;
};

}  // namespace qgpu::testing
