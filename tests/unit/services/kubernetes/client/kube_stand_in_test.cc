// The API server's stand-in refuses what a real one refuses, so that a wrong path, field or right
// of ours fails a test and not a cluster.

#include "services/kubernetes/client/api_client.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_stand_in_test {
namespace {

using testing::ApiRoles;
using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

constexpr const char* kMerge = "application/merge-patch+json";

struct KubeStandIn : KubeFixture {
  KubeStandIn() {
    server->put("nodes", ApiStandIn::node("n1"));
    Json pod = ApiStandIn::pod("web", "p", "u1");
    pod["spec"]["nodeName"] = "n1";
    server->put("pods", pod);
    server->put("pods", ApiStandIn::pod("web", "waits", "u2"));
  }
  ~KubeStandIn() noexcept override = default;

  ApiAnswer get(const std::string& path) { return wait(api.get(path)); }
  ApiAnswer patch(const std::string& path, const Json& change) {
    return wait(api.call({kj::HttpMethod::PATCH, path, change.dump(), kMerge}));
  }
  std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> out;
    const ApiAnswer answer = get(path);
    EXPECT_TRUE(answer.ok()) << answer.message;
    if (!answer.ok()) return out;
    const Json list = Json::parse(answer.body);
    for (const Json& one : list["items"]) out.push_back(one["metadata"]["name"]);
    return out;
  }

  // What a watch hears, as "TYPE name", while it goes on.
  struct Heard final : LineSink {
    std::vector<std::string> seen;
    bool onLine(std::string_view line) override {
      const Json said = Json::parse(line);
      seen.push_back(said["type"].get<std::string>() + " " +
                     said["object"]["metadata"].value("name", ""));
      return true;
    }
  };
  kj::Promise<void> watch(const std::string& query, Heard& sink) {
    const std::size_t before = server->watches();
    auto going =
        api.watch(
               "/api/v1/pods?watch=1&resourceVersion=" + std::to_string(server->version()) + query,
               sink, seconds(60))
            .ignoreResult()
            .eagerlyEvaluate(nullptr);
    EXPECT_TRUE(served([&] { return server->watches() > before; }));
    return going;
  }

  using Names = std::vector<std::string>;
  ApiClient& api = client(plain());
};

TEST_F(KubeStandIn, ACollectionIsServedInItsGroupAndVersionsAlone) {
  for (const char* path :
       {"/api/v1/nodes", "/api/v1/namespaces/web/pods", "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1beta1/namespaces/kube-system/leases"}) {
    EXPECT_TRUE(get(path).ok()) << path;
  }
  for (const char* path : {"/api/v2/nodes", "/api/v1/leases", "/apis/coordination.k8s.io/v9/leases",
                           "/apis/coordination.k8s/v1/leases", "/apis/apps/v1/pods",
                           "/api/v1/pods/p", "/api/v1/namespaces/web/nodes/n1",
                           "/api/v1/namespaces/web/pods/p/phase", "/v1/pods", "/api/v1/Pods"}) {
    EXPECT_EQ(get(path).fault, ApiFault::NotFound) << path;
  }
}

TEST_F(KubeStandIn, ABodyOfAnotherKindOrVersionIsRefused) {
  const auto create = [&](const char* version, const char* kind) {
    const Json lease{{"apiVersion", version}, {"kind", kind}, {"metadata", {{"name", "l"}}}};
    return wait(api.call({kj::HttpMethod::POST,
                          "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
                          lease.dump(), "application/json"}))
        .fault;
  };
  EXPECT_EQ(create("coordination.k8s.io/v1beta1", "Lease"), ApiFault::Refused);
  EXPECT_EQ(create("v1", "Lease"), ApiFault::Refused);
  EXPECT_EQ(create("coordination.k8s.io/v1", "Secret"), ApiFault::Refused);
  EXPECT_EQ(create("coordination.k8s.io/v1", "Lease"), ApiFault::None);
}

TEST_F(KubeStandIn, AListByFieldsHasWhatTheyFit) {
  EXPECT_EQ(names("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"), Names{"p"});
  EXPECT_EQ(names("/api/v1/pods?fieldSelector=spec.nodeName!%3Dn1"), Names{"waits"});
  EXPECT_EQ(names("/api/v1/pods?fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending"),
            Names{"waits"});
  EXPECT_EQ(names("/api/v1/pods?fieldSelector=metadata.name%3Dp%2Cmetadata.namespace%3Dother"),
            Names{});
  const ApiAnswer answer = get("/api/v1/pods?fieldSelector=spec.nodename%3Dn1");
  EXPECT_EQ(answer.fault, ApiFault::Refused);
  EXPECT_NE(answer.message.find("field label not supported: spec.nodename"), std::string::npos);
  EXPECT_EQ(get("/api/v1/nodes?fieldSelector=spec.nodeName%3Dn1").fault, ApiFault::Refused);
}

TEST_F(KubeStandIn, ToAWatchByFieldsAnObjectComesAndGoesWithThem) {
  Heard sink;
  const auto going = watch("&fieldSelector=status.phase%3DPending", sink);
  server->put("pods", ApiStandIn::pod("web", "next", "u3"));
  Json pod = server->find("pods", "web", "p");
  pod["metadata"]["labels"] = {{"a", "b"}};
  server->put("pods", pod);
  pod["status"]["phase"] = "Running";
  server->put("pods", pod);
  pod["metadata"]["labels"] = {{"a", "c"}};
  server->put("pods", pod);
  pod["status"]["phase"] = "Pending";
  server->put("pods", pod);
  server->remove("pods", "web", "p");
  ASSERT_TRUE(served([&] { return sink.seen.size() >= 5; }));
  EXPECT_EQ(sink.seen, (Names{"ADDED next", "MODIFIED p", "DELETED p", "ADDED p", "DELETED p"}));
}

TEST_F(KubeStandIn, ABookmarkGoesToWhoAskedForSome) {
  Heard with, without;
  const auto one = watch("&allowWatchBookmarks=true", with);
  const auto other = watch("", without);
  server->bookmark();
  server->put("pods", ApiStandIn::pod("web", "next", "u3"));
  ASSERT_TRUE(served([&] { return with.seen.size() == 2 && without.seen.size() == 1; }));
  EXPECT_EQ(with.seen[0], "BOOKMARK ");
  EXPECT_EQ(without.seen[0], "ADDED next");
}

TEST_F(KubeStandIn, AStatusIsWrittenByItsOwnPathAlone) {
  const Json change{{"metadata", {{"annotations", {{"a", "b"}}}}},
                    {"spec", {{"unschedulable", true}}},
                    {"status", {{"phase", "Running"}}}};
  ASSERT_TRUE(patch("/api/v1/nodes/n1", change).ok());
  Json node = server->find("nodes", "", "n1");
  EXPECT_EQ(node["metadata"]["annotations"]["a"], "b");
  EXPECT_TRUE(node["spec"]["unschedulable"].get<bool>());
  EXPECT_FALSE(node["status"].contains("phase"));
  ASSERT_TRUE(patch("/api/v1/nodes/n1/status", {{"metadata", {{"annotations", {{"a", "c"}}}}},
                                                {"spec", {{"unschedulable", false}}},
                                                {"status", {{"phase", "Running"}}}})
                  .ok());
  node = server->find("nodes", "", "n1");
  EXPECT_EQ(node["metadata"]["annotations"]["a"], "c");
  EXPECT_TRUE(node["spec"]["unschedulable"].get<bool>());
  EXPECT_EQ(node["status"]["phase"], "Running");
}

// --- rights ---

Json role(const char* kind, const char* name, const Json& rules) {
  return {{"kind", kind}, {"metadata", {{"name", name}}}, {"rules", rules}};
}
Json bound(const char* kind, const char* role, const char* account, const char* within = "") {
  return {{"kind", std::string(kind) + "Binding"},
          {"metadata", {{"name", role}, {"namespace", within}}},
          {"roleRef", {{"kind", kind}, {"name", role}}},
          {"subjects", Json::array({{{"kind", "ServiceAccount"}, {"name", account}}})}};
}
Json rule(const char* group, const char* resource, const std::vector<std::string>& verbs,
          const std::vector<std::string>& names = {}) {
  Json out{{"apiGroups", {group}}, {"resources", {resource}}, {"verbs", verbs}};
  if (!names.empty()) out["resourceNames"] = names;
  return out;
}

struct KubeRights : KubeStandIn {
  KubeRights() {
    const Json readers =
        Json::array({rule("", "pods", {"get", "list"}), rule("", "nodes/status", {"patch"}),
                     rule("", "nodes", {"get"}, {"n1"})});
    const Json leases = Json::array({rule("coordination.k8s.io", "leases", {"create"}),
                                     rule("coordination.k8s.io", "leases", {"get"}, {"ours"})});
    server->roles = ApiRoles(
        {role("ClusterRole", "readers", readers), bound("ClusterRole", "readers", "reader"),
         role("Role", "leases", leases), bound("Role", "leases", "reader", "kube-system"),
         bound("ClusterRole", "nobody-made-it", "stranger")});
  }
  ~KubeRights() noexcept override = default;

  ApiFault as(const std::string& account, kj::HttpMethod method, const std::string& path,
              const Json& body = Json::object()) {
    KubeCredentials credentials = plain();
    credentials.token.text = account;
    ApiClient& own = client(credentials);
    const bool reads = method == kj::HttpMethod::GET;
    const ApiAnswer answer = wait(own.call({method, path, reads ? "" : body.dump(), kMerge}));
    said = answer.message;
    return answer.fault;
  }
  ApiFault asReader(kj::HttpMethod method, const std::string& path,
                    const Json& body = Json::object()) {
    return as("reader", method, path, body);
  }
  std::string said;
};

TEST_F(KubeRights, AnAccountDoesWhatARoleGrantsItAndNothingElse) {
  EXPECT_EQ(asReader(kj::HttpMethod::GET, "/api/v1/pods"), ApiFault::None);
  EXPECT_EQ(asReader(kj::HttpMethod::GET, "/api/v1/namespaces/web/pods/p"), ApiFault::None);
  EXPECT_EQ(asReader(kj::HttpMethod::GET, "/api/v1/pods?watch=1"), ApiFault::Forbidden);
  EXPECT_EQ(asReader(kj::HttpMethod::PATCH, "/api/v1/nodes/n1/status"), ApiFault::None);
  EXPECT_EQ(asReader(kj::HttpMethod::PATCH, "/api/v1/nodes/n1"), ApiFault::Forbidden);
  EXPECT_NE(said.find("User \"system:serviceaccount:kube-system:reader\" cannot patch resource "
                      "\"nodes\" in API group \"\" at the cluster scope"),
            std::string::npos)
      << said;
  EXPECT_EQ(asReader(kj::HttpMethod::DELETE, "/api/v1/namespaces/web/pods/p"), ApiFault::Forbidden);
  EXPECT_FALSE(server->find("pods", "web", "p").is_null());
}

TEST_F(KubeRights, ANameLimitsARuleAlsoWhereAFieldAsksForIt) {
  EXPECT_EQ(asReader(kj::HttpMethod::GET, "/api/v1/nodes/n1"), ApiFault::None);
  EXPECT_EQ(asReader(kj::HttpMethod::GET, "/api/v1/nodes/n2"), ApiFault::Forbidden);
  const std::string leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
  EXPECT_EQ(asReader(kj::HttpMethod::POST, leases, {{"metadata", {{"name", "any"}}}}),
            ApiFault::None);
  EXPECT_EQ(asReader(kj::HttpMethod::GET, leases + "/any"), ApiFault::Forbidden);
  EXPECT_EQ(asReader(kj::HttpMethod::GET, leases + "/ours"), ApiFault::NotFound);
}

TEST_F(KubeRights, ARolesRightsEndWithItsNamespaceAndStrangersHaveNone) {
  EXPECT_EQ(asReader(kj::HttpMethod::POST, "/apis/coordination.k8s.io/v1/namespaces/web/leases",
                     {{"metadata", {{"name", "any"}}}}),
            ApiFault::Forbidden);
  EXPECT_EQ(as("stranger", kj::HttpMethod::GET, "/api/v1/pods"), ApiFault::Unauthorized);
  EXPECT_EQ(as("", kj::HttpMethod::GET, "/api/v1/pods"), ApiFault::Unauthorized);
}

}  // namespace
}  // namespace qgpu::kube_stand_in_test
