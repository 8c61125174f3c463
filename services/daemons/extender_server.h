#pragma once
// The extender for kube-schedulers of other machines: HTTPS on which both sides show certificates
// of one CA. They lie in a folder as the installer put them there, tls.crt, tls.key and ca.crt, and
// may come or change while the daemon runs; until they are there no handshake succeeds, so an open
// port serves nobody whom the installer did not name.

#include <kj/async-io.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "services/base/net/http_server.h"
#include "services/base/net/live_tls.h"

namespace qgpu {

class ExtenderServer final {
 public:
  // `io`, `timer` and `log` outlive the server, which serves until it is destroyed.
  ExtenderServer(std::vector<HttpRoute> routes, HttpLimits limits, const std::string& folder,
                 kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, TcpListener listener, Log& log,
                 Nanos lookEvery = LiveTls::kLookEvery);

  const std::string& address() const { return http_.address(); }
  bool opened() const { return tls_.opened(); }

 private:
  void use(kj::TlsContext& now);
  void refused(const std::string& why);

  Log& log_;
  LiveTls tls_;
  HttpServer http_;
};

}  // namespace qgpu
