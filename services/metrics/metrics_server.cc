#include "services/metrics/metrics_server.h"

#include "services/admin/words.h"
#include "services/metrics/prometheus.h"

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

std::string reason(const Error& error) {
  return std::string(errorName(error.code)) + ": " + error.message + "\n";
}

}  // namespace

MetricsServer::MetricsServer(NodeDoor& door, MetricsLimits limits, kj::LowLevelAsyncIoProvider& io,
                             kj::Timer& timer, TcpListener listener)
    : door_(door),
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
    return send(response, Page{404, "text/plain; charset=utf-8",
                               "here are /metrics and /healthz\n"});
  }
  if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) {
    return send(response, Page{405, "text/plain; charset=utf-8", "GET or HEAD\n"});
  }
  auto page = path == "/metrics" ? metrics() : health();
  return page.then([this, &response](Page p) { return send(response, std::move(p)); });
}

kj::Promise<void> MetricsServer::send(Response& response, Page page) {
  kj::HttpHeaders headers(*headerTable_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, ptr(page.type));
  if (page.status == 405) headers.set(allow_, "GET, HEAD");
  auto text = kj::heap<std::string>(std::move(page.text));
  auto body = response.send(page.status, statusText(page.status), headers, text->size());
  auto written = body->write(text->data(), text->size()).attach(kj::mv(body), kj::mv(text));
  return timer_.timeoutAfter(duration(limits_.writeDeadline), kj::mv(written));
}

kj::Promise<Result<Answer>> MetricsServer::ask(NodeDoor::Fill fill) {
  constexpr std::uint32_t kNobody = 65534;
  return door_.ask(Peer{kNobody, 0, false}, kj::mv(fill));
}

kj::Promise<MetricsServer::Page> MetricsServer::metrics() {
  struct Facts {
    std::vector<Answer> answers;  // info, cards, tasks
  };
  auto facts = kj::heap<Facts>();
  Facts& f = *facts;
  // One after the other: a scrape takes one place of the door's at a time.
  return ask([](schema::Request::Builder request) { request.setInfo(); })
      .then([this, &f](Result<Answer> info) -> kj::Promise<Result<Answer>> {
        if (!info) return kj::mv(info);
        f.answers.push_back(std::move(*info));
        return ask([](schema::Request::Builder request) { request.setCards(); });
      })
      .then([this, &f](Result<Answer> cards) -> kj::Promise<Result<Answer>> {
        if (!cards) return kj::mv(cards);
        f.answers.push_back(std::move(*cards));
        return ask([](schema::Request::Builder request) { request.setTasks(); });
      })
      .then([this, &f](Result<Answer> tasks) {
        if (!tasks) return Page{503, "text/plain; charset=utf-8", reason(tasks.error())};
        const DoorCounts doors{door_.outstanding(), door_.watchers(), door_.refused(),
                               door_.late()};
        return Page{200, "text/plain; version=0.0.4; charset=utf-8",
                    renderMetrics(f.answers[0].reply().getInfo(), f.answers[1].reply().getCards(),
                                  tasks->reply().getTasks(), doors)};
      })
      .attach(kj::mv(facts));
}

kj::Promise<MetricsServer::Page> MetricsServer::health() {
  return ask([](schema::Request::Builder request) { request.setInfo(); })
      .then([](Result<Answer> info) {
        if (!info) return Page{503, "text/plain; charset=utf-8", reason(info.error())};
        const std::string storage(view(info->reply().getInfo().getStorage()));
        if (storage == "ok") return Page{200, "text/plain; charset=utf-8", "ok\n"};
        return Page{503, "text/plain; charset=utf-8", "storage: " + storage + "\n"};
      });
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
