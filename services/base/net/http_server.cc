#include "services/base/net/http_server.h"

#include <algorithm>
#include <utility>

#include "services/base/text.h"

namespace qgpu {
namespace {

constexpr auto kAcceptPause = 100 * kj::MILLISECONDS;
constexpr std::size_t kPiece = 64 * 1024;  // of a body whose length is not told
// Of a body that was refused: read on, so that the refusal reaches who still sends.
constexpr std::size_t kGrace = std::size_t{2} << 20;

kj::Duration duration(Nanos time) {
  return time.value * kj::NANOSECONDS;
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
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
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
  return query(std::move(path), [page = std::move(page)](const HttpAsked&) { return page(); });
}

HttpRoute HttpRoute::query(std::string path, Answer page) {
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

HttpRoute HttpRoute::postBelow(std::string path, Knows knows, std::size_t bodyMax, Take take) {
  HttpRoute route = post(std::move(path), bodyMax, std::move(take));
  route.knows = std::move(knows);
  return route;
}

// One client's, from the moment that it is taken. Where it waits for its client it has a place in
// `waiting_`, and may be told to go.
class HttpServer::Connection final : public kj::HttpService {
 public:
  enum class Wait : std::uint8_t { Idle, Busy };  // Busy: a request of it is under way

  Connection(HttpServer& server, kj::Own<kj::PromiseFulfiller<void>> gone)
      : server_(server),
        gone_(kj::mv(gone)),
        http_(server.timer_, *server.headerTable_, *this, settings(server.limits_, server)) {
    ++server_.connections_;
    await(Wait::Idle);
  }
  ~Connection() noexcept(false) { leave(); }

  kj::Promise<void> listen(kj::Own<kj::AsyncIoStream> stream) {
    return http_.listenHttp(kj::mv(stream));
  }
  bool idle() const { return wait_ == Wait::Idle; }
  kj::TimePoint since() const { return since_; }
  // Its place is free from now on, and what it does ends soon.
  void leave() {
    work();
    if (std::exchange(left_, true)) return;
    --server_.connections_;
    gone_->fulfill();
  }

 private:
  struct Body;

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url,
                            const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                            Response& response) override;
  kj::Promise<void> take(const HttpRoute& route, kj::AsyncInputStream& body, Response& response);
  kj::Promise<Status> readBody(Body& into, kj::AsyncInputStream& from);
  kj::Promise<void> send(Response& response, HttpPage page, kj::StringPtr allow = nullptr);
  // For its client, from now on.
  void await(Wait wait) {
    work();
    if (left_) return;
    wait_ = wait;
    since_ = server_.timer_.now();
    place_ = server_.waiting_.insert(server_.waiting_.end(), this);
    waits_ = true;
  }
  // It is our turn.
  void work() {
    if (std::exchange(waits_, false)) server_.waiting_.erase(place_);
  }

  HttpServer& server_;
  kj::Own<kj::PromiseFulfiller<void>> gone_;
  bool left_ = false;
  bool waits_ = false;
  Wait wait_ = Wait::Idle;
  kj::TimePoint since_ = kj::origin<kj::TimePoint>();
  std::list<Connection*>::iterator place_;
  kj::HttpServer http_;
};

// The bytes of one body, which count until they are handed on.
struct HttpServer::Connection::Body {
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
      headerTable_(headerTable(ids_)),
      receiver_(listener_.receive(io)),
      tasks_(*this) {
  tasks_.add(accept());
}

HttpServer::~HttpServer() noexcept = default;

kj::Own<kj::HttpHeaderTable> HttpServer::headerTable(HeaderIds& ids) {
  kj::HttpHeaderTable::Builder builder;
  ids = {builder.add("Allow"), builder.add("Origin"), builder.add("Sec-Fetch-Site"),
         builder.add("Authorization")};
  return builder.build();
}

HttpAsked HttpServer::asked(kj::StringPtr url, const kj::HttpHeaders& headers) const {
  const auto said = [&](const kj::HttpHeaderId& id) {
    return std::string(view(headers.get(id).orDefault("")));
  };
  const std::size_t mark = view(url).find('?');
  const std::string_view query = mark == std::string_view::npos ? "" : view(url).substr(mark + 1);
  return {std::string(query), said(kj::HttpHeaderId::HOST), said(ids_.origin), said(ids_.fetchSite),
          said(ids_.authorization)};
}

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
  if (connections_ >= limits_.connectionsMax && !makeRoom()) return kj::READY_NOW;  // closed
  auto gone = kj::newPromiseAndFulfiller<void>();
  auto owned = kj::heap<Connection>(*this, kj::mv(gone.fulfiller));
  Connection& connection = *owned;
  kj::Promise<void> served = nullptr;
  KJ_IF_MAYBE (tls, tls_) {
    served = timer_.timeoutAfter(duration(limits_.requestDeadline), tls->wrapServer(kj::mv(stream)))
                 .then([&connection](kj::Own<kj::AsyncIoStream> secured) {
                   return connection.listen(kj::mv(secured));
                 });
  } else {
    served = connection.listen(kj::mv(stream));
  }
  return served.exclusiveJoin(kj::mv(gone.promise)).attach(kj::mv(owned));
}

// False where everybody is served, or was until just now.
bool HttpServer::makeRoom() {
  auto one = std::find_if(waiting_.begin(), waiting_.end(),
                          [](const Connection* waits) { return waits->idle(); });
  if (one == waiting_.end()) one = waiting_.begin();
  if (one == waiting_.end()) return false;
  Connection& goes = **one;
  if (!goes.idle() && timer_.now() - goes.since() < duration(limits_.patience)) return false;
  goes.leave();
  return true;
}

const HttpRoute* HttpServer::find(std::string_view path) const {
  const auto route = std::find_if(routes_.begin(), routes_.end(), [&](const HttpRoute& one) {
    if (!one.knows) return one.path == path;
    return path.starts_with(one.path) && one.knows(path.substr(one.path.size()));
  });
  return route == routes_.end() ? nullptr : &*route;
}

kj::Promise<void> HttpServer::Connection::request(kj::HttpMethod method, kj::StringPtr url,
                                                  const kj::HttpHeaders& headers,
                                                  kj::AsyncInputStream& body, Response& response) {
  work();
  kj::Promise<void> done = nullptr;
  const HttpRoute* route = server_.find(view(url).substr(0, view(url).find('?')));
  const bool reads = method == kj::HttpMethod::GET || method == kj::HttpMethod::HEAD;
  if (route == nullptr) {
    done = send(response, server_.notFound());
  } else if (route->take ? method != kj::HttpMethod::POST : !reads) {
    const kj::StringPtr allow = route->take ? "POST" : "GET, HEAD";
    done = send(response,
                HttpPage{405, "text/plain; charset=utf-8", std::string(view(allow)) + "\n"}, allow);
  } else if (route->take) {
    done = take(*route, body, response);
  } else {
    auto asked = kj::heap<HttpAsked>(server_.asked(url, headers));
    done = route->page(*asked).attach(kj::mv(asked)).then([this, &response](HttpPage page) {
      return send(response, std::move(page));
    });
  }
  return done.attach(kj::defer([this]() { await(Wait::Idle); }));
}

kj::Promise<void> HttpServer::Connection::take(const HttpRoute& route, kj::AsyncInputStream& body,
                                               Response& response) {
  auto owned = kj::heap<Body>(server_, route);
  Body& into = *owned;
  await(Wait::Busy);
  return server_.timer_
      .timeoutAfter(duration(server_.limits_.requestDeadline), readBody(into, body))
      .then([this, &route, &into](Status read) -> kj::Promise<HttpPage> {
        work();
        if (!read) return route.refuse(read.error());
        into.release();
        return route.take(std::move(into.text));
      })
      .attach(kj::mv(owned))
      .then([this, &response](HttpPage page) { return send(response, std::move(page)); });
}

kj::Promise<Status> HttpServer::Connection::readBody(Body& into, kj::AsyncInputStream& from) {
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

kj::Promise<void> HttpServer::Connection::send(Response& response, HttpPage page,
                                               kj::StringPtr allow) {
  await(Wait::Busy);
  kj::HttpHeaders headers(*server_.headerTable_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, ptr(page.type));
  for (const auto& [name, value] : page.headers) headers.add(ptr(name), ptr(value));
  if (allow != nullptr) headers.set(server_.ids_.allow, allow);
  auto text = kj::heap<std::string>(std::move(page.text));
  auto body = response.send(page.status, statusText(page.status), headers, text->size());
  auto written = body->write(text->data(), text->size()).attach(kj::mv(body), kj::mv(text));
  return server_.timer_.timeoutAfter(duration(server_.limits_.writeDeadline), kj::mv(written));
}

// Headers that are too long, a client that left: its connection is closed, and nobody needs a log
// line for it, which is what KJ would do.
kj::Promise<void> HttpServer::handleApplicationError(kj::Exception,
                                                     kj::Maybe<kj::HttpService::Response&>) {
  return kj::READY_NOW;
}

void HttpServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the HTTP server handles its own failures");
}

}  // namespace qgpu
