#include "services/daemons/extender_server.h"

namespace qgpu {

ExtenderServer::ExtenderServer(std::vector<HttpRoute> routes, HttpLimits limits,
                               const std::string& folder, kj::LowLevelAsyncIoProvider& io,
                               kj::Timer& timer, TcpListener listener, Log& log, Nanos lookEvery)
    : log_(log),
      tls_({folder + "/tls.crt", folder + "/tls.key", folder + "/ca.crt"}),
      http_(std::move(routes), limits, io, timer, std::move(listener), tls_.now()) {
  LiveTls::Listener changes{[this](kj::TlsContext& now) { use(now); },
                            [this](const std::string& why) { refused(why); }};
  if (tls_.read()) {
    use(tls_.now());
  } else {
    refused(tls_.trouble());
  }
  tls_.follow(timer, std::move(changes), lookEvery);
}

void ExtenderServer::use(kj::TlsContext& now) {
  http_.setTls(now);
  log_.info("extender-open", {{"address", address()}, {"certificate", tls_.files().cert}});
}

// While they are being put there some are missing, or don't belong together.
void ExtenderServer::refused(const std::string& why) {
  const char* event = opened() ? "extender-certificates-kept" : "extender-closed";
  log_.info(event, {{"address", address()}, {"why", why}});
}

}  // namespace qgpu
