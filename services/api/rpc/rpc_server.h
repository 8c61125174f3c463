#pragma once
// An RPC service on a unix socket, and on TCP where it is asked for. Each connection knows its
// peer: unix sockets tell who it is; a TCP peer shows a certificate, which has a role, or is nobody
// in particular, so that it may read and watch, but neither change nor bind.
//
// Kept here: C7 (messages, calls under way and connections are bounded, a peer that does not read
// is not read from; what a peer sent is copied and checked before a message of the actors is
// begun), C2, C5. Refusals are exceptions FAILED "code: message", a full queue is OVERLOADED, a
// lost peer DISCONNECTED.

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/compat/tls.h>
#include <kj/timer.h>
#include <memory>

#include "services/api/commands/node_actor_client.h"
#include "services/api/commands/peer.h"
#include "services/api/rpc/rpc_session.h"
#include "services/base/net/listen.h"

namespace qgpu {

class Housekeeping;
class KubeletHandlers;

// Each daemon has one, on its main loop: made, then told where to serve, destroyed before its
// actor.
class RpcServer final : private kj::TaskSet::ErrorHandler {
 public:
  // `io` and `timer` outlive the server, which serves nobody before it is told where.
  RpcServer(kj::Own<RpcService> service, ChangeRule rule, RpcLimits limits,
            kj::LowLevelAsyncIoProvider& io, kj::Timer& timer);
  // Of a node; `actor` and `handlers` outlive the server too.
  RpcServer(NodeActorClient& actor, ChangeRule rule, RpcLimits limits,
            kj::LowLevelAsyncIoProvider& io, kj::Timer& timer,
            kj::Maybe<KubeletHandlers&> handlers = nullptr,
            kj::Maybe<Housekeeping&> keeping = nullptr);
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  ~RpcServer() noexcept;

  // Serve from now on, until this is destroyed. Once each at most. `tls` outlives the server.
  void serveUnix(UnixListener listener);
  void serveTcp(TcpListener listener, kj::Maybe<kj::TlsContext&> tls = nullptr);
  // Connections from now on begin with this one; it outlives the server, as those before it.
  void setTls(kj::TlsContext& tls) { tls_ = tls; }

  // Connections that this counts; those that joined as nodes are counted by their links.
  std::size_t connections() const { return connections_; }

 private:
  using Accepted = kj::Promise<void>;

  Accepted accept(kj::ConnectionReceiver& receiver, Face face);
  Accepted serve(kj::Own<kj::AsyncIoStream> stream, Face face);
  Accepted shakeHands(kj::Own<kj::AsyncIoStream> stream);
  Accepted converse(kj::Own<kj::AsyncIoStream> stream, kj::Own<RpcSession> session);
  bool full(bool mayChange) const;
  kj::Own<RpcSession> newSession(Peer peer, Face face, CertificateOwner owner = {});
  void taskFailed(kj::Exception&& exception) override;

  kj::Own<RpcService> service_;
  ChangeRule rule_;
  const RpcLimits limits_;
  kj::LowLevelAsyncIoProvider& io_;
  kj::Timer& timer_;
  std::unique_ptr<UnixListener> unix_;
  kj::Own<kj::ConnectionReceiver> unixReceiver_;
  kj::Own<kj::ConnectionReceiver> tcpReceiver_;
  kj::Maybe<kj::TlsContext&> tls_;
  std::size_t connections_ = 0;
  kj::TaskSet tasks_;  // last: its connections use everything above
};

}  // namespace qgpu
