#include "services/api/rpc/rpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "services/api/commands/schema_names.h"
#include "services/api/rpc/node_service.h"
#include "services/api/rpc/paced_stream.h"
#include "services/base/net/dial.h"

namespace qgpu {
namespace {

constexpr auto kAcceptPause = 100 * kj::MILLISECONDS;
constexpr int kNestingMax = 16;
constexpr std::uint32_t kNobody = 65534;
constexpr std::size_t kNameMax = 64;  // bytes of a certificate's name that go into the audit

// One peer's connection; the RPC system before the stream that it reads from.
struct Conversation {
  Conversation(kj::Own<kj::AsyncIoStream> inner, RpcSession& session,
               capnp::Capability::Client service)
      : stream(kj::mv(inner), session.timer, session.limits.writeDeadline,
               [held = kj::addRef(session)]() mutable { held->close(); }),
        network(stream, capnp::rpc::twoparty::Side::SERVER, options(session)),
        system(capnp::makeRpcServer(network, kj::mv(service))) {
    const RpcLimits& limits = session.limits;
    system.setFlowLimit(session.trusted() ? limits.trustedFlowWordsMax : limits.flowWordsMax);
  }
  static capnp::ReaderOptions options(const RpcSession& session) {
    const RpcLimits& limits = session.limits;
    return {session.trusted() ? limits.trustedWordsMax : limits.messageWordsMax, kNestingMax};
  }
  PacedStream stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> system;
};

// A host that vanished without a word is noticed within a minute or so.
void keepAlive(kj::AsyncIoStream& stream) {
  const auto set = [&stream](int level, int option, int value) {
    stream.setsockopt(level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

kj::Exception toException(const Error& error) {
  const bool overloaded = error.code == ErrorCode::Overloaded;
  return kj::Exception(overloaded ? kj::Exception::Type::OVERLOADED : kj::Exception::Type::FAILED,
                       __FILE__, __LINE__,
                       kj::str(errorName(error.code), ": ", error.message.c_str()));
}

Error fromException(const kj::Exception& exception) {
  std::string text(view(exception.getDescription()));
  constexpr std::string_view kRemote = "remote exception: ";
  if (text.starts_with(kRemote)) text.erase(0, kRemote.size());
  if (exception.getType() == kj::Exception::Type::DISCONNECTED) {
    const std::string why = tlsExplained(text);
    return fail(ErrorCode::Unavailable,
                "the connection to the daemon is lost" + (why == text ? "" : ": " + why));
  }
  if (exception.getType() == kj::Exception::Type::UNIMPLEMENTED) {
    return fail(ErrorCode::Unsupported,
                "the daemon does not know this call: it is of another "
                "version, or no scheduler at all");
  }
  const std::size_t colon = text.find(": ");
  const std::string name = text.substr(0, colon);
  const ErrorCode code = errorFromName(name);
  if (colon == std::string::npos || name != errorName(code)) {
    return fail(ErrorCode::Internal, std::move(text));
  }
  return fail(code, text.substr(colon + 2));
}

RpcServer::RpcServer(kj::Own<RpcService> service, ChangeRule rule, RpcLimits limits,
                     kj::LowLevelAsyncIoProvider& io, kj::Timer& timer)
    : service_(kj::mv(service)),
      rule_(std::move(rule)),
      limits_(limits),
      io_(io),
      timer_(timer),
      tasks_(*this) {}

RpcServer::RpcServer(NodeActorClient& actor, ChangeRule rule, RpcLimits limits,
                     kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
                     kj::Maybe<KubeletHandlers&> handlers, kj::Maybe<Housekeeping&> keeping)
    : RpcServer(kj::heap<NodeRpc>(actor, handlers, keeping), std::move(rule), limits, io, timer) {}

RpcServer::~RpcServer() noexcept = default;

void RpcServer::serveUnix(UnixListener listener) {
  QGPU_CHECK(!unix_, "one unix socket a server");
  unix_ = std::make_unique<UnixListener>(std::move(listener));
  unixReceiver_ = unix_->receive(io_);
  tasks_.add(accept(*unixReceiver_, Face::Unix));
}

void RpcServer::serveTcp(TcpListener listener, kj::Maybe<kj::TlsContext&> tls) {
  QGPU_CHECK(tcpReceiver_.get() == nullptr, "one TCP socket a server");
  tcpReceiver_ = listener.receive(io_);
  tls_ = tls;
  tasks_.add(accept(*tcpReceiver_, tls == nullptr ? Face::Plain : Face::Tls));
}

kj::Promise<void> RpcServer::accept(kj::ConnectionReceiver& receiver, Face face) {
  return receiver.accept().then(
      [this, &receiver, face](kj::Own<kj::AsyncIoStream> stream) {
        // A peer that goes away is no failure of ours.
        tasks_.add(kj::evalNow([&]() {
                     return serve(kj::mv(stream), face);
                   }).catch_([](kj::Exception&&) {}));
        return accept(receiver, face);
      },
      [this, &receiver, face](kj::Exception&&) {
        // Out of descriptors: who is connected is served on, and somebody may leave.
        return timer_.afterDelay(kAcceptPause).then([this, &receiver, face]() {
          return accept(receiver, face);
        });
      });
}

bool RpcServer::full(bool mayChange) const {
  return connections_ >= limits_.connectionsMax - (mayChange ? 0 : limits_.connectionsReserved);
}

kj::Own<RpcSession> RpcServer::newSession(Peer peer, Face face, CertificateOwner owner) {
  return kj::refcounted<RpcSession>(timer_, limits_, std::move(peer), face, connections_,
                                    std::move(owner));
}

// Who finds no place is closed: the peer sees DISCONNECTED.
kj::Promise<void> RpcServer::serve(kj::Own<kj::AsyncIoStream> stream, Face face) {
  if (face == Face::Unix) {
    const Result<PeerIds> ids = peerIds(*stream);
    if (!ids) return kj::READY_NOW;
    Peer peer = rule_.peer(*ids);
    if (full(peer.mayChange)) return kj::READY_NOW;
    return converse(kj::mv(stream), newSession(std::move(peer), face));
  }
  if (full(false)) return kj::READY_NOW;
  keepAlive(*stream);
  if (face == Face::Tls) return shakeHands(kj::mv(stream));
  return converse(kj::mv(stream), newSession(Peer{kNobody, 0, false, {}}, face));
}

// Counts as a connection from the start, so that a flood of handshakes is bounded as well.
kj::Promise<void> RpcServer::shakeHands(kj::Own<kj::AsyncIoStream> stream) {
  ++connections_;
  auto counted = kj::defer([this]() { --connections_; });
  kj::AuthenticatedStream raw{kj::mv(stream), kj::UnknownPeerIdentity::newInstance()};
  auto shaken = KJ_ASSERT_NONNULL(tls_).wrapServer(kj::mv(raw));
  return timer_.timeoutAfter(limits_.handshakeDeadline.value * kj::NANOSECONDS, kj::mv(shaken))
      .then([this,
             counted = kj::mv(counted)](kj::AuthenticatedStream peer) mutable -> kj::Promise<void> {
        auto& identity = kj::downcast<kj::TlsPeerIdentity>(*peer.peerIdentity);
        if (!identity.hasCertificate()) return kj::READY_NOW;
        { auto gone = kj::mv(counted); }
        CertificateOwner owner = ownerOf(identity);
        Peer who{kNobody, 0, owner.mayChange(), owner.name.substr(0, kNameMax)};
        return converse(kj::mv(peer.stream),
                        newSession(std::move(who), Face::Tls, std::move(owner)));
      });
}

kj::Promise<void> RpcServer::converse(kj::Own<kj::AsyncIoStream> stream,
                                      kj::Own<RpcSession> session) {
  auto closed = session->whenClosed().then(
      [this]() { return timer_.afterDelay(limits_.goodbye.value * kj::NANOSECONDS); });
  auto talk =
      kj::heap<Conversation>(kj::mv(stream), *session, service_->serve(kj::addRef(*session)));
  auto over = talk->network.onDisconnect().exclusiveJoin(kj::mv(closed));
  auto counted = kj::defer([session = kj::mv(session)]() mutable { session->countElsewhere(); });
  return over.attach(kj::mv(talk), kj::mv(counted));
}

void RpcServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the RPC server handles its own failures");
}

}  // namespace qgpu
