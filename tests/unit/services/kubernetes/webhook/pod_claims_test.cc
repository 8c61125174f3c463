// What becomes of a pod that asks by resources where it is to ask by a claim: the patch as the API
// server applies it, and the template that it names.

#include "services/kubernetes/webhook/pod_claims.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/kubernetes/claims/claim_document.h"

namespace qgpu::pod_claims_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kPrefix = "tke.cloud.tencent.com/";

// As the API server has it, which copies limits to requests.
Json container(const std::string& name, const std::map<std::string, std::string>& limits) {
  Json out{{"name", name}, {"image", "x"}, {"resources", Json::object()}};
  for (const auto& [key, value] : limits) {
    out["resources"]["limits"][kPrefix + key] = value;
    out["resources"]["requests"][kPrefix + key] = value;
  }
  return out;
}

Json podOf(std::vector<Json> containers, const std::string& appClass = "") {
  Json pod{{"kind", "Pod"}, {"apiVersion", "v1"}, {"metadata", {{"generateName", "p-"}}}};
  if (!appClass.empty()) {
    pod["metadata"]["annotations"][std::string(kPrefix) + "app-class"] = appClass;
  }
  pod["spec"]["containers"] = std::move(containers);
  return pod;
}

Result<std::optional<PodByClaim>> changed(const Json& pod, const PodRules& rules = {}) {
  simdjson::dom::parser parser;
  return podByClaim(parser.parse(pod.dump()), rules);
}

struct Changed {
  Json pod;
  Json made;  // the template
  Json requests() const { return made["spec"]["spec"]["devices"]["requests"]; }
};

// Of a pod that is changed, by a template that our own rules allow.
Changed change(const Json& pod, const PodRules& rules = {}) {
  const auto result = changed(pod, rules);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  if (!result || !*result) {
    ADD_FAILURE() << "not changed: " << pod;
    return {};
  }
  const PodByClaim& by = **result;
  Changed out{pod.patch(Json::parse(by.patch)), Json::parse(by.templateJson)};
  EXPECT_EQ(out.made["metadata"]["name"], by.templateName);
  simdjson::dom::parser parser;
  const std::string devices = out.made["spec"]["spec"]["devices"].dump();
  for (const std::string& rule : brokenClaimRules(parser.parse(devices))) ADD_FAILURE() << rule;
  return out;
}

std::string refusal(const Json& pod) {
  const auto result = changed(pod);
  return result ? "" : result.error().message;
}

Json partOf(const std::string& name, const std::string& deviceClass, const Json& amounts) {
  return {{"name", name},
          {"exactly", {{"deviceClassName", deviceClass}, {"capacity", {{"requests", amounts}}}}}};
}

TEST(PodByClaim, AnOrdinaryPodAsksForAPartOfACardForEachOfItsContainers) {
  const std::map<std::string, std::string> some = {{"qgpu-core", "30"}, {"qgpu-memory", "5"}};
  const Changed by =
      change(podOf({container("train", some), container("log", {}), container("evaluate", some)}));
  const Json amounts{{"core", "30"}, {"memory", "5Gi"}};
  EXPECT_EQ(by.requests(), Json::array({partOf("train", "ordinary.qgpu.io", amounts),
                                        partOf("evaluate", "ordinary.qgpu.io", amounts)}));
  EXPECT_EQ(by.made["kind"], "ResourceClaimTemplate");
  EXPECT_EQ(by.made["apiVersion"], "resource.k8s.io/v1");
  EXPECT_EQ(by.made["metadata"]["labels"], Json({{"app", "qgpu-scheduler"}}));

  const Json spec = by.pod["spec"];
  EXPECT_EQ(spec["resourceClaims"],
            Json::array(
                {{{"name", "qgpu"}, {"resourceClaimTemplateName", by.made["metadata"]["name"]}}}));
  EXPECT_EQ(spec["containers"][0]["resources"]["claims"],
            Json::array({{{"name", "qgpu"}, {"request", "train"}}}));
  EXPECT_EQ(spec["containers"][0]["resources"]["limits"], Json::object());
  EXPECT_EQ(spec["containers"][0]["resources"]["requests"], Json::object());
  EXPECT_EQ(spec["containers"][1], container("log", {})) << "it asks for nothing";
  EXPECT_EQ(spec["containers"][2]["resources"]["claims"][0]["request"], "evaluate");
}

TEST(PodByClaim, OnlineAndOfflinePodsAskForHybridCards) {
  const Changed online = change(podOf({container("a", {{"qgpu-memory", "4"}})}, "online"));
  EXPECT_EQ(online.requests(), Json::array({partOf("a", "online.qgpu.io", {{"memory", "4Gi"}})}));
  const Changed offline = change(
      podOf({container("a", {{"qgpu-core-greedy", "60"}, {"qgpu-memory", "8"}})}, "offline"));
  EXPECT_EQ(offline.requests(),
            Json::array({partOf("a", "offline.qgpu.io", {{"core", "60"}, {"memory", "8Gi"}})}));
  EXPECT_EQ(offline.pod["metadata"], podOf({}, "offline")["metadata"]) << "its class stays written";
}

TEST(PodByClaim, WholeCardsAreDevicesAndNoCapacity) {
  for (const auto& [core, count] : {std::pair("100", 1), std::pair("300", 3)}) {
    const Changed by = change(podOf({container("a", {{"qgpu-core", core}})}));
    EXPECT_EQ(by.requests(), Json::array({{{"name", "a"},
                                           {"exactly",
                                            {{"deviceClassName", "ordinary.qgpu.io"},
                                             {"allocationMode", "ExactCount"},
                                             {"count", count}}}}}));
  }
}

TEST(PodByClaim, AnInitContainerThatUsesTheRoomOfAMainOneNamesItsRequest) {
  const std::map<std::string, std::string> some = {{"qgpu-core", "30"}, {"qgpu-memory", "5"}};
  Json pod = podOf({container("main", some)});
  pod["spec"]["initContainers"] =
      Json::array({container("before", {{"qgpu-core", "10"}, {"qgpu-memory", "2"}})});
  Json sidecar = container("beside", some);
  sidecar["restartPolicy"] = "Always";
  pod["spec"]["initContainers"].push_back(sidecar);
  const Changed by = change(pod);
  EXPECT_EQ(by.requests().size(), 2u) << by.made;
  const Json inits = by.pod["spec"]["initContainers"];
  EXPECT_EQ(inits[0]["resources"]["claims"][0]["request"], "main");
  EXPECT_EQ(inits[1]["resources"]["claims"][0]["request"], "beside");
}

TEST(PodByClaim, ModelsThatThePodNamesAreASelectorOfEachRequest) {
  Json pod =
      podOf({container("a", {{"qgpu-core", "100"}}), container("b", {{"qgpu-core", "200"}})});
  pod["metadata"]["annotations"]["qgpu.io/card-models"] = R"(Tesla T4,the "A10")";
  const Changed by = change(pod);
  for (const auto& request : by.requests()) {
    EXPECT_EQ(request["exactly"]["selectors"],
              Json::array(
                  {{{"cel",
                     {{"expression",
                       R"(device.attributes["qgpu.io"].model in ["Tesla T4","the \"A10\""])"}}}}}));
  }
  pod["metadata"]["annotations"].clear();
  EXPECT_NE(by.made["metadata"]["name"], change(pod).made["metadata"]["name"]);
}

TEST(PodByClaim, EqualAsksShareATemplateAndOthersDoNot) {
  const auto named = [](const std::string& name, const std::string& core) {
    const Json pod = podOf({container(name, {{"qgpu-core", core}, {"qgpu-memory", "5"}})});
    return (**changed(pod)).templateName;
  };
  EXPECT_EQ(named("a", "30"), named("a", "30"));
  EXPECT_NE(named("a", "30"), named("a", "31"));
  EXPECT_NE(named("a", "30"), named("b", "30")) << "its requests are called like the containers";
  EXPECT_TRUE(named("a", "30").starts_with("qgpu-"));
}

TEST(PodByClaim, WhatElseThePodHasStays) {
  Json pod = podOf({container("a", {{"qgpu-core", "30"}, {"qgpu-memory", "5"}})});
  Json& resources = pod["spec"]["containers"][0]["resources"];
  resources["limits"]["cpu"] = "2";
  resources["requests"]["cpu"] = "1";
  resources["limits"][std::string(kPrefix) + "qgpu-core-greedy"] = "0";
  resources["claims"] = Json::array({{{"name", "nic"}}});
  pod["spec"]["resourceClaims"] = Json::array({{{"name", "nic"}, {"resourceClaimName", "one"}}});
  const Json spec = change(pod).pod["spec"];
  const Json after = spec["containers"][0]["resources"];
  EXPECT_EQ(after["limits"], Json({{"cpu", "2"}}));
  EXPECT_EQ(after["requests"], Json({{"cpu", "1"}}));
  EXPECT_EQ(after["claims"],
            Json::array({{{"name", "nic"}}, {{"name", "qgpu"}, {"request", "a"}}}));
  EXPECT_EQ(spec["resourceClaims"].size(), 2u);
  EXPECT_EQ(spec["resourceClaims"][0]["name"], "nic");
}

TEST(PodByClaim, PrefixAndUnitAreThoseOfTheDaemons) {
  Json pod = podOf({Json{{"name", "a"}}});
  pod["spec"]["containers"][0]["resources"]["limits"] = {{"gpu.example.com/qgpu-core", 30},
                                                         {"gpu.example.com/qgpu-memory", 2048}};
  const Changed by = change(pod, {"gpu.example.com", MemoryUnit::MiB});
  EXPECT_EQ(by.requests(),
            Json::array({partOf("a", "ordinary.qgpu.io", {{"core", "30"}, {"memory", "2Gi"}})}));
  EXPECT_EQ(by.pod["spec"]["containers"][0]["resources"]["limits"], Json::object());
}

TEST(PodByClaim, WhatAsksForNothingOrHasANodeStaysAsItIs) {
  Json bound = podOf({container("a", {{"qgpu-core", "30"}, {"qgpu-memory", "5"}})});
  bound["spec"]["nodeName"] = "n1";
  const Json turned = change(podOf({container("a", {{"qgpu-core", "100"}})})).pod;
  for (const Json& pod :
       {podOf({container("a", {})}), podOf({container("a", {{"qgpu-core", "0"}})}), bound, turned,
        Json(Json::object())}) {
    const auto result = changed(pod);
    ASSERT_TRUE(result) << pod;
    EXPECT_FALSE(*result) << pod;
  }
}

TEST(PodByClaim, ClaimsOfItsNameAndTooManyRequestsAreRefused) {
  const std::map<std::string, std::string> some = {{"qgpu-core", "1"}, {"qgpu-memory", "1"}};
  Json pod = podOf({container("a", some)});
  pod["spec"]["resourceClaims"] = Json::array({{{"name", "qgpu"}, {"resourceClaimName", "x"}}});
  EXPECT_NE(refusal(pod).find("call that claim otherwise"), std::string::npos) << refusal(pod);
  std::vector<Json> containers;
  for (int i = 0; i < 33; ++i) containers.push_back(container("c" + std::to_string(i), some));
  EXPECT_NE(refusal(podOf(containers)).find("33 containers ask for qgpu"), std::string::npos);
  containers.pop_back();
  EXPECT_EQ(change(podOf(containers)).requests().size(), 32u);
  EXPECT_NE(refusal(podOf({container("a", {{"qgpu-core", "150"}})})).find("N*100"),
            std::string::npos);
}

bool leaves(const Json& pod) {
  simdjson::dom::parser parser;
  return leavesScheduler(parser.parse(pod.dump()), {});
}

TEST(PodsScheduler, IsNamedWhereThePodAsksAndNamesNone) {
  Json pod = podOf({container("a", {{"qgpu-core", "100"}})});
  EXPECT_TRUE(leaves(pod));
  pod["spec"]["schedulerName"] = "default-scheduler";  // as the API server fills it in
  EXPECT_TRUE(leaves(pod));
  EXPECT_EQ(pod.patch(Json::parse(schedulerPatch("second")))["spec"]["schedulerName"], "second");
  pod["spec"]["schedulerName"] = "volcano";
  EXPECT_FALSE(leaves(pod));
  EXPECT_FALSE(leaves(podOf({container("a", {})})));
  EXPECT_FALSE(leaves(podOf({container("a", {{"qgpu-core", "150"}})}))) << "others say why";
}

}  // namespace
}  // namespace qgpu::pod_claims_test
