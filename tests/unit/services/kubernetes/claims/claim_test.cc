#include "services/kubernetes/claims/claim.h"

#include <gtest/gtest.h>

#include "services/kubernetes/claims/claim_document.h"

namespace qgpu::claim_test {
namespace {

const ClaimName kClaim{"team", "train-gpu-x7k2p", "1f0a"};

// A claim as kube-apiserver 1.36 has it; `results` and `config` of its allocation.
std::string claimWith(const std::string& results, const std::string& config = "") {
  return R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{)"
         R"("name":"train-gpu-x7k2p","namespace":"team","uid":"1f0a"},)"
         R"("spec":{"devices":{"requests":[{"name":"gpu","exactly":{}}]}},)"
         R"("status":{"allocation":{"devices":{"results":[)" +
         results + R"(],"config":[)" + config + R"(]}}}})";
}

std::string result(const std::string& request, const std::string& device,
                   const std::string& consumed, const std::string& pool = "gpu-1",
                   const std::string& driver = "qgpu.io") {
  return R"({"request":")" + request + R"(","driver":")" + driver + R"(","pool":")" + pool +
         R"(","device":")" + device +
         R"(","shareID":"a671734a-e8e5-11e4-8fde-42010af09327","consumedCapacity":{)" + consumed +
         "}}";
}

std::string classConfig(const std::string& name, const std::string& requests = "") {
  return R"({"source":"FromClass","requests":[)" + requests +
         R"(],"opaque":{"driver":"qgpu.io","parameters":{"apiVersion":"qgpu.io/v1",)"
         R"("kind":"TaskParameters","class":")" +
         name + R"("}}})";
}

Result<std::vector<ClaimPart>> read(const std::string& json) {
  return readClaim(json, kClaim, "gpu-1");
}
std::string refusal(const std::string& json) {
  const auto parts = read(json);
  return parts ? "" : parts.error().message;
}

TEST(Claim, APartOfACardIsWhatItConsumes) {
  const auto parts =
      read(claimWith(result("gpu", "gpu-0", R"("memory":"4Gi","core":"30","tasks":"1")")));
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 1u);
  const ClaimPart& part = parts->front();
  EXPECT_EQ(part.request, "gpu");
  EXPECT_EQ(part.taskClass, TaskClass::Ordinary);
  EXPECT_EQ(part.mem, gibibytes(4));
  EXPECT_EQ(part.share, Permille(300));
  ASSERT_EQ(part.devices.size(), 1u);
  EXPECT_EQ(part.devices[0].device, "gpu-0");
  EXPECT_EQ(part.devices[0].share, "a671734a-e8e5-11e4-8fde-42010af09327");
}

TEST(Claim, ItsUsersAreThePodsThatItIsReservedFor) {
  const ClaimUsers users =
      readClaimUsers(R"({"metadata":{"uid":"1f0a"},"status":{"reservedFor":[)"
                     R"({"resource":"pods","name":"p1","uid":"u1"},)"
                     R"({"apiGroup":"example.org","resource":"jobs","name":"j","uid":"u2"},)"
                     R"({"resource":"pods","name":"p3","uid":"u3"}]}})");
  EXPECT_EQ(users.uid, "1f0a");
  EXPECT_EQ(users.pods, (std::vector<ClaimUsers::Pod>{{"p1", "u1"}, {"p3", "u3"}}));
  for (const char* none : {"", "[]", R"({"status":{"reservedFor":7}})"}) {
    EXPECT_EQ(readClaimUsers(none).uid, "") << none;
    EXPECT_TRUE(readClaimUsers(none).pods.empty()) << none;
  }
}

TEST(Claim, CapacityMayBeNamedInFull) {
  const auto parts =
      read(claimWith(result("gpu", "gpu-0", R"("qgpu.io/memory":"1Gi","qgpu.io/core":"1")")));
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->front().mem, gibibytes(1));
  EXPECT_EQ(parts->front().share, Permille(10));
}

TEST(Claim, TheClassIsWhatTheDeviceClassOrTheClaimSays) {
  const std::string one = result("gpu", "gpu-0", R"("memory":"4Gi","core":"0")");
  auto parts = read(claimWith(one, classConfig("online")));
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->front().taskClass, TaskClass::Online);
  EXPECT_EQ(parts->front().share, Permille(0));

  const std::string part = result("gpu/large", "gpu-0", R"("memory":"4Gi","core":"20")");
  parts = read(claimWith(
      part, classConfig("online", R"("other")") + "," + classConfig("offline", R"("gpu")")));
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->front().taskClass, TaskClass::Offline);
  EXPECT_EQ(parts->front().share, Permille(200));
}

TEST(Claim, AllOfTheCoreIsAWholeCard) {
  const std::string all = R"("memory":"16Gi","core":"100")";
  const auto parts =
      read(claimWith(result("gpus", "gpu-0", all) + "," + result("gpus", "gpu-1", all)));
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_EQ(parts->front().mem, Bytes(0));
  EXPECT_EQ(parts->front().share, kWholeCard);
  EXPECT_EQ(parts->front().devices.size(), 2u);
}

TEST(Claim, EachRequestIsATaskOfItsOwn) {
  const std::string some = R"("memory":"2Gi","core":"10")";
  const auto parts = read(claimWith(result("a", "gpu-0", some) + "," + result("b", "gpu-0", some)));
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ(parts->at(1).request, "b");
}

TEST(Claim, WhatOthersGiveIsNotOurs) {
  const std::string some = R"("memory":"2Gi","core":"10")";
  const std::string others =
      result("nic", "eth-1", "", "gpu-1", "dra.net") + "," + result("far", "gpu-0", some, "gpu-2");
  EXPECT_EQ(refusal(claimWith(others)),
            "claim team/train-gpu-x7k2p gives no device of driver qgpu.io in pool gpu-1");
  const auto parts = read(claimWith(others + "," + result("gpu", "gpu-0", some)));
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->size(), 1u);
}

TEST(Claim, AdministratorsLookAtCardsWithoutATask) {
  const auto parts =
      read(claimWith(R"({"request":"all","driver":"qgpu.io","pool":"gpu-1","device":"gpu-0",)"
                     R"("adminAccess":true},{"request":"all","driver":"qgpu.io","pool":"gpu-1",)"
                     R"("device":"gpu-1","adminAccess":true})"));
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_TRUE(parts->front().admin);
  EXPECT_EQ(parts->front().devices.size(), 2u);
}

TEST(Claim, WhatIsNoTaskIsRefusedWithTheReason) {
  const auto why = [](const std::string& consumed, const std::string& config = "") {
    return refusal(claimWith(result("gpu", "gpu-0", consumed), config));
  };
  const std::string start = "claim team/train-gpu-x7k2p, request 'gpu': ";
  EXPECT_EQ(why(R"("memory":"4Gi","core":"0")"), start + "core is 0: ask for 1 to 100");
  EXPECT_EQ(why(R"("memory":"4Gi","core":"101")"), start + "core is 101: a card has 100");
  EXPECT_EQ(why(R"("core":"30")"), start + "a part of a card needs memory");
  EXPECT_EQ(why(R"("memory":"4Gi","core":"30")", classConfig("online")),
            start + "an online task asks for no core: it gets all compute when it wants it");
  EXPECT_EQ(why(R"("memory":"4Gi","core":"30")", classConfig("both")),
            start + "class is 'both': it is ordinary, online or offline");
  EXPECT_NE(why(R"("memory":4,"core":"30")").find("memory is no quantity"), std::string::npos);
  EXPECT_NE(why(R"("memory":"x","core":"30")").find("memory is x"), std::string::npos);
  const std::string part = R"("memory":"2Gi","core":"10")";
  EXPECT_NE(refusal(claimWith(result("gpu", "gpu-0", part) + "," + result("gpu", "gpu-1", part)))
                .find("several cards of one request are whole ones"),
            std::string::npos);
}

TEST(Claim, AnotherClaimOfItsNameIsNotThisOne) {
  std::string json = claimWith(result("gpu", "gpu-0", R"("memory":"4Gi","core":"30")"));
  const auto other = readClaim(json, {"team", "train-gpu-x7k2p", "2b"}, "gpu-1");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::NotFound);
  EXPECT_EQ(refusal(R"({"metadata":{"uid":"1f0a"},"status":{}})"),
            "claim team/train-gpu-x7k2p is not allocated");
  EXPECT_FALSE(read("[]"));
  EXPECT_FALSE(read("{"));
}

// --- before it is allocated ---

constexpr const char* kOurs = R"({"apiVersion":"qgpu.io/v1","kind":"TaskParameters",)";

// What is said of the `devices` of a claim's spec, in one text.
std::string brokenIn(const std::string& devices) {
  simdjson::dom::parser parser;
  std::string all;
  for (const std::string& one : brokenClaimRules(parser.parse(devices))) {
    all += (all.empty() ? "" : "; ") + one;
  }
  return all;
}

// Of a request "gpu" of a class; `more` stands beside its capacity.
std::string asked(const std::string& deviceClass, const std::string& amounts,
                  const std::string& more = "") {
  return R"({"deviceClassName":")" + deviceClass + R"(","capacity":{"requests":{)" + amounts +
         "}}" + more + "}";
}
std::string requests(const std::string& request, const std::string& config = "") {
  return R"({"requests":[)" + request + R"(],"config":[)" + config + "]}";
}
std::string exactly(const std::string& ask) {
  return R"({"name":"gpu","exactly":)" + ask + "}";
}
std::string ofOurs(const std::string& rest, const std::string& names = "") {
  return R"({"requests":[)" + names + R"(],"opaque":{"driver":"qgpu.io","parameters":)" + kOurs +
         rest + "}}";
}

TEST(ClaimRules, WhatTheSeedsAllowPasses) {
  for (const std::string& right :
       {asked("ordinary.qgpu.io", R"("memory":"4Gi","core":"30")"), asked("ordinary.qgpu.io", ""),
        asked("ordinary.qgpu.io", R"("core":"30")"),
        asked("ordinary.qgpu.io", "", R"(,"allocationMode":"ExactCount","count":2)"),
        asked("ordinary.qgpu.io", "", R"(,"allocationMode":"All")"),
        asked("online.qgpu.io", R"("memory":"4Gi")"),
        asked("offline.qgpu.io", R"("memory":"4Gi","core":"100","tasks":"1")"),
        asked("ordinary.qgpu.io", R"("core":"0")", R"(,"adminAccess":true)")}) {
    EXPECT_EQ(brokenIn(requests(exactly(right))), "") << right;
  }
  EXPECT_EQ(brokenIn("{}"), "");
  EXPECT_EQ(brokenIn(R"({"requests":7,"config":"x"})"), "") << "the API server says that";
}

TEST(ClaimRules, WhatTheDriverWouldRefuseIsToldInItsWords) {
  const auto why = [](const std::string& name, const std::string& amounts,
                      const std::string& more = "") {
    return brokenIn(requests(exactly(asked(name + ".qgpu.io", amounts, more))));
  };
  const std::string start = "request 'gpu': ";
  EXPECT_EQ(why("offline", R"("memory":"4Gi")"), start + "core is 0: ask for 1 to 100");
  EXPECT_EQ(why("offline", R"("core":"101")"), start + "core is 101: a card has 100");
  EXPECT_EQ(why("ordinary", R"("core":"0")"), start + "core is 0: ask for 1 to 100");
  EXPECT_EQ(why("ordinary", R"("core":"30","memory":"0")"),
            start + "a part of a card needs memory");
  EXPECT_EQ(why("online", R"("core":"30")"),
            start + "an online task asks for no core: it gets all compute when it wants it");
  EXPECT_NE(why("ordinary", R"("core":"30","memory":"four")").find("memory is four: "),
            std::string::npos);
  EXPECT_NE(why("ordinary", R"("core":"1.5")").find("core is 1.5: "), std::string::npos);
  EXPECT_EQ(why("ordinary", R"("memory":"4Gi","core":"30")", R"(,"count":2)"),
            start +
                "several cards of one request are whole ones: leave core and memory out, or make a "
                "request for each card");
  EXPECT_NE(why("online", "", R"(,"count":2)").find("several cards"), std::string::npos);
}

TEST(ClaimRules, CapacityThatNoCardHasIsNamed) {
  const auto why = [](const std::string& amounts) {
    return brokenIn(requests(exactly(asked("ordinary.qgpu.io", amounts))));
  };
  EXPECT_EQ(why(R"("mem":"4Gi")"),
            "request 'gpu': a card has no capacity 'mem': it has memory, core and tasks");
  EXPECT_NE(why(R"("qgpu.io/memory":"4Gi")").find("no capacity 'qgpu.io/memory'"),
            std::string::npos)
      << "kube-scheduler looks for the plain name";
  EXPECT_EQ(why(R"("tasks":"2")"), "request 'gpu': tasks is 2: each request is one task");
}

TEST(ClaimRules, ParametersAreReadStrictly) {
  const auto why = [](const std::string& parameters) {
    return brokenIn(
        requests("", R"({"opaque":{"driver":"qgpu.io","parameters":)" + parameters + "}}"));
  };
  EXPECT_EQ(why(kOurs + std::string(R"("class":"offline"})")), "");
  EXPECT_EQ(why(kOurs + std::string(R"("class":"Online"})")),
            "class is 'Online': it is ordinary, online or offline");
  EXPECT_EQ(why(kOurs + std::string(R"("clas":"online"})")),
            "TaskParameters has no 'clas'; it has class");
  for (const char* other :
       {R"({"class":"online"})",
        R"({"apiVersion":"qgpu.io/v2","kind":"TaskParameters","class":"online"})",
        R"({"apiVersion":"qgpu.io/v1","kind":"Task","class":"online"})"}) {
    EXPECT_EQ(why(other), R"(parameters of qgpu.io are {"apiVersion": "qgpu.io/v1", "kind": )"
                          R"("TaskParameters", ...})")
        << other;
  }
  EXPECT_EQ(why("7"), "its parameters are no object");
  EXPECT_EQ(brokenIn(requests("", R"({"opaque":{"driver":"gpu.nvidia.com","parameters":7}})")), "");
}

TEST(ClaimRules, TheClaimsOwnClassCountsAndMustBeOfTheCardsKind) {
  const auto why = [](const std::string& deviceClass, const std::string& config) {
    return brokenIn(requests(exactly(asked(deviceClass, R"("memory":"4Gi","core":"30")")), config));
  };
  EXPECT_EQ(why("online.qgpu.io", ofOurs(R"("class":"offline"})")), "");
  EXPECT_EQ(why("online.qgpu.io", ofOurs(R"("class":"ordinary"})", R"("gpu")")),
            "request 'gpu': its class is ordinary: cards of online.qgpu.io are for online and "
            "offline tasks");
  EXPECT_EQ(
      why("ordinary.qgpu.io", ofOurs(R"("class":"offline"})")),
      "request 'gpu': its class is offline: cards of ordinary.qgpu.io are for ordinary tasks");
  EXPECT_EQ(why("ordinary.qgpu.io", ofOurs(R"("class":"offline"})", R"("other")")), "");
  EXPECT_EQ(why("ordinary.qgpu.io", ofOurs(R"("class":"both"})")),
            "class is 'both': it is ordinary, online or offline")
      << "once, and nothing of what follows from it";
}

TEST(ClaimRules, ClassesOfOthersAreNotJudged) {
  EXPECT_EQ(brokenIn(requests(exactly(asked("gpu.example.com", R"("core":"1000")")))), "");
}

TEST(ClaimRules, AlternativesAndTheFlatRequestsOfV1beta1AreReadToo) {
  const std::string wrong = R"("deviceClassName":"offline.qgpu.io","capacity":{"requests":{)"
                            R"("core":"101"}})";
  EXPECT_EQ(brokenIn(requests(R"({"name":"gpu",)" + wrong + "}")),
            "request 'gpu': core is 101: a card has 100");
  EXPECT_EQ(brokenIn(requests(R"({"name":"gpu","firstAvailable":[{"name":"a",)" + wrong +
                              R"(},{"name":"b","deviceClassName":"online.qgpu.io"}]})")),
            "request 'gpu/a': core is 101: a card has 100");
}

// As many entries as fit into what a webhook takes.
TEST(ClaimRules, C7_ListsThatTheApiDoesNotTakeCostNoMore) {
  const auto many = [](const std::string& one) {
    std::string all = one;
    while (all.size() < 500'000) all += "," + one;
    return all;
  };
  const std::string request = R"({"name":"gpu","firstAvailable":[)" +
                              many(R"({"name":"a","deviceClassName":"offline.qgpu.io"})") + "]}";
  const std::string said =
      brokenIn(requests(many(request), many(ofOurs(R"("class":"offline"})", many(R"("gpu")")))));
  EXPECT_EQ(said, "request 'gpu/a': core is 0: ask for 1 to 100");
}

}  // namespace
}  // namespace qgpu::claim_test
