#pragma once
// Keeps the webhooks reachable for the API server: a certificate of their own in a Secret that the
// installer made empty, renewed in time, and its CA as caBundle in each webhook of their
// configurations. It exists so that nobody has to run a certificate manager, and no certificate of
// ours ends a working cluster.
//
// Several schedulers may do so at once: the Secret's version decides whose certificate counts, and
// who loses takes that. The CA is told before a certificate of it is shown. Whatever fails is tried
// again; the webhook goes on with what it has, and pods are created without it (failurePolicy).

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "services/kubernetes/client/api_client.h"
#include "services/kubernetes/webhook/certificates.h"
#include "services/kubernetes/webhook/webhook_server.h"

namespace qgpu {

struct WebhookNames {
  std::string nameSpace = "kube-system";
  std::string service = "qgpu-scheduler";
  std::string secret = "qgpu-scheduler-webhook";
  std::string configuration = "qgpu-scheduler";  // of either kind
};

// CEL that is true for the objects that a webhook can say something about, and false for all
// others: pods that answerReview() looks at, claims, and pods that ask for a resource of ours.
std::string podsExpression(const PodRules& rules);
std::string claimsExpression(const PodRules& rules);
std::string askingPodsExpression(const PodRules& rules);

inline constexpr const char* kValidating = "validatingwebhookconfigurations";
inline constexpr const char* kMutating = "mutatingwebhookconfigurations";

// The webhooks of deploy/kubernetes.
struct PublishedWebhook {
  const char* collection;  // of configurations
  const char* name;        // in its configuration
  const char* path;        // of WebhookServer; the word goes behind one that ends with '/'
  std::string (*condition)(const PodRules& rules);
};
inline constexpr PublishedWebhook kPublishedWebhooks[] = {
    {kValidating, "pods.qgpu.io", kPodsPath, podsExpression},
    {kValidating, "claims.qgpu.io", kClaimsPath, claimsExpression},
    {kMutating, "by-claims.pods.qgpu.io", kByClaimsPath, askingPodsExpression},
    {kMutating, "scheduler.pods.qgpu.io", kSchedulerPath, askingPodsExpression},
};

class WebhookKeeper final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr Nanos kRound = seconds(600);  // between looks when all is well
  static constexpr Nanos kRetryMax = seconds(300);
  static constexpr int kConflictsMax = 4;  // in a row, before it waits

  using UnixSeconds = std::function<std::int64_t()>;

  // All outlive the keeper, which begins with start() and ends when it is destroyed.
  WebhookKeeper(WebhookNames names, PodRules rules, ApiClient& api, WebhookServer& server,
                UnixSeconds clock, Log& log);

  void start();
  // One look, and what follows from it.
  kj::Promise<Status> look();

  // When the certificate that is shown ends, in Unix seconds; 0: none is.
  std::int64_t expiry() const { return expiry_; }

 private:
  struct StoredSecret {  // what the Secret has
    std::optional<CertificateSet> set;
    std::string version;
  };

  kj::Promise<void> run();
  kj::Promise<Result<CertificateSet>> certificates(int conflicts);
  kj::Promise<Result<CertificateSet>> store(CertificateSet set, std::string version, int conflicts);
  struct Trust {  // whom the API server is to trust, and by which word it is known
    std::string bundle;
    std::string word;
  };

  kj::Promise<Status> publish(Trust trust);
  kj::Promise<Status> publishIn(std::string collection, Trust trust);
  kj::Promise<Status> publishTo(std::string collection, std::string path, ApiAnswer found,
                                Trust trust);
  kj::Promise<bool> hasMatchConditions();
  Status show(const CertificateSet& set);
  StoredSecret read(const ApiAnswer& answer) const;
  std::vector<std::string> dnsNames() const;
  std::string secretPath() const;
  void taskFailed(kj::Exception&& exception) override;

  const WebhookNames names_;
  const PodRules rules_;
  ApiClient& api_;
  WebhookServer& server_;
  const UnixSeconds clock_;
  Log& log_;
  Backoff backoff_;
  std::string shown_;  // the certificate
  std::int64_t expiry_ = 0;
  std::set<std::string> missing_;  // collections without our configuration, and it was said
  kj::TaskSet tasks_;
};

}  // namespace qgpu
