#include "services/api/join/join_server.h"

#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

#include "services/api/commands/render.h"
#include "services/api/commands/schema_names.h"
#include "services/api/rpc/certificate.h"
#include "services/base/net/pem.h"
#include "services/base/text.h"
#include "services/base/wall_time.h"

namespace qgpu {
namespace {

constexpr const char* kJson = "application/json";

std::int64_t unixNow() {
  return unixMsNow() / 1000;
}

HttpLimits joinLimits() {
  HttpLimits limits;
  limits.connectionsMax = 16;
  limits.bodiesMax = 8 * kJoinBodyMax;
  limits.idleDeadline = seconds(5);  // one question is all that anybody has
  limits.writeDeadline = seconds(10);
  return limits;
}

HttpPage refusedPage(const Error& error) {
  const bool wrong = error.code == ErrorCode::InvalidArgument;
  const bool busy = error.code == ErrorCode::Overloaded || error.code == ErrorCode::Unavailable;
  return {wrong ? 400U : busy ? 503U : 403U, kJson, renderError(error) + "\n"};
}

// Empty where none of them has this key.
std::string certificateOf(const std::string& key, const std::string& bundle) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  for (std::size_t at = bundle.find(kBegin); at != std::string::npos;
       at = bundle.find(kBegin, at + 1)) {
    const std::string one = firstCertificate(bundle.substr(at));
    if (!one.empty() && belongTogether(one, key)) return one;
  }
  return "";
}

std::string clockText(std::int64_t behind) {
  const std::int64_t minutes = (behind < 0 ? -behind : behind) / 60;
  return std::to_string(minutes) + " minutes " + (behind < 0 ? "ahead of" : "behind") +
         " the scheduler's";
}

Status checkClock(const JoinAsk& ask, std::int64_t now) {
  const std::int64_t behind = now - std::clamp<std::int64_t>(ask.unix, 0, 2 * now);
  if (behind <= kJoinClockMax && behind >= -kJoinClockMax) return ok();
  return fail(ErrorCode::Conflict, "this machine's clock is " + clockText(behind) +
                                       ", so certificates would not hold: set it (`timedatectl "
                                       "set-ntp true`) and join again; the token was not used");
}

}  // namespace

Result<std::unique_ptr<JoinServer>> JoinServer::open(const Files& files) {
  const std::string named = "--join-ca-key=" + files.caKey + ": ";
  auto key = readSmallFile(named, files.caKey);
  if (!key) return key.error();
  struct stat info {};
  if (::stat(files.caKey.c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(ErrorCode::InvalidArgument, named + "others may use it: chmod 600 " + files.caKey);
  }
  std::unique_ptr<JoinServer> server(new JoinServer(files.tls, std::move(*key)));
  if (Status read = server->tls_.read(); !read) return read.error();
  const auto ca = server->authority();
  if (!ca) return fail(ErrorCode::InvalidArgument, named + ca.error().message);
  if (!signedBy(server->tls_.texts().cert, ca->cert)) {
    return fail(ErrorCode::InvalidArgument, named +
                                                "its CA did not sign --tls-cert=" + files.tls.cert +
                                                ", by which those who join know this scheduler");
  }
  return server;
}

// The CA's certificate may have been renewed since; its key stays.
Result<KeyPair> JoinServer::authority() const {
  std::string cert = certificateOf(caKey_, tls_.texts().ca);
  if (!cert.empty()) return KeyPair{std::move(cert), caKey_};
  return fail(ErrorCode::Unavailable,
              "it is the key of no certificate in --tls-ca=" + tls_.files().ca);
}

void JoinServer::serve(ClusterActorClient& actor, kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                       TcpListener listener, std::uint16_t rpcPort) {
  actor_ = &actor;
  rpcPort_ = rpcPort;
  std::vector<HttpRoute> routes;
  routes.push_back(HttpRoute::post(
      kJoinPath, kJoinBodyMax, [this](std::string body) { return take(std::move(body)); },
      refusedPage));
  http_ = std::make_unique<HttpServer>(std::move(routes), joinLimits(), io, timer,
                                       std::move(listener), tls_.now());
  tls_.follow(timer,
              {[this](kj::TlsContext& now) { http_->setTls(now); }, [](const std::string&) {}});
}

Result<Invitation> JoinServer::invite(const std::string& node) const {
  if (Status named = checkCertificateName(node); !named) return named.error();
  const auto ca = authority();
  if (!ca) return ca.error();
  const TokenWords token{randomHex(kTokenIdDigits / 2), randomHex(kTokenSecretDigits / 2),
                         fingerprintOf(ca->cert)};
  if (token.id.empty() || token.secret.empty()) {
    return fail(ErrorCode::Unavailable, "the kernel gives no random numbers");
  }
  const CertificateOwner own = ownerOf(tls_.texts().cert);
  const std::string& address = http_->address();
  const std::string host = own.names.empty() ? "SCHEDULER" : own.names.front();
  return Invitation{token.id, sha256Hex(token.secret), tokenText(token),
                    host + address.substr(address.rfind(':'))};
}

kj::Promise<HttpPage> JoinServer::take(std::string body) {
  auto ask = readJoinAsk(body);
  if (!ask) return refusedPage(ask.error());
  if (underWay_ >= kAtOnceMax) {
    return refusedPage(fail(ErrorCode::Overloaded, "others join just now: try again in a moment"));
  }
  if (Status clock = checkClock(*ask, unixNow()); !clock) return refusedPage(clock.error());
  auto request = readRequest(ask->request);
  if (!request) return refusedPage(request.error());
  if (request->name != ask->node) {
    return refusedPage(fail(ErrorCode::InvalidArgument,
                            "the certificate request is for another name than the node's"));
  }
  ++underWay_;
  Peer self;
  self.uid = ::geteuid();
  self.pid = static_cast<std::uint32_t>(::getpid());
  self.mayChange = true;
  return actor_
      ->ask(self,
            [&](schema::ClusterRequest::Builder asked) {
              auto shown = asked.initAdmit();
              shown.setId(ptr(ask->id));
              shown.setNode(ptr(ask->node));
              shown.setHash(ptr(sha256Hex(ask->secret)));
            })
      .then(
          [this, ask = std::move(*ask), request = std::move(*request)](Result<ClusterAnswer> got) {
            if (!got) return refusedPage(got.error());
            const auto reply = got->reply();
            if (reply.isDone()) return sign(ask, request);
            const auto failed = reply.getFailed();
            return refusedPage(fail(errorFromName(view(failed.getCode())),
                                    std::string(view(failed.getMessage()))));
          })
      .attach(kj::defer([this]() { --underWay_; }));
}

HttpPage JoinServer::sign(const JoinAsk& ask, const CertificateRequest& request) const {
  const auto ca = authority();
  if (!ca) return refusedPage(ca.error());
  const std::int64_t now = unixNow();
  const auto last = expiryOf(ca->cert);
  CertificateAsk wanted{.use = CertificateAsk::Use::Peer,
                        .name = ask.node,
                        .unit = kNodeUnit,
                        .from = now - kEarlySeconds,
                        .until = std::min(now + kDays * kDaySeconds, last ? *last : now)};
  if (isDnsName(ask.node)) wanted.names.push_back(ask.node);
  const auto cert = newCertificateFor(wanted, request.publicKey, *ca);
  if (!cert) return refusedPage(cert.error());
  return {200, kJson, joinAnswerText({*cert, tls_.texts().ca, rpcPort_}) + "\n"};
}

}  // namespace qgpu
