#include <fstream>

#include "services/kubernetes/client/api_client.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/services/kubernetes/client/kube_fixture.h"

namespace qgpu::kube_client_test {
namespace {

using testing::ApiStandIn;
using testing::Json;
using testing::KubeFixture;

struct KubeClient : KubeFixture {
  // Lines of a watch, and when it is enough.
  struct Lines final : LineSink {
    std::vector<std::string> seen;
    std::size_t most = 1000;
    bool onLine(std::string_view line) override {
      seen.emplace_back(line);
      return seen.size() < most;
    }
  };
  ApiAnswer get(ApiClient& api, const std::string& path) { return wait(api.get(path)); }
  void refuse(unsigned status, const std::string& reason, const std::string& retryAfter = "") {
    server->refusals.push_back({status, reason, "because of " + reason, retryAfter});
  }
};

TEST_F(KubeClient, ReadsOverOneKeptConnection) {
  server->put("nodes", ApiStandIn::node("n1"));
  ApiClient& api = client(plain());
  const ApiAnswer one = get(api, "/api/v1/nodes/n1");
  ASSERT_TRUE(one.ok()) << one.message;
  EXPECT_EQ(Json::parse(one.body)["metadata"]["name"], "n1");
  EXPECT_TRUE(get(api, "/api/v1/nodes?limit=1").ok());
  EXPECT_EQ(api.connections(), 1u);
  EXPECT_TRUE(api.reachable());
}

TEST_F(KubeClient, FaultsAreTold) {
  ApiClient& api = client(plain());
  const auto fault = [&](unsigned status, const std::string& reason) {
    refuse(status, reason);
    return get(api, "/api/v1/nodes").fault;
  };
  EXPECT_EQ(fault(400, "BadRequest"), ApiFault::Refused);
  EXPECT_EQ(fault(401, "Unauthorized"), ApiFault::Unauthorized);
  EXPECT_EQ(fault(404, "NotFound"), ApiFault::NotFound);
  EXPECT_EQ(fault(409, "Conflict"), ApiFault::Conflict);
  EXPECT_EQ(fault(409, "AlreadyExists"), ApiFault::AlreadyExists);
  EXPECT_EQ(fault(410, "Expired"), ApiFault::Gone);
  EXPECT_EQ(fault(422, "Invalid"), ApiFault::Refused);
  EXPECT_EQ(fault(429, "TooManyRequests"), ApiFault::Busy);
  EXPECT_EQ(fault(500, "InternalError"), ApiFault::ServerFault);
  refuse(403, "Forbidden");
  const ApiAnswer forbidden = get(api, "/api/v1/nodes");
  EXPECT_EQ(forbidden.fault, ApiFault::Forbidden);
  EXPECT_EQ(forbidden.error().code, ErrorCode::Denied);
  EXPECT_NE(forbidden.message.find("because of Forbidden"), std::string::npos);
  EXPECT_NE(forbidden.message.find("ClusterRole"), std::string::npos);
}

TEST_F(KubeClient, WaitsAsLongAsTheServerSaysAndAsksAgain) {
  refuse(429, "TooManyRequests", "1");
  ApiClient& api = client(plain());
  const kj::TimePoint before = kj.timer().now();
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  EXPECT_GE(kj.timer().now() - before, 1 * kj::SECONDS);
  EXPECT_EQ(server->heard.size(), 2u);
  refuse(503, "ServiceUnavailable", "60");  // beyond the deadline
  EXPECT_EQ(get(api, "/api/v1/nodes").fault, ApiFault::ServerFault);
}

TEST_F(KubeClient, ADeadlineEndsWhatHasNoAnswer) {
  auto address = kj.io().getNetwork().parseAddress("127.0.0.1", 0).wait(scope());
  auto silent = address->listen();  // takes connections, and says nothing
  KubeCredentials credentials = plain();
  credentials.port = std::to_string(silent->getPort());
  ApiLimits limits = quick();
  limits.deadline = millis(50);
  ApiClient& api = client(std::move(credentials), limits);
  const ApiAnswer answer = get(api, "/api/v1/nodes");
  EXPECT_EQ(answer.fault, ApiFault::Unreachable);
  EXPECT_EQ(answer.error().code, ErrorCode::Unavailable);
  EXPECT_NE(answer.message.find("within 50 ms"), std::string::npos) << answer.message;
  EXPECT_FALSE(api.reachable());
}

TEST_F(KubeClient, AServerThatComesBackIsReachedAgain) {
  ApiClient& api = client(plain());
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  server->cut();
  EXPECT_EQ(get(api, "/api/v1/nodes").fault, ApiFault::Unreachable);
  EXPECT_FALSE(api.reachable());
  server->restart();
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  EXPECT_TRUE(api.reachable());
}

TEST_F(KubeClient, AKeptConnectionThatTheServerClosedIsNoFailure) {
  ApiClient& api = client(plain());
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  server->cut();
  server->restart();
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  EXPECT_EQ(api.connections(), 2u);
}

TEST_F(KubeClient, EachPatchHasItsContentType) {
  server->put("pods", ApiStandIn::pod("web", "p", "u1"));
  ApiClient& api = client(plain());
  const auto patch = [&](const char* type, const std::string& body) {
    return wait(api.call({kj::HttpMethod::PATCH, "/api/v1/namespaces/web/pods/p", body, type}));
  };
  EXPECT_TRUE(patch(kMergePatch, R"({"metadata":{"annotations":{"a":"1"}}})").ok());
  EXPECT_TRUE(patch(kStrategicPatch, R"({"metadata":{"annotations":{"b":"2"}}})").ok());
  EXPECT_TRUE(patch(kJsonPatch, R"([{"op":"remove","path":"/metadata/annotations/a"}])").ok());
  EXPECT_EQ(server->types, (std::vector<std::string>{kMergePatch, kStrategicPatch, kJsonPatch}));
  EXPECT_EQ(server->find("pods", "web", "p")["metadata"]["annotations"], (Json{{"b", "2"}}));
}

TEST_F(KubeClient, AnAnswerThatIsTooLongEndsItsConnectionOnly) {
  Json node = ApiStandIn::node("n1");
  node["metadata"]["annotations"]["long"] = std::string(200'000, 'x');
  server->put("nodes", node);
  ApiLimits limits = quick();
  limits.bodyMax = 100'000;
  ApiClient& api = client(plain(), limits);
  EXPECT_EQ(get(api, "/api/v1/nodes/n1").fault, ApiFault::TooLarge);
  server->remove("nodes", "", "n1");
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
}

TEST_F(KubeClient, ARotatedTokenIsReadAgain) {
  const testing::TempFolder folder;
  std::ofstream(folder / "token") << "first\n";
  KubeCredentials credentials = plain();
  credentials.token.path = folder / "token";
  server->token = "first";
  ApiClient& api = client(std::move(credentials));
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
  server->token = "second";
  EXPECT_EQ(get(api, "/api/v1/nodes").fault, ApiFault::Unauthorized);
  std::ofstream(folder / "token") << "second\n";
  EXPECT_TRUE(get(api, "/api/v1/nodes").ok());
}

TEST_F(KubeClient, WatchesLinesAsTheyCome) {
  server->put("nodes", ApiStandIn::node("n1"));
  ApiClient& api = client(plain());
  Lines lines;
  lines.most = 2;
  auto watch = api.watch("/api/v1/nodes?watch=1&resourceVersion=1", lines, seconds(10));
  ASSERT_TRUE(served([&] { return lines.seen.size() == 1; }));
  server->put("nodes", ApiStandIn::node("n2"));
  EXPECT_TRUE(wait(kj::mv(watch)).ok());
  EXPECT_EQ(Json::parse(lines.seen[1])["object"]["metadata"]["name"], "n2");
}

TEST_F(KubeClient, AWatchThatIsTooLongSilentOrRefusedEnds) {
  ApiLimits limits = quick();
  limits.lineMax = 100'000;
  ApiClient& api = client(plain(), limits);
  Lines lines;
  const auto watch = [&](Nanos silence) {
    return api.watch("/api/v1/nodes?watch=1&resourceVersion=2000", lines, silence);
  };
  EXPECT_EQ(wait(watch(millis(20))).fault, ApiFault::Unreachable);
  auto longLine = watch(seconds(10));
  ASSERT_TRUE(served([&] { return server->watches() == 2; }));
  server->sayToWatches(std::string(300'000, 'x'));
  EXPECT_EQ(wait(kj::mv(longLine)).fault, ApiFault::Malformed);
  refuse(403, "Forbidden");
  EXPECT_EQ(wait(watch(seconds(10))).fault, ApiFault::Forbidden);
  auto ended = watch(seconds(10));
  ASSERT_TRUE(served([&] { return server->watches() == 3; }));
  server->endWatches();
  EXPECT_TRUE(wait(kj::mv(ended)).ok());
  EXPECT_TRUE(lines.seen.empty());
}

// --- TLS ---

struct KubeTls : KubeClient {
  KubeTls() { made.makeCa("ca"); }
  ~KubeTls() noexcept override {
    clients.clear();
    server.reset();
  }
  // The stand-in with a certificate that names these, as API servers have it: none as common name.
  void serveAs(const std::string& names) {
    const TlsFiles files = made.make("ca", "kube-apiserver", names);
    contexts.push_back(KJ_ASSERT_NONNULL(opened(files)));
    server.reset();
    serve(*contexts.back());
  }
  static kj::Maybe<kj::Own<kj::TlsContext>> opened(const TlsFiles& files) {
    auto context = openTls(files);
    EXPECT_TRUE(context.ok()) << context.error().message;
    if (!context) return nullptr;
    return kj::mv(*context);
  }
  KubeCredentials secured(const std::string& host) {
    KubeCredentials out = plain();
    out.tls = true;
    out.host = host;
    out.ca.path = folder / "ca.pem";
    const TlsFiles mine = made.make("ca", "client", "");
    out.certificate.path = mine.cert;
    out.key.path = mine.key;
    return out;
  }

  const testing::TempFolder folder;
  testing::Certificates made{folder.path()};
  std::vector<kj::Own<kj::TlsContext>> contexts;
};

TEST_F(KubeTls, AnAddressIsVerifiedByTheCertificatesAddresses) {
  serveAs("DNS:kubernetes.default.svc,IP:10.96.0.1,IP:127.0.0.1");
  const ApiAnswer answer = get(client(secured("127.0.0.1")), "/api/v1/nodes");
  EXPECT_TRUE(answer.ok()) << answer.message;
}

TEST_F(KubeTls, ANameIsVerifiedByTheCertificatesNames) {
  serveAs("DNS:localhost,IP:10.96.0.1");
  const ApiAnswer answer = get(client(secured("localhost")), "/api/v1/nodes");
  EXPECT_TRUE(answer.ok()) << answer.message;
}

TEST_F(KubeTls, ServersOfAnotherNameAddressOrCaAreNotTrusted) {
  serveAs("DNS:kubernetes.default.svc,IP:10.96.0.1");
  const ApiAnswer address = get(client(secured("127.0.0.1")), "/api/v1/nodes");
  EXPECT_EQ(address.fault, ApiFault::Unreachable);
  EXPECT_NE(address.message.find("does not name 127.0.0.1"), std::string::npos) << address.message;
  EXPECT_EQ(get(client(secured("localhost")), "/api/v1/nodes").fault, ApiFault::Unreachable);
  KubeCredentials other = secured("127.0.0.1");
  made.makeCa("other");
  other.serverName = "kubernetes.default.svc";
  other.ca.path = folder / "other.pem";
  EXPECT_EQ(get(client(other), "/api/v1/nodes").fault, ApiFault::Unreachable);
  EXPECT_TRUE(server->heard.empty());
  other.ca.path = folder / "ca.pem";
  const ApiAnswer named = get(client(other), "/api/v1/nodes");
  EXPECT_TRUE(named.ok()) << "tls-server-name: " << named.message;
}

TEST_F(KubeTls, VerificationIsSkippedOnlyWhereThatWasAskedFor) {
  serveAs("DNS:elsewhere");
  KubeCredentials careless = secured("127.0.0.1");
  careless.unverified = true;
  const ApiAnswer answer = get(client(careless), "/api/v1/nodes");
  EXPECT_TRUE(answer.ok()) << answer.message;
}

TEST_F(KubeTls, AWrongFileIsNamed) {
  serveAs("IP:127.0.0.1");
  KubeCredentials wrong = secured("127.0.0.1");
  wrong.ca.path = folder / "none.pem";
  wrong.ca.named = "ca: ";
  const ApiAnswer answer = get(client(wrong), "/api/v1/nodes");
  EXPECT_EQ(answer.fault, ApiFault::Unreachable);
  EXPECT_NE(answer.message.find("none.pem"), std::string::npos) << answer.message;
}

}  // namespace
}  // namespace qgpu::kube_client_test
