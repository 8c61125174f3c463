#pragma once
// HTTP with the Kubernetes API server: one call, one answer; and watches, line by line. Everything
// above (reflector, binder, leases, bridge) speaks to the server through this alone.
//
// A call never throws and ends within its deadline. What the server refuses comes back with a
// fault that programs match and its own sentence for a person. 429 and 503 with Retry-After are
// obeyed within the deadline; a read whose kept connection turned out to be closed is asked once
// more. Nothing else is repeated here: whoever calls knows whether that is safe.
//
// Kept here: C5 (calls at once, bodies and lines are bounded), C7 (nonsense is Malformed).

#include <cstdint>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <string>
#include <string_view>

#include "runtime/backoff.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "services/kubernetes/client/credentials.h"

namespace qgpu {

enum class ApiFault : std::uint8_t {
  None,
  Unreachable,   // no answer: nobody knows whether it was done
  Unauthorized,  // who we are is not accepted
  Forbidden,     // RBAC or an admission hook; the message names verb and resource
  NotFound,
  AlreadyExists,
  Conflict,
  Gone,         // the version asked for is no longer known: list again
  Refused,      // other 4xx: what was sent is wrong
  Busy,         // 429: not now
  ServerFault,  // 5xx
  Malformed,    // an answer that is none
  TooLarge,     // an answer beyond bodyMax: ask for less
};

struct ApiAnswer {
  ApiFault fault = ApiFault::None;
  unsigned status = 0;  // of HTTP; 0: none came
  std::string body;     // where it went well
  std::string message;  // else
  Nanos retryAfter{0};  // as the server said; 0: it did not

  bool ok() const { return fault == ApiFault::None; }
  // For callers that tell by ErrorCode.
  Error error() const;
};

// A Status object of the API server, as an answer.
ApiAnswer readStatus(unsigned status, const std::string& body);

struct ApiLimits {
  Nanos deadline = seconds(10);        // of a call, retries included
  Nanos connectDeadline = seconds(5);  // of a connection, TLS included
  Nanos idle = seconds(50);            // a kept connection; the server's own limit is longer
  Nanos renewTls = seconds(600);       // certificates are read again after so long
  Nanos renewToken = seconds(30);
  unsigned callsMax = 16;          // at once; more wait within their deadline
  std::size_t bodyMax = 64 << 20;  // bytes of an answer
  std::size_t lineMax = 8 << 20;   // of a watch; the server's objects have 1.5 MiB at most
};

struct ApiCall {
  kj::HttpMethod method = kj::HttpMethod::GET;
  std::string path;  // with its query
  std::string body;
  const char* type = "application/json";
};

inline constexpr const char* kMergePatch = "application/merge-patch+json";
inline constexpr const char* kStrategicPatch = "application/strategic-merge-patch+json";
inline constexpr const char* kJsonPatch = "application/json-patch+json";

// Takes the lines of a watch.
class LineSink {
 public:
  // `line` has simdjson's padding behind it. False ends the watch.
  virtual bool onLine(std::string_view line) = 0;

 protected:
  ~LineSink() = default;
};

class ApiClient {
 public:
  // `network` and `timer` outlive the client, and the client all of its promises. `seed` is of the
  // jitter of retries.
  ApiClient(KubeCredentials credentials, kj::Network& network, kj::Timer& timer, std::uint64_t seed,
            ApiLimits limits = {});
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;
  ~ApiClient() noexcept(false);

  kj::Promise<ApiAnswer> call(ApiCall call);
  kj::Promise<ApiAnswer> get(std::string path) {
    return call(ApiCall{kj::HttpMethod::GET, std::move(path), "", ""});
  }
  // Until the server ends it, which is an answer without a fault, or something breaks. A watch in
  // which nothing arrives for `silence` counts as broken.
  kj::Promise<ApiAnswer> watch(std::string path, LineSink& sink, Nanos silence);

  // Now, if the server answered the last call; else since when it has not, by the client's timer.
  bool reachable() const { return reachable_; }
  kj::TimePoint unreachableSince() const { return unreachableSince_; }

  const KubeCredentials& credentials() const { return credentials_; }
  kj::Timer& timer() { return timer_; }
  std::uint64_t random() { return seeds_.next(); }
  Backoff backoff(Nanos first, Nanos most) { return Backoff(first, most, seeds_.next()); }
  std::uint64_t calls() const { return calls_; }
  std::uint64_t connections() const { return connections_; }  // made so far

 private:
  class Address;
  class Connecting;
  struct Sent;

  kj::Promise<kj::Own<kj::AsyncIoStream>> connect();
  kj::Promise<ApiAnswer> attempt(const ApiCall& call, kj::TimePoint end, int tries);
  kj::Promise<ApiAnswer> send(const ApiCall& call);
  kj::Promise<ApiAnswer> answered(kj::HttpClient::Response response);
  kj::HttpHeaders headers(const ApiCall& call);
  kj::Promise<kj::HttpClient::Response> request(kj::HttpClient& client, const ApiCall& call);
  ApiAnswer failed(const kj::Exception& why) const;
  ApiAnswer heard(ApiAnswer answer);
  const std::string& token();

  const KubeCredentials credentials_;
  kj::Network& network_;
  kj::Timer& timer_;
  const ApiLimits limits_;
  Prng seeds_;
  kj::Own<kj::HttpHeaderTable> table_;
  kj::HttpHeaderId accept_;
  kj::HttpHeaderId authorization_;
  kj::HttpHeaderId agent_;
  kj::HttpHeaderId retryAfter_;
  std::string hostHeader_;
  kj::Maybe<kj::Own<kj::TlsContext>> tls_;
  kj::TimePoint tlsRead_ = kj::origin<kj::TimePoint>();
  std::string token_;
  kj::TimePoint tokenRead_ = kj::origin<kj::TimePoint>();
  bool tokenKnown_ = false;
  bool reachable_ = true;
  kj::TimePoint unreachableSince_ = kj::origin<kj::TimePoint>();
  std::uint64_t calls_ = 0;
  std::uint64_t connections_ = 0;
  kj::Own<kj::NetworkAddress> address_;
  kj::Own<kj::HttpClient> client_;
  kj::Own<kj::HttpClient> limited_;  // of calls; watches last and are not counted
};

// Of a path or query: everything but letters, digits and -._~ as %XX.
std::string urlEscaped(std::string_view text);

}  // namespace qgpu
