#pragma once
// HTTP for machines that watch: /metrics (Prometheus text) and /healthz (200 while the daemon can
// answer and store, else 503 with the reason). Read-only, loopback, and of bounded cost:
// connections, requests under way and the time to send one or to take an answer have limits, so
// that slow or broken clients cost their own connection only (C7).

#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/timer.h>

#include <cstdint>
#include <string>

#include "services/admin/listen.h"
#include "services/metrics/pages.h"

namespace qgpu {

struct MetricsLimits {
  std::size_t connectionsMax = 32;
  Nanos requestDeadline = seconds(10);  // from the first byte of a request to its last
  Nanos idleDeadline = seconds(60);     // between requests of one connection
  Nanos writeDeadline = seconds(30);
};

class MetricsServer final : private kj::HttpService,
                            private kj::HttpServerErrorHandler,
                            private kj::TaskSet::ErrorHandler {
 public:
  // `pages`, `io` and `timer` outlive the server, which serves until it is destroyed.
  MetricsServer(HttpPages& pages, MetricsLimits limits, kj::LowLevelAsyncIoProvider& io,
                kj::Timer& timer, TcpListener listener);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer() noexcept;

  // Where it listens, with the real port.
  const std::string& address() const { return listener_.address(); }
  std::size_t connections() const { return connections_; }

 private:
  kj::Promise<void> accept();
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream);
  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url,
                            const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                            Response& response) override;
  kj::Promise<void> send(Response& response, HttpPage page);
  kj::Promise<void> handleApplicationError(kj::Exception exception,
                                           kj::Maybe<Response&> response) override;
  void taskFailed(kj::Exception&& exception) override;

  HttpPages& pages_;
  const MetricsLimits limits_;
  kj::Timer& timer_;
  TcpListener listener_;
  kj::Own<kj::HttpHeaderTable> headerTable_;
  kj::HttpHeaderId allow_;
  kj::HttpServer server_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  std::size_t connections_ = 0;
  kj::TaskSet tasks_;  // last: its connections use everything above
};

}  // namespace qgpu
