#pragma once
// HTTPS for the API server, which posts an AdmissionReview of what is created or updated: whoever
// creates a pod or a claim reads at once which rule it breaks, and pods of namespaces that want it
// so are changed (pod_changes.h).
//
// Nobody is asked who they are where an answer tells nothing that is not in the question. What asks
// the API server for something, or makes something there, is done for who knows a word of the path,
// and that is the API server alone: it stands in a configuration that few may read.
//
// The certificate may be changed while it serves; until there is one, no handshake succeeds.

#include <cstdint>
#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "services/base/net/http_server.h"
#include "services/base/net/listen.h"
#include "services/kubernetes/pods/pod_rules.h"
#include "services/kubernetes/webhook/pod_changes.h"

namespace qgpu {

inline constexpr const char* kPodsPath = "/webhook/pods";
inline constexpr const char* kClaimsPath = "/webhook/claims";
// With the word behind them.
inline constexpr const char* kByClaimsPath = "/webhook/pods/by-claims/";
inline constexpr const char* kSchedulerPath = "/webhook/pods/scheduler/";

// API servers keep connections, and give up on an answer sooner than this.
inline constexpr HttpLimits kWebhookLimits = {.connectionsMax = 64,
                                              .bodiesMax = std::size_t{24} << 20,
                                              .requestDeadline = seconds(10),
                                              .idleDeadline = seconds(90),
                                              .writeDeadline = seconds(10)};

class WebhookServer {
 public:
  struct Counts {
    std::uint64_t allowed = 0;
    std::uint64_t denied = 0;
    std::uint64_t malformed = 0;  // bodies that were no review
  };

  // `api`, `io` and `timer` outlive the server, which serves until it is destroyed.
  WebhookServer(PodRules rules, ApiClient& api, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                TcpListener listener);
  WebhookServer(const WebhookServer&) = delete;
  WebhookServer& operator=(const WebhookServer&) = delete;

  // For connections from now on; PEM texts. InvalidArgument: they are none, or don't belong
  // together, and what was there stays.
  Status useCertificate(const std::string& cert, const std::string& key);

  // The word from now on, beside the one before. Until there is one nobody knows it.
  void useWord(const std::string& word);

  const std::string& address() const { return http_.address(); }
  std::uint16_t port() const { return port_; }
  const Counts& counts() const { return counts_; }

 private:
  using Change = kj::Promise<Result<Review>> (PodChanges::*)(std::string_view body);

  HttpRoute judging(const char* path);
  bool knows(std::string_view word) const;
  HttpRoute changing(const char* path, Change change);
  HttpPage page(Result<Review> answered);

  const PodRules rules_;
  PodChanges changes_;
  const std::uint16_t port_;
  Counts counts_;
  std::string word_;  // hashes, which take the same time whatever they are compared with
  std::string wordBefore_;
  std::vector<kj::Own<kj::TlsContext>> contexts_;  // one in 60 days; the last is in use
  HttpServer http_;
};

}  // namespace qgpu
