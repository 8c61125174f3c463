#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/kubernetes/webhook/admission.h"
#include "tests/unit/services/kubernetes/webhook/allocated_bytes.h"

namespace qgpu::webhook_admission_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kPrefix = "tke.cloud.tencent.com/";

Json container(const std::string& name, const std::map<std::string, std::string>& limits) {
  Json out{{"name", name}, {"image", "x"}, {"resources", {{"limits", Json::object()}}}};
  for (const auto& [key, value] : limits) out["resources"]["limits"][kPrefix + key] = value;
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

Json reviewOf(const Json& pod, const std::string& version = "v1") {
  return Json{{"kind", "AdmissionReview"},
              {"apiVersion", "admission.k8s.io/" + version},
              {"request",
               {{"uid", "705ab4f5-6393-11e8-b7cc-42010a800002"},
                {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
                {"resource", {{"group", ""}, {"version", "v1"}, {"resource", "pods"}}},
                {"operation", "CREATE"},
                {"namespace", "default"},
                {"object", pod},
                {"oldObject", nullptr},
                {"dryRun", false}}}};
}

Json answer(const Json& review) {
  const auto answered = answerReview(review.dump(), PodRules{});
  EXPECT_TRUE(answered.ok()) << (answered.ok() ? "" : answered.error().message);
  return answered.ok() ? Json::parse(answered->json) : Json();
}

std::string refusal(const Json& pod) {
  const Json response = answer(reviewOf(pod))["response"];
  if (response["allowed"].get<bool>()) return "";
  EXPECT_EQ(response["status"]["code"], 403);
  return response["status"]["message"];
}

TEST(Admission, AnswersInTheVersionThatAskedWithTheUidOfTheQuestion) {
  for (const std::string version : {"v1", "v1beta1"}) {
    const Json said = answer(reviewOf(podOf({container("a", {})}), version));
    EXPECT_EQ(said["kind"], "AdmissionReview");
    EXPECT_EQ(said["apiVersion"], "admission.k8s.io/" + version);
    EXPECT_EQ(said["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    EXPECT_EQ(said["response"]["allowed"], true);
    EXPECT_FALSE(said["response"].contains("status"));
  }
}

TEST(Admission, AllowsWhatTheRulesAllow) {
  EXPECT_EQ(refusal(podOf({container("a", {{"qgpu-core", "30"}, {"qgpu-memory", "5"}})})), "");
  EXPECT_EQ(refusal(podOf({container("a", {{"qgpu-core", "200"}})})), "");
  EXPECT_EQ(refusal(podOf({container("a", {{"qgpu-memory", "4"}})}, "online")), "");
  EXPECT_EQ(refusal(podOf({container("a", {{"qgpu-core-greedy", "60"}, {"qgpu-memory", "8"}})},
                          "offline")),
            "");
  EXPECT_EQ(refusal(Json::object()), "");
}

// The refusal of an update; empty: it passes.
std::string updateRefusal(const Json& before, const Json& after, const std::string& sub = "") {
  Json review = reviewOf(after);
  review["request"]["operation"] = "UPDATE";
  review["request"]["oldObject"] = before;
  if (!sub.empty()) review["request"]["subResource"] = sub;
  const Json response = answer(review)["response"];
  return response["allowed"].get<bool>() ? "" : response["status"]["message"].get<std::string>();
}

Json boundPod(const std::map<std::string, std::string>& limits, const std::string& appClass) {
  Json pod = podOf({container("a", limits)}, appClass);
  pod["spec"]["nodeName"] = "n1";
  pod["metadata"]["annotations"]["qgpu.io/assigned"] = R"({"a":["GPU-1"]})";
  return pod;
}

TEST(Admission, APodThatIsBoundKeepsItsClass) {
  const Json runs = boundPod({{"qgpu-memory", "4"}}, "online");
  const std::string key = std::string(kPrefix) + "app-class";
  for (const char* other : {"offline", "batch", ""}) {
    Json edited = runs;
    edited["metadata"]["annotations"][key] = other;
    const std::string said = updateRefusal(runs, edited);
    EXPECT_NE(said.find("app-class of a pod that is bound"), std::string::npos) << other << said;
    EXPECT_EQ(updateRefusal(runs, edited, "status"), "") << "not what is judged";
  }
  Json without = runs;
  without["metadata"]["annotations"].erase(key);
  EXPECT_NE(updateRefusal(runs, without), "");
}

TEST(Admission, UpdatesThatTouchNothingOfOursPass) {
  Json runs = boundPod({{"qgpu-memory", "4"}}, "online");
  Json labelled = runs;
  labelled["metadata"]["labels"]["tier"] = "front";
  EXPECT_EQ(updateRefusal(runs, labelled), "");
  // One that was created before anybody judged it stays as it is, too.
  Json broken = boundPod({{"qgpu-memory", "4"}}, "batch");
  Json touched = broken;
  touched["metadata"]["labels"]["tier"] = "front";
  EXPECT_EQ(updateRefusal(broken, touched), "");
  Json plain = podOf({container("a", {})});
  plain["spec"]["nodeName"] = "n1";
  Json noted = plain;
  noted["metadata"]["annotations"][std::string(kPrefix) + "app-class"] = "online";
  EXPECT_EQ(updateRefusal(plain, noted), "") << "it asks nothing";
}

TEST(Admission, AWaitingPodMayBeMendedAndNotBroken) {
  const Json wrong = podOf({container("a", {{"qgpu-memory", "4"}})}, "offline");
  const Json right = podOf({container("a", {{"qgpu-memory", "4"}})}, "online");
  EXPECT_EQ(updateRefusal(wrong, right), "");
  EXPECT_NE(updateRefusal(right, wrong).find("qgpu-core-greedy"), std::string::npos);
}

// A pod, and a piece of what its author reads.
struct Row {
  const char* name;
  std::map<std::string, std::string> limits;
  const char* appClass;
  const char* says;
};
const Row kRows[] = {
    {"core 100 to 199", {{"qgpu-core", "150"}}, "", "N*100"},
    {"a part without memory", {{"qgpu-core", "30"}}, "", "qgpu-memory"},
    {"memory without core", {{"qgpu-memory", "5"}}, "", "qgpu-core"},
    {"decimals", {{"qgpu-core", "30"}, {"qgpu-memory", "1.5"}}, "", "whole"},
    {"online with core", {{"qgpu-core", "30"}, {"qgpu-memory", "5"}}, "online", "online pod"},
    {"offline with core", {{"qgpu-core", "30"}, {"qgpu-memory", "5"}}, "offline", "greedy"},
    {"offline beyond a card",
     {{"qgpu-core-greedy", "101"}, {"qgpu-memory", "5"}},
     "offline",
     "at most 100"},
    {"greedy without offline", {{"qgpu-core-greedy", "10"}, {"qgpu-memory", "5"}}, "", "offline"},
    {"no such class", {{"qgpu-memory", "5"}}, "batch", "'batch'"},
    {"no such resource", {{"qgpu-cores", "5"}}, "", "qgpu-cores"},
};

TEST(Admission, ExplainsEachRule) {
  for (const Row& row : kRows) {
    const std::string said = refusal(podOf({container("c1", row.limits)}, row.appClass));
    EXPECT_TRUE(said.starts_with("qgpu: ")) << row.name << ": " << said;
    EXPECT_NE(said.find(row.says), std::string::npos) << row.name << ": " << said;
  }
}

TEST(Admission, NamesEveryContainerThatBreaksARule) {
  const std::string said = refusal(
      podOf({container("first", {{"qgpu-core", "150"}}), container("right", {{"qgpu-core", "100"}}),
             container("second", {{"qgpu-memory", "5"}})}));
  EXPECT_NE(said.find("'first'"), std::string::npos) << said;
  EXPECT_NE(said.find("'second'"), std::string::npos) << said;
  EXPECT_EQ(said.find("'right'"), std::string::npos) << said;
}

TEST(Admission, SaysARuleOfThePodOnceAndRulesThatTakeTwoContainers) {
  const std::string wrongClass =
      refusal(podOf({container("a", {{"qgpu-memory", "1"}}), container("b", {})}, "batch"));
  EXPECT_EQ(wrongClass.find("app-class"), wrongClass.rfind("app-class")) << wrongClass;
  Json nvidia = container("b", {});
  nvidia["resources"]["limits"]["nvidia.com/gpu"] = "1";
  const std::string both = refusal(podOf({container("a", {{"qgpu-core", "100"}}), nvidia}));
  EXPECT_NE(both.find("nvidia.com/gpu"), std::string::npos) << both;
}

TEST(Admission, C7_CostsAWalkOverThePodHoweverManyContainersBreakRules) {
  constexpr std::size_t kContainers = 4'000;
  std::vector<Json> containers;
  for (std::size_t i = 0; i < kContainers; ++i) {
    containers.push_back(container("c" + std::to_string(i), {{"qgpu-core", "150"}}));
  }
  Json pod = podOf(std::move(containers));
  pod["metadata"]["annotations"]["large"] = std::string(std::size_t{1} << 20, 'x');
  const std::string body = reviewOf(pod).dump();
  ASSERT_LT(body.size(), kReviewBytesMax);
  const std::size_t before = testing::allocatedBytes();
  const auto answered = answerReview(body, PodRules{});
  EXPECT_LT(testing::allocatedBytes() - before, 32 * body.size());
  ASSERT_TRUE(answered.ok());
  EXPECT_FALSE(answered->allowed);
  EXPECT_LT(answered->json.size(), 8'192u);
}

TEST(Admission, SaysAnInitContainerIsRightWhereAnotherBreaksARule) {
  Json pod = podOf({container("main", {{"qgpu-core", "30"}, {"qgpu-memory", "2"}}),
                    container("wrong", {{"qgpu-core", "150"}})});
  pod["spec"]["initContainers"] =
      Json::array({container("before", {{"qgpu-core", "30"}, {"qgpu-memory", "2"}})});
  const std::string said = refusal(pod);
  EXPECT_NE(said.find("'wrong'"), std::string::npos) << said;
  EXPECT_EQ(said.find("'before'"), std::string::npos) << said;
}

TEST(Admission, LeavesAloneWhatIsNoNewPod) {
  const Json broken = podOf({container("a", {{"qgpu-core", "150"}})});
  Json update = reviewOf(broken);
  update["request"]["operation"] = "UPDATE";
  EXPECT_EQ(answer(update)["response"]["allowed"], true);
  Json other = reviewOf(broken);
  other["request"]["kind"] = {{"group", "apps"}, {"version", "v1"}, {"kind", "Deployment"}};
  EXPECT_EQ(answer(other)["response"]["allowed"], true);
}

// --- claims ---

Json claimReview(const std::string& kind, const Json& spec, const std::string& version = "v1") {
  Json review = reviewOf(Json{{"metadata", {{"name", "c"}}}, {"spec", spec}});
  review["request"]["kind"] = {{"group", "resource.k8s.io"}, {"version", version}, {"kind", kind}};
  return review;
}

Json offlineClaim(const std::string& core) {
  const Json request{{"deviceClassName", "offline.qgpu.io"},
                     {"capacity", {{"requests", {{"memory", "4Gi"}, {"core", core}}}}}};
  return {{"devices", {{"requests", Json::array({{{"name", "gpu"}, {"exactly", request}}})}}}};
}

TEST(Admission, RefusesClaimsTemplatesAndClassesByTheDriversRules) {
  const Json wrong = offlineClaim("0");
  const Json parameters{
      {"apiVersion", "qgpu.io/v1"}, {"kind", "TaskParameters"}, {"class", "both"}};
  const Json config{{"opaque", {{"driver", "qgpu.io"}, {"parameters", parameters}}}};
  for (const Json& review :
       {claimReview("ResourceClaim", wrong), claimReview("ResourceClaim", wrong, "v1beta1"),
        claimReview("ResourceClaimTemplate", {{"spec", wrong}})}) {
    const Json response = answer(review)["response"];
    EXPECT_EQ(response["allowed"], false);
    EXPECT_EQ(response["status"]["code"], 403);
    EXPECT_EQ(response["status"]["message"], "qgpu: request 'gpu': core is 0: ask for 1 to 100");
  }
  const Json ofClass =
      answer(claimReview("DeviceClass", {{"config", Json::array({config})}}))["response"];
  EXPECT_EQ(ofClass["status"]["message"],
            "qgpu: class is 'both': it is ordinary, online or offline");
}

TEST(Admission, AllowsClaimsThatAreRightAndClaimsOfOthers) {
  for (const Json& spec : {offlineClaim("60"), Json::object(), Json(7)}) {
    EXPECT_EQ(answer(claimReview("ResourceClaim", spec))["response"]["allowed"], true) << spec;
  }
  Json other = claimReview("ResourceClaim", offlineClaim("0"));
  other["request"]["kind"]["group"] = "example.com";
  EXPECT_EQ(answer(other)["response"]["allowed"], true);
}

TEST(Admission, AClaimThatWasThereBeforeCanStillBeLabelled) {
  Json update = claimReview("ResourceClaim", offlineClaim("0"));
  update["request"]["operation"] = "UPDATE";
  update["request"]["oldObject"] = update["request"]["object"];
  update["request"]["object"]["metadata"]["labels"] = {{"a", "b"}};
  EXPECT_EQ(answer(update)["response"]["allowed"], true);
  update["request"]["oldObject"]["spec"] = offlineClaim("60");
  EXPECT_EQ(answer(update)["response"]["allowed"], false);
  update["request"]["subResource"] = "status";
  EXPECT_EQ(answer(update)["response"]["allowed"], true);
}

TEST(Admission, RefusesWhatIsNoReview) {
  const Json review = reviewOf(podOf({}));
  Json v2 = review;
  v2["apiVersion"] = "admission.k8s.io/v2";
  Json noRequest = review;
  noRequest.erase("request");
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string(R"({"kind":"Pod"})"),
        v2.dump(), noRequest.dump(), std::string(100'000, '[')}) {
    const auto answered = answerReview(body, PodRules{});
    ASSERT_FALSE(answered.ok()) << body.substr(0, 100);
    EXPECT_EQ(answered.error().code, ErrorCode::InvalidArgument);
  }
}

}  // namespace
}  // namespace qgpu::webhook_admission_test
