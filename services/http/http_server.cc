#include "services/http/http_server.h"

#include <algorithm>

#include "services/admin/words.h"

namespace qgpu {
namespace {

constexpr auto kAcceptPause = 100 * kj::MILLISECONDS;
constexpr std::size_t kPiece = 64 * 1024;  // of a body whose length is not told
// Of a body that was refused: read on, so that the refusal reaches who still sends.
constexpr std::size_t kGrace = std::size_t{2} << 20;

kj::Duration duration(Nanos time) {
  return time.value * kj::NANOSECONDS;
}

kj::Own<kj::HttpHeaderTable> headerTable(kj::HttpHeaderId& allow) {
  kj::HttpHeaderTable::Builder builder;
  allow = builder.add("Allow");
  return builder.build();
}

kj::HttpServerSettings settings(const HttpLimits& limits, kj::HttpServerErrorHandler& errors) {
  kj::HttpServerSettings s;
  s.headerTimeout = duration(limits.requestDeadline);
  s.pipelineTimeout = duration(limits.idleDeadline);
  s.canceledUploadGraceBytes = kGrace;
  s.errorHandler = errors;
  return s;
}

kj::StringPtr statusText(kj::uint status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Payload Too Large";
    default:
      return "Service Unavailable";
  }
}

HttpPage plain(const Error& error) {
  const bool large = error.code == ErrorCode::InvalidArgument;
  return HttpPage{large ? 413U : 503U, "text/plain; charset=utf-8", error.message + "\n"};
}

}  // namespace

HttpRoute HttpRoute::get(std::string path, Read page) {
  HttpRoute route;
  route.path = std::move(path);
  route.page = std::move(page);
  return route;
}

HttpRoute HttpRoute::post(std::string path, std::size_t bodyMax, Take take, Refuse refuse) {
  HttpRoute route;
  route.path = std::move(path);
  route.bodyMax = bodyMax;
  route.take = std::move(take);
  route.refuse = refuse ? std::move(refuse) : plain;
  return route;
}

// The bytes of one body, which count until they are handed on.
struct HttpServer::Body {
  Body(HttpServer& s, const HttpRoute& r) : server(s), route(r) {}
  ~Body() { release(); }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Room for `more` bytes behind those that are here.
  Status grow(std::uint64_t more) {
    if (more > route.bodyMax - text.size()) {
      return fail(ErrorCode::InvalidArgument,
                  "the body is too large: at most " + std::to_string(route.bodyMax) + " bytes");
    }
    if (more > server.limits_.bodiesMax - server.bodyBytes_) {
      return fail(ErrorCode::Overloaded, "too many requests are under way: try again");
    }
    server.bodyBytes_ += more;
    counted += more;
    text.resize(text.size() + more);
    return ok();
  }
  void release() { server.bodyBytes_ -= std::exchange(counted, 0); }

  HttpServer& server;
  const HttpRoute& route;
  std::string text;
  std::size_t counted = 0;
};

HttpServer::HttpServer(std::vector<HttpRoute> routes, HttpLimits limits,
                       kj::LowLevelAsyncIoProvider& io, kj::Timer& timer, TcpListener listener,
                       kj::Maybe<kj::TlsContext&> tls)
    : routes_(std::move(routes)),
      limits_(limits),
      timer_(timer),
      listener_(std::move(listener)),
      tls_(tls),
      headerTable_(headerTable(allow_)),
      server_(timer, *headerTable_, *this, settings(limits, *this)),
      receiver_(listener_.receive(io)),
      tasks_(*this) {
  tasks_.add(accept());
}

HttpServer::~HttpServer() noexcept = default;

kj::Promise<void> HttpServer::accept() {
  return receiver_->accept().then(
      [this](kj::Own<kj::AsyncIoStream> stream) {
        // A peer that goes away, or speaks no HTTP, is no failure of ours.
        tasks_.add(
            kj::evalNow([&]() { return serve(kj::mv(stream)); }).catch_([](kj::Exception&&) {}));
        return accept();
      },
      [this](kj::Exception&&) {
        // Out of descriptors: who is connected is served on, and somebody may leave.
        return timer_.afterDelay(kAcceptPause).then([this]() { return accept(); });
      });
}

kj::Promise<void> HttpServer::serve(kj::Own<kj::AsyncIoStream> stream) {
  if (connections_ >= limits_.connectionsMax) return kj::READY_NOW;  // closed
  ++connections_;
  auto counted = kj::defer([this]() { --connections_; });
  KJ_IF_MAYBE (tls, tls_) {
    return timer_.timeoutAfter(duration(limits_.requestDeadline), tls->wrapServer(kj::mv(stream)))
        .then([this](kj::Own<kj::AsyncIoStream> secured) {
          return server_.listenHttp(kj::mv(secured));
        })
        .attach(kj::mv(counted));
  }
  return server_.listenHttp(kj::mv(stream)).attach(kj::mv(counted));
}

kj::Promise<void> HttpServer::request(kj::HttpMethod method, kj::StringPtr url,
                                      const kj::HttpHeaders&, kj::AsyncInputStream& body,
                                      Response& response) {
  const std::string_view path = view(url).substr(0, view(url).find('?'));
  const auto route = std::find_if(routes_.begin(), routes_.end(),
                                  [&](const HttpRoute& one) { return one.path == path; });
  if (route == routes_.end()) return send(response, notFound());
  const bool reads = method == kj::HttpMethod::GET || method == kj::HttpMethod::HEAD;
  if (route->take ? method != kj::HttpMethod::POST : !reads) {
    const kj::StringPtr allow = route->take ? "POST" : "GET, HEAD";
    return send(response,
                HttpPage{405, "text/plain; charset=utf-8", std::string(view(allow)) + "\n"}, allow);
  }
  if (route->take) return take(*route, body, response);
  return route->page().then(
      [this, &response](HttpPage page) { return send(response, std::move(page)); });
}

kj::Promise<void> HttpServer::take(const HttpRoute& route, kj::AsyncInputStream& body,
                                   Response& response) {
  auto owned = kj::heap<Body>(*this, route);
  Body& into = *owned;
  return timer_.timeoutAfter(duration(limits_.requestDeadline), readBody(into, body))
      .then([&route, &into](Status read) -> kj::Promise<HttpPage> {
        if (!read) return route.refuse(read.error());
        into.release();
        return route.take(std::move(into.text));
      })
      .attach(kj::mv(owned))
      .then([this, &response](HttpPage page) { return send(response, std::move(page)); });
}

kj::Promise<Status> HttpServer::readBody(Body& into, kj::AsyncInputStream& from) {
  const std::size_t at = into.text.size();
  std::size_t piece = std::min(kPiece, into.route.bodyMax - at);
  KJ_IF_MAYBE (length, from.tryGetLength()) {
    if (*length == 0) return ok();
    piece = *length;
  } else if (piece == 0) {
    piece = 1;  // over the limit if there is one more
  }
  if (Status room = into.grow(piece); !room) return room;
  return from.tryRead(into.text.data() + at, piece, piece)
      .then([this, &into, &from, at, piece](std::size_t got) -> kj::Promise<Status> {
        into.text.resize(at + got);
        if (got < piece) return ok();
        return readBody(into, from);
      });
}

HttpPage HttpServer::notFound() const {
  std::string text = "here are";
  for (const HttpRoute& route : routes_) text += " " + route.path;
  return HttpPage{404, "text/plain; charset=utf-8", text + "\n"};
}

kj::Promise<void> HttpServer::send(Response& response, HttpPage page, kj::StringPtr allow) {
  kj::HttpHeaders headers(*headerTable_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, ptr(page.type));
  if (allow != nullptr) headers.set(allow_, allow);
  auto text = kj::heap<std::string>(std::move(page.text));
  auto body = response.send(page.status, statusText(page.status), headers, text->size());
  auto written = body->write(text->data(), text->size()).attach(kj::mv(body), kj::mv(text));
  return timer_.timeoutAfter(duration(limits_.writeDeadline), kj::mv(written));
}

// Headers that are too long, a client that left: its connection is closed, and nobody needs a log
// line for it, which is what KJ would do.
kj::Promise<void> HttpServer::handleApplicationError(kj::Exception, kj::Maybe<Response&>) {
  return kj::READY_NOW;
}

void HttpServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the HTTP server handles its own failures");
}

}  // namespace qgpu
