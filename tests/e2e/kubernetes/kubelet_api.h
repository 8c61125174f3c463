#pragma once
// The manager in a Kubernetes cluster that a test plays: an API server over real HTTP and a kubelet
// over real gRPC.

#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>

#include "services/kubernetes/device_plugin/testing/kubelet_stand_in.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/container.h"
#include "tests/e2e/kubernetes/served_api.h"

namespace qgpu::e2e {

using qgpu::testing::ApiStandIn;
using qgpu::testing::KubeletStandIn;

inline const ContainerName kMain{"web", "train-0", "main"};

struct KubeletApi : ::testing::Test {
  ~KubeletApi() noexcept override = default;

  TempFolder dir;
  ServedApi api;
  KubeletStandIn kubelet{dir.path() + "/kubelet", kPrefix, KubeletStandIn::PodApi::V1};
  std::unique_ptr<Manager> manager;
  std::string backend = "sim:2x16";            // its cards
  std::string runtime = "containerd://1.7.0";  // of containers
  Environment environment;                     // of the manager
  std::vector<std::string> flags;              // of the manager, besides those that each test needs
  std::string pluginConfig;                    // ", name = value" of the device plugin
  std::map<std::string, Container> admitted;   // by pod: what Allocate answered

  std::int64_t msUntil(const std::function<bool()>& probe) {
    const std::int64_t began = monotonicNs();
    EXPECT_TRUE(eventually(probe)) << manager->log();
    return (monotonicNs() - began) / 1'000'000;
  }

  void SetUp() override {
    Json node = ApiStandIn::node("n1");
    node["metadata"]["labels"]["qgpu-device-enable"] = "enable";
    node["status"]["nodeInfo"]["containerRuntimeVersion"] = runtime;
    api.put("nodes", node);
    std::ofstream(dir.path() + "/plugin.conf")
        << R"((reconcile = "50ms", goneAfter = "200ms", settle = "100ms")" << pluginConfig << ")";
    kubelet.start();
    environment["KUBECONFIG"] = api.kubeconfig(dir.path() + "/kubeconfig", "qgpu-manager");
    flags.insert(flags.end(),
                 {"--cards=" + backend, "--nodename=n1", "--kubelet-dir=" + dir.path() + "/kubelet",
                  "--kubelet-config=" + dir.path() + "/plugin.conf"});
    manager = std::make_unique<Manager>(flags, environment);
    ASSERT_TRUE(eventually([&] {
      return healthy("qgpu-core") != 0 && healthy("qgpu-memory") != 0 && !cards().empty() &&
             healths().find("starting") == std::string::npos;
    })) << manager->log();
  }

  std::size_t healthy(const std::string& resource) {
    std::size_t count = 0;
    for (const auto& [id, is] : kubelet.devices(resource)) count += is ? 1 : 0;
    return count;
  }
  // Of the annotation; an empty list where there is none.
  Json cards() {
    const Json node = api.find("nodes", "", "n1");
    const Json& annotations = node["metadata"].value("annotations", Json::object());
    const Json parsed = Json::parse(annotations.value("qgpu.io/cards", "{}"), nullptr, false);
    return parsed.value("cards", Json::array());
  }
  std::string healths() {
    std::string all;
    for (const Json& card : cards()) all += card["health"].get<std::string>() + " ";
    return all;
  }
  void label(const std::string& name, const std::string& value) {
    Json node = api.find("nodes", "", "n1");
    if (value.empty())
      node["metadata"]["labels"].erase(name);
    else
      node["metadata"]["labels"][name] = value;
    api.put("nodes", node);
  }
  std::string policyOf(std::size_t card) { return manager->cards()[card]["policy"]; }

  // A pod of one container, as the scheduler bound it.
  void bindPod(const std::string& uid, const std::string& card, int percent, int gib,
               const std::string& taskClass = "", const ContainerName& who = kMain) {
    Json pod = ApiStandIn::pod(who.nameSpace, who.pod, uid);
    pod["spec"]["nodeName"] = "n1";
    const bool offline = taskClass == "offline";
    const std::string core = std::string(kPrefix) + (offline ? "/qgpu-core-greedy" : "/qgpu-core");
    Json limits = {{std::string(kPrefix) + "/qgpu-memory", std::to_string(gib)}};
    if (percent > 0) limits[core] = std::to_string(percent);
    pod["spec"]["containers"] =
        Json::array({{{"name", "main"}, {"resources", {{"limits", limits}}}}});
    pod["metadata"]["annotations"]["qgpu.io/assigned"] = Json{{"main", {card}}}.dump();
    if (!taskClass.empty()) {
      pod["metadata"]["annotations"][std::string(kPrefix) + "/app-class"] = taskClass;
    }
    api.put("pods", pod);
  }
  void phase(const std::string& is) {
    Json pod = api.find("pods", "web", "train-0");
    pod["status"]["phase"] = is;
    api.put("pods", pod);
  }
  // The first event of this reason, of the object of this uid; null: there is none yet.
  Json event(const std::string& reason, const std::string& uid = "") {
    for (const Json& one : api.all("events")) {
      if (one["reason"] != reason) continue;
      if (uid.empty() || one["involvedObject"]["uid"] == uid) return one;
    }
    return nullptr;
  }
  // Waits for it; null: it did not come.
  Json told(const std::string& reason, const std::string& uid = "") {
    EXPECT_TRUE(eventually([&] { return !event(reason, uid).is_null(); })) << reason << "\n"
                                                                           << manager->log();
    return event(reason, uid);
  }
  std::string start(const KubeletStandIn::Counts& counts, const ContainerName& who = kMain) {
    const auto answer = kubelet.admit(who, counts);
    if (!answer.ok()) return answer.error;
    admitted[who.pod] = Container(answer);
    return kubelet.startContainer(who).error;
  }
};

}  // namespace qgpu::e2e
