#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "services/kubernetes/client/reflector.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_reflector_test {
namespace {

using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

constexpr const char* kAssigned = R"({"main":["GPU-1"]})";

// What a listener has heard, as it stands now.
template <typename Object>
struct Heard final : KubeListener<Object> {
  std::map<std::string, Object> objects;
  int upserts = 0;
  int gone = 0;
  int synced = 0;
  void onUpsert(const Object& object) override {
    ++upserts;
    objects[keyOf(object)] = object;
  }
  void onGone(const Object& last) override {
    ++gone;
    EXPECT_EQ(objects.erase(keyOf(last)), 1u);
  }
  void onSynced() override { ++synced; }
};

struct KubeReflector : KubeFixture {
  ~KubeReflector() noexcept override = default;

  static ReflectorOptions brisk() {
    ReflectorOptions options;
    options.page = 2;
    options.retryFirst = millis(1);
    options.retryMost = millis(4);
    return options;
  }
  void follow(ReflectorOptions options = brisk()) {
    nodes.emplace(api, "/api/v1/nodes", heardNodes, log, PodRules{}, options);
    pods.emplace(api, "/api/v1/pods", heardPods, log, PodRules{}, options);
    ASSERT_TRUE(served([&] { return heardNodes.synced >= 1 && heardPods.synced >= 1; }));
  }
  // Both watches of the reflectors are the newest ones.
  bool watching(std::size_t count) {
    return served([&] { return server->watches() >= count; });
  }
  void addNodes(int count) {
    for (int i = 0; i < count; ++i) server->put("nodes", ApiStandIn::node("n" + std::to_string(i)));
  }
  bool has(const std::string& node) { return heardNodes.objects.contains(node); }
  std::size_t askedFor(const std::string& words) {
    std::size_t n = 0;
    for (const std::string& one : server->heard) n += one.find(words) != std::string::npos ? 1 : 0;
    return n;
  }

  // Lines of the log with this in them.
  std::size_t logged(std::string_view what) const {
    return static_cast<std::size_t>(std::count_if(
        lines.begin(), lines.end(),
        [&](const std::string& line) { return line.find(what) != std::string::npos; }));
  }

  ApiClient& api = client(plain());
  Log log{LogLevel::Info, [this](LogLevel, const std::string& line) { lines.push_back(line); }};
  std::vector<std::string> lines;
  Heard<KubeNode> heardNodes;
  Heard<KubePod> heardPods;
  std::optional<Reflector<KubeNode>> nodes;
  std::optional<Reflector<KubePod>> pods;
};

TEST_F(KubeReflector, ListsInPagesAndThenFollows) {
  addNodes(5);
  follow();
  EXPECT_EQ(heardNodes.objects.size(), 5u);
  EXPECT_EQ(askedFor("/api/v1/nodes?limit=2"), 3u);
  server->put("nodes", ApiStandIn::node("n7"));
  ASSERT_TRUE(served([&] { return has("n7"); }));
  server->remove("nodes", "", "n0");
  ASSERT_TRUE(served([&] { return !has("n0"); }));
  EXPECT_EQ(nodes->lists(), 1u);
}

TEST_F(KubeReflector, C5_PagesThatAreTooLargeBecomeSmaller) {
  addNodes(12);
  Json large = ApiStandIn::node("large");
  large["metadata"]["annotations"]["notes"] = std::string(20'000, 'x');
  server->put("nodes", large);
  ApiLimits limits = quick();
  limits.bodyMax = 21'000;
  ReflectorOptions options = brisk();
  options.page = 500;
  Reflector<KubeNode> all(client(plain(), limits), "/api/v1/nodes", heardNodes, log, PodRules{},
                          options);
  ASSERT_TRUE(served([&] { return heardNodes.synced >= 1; }));
  EXPECT_EQ(heardNodes.objects.size(), 13u);
  EXPECT_GE(askedFor("/api/v1/nodes?limit=250"), 1u);
  EXPECT_EQ(logged("kube-trouble"), 0u);
}

TEST_F(KubeReflector, ANodeIsWhatSchedulingNeeds) {
  Json node = ApiStandIn::node("n1");
  node["metadata"]["labels"]["mixed-qgpu-enable"] = "enable";
  node["metadata"]["labels"]["tke.cloud.tencent.com/qgpu-schedule-policy"] = "fs";
  node["metadata"]["annotations"]["qgpu.io/cards"] = R"({"version":1,"cards":[]})";
  node["spec"]["unschedulable"] = true;
  node["status"]["allocatable"]["nvidia.com/gpu"] = "2";
  node["status"]["nodeInfo"] = {{"kubeletVersion", "v1.30.1"},
                                {"containerRuntimeVersion", "containerd://1.7.2"}};
  server->put("nodes", node);
  server->put("nodes", Json{{"metadata", {{"name", "bare"}}}});
  follow();
  const KubeNode& one = heardNodes.objects.at("n1");
  EXPECT_TRUE(one.enabled && one.mixed && one.ready && one.unschedulable);
  EXPECT_EQ(one.wholeCards, "nvidia.com/gpu");
  EXPECT_EQ(one.policy, "fs");
  EXPECT_EQ(one.cards, R"({"version":1,"cards":[]})");
  EXPECT_EQ(one.uid, "uid-n1");
  EXPECT_EQ(one.runtime, "containerd://1.7.2");
  const KubeNode& bare = heardNodes.objects.at("bare");
  EXPECT_FALSE(bare.enabled || bare.mixed || bare.ready || bare.unschedulable);
  EXPECT_EQ(bare.wholeCards, "");
}

TEST_F(KubeReflector, OnlyPodsThatAskForACardAreKept) {
  server->put("pods", ApiStandIn::pod("web", "ours", "u1"));
  Json other = ApiStandIn::pod("web", "other", "u2");
  other["spec"]["containers"][0]["resources"] = Json::object();
  server->put("pods", other);
  Json pod = ApiStandIn::pod("web", "held", "u3");
  pod["metadata"]["annotations"]["qgpu.io/assigned"] = kAssigned;
  pod["spec"]["nodeName"] = "n1";
  pod["status"]["phase"] = "Running";
  server->put("pods", pod);
  follow();
  ASSERT_EQ(heardPods.objects.size(), 2u);
  const KubePod& held = heardPods.objects.at("web/held");
  EXPECT_EQ(held.demands.uid, "u3");
  EXPECT_EQ(held.demands.nodeName, "n1");
  EXPECT_EQ(held.demands.assigned, kAssigned);
  ASSERT_EQ(held.demands.containers.size(), 1u);
  EXPECT_FALSE(held.deleting || held.over);
}

TEST_F(KubeReflector, ContainersEndWhereTheyAreNotStartedAgain) {
  Json pod = ApiStandIn::pod("web", "p", "u1");
  pod["status"]["containerStatuses"] =
      Json::array({{{"name", "main"}, {"state", {{"terminated", {{"exitCode", 0}}}}}}});
  server->put("pods", pod);
  follow();
  EXPECT_TRUE(heardPods.objects.at("web/p").ended.empty()) << "kubelet starts it again";
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  server->put("pods", pod);
  ASSERT_TRUE(served([&] { return heardPods.objects.at("web/p").deleting; }));
  EXPECT_EQ(heardPods.objects.at("web/p").ended, std::vector<std::string>{"main"});
  pod["status"]["phase"] = "Succeeded";
  server->put("pods", pod);
  ASSERT_TRUE(served([&] { return heardPods.objects.at("web/p").over; }));
}

TEST_F(KubeReflector, AWatchThatEndsGoesOnWhereItWas) {
  addNodes(1);
  follow();
  ASSERT_TRUE(watching(2));
  server->endWatches();
  ASSERT_TRUE(watching(4));
  server->put("nodes", ApiStandIn::node("n9"));
  ASSERT_TRUE(served([&] { return has("n9"); }));
  EXPECT_EQ(nodes->lists(), 1u);
  EXPECT_EQ(heardNodes.upserts, 2);
}

TEST_F(KubeReflector, AServerThatIsCutOffIsFollowedAgainWithoutANewList) {
  addNodes(2);
  follow();
  ASSERT_TRUE(watching(2));
  server->cut();
  ASSERT_TRUE(served([&] { return logged("kube-trouble path=/api/v1/nodes") > 0; }));
  EXPECT_EQ(heardNodes.objects.size(), 2u) << "the copy stays";
  server->remove("nodes", "", "n0");
  server->put("nodes", ApiStandIn::node("n9"));
  server->restart();
  ASSERT_TRUE(served([&] { return has("n9") && !has("n0"); }));
  EXPECT_EQ(nodes->lists(), 1u);
  EXPECT_EQ(logged("kube-back path=/api/v1/nodes"), 1u);
  EXPECT_EQ(log.errors(), 0u);
}

TEST_F(KubeReflector, WhatTheServerForgotIsListedAgain) {
  addNodes(3);
  follow();
  ASSERT_TRUE(watching(2));
  server->cut();
  server->remove("nodes", "", "n1");
  server->put("nodes", ApiStandIn::node("n9"));
  server->forget();
  server->restart();
  ASSERT_TRUE(served([&] { return heardNodes.synced == 2; }));
  EXPECT_TRUE(has("n9") && has("n0") && has("n2") && !has("n1"));
  EXPECT_EQ(heardNodes.gone, 1);
  EXPECT_EQ(heardNodes.upserts, 4) << "what is as it was is not told again";
}

TEST_F(KubeReflector, A410InAListBeginsItAnew) {
  addNodes(5);
  bool once = false;
  server->onRequest = [&] {
    if (once || askedFor("continue=") == 0) return;
    once = true;
    server->forget();
  };
  follow();
  EXPECT_TRUE(once);
  EXPECT_EQ(heardNodes.objects.size(), 5u);
}

TEST_F(KubeReflector, BookmarksKeepTheVersionYoung) {
  addNodes(1);
  follow();
  ASSERT_TRUE(watching(2));
  server->put("events", Json{{"metadata", {{"name", "e"}, {"namespace", "web"}}}});
  server->forget();
  server->bookmark();
  server->put("nodes", ApiStandIn::node("n8"));
  ASSERT_TRUE(served([&] { return has("n8"); }));
  server->endWatches();
  ASSERT_TRUE(watching(4));
  server->put("nodes", ApiStandIn::node("n9"));
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ASSERT_TRUE(served([&] { return has("n9") && heardPods.objects.contains("web/p"); }));
  EXPECT_EQ(nodes->lists(), 1u);
  EXPECT_EQ(pods->lists(), 1u) << "nothing of theirs had changed: only a bookmark told the version";
}

TEST_F(KubeReflector, C7_NonsenseInAWatchIsListedOver) {
  addNodes(1);
  follow();
  for (const char* line : {"{", "[]", R"({"type":"ADDED"})", R"({"type":"NEW","object":{}})",
                           R"({"type":"ADDED","object":{"metadata":{}}})", "\xff\xfe"}) {
    const int before = heardNodes.synced;
    ASSERT_TRUE(served([&] {
      server->sayToWatches(line);
      return heardNodes.synced > before;
    })) << line;
  }
  EXPECT_TRUE(has("n0"));
  EXPECT_EQ(log.errors(), 0u);
}

TEST_F(KubeReflector, ForbiddenIsSaidOnceAndTriedAgain) {
  for (int i = 0; i < 3; ++i) {
    server->refusals.push_back({403, "Forbidden", "cannot list resource \"nodes\"", ""});
  }
  nodes.emplace(api, "/api/v1/nodes", heardNodes, log, PodRules{}, brisk());
  ASSERT_TRUE(served([&] { return heardNodes.synced == 1; }));
  EXPECT_EQ(logged("cannot list"), 1u);
}

TEST(KubeObjects, PagesThatAreNoneAreCorrupt) {
  KubeReader reader;
  for (const std::string text :
       {"", "null", "[]", "{}", R"({"items":[]})", R"({"metadata":{"resourceVersion":"1"}})",
        R"({"metadata":{"resourceVersion":"1"},"items":[{]})", R"({"items":[1]})"}) {
    std::string body = text;
    KubePage<KubeNode> page;
    const Status read = reader.read(body, page);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::Corrupt);
  }
  std::string body = R"({"items":null,"metadata":{"resourceVersion":"1","continue":null}})";
  KubePage<KubeNode> page;
  EXPECT_TRUE(reader.read(body, page).ok()) << "an empty list as Go may write it";
}

}  // namespace
}  // namespace qgpu::kube_reflector_test
