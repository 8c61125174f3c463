#include "services/metrics/metrics_server.h"

#include "services/admin/words.h"

namespace qgpu {
namespace {

constexpr auto kAcceptPause = 100 * kj::MILLISECONDS;

kj::Duration duration(Nanos time) { return time.value * kj::NANOSECONDS; }

kj::Own<kj::HttpHeaderTable> headerTable(kj::HttpHeaderId& allow) {
  kj::HttpHeaderTable::Builder builder;
  allow = builder.add("Allow");
  return builder.build();
}

kj::HttpServerSettings settings(const MetricsLimits& limits,
                                kj::HttpServerErrorHandler& errors) {
  kj::HttpServerSettings s;
  s.headerTimeout = duration(limits.requestDeadline);
  s.pipelineTimeout = duration(limits.idleDeadline);
  s.canceledUploadGraceBytes = 0;  // nobody uploads here
  s.errorHandler = errors;
  return s;
}

kj::StringPtr statusText(kj::uint status) {
  switch (status) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    default: return "Service Unavailable";
  }
}

}  // namespace

MetricsServer::MetricsServer(HttpPages& pages, MetricsLimits limits,
                             kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                             TcpListener listener)
    : pages_(pages),
      limits_(limits),
      timer_(timer),
      listener_(std::move(listener)),
      headerTable_(headerTable(allow_)),
      server_(timer, *headerTable_, *this, settings(limits, *this)),
      receiver_(listener_.receive(io)),
      tasks_(*this) {
  tasks_.add(accept());
}

MetricsServer::~MetricsServer() noexcept = default;

kj::Promise<void> MetricsServer::accept() {
  return receiver_->accept().then(
      [this](kj::Own<kj::AsyncIoStream> stream) {
        // A peer that goes away, or speaks no HTTP, is no failure of ours.
        tasks_.add(kj::evalNow([&]() { return serve(kj::mv(stream)); })
                       .catch_([](kj::Exception&&) {}));
        return accept();
      },
      [this](kj::Exception&&) {
        // Out of descriptors: who is connected is served on, and somebody may leave.
        return timer_.afterDelay(kAcceptPause).then([this]() { return accept(); });
      });
}

kj::Promise<void> MetricsServer::serve(kj::Own<kj::AsyncIoStream> stream) {
  if (connections_ >= limits_.connectionsMax) return kj::READY_NOW;  // closed
  ++connections_;
  auto counted = kj::defer([this]() { --connections_; });
  return server_.listenHttp(kj::mv(stream)).attach(kj::mv(counted));
}

kj::Promise<void> MetricsServer::request(kj::HttpMethod method, kj::StringPtr url,
                                         const kj::HttpHeaders&, kj::AsyncInputStream&,
                                         Response& response) {
  const std::string_view path = view(url).substr(0, view(url).find('?'));
  if (path != "/metrics" && path != "/healthz") {
    return send(response, HttpPage{404, "text/plain; charset=utf-8",
                               "here are /metrics and /healthz\n"});
  }
  if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) {
    return send(response, HttpPage{405, "text/plain; charset=utf-8", "GET or HEAD\n"});
  }
  auto page = path == "/metrics" ? pages_.metrics() : pages_.health();
  return page.then([this, &response](HttpPage p) { return send(response, std::move(p)); });
}

kj::Promise<void> MetricsServer::send(Response& response, HttpPage page) {
  kj::HttpHeaders headers(*headerTable_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, ptr(page.type));
  if (page.status == 405) headers.set(allow_, "GET, HEAD");
  auto text = kj::heap<std::string>(std::move(page.text));
  auto body = response.send(page.status, statusText(page.status), headers, text->size());
  auto written = body->write(text->data(), text->size()).attach(kj::mv(body), kj::mv(text));
  return timer_.timeoutAfter(duration(limits_.writeDeadline), kj::mv(written));
}

// Headers that are too long, a client that left: its connection is closed, and nobody needs a log
// line for it, which is what KJ would do.
kj::Promise<void> MetricsServer::handleApplicationError(kj::Exception, kj::Maybe<Response&>) {
  return kj::READY_NOW;
}

void MetricsServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the metrics server handles its own failures");
}

}  // namespace qgpu
