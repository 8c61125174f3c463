#pragma once
// The webhook put together for a daemon: a server, whoever keeps it reachable, and a client of the
// API server for that, on a thread and a loop of their own. Anybody who reaches the server may have
// pods judged, and nobody else in the daemon waits for that. What can be wrong is found by open(),
// before anything serves.

#include <cstdint>
#include <string>
#include <thread>

#include "runtime/log.h"
#include "runtime/loop.h"
#include "services/base/net/listen.h"
#include "services/kubernetes/client/credentials.h"
#include "services/kubernetes/pods/pod_rules.h"

namespace qgpu {

class WebhookService {
 public:
  struct Opened {
    TcpListener listener;
    KubeCredentials credentials;
  };
  // `address` is that of --webhook; it may be reached from anywhere, as API servers run anywhere.
  // Errors: the address is taken, or nothing says where the API server is.
  static Result<Opened> open(const std::string& address, const KubePlatform& around);

  // `log` outlives the server, which serves until it is destroyed. `seed` is of the jitter of
  // retries.
  WebhookService(Opened opened, PodRules rules, std::uint64_t seed, Log& log);
  ~WebhookService();
  WebhookService(const WebhookService&) = delete;
  WebhookService& operator=(const WebhookService&) = delete;

  const std::string& address() const { return address_; }

 private:
  void serve();

  Opened opened_;  // until the thread takes it
  const PodRules rules_;
  const std::uint64_t seed_;
  Log& log_;
  const std::string address_;
  Loop loop_;
  std::thread thread_;  // last: it uses all above
};

}  // namespace qgpu
