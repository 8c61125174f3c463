#pragma once
// The one HTTP server of the daemons: routes that are read (/metrics, /healthz) and routes that
// take a body (the extender's verbs, the admission webhook), on loopback or, with a TLS context,
// anywhere. What is asked has a bounded cost: connections, bytes of bodies under way, the time to
// send a request, to take an answer and between two requests have limits, so that slow or broken
// clients cost their own connection only (C7). Where all places are taken the connection that has
// been idle longest gives way to a new one, so that nobody keeps others out by doing nothing.

#include <cstdint>
#include <functional>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/units.h"
#include "services/base/net/listen.h"

namespace qgpu {

// What a route may look at beside its path, as the client wrote it; empty: it wrote none.
struct HttpAsked {
  std::string query;  // behind '?', encoded
  std::string host{};
  std::string origin{};
  std::string fetchSite{};  // Sec-Fetch-Site: a browser's word on whose page asks
  std::string authorization{};
};

struct HttpPage {
  kj::uint status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string text{};
  std::vector<std::pair<std::string, std::string>> headers{};  // besides the type
};

struct HttpRoute {
  using Read = std::function<kj::Promise<HttpPage>()>;
  using Answer = std::function<kj::Promise<HttpPage>(const HttpAsked& asked)>;
  using Take = std::function<kj::Promise<HttpPage>(std::string body)>;
  using Refuse = std::function<HttpPage(const Error&)>;
  using Knows = std::function<bool(std::string_view word)>;

  // Answers GET and HEAD. `page` never fails, nor does `take` below.
  static HttpRoute get(std::string path, Read page);
  // The same for a page that depends on how it was asked for; `asked` lives until it is there.
  static HttpRoute query(std::string path, Answer page);
  // Answers POST with a body of at most `bodyMax` bytes. `refuse`: the page for a body that is too
  // large (InvalidArgument), or came while too much was under way (Overloaded); without it these
  // are status 413 and 503.
  static HttpRoute post(std::string path, std::size_t bodyMax, Take take, Refuse refuse = nullptr);

  // The same below `path`, which ends with '/', for who names a word behind it that `knows` knows;
  // whoever names another one is told that there is no such path, and no body of theirs is taken.
  static HttpRoute postBelow(std::string path, Knows knows, std::size_t bodyMax, Take take);

  std::string path;
  Knows knows;  // null: the path alone
  std::size_t bodyMax = 0;
  Answer page;
  Take take;
  Refuse refuse;
};

struct HttpLimits {
  std::size_t connectionsMax = 32;
  std::size_t bodiesMax = std::size_t{1} << 20;  // bytes of all bodies that are being taken
  Nanos requestDeadline = seconds(10);           // headers, and the body after them
  Nanos idleDeadline = seconds(60);              // between requests of one connection
  Nanos writeDeadline = seconds(30);
  // So long a client may take to send a body or to take an answer before its connection, too,
  // gives way where none is idle.
  Nanos patience = seconds(1);
};

class HttpServer final : private kj::HttpServerErrorHandler, private kj::TaskSet::ErrorHandler {
 public:
  // `io`, `timer` and what the routes use outlive the server, which serves until it is destroyed.
  // With `tls` every connection begins with its handshake; the context outlives the server too.
  HttpServer(std::vector<HttpRoute> routes, HttpLimits limits, kj::LowLevelAsyncIoProvider& io,
             kj::Timer& timer, TcpListener listener, kj::Maybe<kj::TlsContext&> tls = nullptr);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() noexcept;

  // Of connections from now on, where there is TLS at all: a certificate was renewed. Those that
  // are open keep theirs, so the old context lives on until the server ends.
  void setTls(kj::TlsContext& tls) {
    if (tls_ != nullptr) tls_ = tls;
  }

  // Where it listens, with the real port.
  const std::string& address() const { return listener_.address(); }
  std::size_t connections() const { return connections_; }
  std::size_t bodyBytes() const { return bodyBytes_; }

 private:
  class Connection;
  struct HeaderIds {
    kj::HttpHeaderId allow, origin, fetchSite, authorization;
  };

  static kj::Own<kj::HttpHeaderTable> headerTable(HeaderIds& ids);
  HttpAsked asked(kj::StringPtr url, const kj::HttpHeaders& headers) const;
  kj::Promise<void> accept();
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream);
  bool makeRoom();
  const HttpRoute* find(std::string_view path) const;
  HttpPage notFound() const;
  kj::Promise<void> handleApplicationError(kj::Exception exception,
                                           kj::Maybe<kj::HttpService::Response&> response) override;
  void taskFailed(kj::Exception&& exception) override;

  const std::vector<HttpRoute> routes_;
  const HttpLimits limits_;
  kj::Timer& timer_;
  TcpListener listener_;
  kj::Maybe<kj::TlsContext&> tls_;
  HeaderIds ids_;  // before the table, which makes them
  kj::Own<kj::HttpHeaderTable> headerTable_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  std::size_t connections_ = 0;
  std::size_t bodyBytes_ = 0;
  std::list<Connection*> waiting_;  // for their clients, the one that has waited longest first
  kj::TaskSet tasks_;               // last: its connections use everything above
};

}  // namespace qgpu
