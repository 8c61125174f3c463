#pragma once
// The extender for kube-schedulers of other machines: HTTPS on which both sides show certificates
// of one CA. They lie in a folder as the installer put them there, tls.crt, tls.key and ca.crt, and
// may come or change while the daemon runs; until they are there no handshake succeeds, so an open
// port serves nobody whom the installer did not name.

#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "services/http/http_server.h"
#include "services/rpc/tls.h"

namespace qgpu {

class ExtenderDoor final : private kj::TaskSet::ErrorHandler {
 public:
  static constexpr Nanos kLookEvery = seconds(10);

  // `io`, `timer` and `log` outlive the door, which serves until it is destroyed.
  ExtenderDoor(std::vector<HttpRoute> routes, HttpLimits limits, const std::string& folder,
               kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, TcpListener listener, Log& log,
               Nanos lookEvery = kLookEvery);

  const std::string& address() const { return http_.address(); }
  bool opened() const { return contexts_.size() > 1; }

 private:
  kj::Promise<void> look();
  void read();
  void taskFailed(kj::Exception&& exception) override;

  const TlsFiles files_;
  kj::Timer& timer_;
  Log& log_;
  const Nanos lookEvery_;
  std::string seen_;                               // what the files held
  std::string trouble_;                            // that was told
  std::vector<kj::Own<kj::TlsContext>> contexts_;  // the last is in use, connections keep theirs
  HttpServer http_;
  kj::TaskSet tasks_;  // last
};

}  // namespace qgpu
