#pragma once
// HTTPS for the API server: POST /webhook/pods takes an AdmissionReview. It exists so that whoever
// creates a pod reads at once which rule it breaks.
//
// Nobody is asked who they are: an answer tells nothing that is not in the question. The
// certificate may be changed while it serves; until there is one, no handshake succeeds.

#include <cstdint>
#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "services/base/net/http_server.h"
#include "services/base/net/listen.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

inline constexpr const char* kWebhookPath = "/webhook/pods";

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

  // `io` and `timer` outlive the server, which serves until it is destroyed.
  WebhookServer(PodRules rules, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                TcpListener listener);
  WebhookServer(const WebhookServer&) = delete;
  WebhookServer& operator=(const WebhookServer&) = delete;

  // For connections from now on; PEM texts. InvalidArgument: they are none, or don't belong
  // together, and what was there stays.
  Status useCertificate(const std::string& cert, const std::string& key);

  const std::string& address() const { return http_.address(); }
  std::uint16_t port() const { return port_; }
  const Counts& counts() const { return counts_; }

 private:
  HttpPage review(const std::string& body);

  const PodRules rules_;
  const std::uint16_t port_;
  Counts counts_;
  std::vector<kj::Own<kj::TlsContext>> contexts_;  // one in 60 days; the last is in use
  HttpServer http_;
};

}  // namespace qgpu
