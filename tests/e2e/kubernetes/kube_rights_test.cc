// What the daemons ask of the API server while they do everything that they do, against the roles
// of deploy/kubernetes: each thing asked is allowed, and each thing allowed is asked.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "services/base/base64.h"
#include "tests/deploy/documents.h"
#include "tests/e2e/kubernetes/elsewhere.h"
#include "tests/e2e/kubernetes/kube_world.h"

namespace qgpu::e2e::kube_rights_test {
namespace {

using testing::ApiStandIn;
using testing::below;
using testing::Document;
using testing::find;
using testing::manifests;

// One verb on one resource, as a rule of an account's role gives it.
struct Right {
  std::string account;
  std::string verb;
  std::string group;
  std::string resource;
  std::string name;       // empty: any
  std::string nameSpace;  // empty: any
  auto operator<=>(const Right&) const = default;

  bool covers(const ApiStandIn::Use& use) const {
    return account == use.account && verb == use.verb && group == use.group &&
           resource == use.resource && (name.empty() || name == use.name) &&
           (nameSpace.empty() || nameSpace == use.nameSpace);
  }
  std::string text() const {
    return rightText(account, verb, group, resource) + (name.empty() ? "" : " " + name) +
           (nameSpace.empty() ? "" : " in " + nameSpace);
  }
};

std::vector<std::string> texts(const Document& role, const std::string& list) {
  std::vector<std::string> all;
  for (const std::string& one : below(role, list)) all.push_back(role.text(one));
  return all;
}

void addRights(const Document& role, const std::string& account, const std::string& nameSpace,
               std::set<Right>& rights) {
  for (const std::string& rule : below(role, "/rules")) {
    std::vector<std::string> names = texts(role, rule + "/resourceNames");
    if (names.empty()) names.emplace_back();
    for (const std::string& group : texts(role, rule + "/apiGroups")) {
      for (const std::string& resource : texts(role, rule + "/resources")) {
        for (const std::string& verb : texts(role, rule + "/verbs")) {
          for (const std::string& name : names) {
            rights.insert({account, verb, group, resource, name, nameSpace});
          }
        }
      }
    }
  }
}

std::set<Right> givenRights() {
  const auto all = manifests();
  std::set<Right> rights;
  for (const Document& binding : all) {
    if (!binding.kind().ends_with("RoleBinding")) continue;
    const std::string kind = binding.text("/roleRef/kind");
    const Document& role = find(all, kind, binding.text("/roleRef/name"));
    addRights(role, binding.text("/subjects/0/name"),
              kind == "Role" ? binding.text("/metadata/namespace") : "", rights);
  }
  return rights;
}

struct KubeRights : KubeWorld {
  // What an installer and a cluster put there.
  void install() {
    api.put("pods", ApiStandIn::pod("kube-system", "scheduler-0", "own"));
    api.put("secrets",
            {{"metadata", {{"name", "qgpu-scheduler-webhook"}, {"namespace", "kube-system"}}}});
    api.put("validatingwebhookconfigurations",
            {{"metadata", {{"name", "qgpu-scheduler"}}},
             {"webhooks",
              Json::array({{{"name", "pods.qgpu.io"}, {"clientConfig", Json::object()}}})}});
    const Json service{{"service", {{"name", "qgpu-scheduler"}}}};
    api.put("mutatingwebhookconfigurations",
            {{"metadata", {{"name", "qgpu-scheduler"}}},
             {"webhooks",
              Json::array({{{"name", "by-claims.pods.qgpu.io"}, {"clientConfig", service}},
                           {{"name", "scheduler.pods.qgpu.io"}, {"clientConfig", service}}})}});
    const Json labels{{"qgpu.io/claims", "enable"}, {"qgpu.io/scheduler-name", "second"}};
    api.put("namespaces", {{"metadata", {{"name", kSpace}, {"labels", labels}}}});
    schedulerFlags = {"--webhook=127.0.0.1:0"};
    schedulerEnvironment = {{"POD_NAME", "scheduler-0"}, {"POD_NAMESPACE", "kube-system"}};
  }
  // A pod's life, one that breaks a rule, asked twice, and what an operator does.
  void live() {
    PlainTenant first(dir.path() + "/first");
    create("first", {30, 2}, first.command());
    ASSERT_TRUE(schedule("first"));
    ASSERT_TRUE(reaches("first", "Running")) << kubelet.trouble("first");
    create("broken", {150, 2}, {"true"});
    for (int times = 1; times <= 2; ++times) {
      cycle("broken");
      ASSERT_TRUE(eventually([&] {
        const Json told = api.event("QGPURejected");
        return !told.is_null() && told["count"] == times;
      }));
    }
    ASSERT_TRUE(scheduler->ask("cordon " + std::string(kNode) + "/sim-0")["ok"]);
    const Json held = scheduler->tasks();
    ASSERT_EQ(held.size(), 1u) << held;
    ASSERT_TRUE(scheduler->ask("delete " + held[0]["id"].dump())["ok"]);
    ASSERT_TRUE(eventually([&] {
      std::size_t evictions = 0;
      api.with([&](ApiStandIn& server) { evictions = server.evictions(); });
      return evictions > 0;
    }));
    ASSERT_TRUE(eventually([&] {
      return api.find("nodes", "", kNode)["metadata"]["annotations"].contains("qgpu.io/cordoned");
    }));
    first.end();
    ASSERT_TRUE(eventually([&] {
      const auto all = uses();
      return std::any_of(all.begin(), all.end(), [](const auto& use) {
        return use.resource == "leases" && use.verb == "update";
      });
    })) << "a lease is renewed";
  }
  // What the API server asks of a pod of that namespace by a webhook that changes pods; the answer.
  Json askToChange(std::size_t webhook) {
    const Json client = api.find("mutatingwebhookconfigurations", "",
                                 "qgpu-scheduler")["webhooks"][webhook]["clientConfig"];
    const std::string log = scheduler->log();
    const std::string begin = "webhook-certificate address=";
    const std::size_t from = log.find(begin) + begin.size();
    const std::string address = log.substr(from, log.find(' ', from) - from);
    const Json pod{{"spec", {{"containers", Json::array({container("c", {30, 2}, {"true"})})}}}};
    const Json review{{"kind", "AdmissionReview"},
                      {"apiVersion", "admission.k8s.io/v1"},
                      {"request",
                       {{"uid", "u"},
                        {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
                        {"operation", "CREATE"},
                        {"namespace", kSpace},
                        {"object", pod}}}};
    std::ofstream(dir.path() + "/review") << review;
    std::ofstream(dir.path() + "/ca") << fromBase64(client.value("caBundle", "")).value_or("");
    const std::string host = "qgpu-scheduler.kube-system.svc";
    const auto said =
        testing::run({"curl", "--silent", "--cacert", dir.path() + "/ca", "--connect-to",
                      host + ":443:" + address, "--data-binary", "@" + dir.path() + "/review",
                      "https://" + host + client["service"].value("path", "").c_str()});
    const Json answer = Json::parse(said.output, nullptr, false);
    return answer.is_discarded() ? Json(said.output) : answer["response"];
  }
  std::set<ApiStandIn::Use> uses() {
    std::set<ApiStandIn::Use> all;
    api.with([&](ApiStandIn& server) { all = server.uses; });
    return all;
  }
};

TEST_F(KubeRights, AreWhatTheDaemonsUseAndNothingElse) {
  install();
  startAll("sim:1x16");
  ASSERT_TRUE(eventually([&] {
    return api.find("validatingwebhookconfigurations", "", "qgpu-scheduler")
                   .dump()
                   .find("caBundle") != std::string::npos &&
           scheduler->log().find("webhook-certificate address=") != std::string::npos;
  }));
  for (const std::size_t webhook : {0u, 1u}) {
    const Json answer = askToChange(webhook);
    EXPECT_TRUE(answer.contains("patch")) << answer;
  }
  EXPECT_EQ(api.all("resourceclaimtemplates").size(), 1u);
  live();
  if (HasFatalFailure()) return;
  EXPECT_EQ(scheduler->stop(), 0) << scheduler->log();
  EXPECT_EQ(manager->stop(), 0) << manager->log();

  const std::set<Right> given = givenRights();
  std::set<Right> used;
  for (const ApiStandIn::Use& use : uses()) {
    bool allowed = false;
    for (const Right& right : given) {
      if (!right.covers(use)) continue;
      allowed = true;
      used.insert(right);
    }
    EXPECT_TRUE(allowed) << use.account << " asked to " << use.verb << " " << use.resource << " "
                         << use.nameSpace << "/" << use.name << " of " << use.group;
  }
  for (const Right& right : given) {
    const bool elsewhere =
        kRightsForEvents.contains(right.text()) || kRightsForClaims.contains(right.text());
    EXPECT_NE(used.contains(right), elsewhere) << right.text();
  }
}

}  // namespace
}  // namespace qgpu::e2e::kube_rights_test
