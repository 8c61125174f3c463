#pragma once
// The webhook put together for a daemon: a door, whoever keeps it reachable, and a client of the
// API server for that. What can be wrong with them is found by open(), before anything serves.

#include <cstdint>
#include <kj/async-io.h>
#include <string>

#include "services/kube/api_client.h"
#include "services/kube/credentials.h"
#include "services/webhook/webhook_keeper.h"
#include "services/webhook/webhook_server.h"

namespace qgpu {

class WebhookDoor {
 public:
  struct Opened {
    TcpListener listener;
    KubeCredentials credentials;
  };
  // `address` is that of --webhook; it may be reached from anywhere, as API servers run anywhere.
  // Errors: the address is taken, or nothing says where the API server is.
  static Result<Opened> open(const std::string& address, const KubeSurroundings& around);

  // `io`, `network`, `timer` and `log` outlive the door, which serves until it is destroyed. `seed`
  // is of the jitter of retries.
  WebhookDoor(Opened opened, PodRules rules, kj::LowLevelAsyncIoProvider& io, kj::Network& network,
              kj::Timer& timer, std::uint64_t seed, Log& log);

  const std::string& address() const { return server_.address(); }

 private:
  ApiClient api_;
  WebhookServer server_;
  WebhookKeeper keeper_;
};

}  // namespace qgpu
