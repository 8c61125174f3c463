#include "services/rpc/rpc_server.h"

#include "services/admin/words.h"
#include "services/rpc/node_service.h"

namespace qgpu {
namespace {

constexpr auto kAcceptPause = 100 * kj::MILLISECONDS;
constexpr int kNestingMax = 16;

// One peer's connection; the RPC system before the stream that it reads from.
struct Session {
  Session(kj::Own<kj::AsyncIoStream> s, schema::Node::Client node, const RpcLimits& limits)
      : stream(kj::mv(s)),
        network(*stream, capnp::rpc::twoparty::Side::SERVER,
                capnp::ReaderOptions{limits.messageWordsMax, kNestingMax}),
        system(capnp::makeRpcServer(network, kj::mv(node))) {
    system.setFlowLimit(limits.flowWordsMax);
  }
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> system;
};

}  // namespace

kj::Exception toException(const Error& error) {
  const bool overloaded = error.code == ErrorCode::Overloaded;
  return kj::Exception(
      overloaded ? kj::Exception::Type::OVERLOADED : kj::Exception::Type::FAILED, __FILE__,
      __LINE__, kj::str(errorName(error.code), ": ", error.message.c_str()));
}

Error fromException(const kj::Exception& exception) {
  std::string text(view(exception.getDescription()));
  constexpr std::string_view kRemote = "remote exception: ";
  if (text.starts_with(kRemote)) text.erase(0, kRemote.size());
  if (exception.getType() == kj::Exception::Type::DISCONNECTED) {
    return fail(ErrorCode::Unavailable, "the connection to the daemon is lost");
  }
  const std::size_t colon = text.find(": ");
  const std::string name = text.substr(0, colon);
  const ErrorCode code = errorFromName(name);
  if (colon == std::string::npos || name != errorName(code)) {
    return fail(ErrorCode::Internal, std::move(text));
  }
  return fail(code, text.substr(colon + 2));
}

RpcServer::RpcServer(NodeDoor& door, ChangeRule rule, RpcLimits limits,
                     kj::LowLevelAsyncIoProvider& io, kj::Timer& timer)
    : door_(door), rule_(std::move(rule)), limits_(limits), io_(io), timer_(timer), tasks_(*this) {}

RpcServer::~RpcServer() noexcept = default;

void RpcServer::serveUnix(UnixListener listener) {
  QGPU_CHECK(!unix_, "one unix socket a server");
  unix_ = std::make_unique<UnixListener>(std::move(listener));
  unixReceiver_ = unix_->receive(io_);
  tasks_.add(accept(*unixReceiver_, Face::Unix));
}

void RpcServer::serveTcp(TcpListener listener) {
  QGPU_CHECK(tcpReceiver_.get() == nullptr, "one TCP socket a server");
  tcpReceiver_ = listener.receive(io_);
  tasks_.add(accept(*tcpReceiver_, Face::Tcp));
}

kj::Promise<void> RpcServer::accept(kj::ConnectionReceiver& receiver, Face face) {
  return receiver.accept().then(
      [this, &receiver, face](kj::Own<kj::AsyncIoStream> stream) {
        // A peer that goes away is no failure of ours.
        tasks_.add(kj::evalNow([&]() { return serve(kj::mv(stream), face); })
                       .catch_([](kj::Exception&&) {}));
        return accept(receiver, face);
      },
      [this, &receiver, face](kj::Exception&&) {
        // Out of descriptors: who is connected is served on, and somebody may leave.
        return timer_.afterDelay(kAcceptPause).then([this, &receiver, face]() {
          return accept(receiver, face);
        });
      });
}

kj::Promise<void> RpcServer::serve(kj::Own<kj::AsyncIoStream> stream, Face face) {
  constexpr std::uint32_t kNobody = 65534;
  Peer peer{kNobody, 0, false};
  if (face == Face::Unix) {
    const Result<PeerIds> ids = peerIds(*stream);
    if (!ids) return kj::READY_NOW;
    peer = rule_.peer(*ids);
  }
  const std::size_t most =
      limits_.connectionsMax - (peer.mayChange ? 0 : limits_.connectionsReserved);
  if (connections_ >= most) return kj::READY_NOW;  // closed: the peer sees DISCONNECTED
  ++connections_;
  auto counted = kj::defer([this]() { --connections_; });
  auto node = makeNodeService(
      kj::refcounted<RpcSession>(door_, timer_, limits_, peer, face == Face::Unix));
  auto session = kj::heap<Session>(kj::mv(stream), kj::mv(node), limits_);
  auto over = session->network.onDisconnect();
  return over.attach(kj::mv(session), kj::mv(counted));
}

void RpcServer::taskFailed(kj::Exception&&) {
  QGPU_CHECK(false, "every task of the RPC server handles its own failures");
}

}  // namespace qgpu
