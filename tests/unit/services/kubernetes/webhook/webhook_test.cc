// The webhook over real HTTPS, as an API server reaches it (by the name of its Service, trusting
// the caBundle alone), and what keeps it reachable, with an API server's stand-in.

#include <atomic>
#include <sys/wait.h>

#include "services/kubernetes/webhook/webhook_service.h"
#include "tests/unit/services/kubernetes/webhook/webhook_fixture.h"

namespace qgpu::webhook_test {
namespace {

using testing::ApiStandIn;
using testing::Child;
using testing::Json;
using testing::kBrokenClaim;
using testing::kBrokenPod;
using testing::kConfigurations;
using testing::kHost;
using testing::podReview;

struct Webhook : testing::WebhookFixture {};

TEST_F(Webhook, TellsOverHttpsWhatIsWrongWithAPod) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string said = post(bundle(), kBrokenPod);
  EXPECT_NE(said.find(R"("allowed":false)"), std::string::npos) << said;
  EXPECT_NE(said.find("container 'c'"), std::string::npos) << said;
  EXPECT_NE(said.find("[200]"), std::string::npos) << said;
  EXPECT_EQ(webhook().counts().denied, 1u);
}

TEST_F(Webhook, TellsOverHttpsWhatIsWrongWithAClaim) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string said = post(bundle(), kBrokenClaim, "", kHost, kClaimsPath);
  EXPECT_NE(said.find("request 'gpu': core is 0: ask for 1 to 100"), std::string::npos) << said;
}

// --- pods that are changed ---

// The response in what curl says, which has the status behind it.
Json responseIn(const std::string& said) {
  const Json review = Json::parse(said.substr(0, said.rfind(" [")), nullptr, false);
  return review.is_discarded() ? Json() : review["response"];
}
Json patchIn(const Json& response) {
  return Json::parse(fromBase64(response.value("patch", "")).value_or(""), nullptr, false);
}

TEST_F(Webhook, ByClaimsTheTemplateIsThereBeforeTheAnswerAndEqualAsksShareIt) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string path = changingPath(0);
  ASSERT_TRUE(path.starts_with(kByClaimsPath)) << path;
  std::string named;
  for (int times = 0; times < 2; ++times) {
    const Json response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
    ASSERT_EQ(response.value("allowed", false), true) << response;
    EXPECT_EQ(response["patchType"], "JSONPatch");
    const Json patch = patchIn(response);
    ASSERT_TRUE(patch.is_array()) << response;
    named = patch.back()["value"][0]["resourceClaimTemplateName"];
    EXPECT_EQ(server->all("resourceclaimtemplates").size(), 1u);
  }
  const Json made = server->find("resourceclaimtemplates", "team", named);
  EXPECT_EQ(made["spec"]["spec"]["devices"]["requests"][0]["name"], "c") << made;
  post(bundle(), podReview("40"), "", kHost, path);
  EXPECT_EQ(server->all("resourceclaimtemplates").size(), 2u);
}

TEST_F(Webhook, ADryRunIsAnsweredAndMakesNothing) {
  ASSERT_TRUE(look(keeper()).ok());
  const Json response =
      responseIn(post(bundle(), podReview("30", true), "", kHost, changingPath(0)));
  EXPECT_TRUE(patchIn(response).is_array()) << response;
  EXPECT_TRUE(server->all("resourceclaimtemplates").empty());
}

TEST_F(Webhook, ByClaimsWhatBreaksARuleIsRefusedWithTheReason) {
  ASSERT_TRUE(look(keeper()).ok());
  const Json response = responseIn(post(bundle(), podReview("150"), "", kHost, changingPath(0)));
  EXPECT_EQ(response["allowed"], false);
  EXPECT_EQ(response["status"]["code"], 403);
  const std::string said = response["status"]["message"];
  EXPECT_NE(said.find("container 'c'"), std::string::npos) << said;
  EXPECT_TRUE(server->all("resourceclaimtemplates").empty());
}

TEST_F(Webhook, ByClaimsATemplateThatCannotBeMadeIsToldAndThePodNotCreated) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string path = changingPath(0);
  const struct {
    ApiStandIn::Refusal refusal;
    int code;
    const char* says;
  } rows[] = {{{404, "NotFound", "the server could not find the requested resource", ""},
               403,
               "Kubernetes 1.36"},
              {{422, "Invalid", "name: Invalid value", ""}, 403, "name: Invalid value"},
              {{403, "Forbidden", "exceeded quota", ""}, 503, "exceeded quota"},
              {{500, "InternalError", "etcd is away", ""}, 503, "etcd is away"}};
  for (const auto& row : rows) {
    server->onRequest = [&]() {
      if (server->heard.back().starts_with("POST")) server->refusals.push_back(row.refusal);
    };
    const Json response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
    EXPECT_EQ(response["allowed"], false) << row.says;
    EXPECT_EQ(response["status"]["code"], row.code) << row.says;
    const std::string said = response["status"]["message"];
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
  server->onRequest = nullptr;
  server->refusals.push_back({500, "InternalError", "etcd is away", ""});
  const Json response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
  EXPECT_EQ(response["status"]["message"], "qgpu: namespace team can't be read: etcd is away");
}

TEST_F(Webhook, ByClaimsNothingIsMadeInANamespaceThatDoesNotWantIt) {
  ASSERT_TRUE(look(keeper()).ok());
  for (const Json& labels : {Json::object(), Json({{"qgpu.io/claims", "disable"}})}) {
    labelTeam(labels);
    const Json response = responseIn(post(bundle(), podReview("30"), "", kHost, changingPath(0)));
    EXPECT_EQ(response["allowed"], true) << labels;
    EXPECT_FALSE(response.contains("patch")) << labels;
  }
  EXPECT_TRUE(server->all("resourceclaimtemplates").empty());
}

// Who could ask so would have objects made in any namespace.
TEST_F(Webhook, ChangesPodsForTheApiServerAlone) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string path = changingPath(0);
  for (const std::string& guessed :
       {std::string(kByClaimsPath), path + "0", path.substr(0, path.size() - 1),
        kByClaimsPath + std::string(40, '0')}) {
    const std::string said = post(bundle(), podReview("30"), "", kHost, guessed);
    EXPECT_NE(said.find("[404]"), std::string::npos) << said;
  }
  EXPECT_TRUE(server->all("resourceclaimtemplates").empty());
}

TEST_F(Webhook, PodsThatAskGoToTheSchedulerThatTheirNamespaceNames) {
  ASSERT_TRUE(look(keeper()).ok());
  const std::string path = changingPath(1);
  Json response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_FALSE(response.contains("patch"));
  labelTeam({{"qgpu.io/scheduler-name", "second"}});
  response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
  EXPECT_EQ(patchIn(response),
            Json::parse(R"([{"op":"add","path":"/spec/schedulerName","value":"second"}])"));
  server->refusals.push_back({500, "InternalError", "etcd is away", ""});
  response = responseIn(post(bundle(), podReview("30"), "", kHost, path));
  EXPECT_EQ(response["status"]["code"], 503) << response;
}

TEST_F(Webhook, PutsBackThePathThatSomebodyTookAway) {
  WebhookKeeper& one = keeper();
  ASSERT_TRUE(look(one).ok());
  const std::string before = changingPath(0);
  Json configuration = server->find(kMutating, "", "qgpu-scheduler");
  configuration["webhooks"][0]["clientConfig"]["service"].erase("path");
  server->put(kMutating, configuration);
  ASSERT_TRUE(look(one).ok());
  EXPECT_EQ(changingPath(0), before);
}

TEST_F(Webhook, AnswersToTheWordBeforeTheLastUntilItIsForgotten) {
  ASSERT_TRUE(look(keeper()).ok());
  const auto isKnown = [&](const std::string& word) {
    const std::string said = post(bundle(), "nonsense", "", kHost, kByClaimsPath + word);
    return said.find("[400]") != std::string::npos;
  };
  webhook().useWord("first");
  webhook().useWord("second");
  webhook().useWord("second");
  EXPECT_TRUE(isKnown("first"));
  EXPECT_TRUE(isKnown("second"));
  webhook().useWord("third");
  EXPECT_FALSE(isKnown("first"));
}

TEST_F(Webhook, IsTrustedByItsCaAndItsServiceNameAlone) {
  ASSERT_TRUE(look(keeper()).ok());
  const auto stranger = renewed({}, {kHost}, now);
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(post((*stranger)->ca, kBrokenPod), "status 60");
  EXPECT_EQ(post(bundle(), kBrokenPod, "", "somebody.else.svc"), "status 60");
  EXPECT_EQ(webhook().counts().denied, 0u);
}

TEST_F(Webhook, AnswersNonsenseWithAWordAndServesOn) {
  ASSERT_TRUE(look(keeper()).ok());
  const auto said = [&](const std::string& answer, const char* status) {
    EXPECT_NE(answer.find(status), std::string::npos) << answer;
  };
  said(post(bundle(), "nonsense"), "[400]");
  said(post(bundle(), "{}", "", kHost, "/other"), "[404]");
  said(post(bundle(), "{}", "-XPUT"), "[405]");
  said(post(bundle(), std::string(4U << 20U, 'x')), "[413]");
  said(post(bundle(), kBrokenPod), "[200]");
  EXPECT_EQ(webhook().counts().malformed, 1u);
}

TEST_F(Webhook, C7_JudgesWhileTheLoopOfItsDaemonStandsAndNeverHoldsIt) {
  std::atomic<bool> shown{false};
  Log words(LogLevel::Info, [&](LogLevel, const std::string& line) {
    if (line.starts_with("webhook-certificate ")) shown = true;
  });
  KubePlatform around;
  around.kubeconfig = kubeconfig();
  auto opened = WebhookService::open("127.0.0.1:0", around);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  WebhookService service(std::move(*opened), PodRules{}, 7, words);
  ASSERT_TRUE(served([&]() { return shown.load(); }));  // this loop is the API server's
  programPort = service.address().substr(service.address().rfind(':') + 1);
  Child asks(curl(bundle(), kBrokenPod));
  ASSERT_TRUE(asks.wait().has_value());
  EXPECT_NE(said(asks).find(R"("allowed":false)"), std::string::npos) << said(asks);
}

TEST_F(Webhook, ClosesConnectionsWhileItHasNoCertificate) {
  const auto set = renewed({}, {kHost}, now);
  ASSERT_TRUE(set.ok());
  EXPECT_TRUE(post((*set)->ca, kBrokenPod).starts_with("status "));
  ASSERT_TRUE(webhook().useCertificate((*set)->cert, (*set)->key).ok());
  EXPECT_FALSE(webhook().useCertificate((*set)->cert, (*set)->caKey).ok());
  EXPECT_NE(post((*set)->ca, kBrokenPod).find("[200]"), std::string::npos) << "what was stays";
}

TEST_F(Webhook, PublishesItsCaAndConditionsAndThenLeavesBothAlone) {
  WebhookKeeper& one = keeper();
  ASSERT_TRUE(look(one).ok());
  EXPECT_EQ(published()["matchConditions"][0]["expression"], podsExpression(PodRules{}));
  EXPECT_EQ(published(2)["matchConditions"][0]["expression"], claimsExpression(PodRules{}));
  EXPECT_EQ(published(2)["clientConfig"]["caBundle"], published()["clientConfig"]["caBundle"]);
  EXPECT_EQ(published()["clientConfig"]["service"]["name"], "x");
  const Json others = server->find(kConfigurations, "", "qgpu-scheduler")["webhooks"][0];
  EXPECT_FALSE(others["clientConfig"].contains("caBundle"));
  EXPECT_EQ(one.expiry(), now + kServerSeconds);
  const std::uint64_t version = server->version();
  ASSERT_TRUE(look(one).ok());
  EXPECT_EQ(server->version(), version) << "nothing was to be changed";
  // Somebody applied the manifest again.
  Json configuration = server->find(kConfigurations, "", "qgpu-scheduler");
  configuration["webhooks"][1]["clientConfig"].erase("caBundle");
  server->put(kConfigurations, configuration);
  ASSERT_TRUE(look(one).ok());
  EXPECT_FALSE(bundle().empty());
}

TEST_F(Webhook, LeavesConditionsOutWhereTheServerHasNone) {
  server->minor = "27";
  ASSERT_TRUE(look(keeper()).ok());
  EXPECT_FALSE(published().contains("matchConditions"));
  EXPECT_FALSE(bundle().empty());
}

TEST_F(Webhook, WaitsForAConfigurationThatIsNotInstalled) {
  server->remove(kConfigurations, "", "qgpu-scheduler");
  WebhookKeeper& one = keeper();
  EXPECT_TRUE(look(one).ok());
  const std::string asked = "GET /apis/admissionregistration.k8s.io/v1beta1/" +
                            std::string(kConfigurations) + "/qgpu-scheduler";
  EXPECT_EQ(std::count(server->heard.begin(), server->heard.end(), asked), 1);
}

TEST_F(Webhook, TwoSchedulersShowTheSameCertificate) {
  WebhookKeeper& one = keeper();
  WebhookKeeper& other = keeper();
  auto first = one.look();
  auto second = other.look();  // both find an empty Secret
  EXPECT_TRUE(wait(kj::mv(first)).ok());
  EXPECT_TRUE(wait(kj::mv(second)).ok());
  EXPECT_TRUE(look(one).ok());
  EXPECT_EQ(toBase64(bundle()), published()["clientConfig"]["caBundle"]);
  EXPECT_EQ(secret()["data"]["ca.crt"], published()["clientConfig"]["caBundle"]);
  EXPECT_NE(post(bundle(), kBrokenPod).find("[200]"), std::string::npos);
}

TEST_F(Webhook, RenewsItsCertificateWhileItServes) {
  WebhookKeeper& one = keeper();
  ASSERT_TRUE(look(one).ok());
  const std::string before = secret()["data"]["tls.crt"];
  const std::string ca = bundle();
  now += kServerSeconds * 3 / 4;
  ASSERT_TRUE(look(one).ok());
  EXPECT_NE(secret()["data"]["tls.crt"], before);
  EXPECT_EQ(bundle(), ca);
  EXPECT_EQ(one.expiry(), now + kServerSeconds);
}

TEST_F(Webhook, MakesWhatSomebodySpoiltInTheSecretAnew) {
  WebhookKeeper& one = keeper();
  ASSERT_TRUE(look(one).ok());
  Json spoilt = secret();
  spoilt["data"]["tls.key"] = "bm9uc2Vuc2U=";
  server->put("secrets", spoilt);
  ASSERT_TRUE(look(one).ok());
  EXPECT_NE(secret()["data"]["tls.key"], "bm9uc2Vuc2U=");
  EXPECT_NE(post(bundle(), kBrokenPod).find("[200]"), std::string::npos);
}

TEST_F(Webhook, SaysThatItsSecretIsMissingAndMakesNone) {
  server->remove("secrets", "kube-system", "qgpu-scheduler-webhook");
  const Status missing = look(keeper());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("apply deploy/kubernetes again"), std::string::npos);
  EXPECT_TRUE(server->all("secrets").empty());
}

TEST_F(Webhook, SaysWhatTheApiServerRefused) {
  server->refusals.push_back({403, "Forbidden", "secrets is forbidden", ""});
  const Status refused = look(keeper());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("forbidden"), std::string::npos);
}

}  // namespace
}  // namespace qgpu::webhook_test
