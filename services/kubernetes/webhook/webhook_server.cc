#include "services/kubernetes/webhook/webhook_server.h"

#include "services/api/commands/schema_names.h"
#include "services/base/net/pem.h"
#include "services/base/net/tls.h"
#include "services/base/net/x509.h"
#include "services/kubernetes/webhook/admission.h"

namespace qgpu {

WebhookServer::WebhookServer(PodRules rules, ApiClient& api, kj::LowLevelAsyncIoProvider& io,
                             kj::Timer& timer, TcpListener listener)
    : rules_(std::move(rules)),
      changes_(rules_, api),
      port_(listener.port()),
      contexts_(closedTls()),
      http_(
          {judging(kPodsPath), judging(kClaimsPath), changing(kByClaimsPath, &PodChanges::byClaims),
           changing(kSchedulerPath, &PodChanges::byScheduler)},
          kWebhookLimits, io, timer, std::move(listener), *contexts_.front()) {}

HttpRoute WebhookServer::judging(const char* path) {
  return HttpRoute::post(path, kReviewBytesMax, [this](const std::string& body) {
    return kj::Promise<HttpPage>(page(answerReview(body, rules_)));
  });
}

HttpRoute WebhookServer::changing(const char* path, Change change) {
  return HttpRoute::postBelow(
      path, [this](std::string_view word) { return knows(word); }, kReviewBytesMax,
      [this, change](const std::string& body) {
        return (changes_.*change)(body).then(
            [this](Result<Review> answered) { return page(std::move(answered)); });
      });
}

void WebhookServer::useWord(const std::string& word) {
  const std::string hash = sha256Hex(word);
  if (hash == word_) return;
  wordBefore_ = std::exchange(word_, hash);
}

bool WebhookServer::knows(std::string_view word) const {
  const std::string hash = sha256Hex(word);
  return hash == word_ || hash == wordBefore_;
}

Status WebhookServer::useCertificate(const std::string& cert, const std::string& key) {
  auto chain = parseCertificate("the webhook's certificate: ", cert);
  if (!chain) return chain.error();
  auto secret = parsePrivateKey("the webhook's key: ", key);
  if (!secret) return secret.error();
  if (!belongTogether(cert, key)) {
    return fail(ErrorCode::InvalidArgument, "the webhook's key is not that of its certificate");
  }
  const kj::TlsKeypair pair{std::move(*secret), std::move(*chain)};
  kj::TlsContext::Options options;
  options.useSystemTrustStore = false;
  options.minVersion = kj::TlsVersion::TLS_1_2;
  options.defaultKeypair = pair;
  kj::Own<kj::TlsContext> context;
  const auto broken =
      kj::runCatchingExceptions([&]() { context = kj::heap<kj::TlsContext>(options); });
  KJ_IF_MAYBE (exception, broken) {
    return fail(ErrorCode::InvalidArgument, std::string(view(exception->getDescription())));
  }
  contexts_.push_back(kj::mv(context));
  http_.setTls(*contexts_.back());
  return ok();
}

HttpPage WebhookServer::page(Result<Review> answered) {
  if (!answered) {
    ++counts_.malformed;
    return {400, "text/plain; charset=utf-8", answered.error().message + "\n"};
  }
  ++(answered->allowed ? counts_.allowed : counts_.denied);
  return {200, "application/json", std::move(answered->json)};
}

}  // namespace qgpu
