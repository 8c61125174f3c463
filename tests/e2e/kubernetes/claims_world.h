#pragma once
// Claims on one node, in a cluster that a test plays: real qgpu-manager and qgpu-kubelet-plugin,
// real gRPC and HTTP. API server and kubelet are played; kube-scheduler's part, the allocation, is
// written by the test.

#include <fstream>
#include <gtest/gtest.h>

#include "services/kubernetes/claim_plugin/testing/claims_kubelet.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/kubernetes/container.h"
#include "tests/e2e/kubernetes/kube_world.h"

namespace qgpu::e2e {

using testing::ApiStandIn;
using testing::ClaimsKubelet;

inline constexpr const char* kSlice = "n1-qgpu.io";

struct Claims : ::testing::Test {
  Claims() : kubelet(dir.path() + "/kubelet") {
    Json node = ApiStandIn::node(kNode);
    node["metadata"]["labels"]["qgpu-device-enable"] = "enable";
    node["metadata"]["labels"]["qgpu.io/claims"] = "enable";
    api.put("nodes", node);
  }

  // What is said here goes before what all of them have.
  void start(std::vector<std::string> flags = {}, Environment environment = {}) {
    std::ofstream(dir.path() + "/plugin.conf")
        << "(cdi = \"" << cdiDir() << "\"" << pluginConfig << ")";
    flags.insert(flags.begin(),
                 {"--kubelet=on", "--cards=sim:2x16", std::string("--nodename=") + kNode,
                  "--kubelet-dir=" + dir.path() + "/kubelet",
                  "--kubelet-config=" + dir.path() + "/plugin.conf"});
    environment["KUBECONFIG"] = api.kubeconfig(dir.path() + "/" + kManagerAccount, kManagerAccount);
    manager = std::make_unique<Manager>(std::move(flags), std::move(environment));
    ASSERT_TRUE(eventually([&] { return kubelet.find("qgpu.io", info); })) << manager->log();
    ASSERT_TRUE(eventually([&] { return !slice().is_null(); })) << manager->log();
  }

  std::string cdiDir() const { return dir.path() + "/cdi"; }
  Json slice() { return api.find("resourceslices", "", kSlice); }
  void label(const std::string& name, const std::string& value) {
    api.change("nodes", "", kNode, [&](Json& node) { node["metadata"]["labels"][name] = value; });
  }

  // As kube-scheduler leaves it; `consumed` of device `device` for request "gpu".
  void allocate(const std::string& name, const std::string& device, const Json& consumed,
                const std::string& taskClass = "ordinary", const Json& users = Json::array()) {
    Json result = {
        {"request", "gpu"}, {"driver", "qgpu.io"},        {"pool", kNode},
        {"device", device}, {"shareID", "share-" + name}, {"consumedCapacity", consumed}};
    Json parameters = {
        {"apiVersion", "qgpu.io/v1"}, {"kind", "TaskParameters"}, {"class", taskClass}};
    Json config = {{"source", "FromClass"},
                   {"requests", Json::array()},
                   {"opaque", {{"driver", "qgpu.io"}, {"parameters", parameters}}}};
    api.put("resourceclaims",
            {{"metadata", {{"name", name}, {"namespace", kSpace}, {"uid", "uid-" + name}}},
             {"spec", Json::object()},
             {"status",
              {{"reservedFor", users},
               {"allocation",
                {{"devices",
                  {{"results", Json::array({result})}, {"config", Json::array({config})}}}}}}}});
  }
  static Json user(const std::string& pod) {
    return {{"resource", "pods"}, {"name", pod}, {"uid", "uid-" + pod}};
  }
  Json event(const std::string& reason, const std::string& pod) {
    Json found;
    const bool told = eventually([&] {
      for (Json& one : api.all("events")) {
        const bool its = one["reason"] == reason && one["involvedObject"]["name"] == pod;
        if (its) found = std::move(one);
      }
      return !found.is_null();
    });
    EXPECT_TRUE(told) << reason << " of " << pod << "\n" << manager->log();
    return found;
  }
  ClaimsKubelet::Prepared prepare(const std::string& name) {
    return kubelet.prepare(kSpace, name, "uid-" + name);
  }
  std::string unprepare(const std::string& name) {
    return kubelet.unprepare(kSpace, name, "uid-" + name);
  }

  // What a container runtime makes of the prepared claim.
  Container container(const ClaimsKubelet::Prepared& prepared, const std::string& claim) {
    Container made;
    made.cdiDevices = prepared.cdiDevices;
    const std::string file = cdiDir() + "/qgpu.io-claim-uid-" + claim + ".json";
    made.addCdi(Json::parse(contentOf(file)));
    return made;
  }

  // Of a process that has no mounts: what lies at a path in the container is named as it lies here.
  static Environment onHost(const Container& made) {
    Environment environment = made.environment;
    for (auto& [name, value] : environment) {
      for (const auto& [inside, outside] : made.mounts) {
        const std::size_t at = value.find(inside);
        if (at != std::string::npos) value.replace(at, inside.size(), outside);
      }
    }
    return environment;
  }

  TempFolder dir;
  ServedApi api;
  ClaimsKubelet kubelet;
  ClaimsKubelet::Info info;
  std::unique_ptr<Manager> manager;
  std::string pluginConfig;  // ", name = value" of the claim plugin
};

}  // namespace qgpu::e2e
