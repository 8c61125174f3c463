#pragma once
// The Node interface of schema/node.capnp on a unix socket, and on loopback TCP where it is asked
// for. Each connection knows its peer: unix sockets tell who it is; a TCP peer is nobody in
// particular, so it may read and watch, but neither change nor bind.
//
// Kept here: C7 (messages, calls under way and connections are bounded; what a peer sent is
// copied and checked before a message of the actors is begun), C2, C5. Refusals are exceptions
// FAILED "code: message", a full queue is OVERLOADED, a lost peer DISCONNECTED.

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/timer.h>

#include <memory>
#include <string>

#include "runtime/result.h"
#include "schema/node.capnp.h"
#include "services/admin/listen.h"
#include "services/admin/node_door.h"
#include "services/admin/peer.h"

namespace qgpu {

struct RpcLimits {
  std::size_t connectionsMax = 64;
  std::size_t connectionsReserved = 16;  // of these, only for peers that may change the node
  std::size_t callsMax = 64;             // of one connection, under way at once
  std::size_t watchesMax = 4;            // subscriptions of one connection
  std::size_t messageWordsMax = 16 * 1024;
  std::size_t flowWordsMax = 64 * 1024;  // requests of one connection in memory at once
  Nanos eventDeadline = seconds(30);     // a watcher that does not take an event is dropped
};

// The exception that stands for an error on the wire, and the way back for clients.
kj::Exception toException(const Error& error);
Error fromException(const kj::Exception& exception);

class RpcServer final : private kj::TaskSet::ErrorHandler {
 public:
  // `door`, `io` and `timer` outlive the server, which serves nobody before it is told where.
  RpcServer(NodeDoor& door, ChangeRule rule, RpcLimits limits, kj::LowLevelAsyncIoProvider& io,
            kj::Timer& timer);
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  ~RpcServer() noexcept;

  // Serve from now on, until this is destroyed. Once each at most.
  void serveUnix(UnixListener listener);
  void serveTcp(TcpListener listener);

  std::size_t connections() const { return connections_; }

 private:
  enum class Face : std::uint8_t { Unix, Tcp };

  kj::Promise<void> accept(kj::ConnectionReceiver& receiver, Face face);
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream, Face face);
  void taskFailed(kj::Exception&& exception) override;

  NodeDoor& door_;
  const ChangeRule rule_;
  const RpcLimits limits_;
  kj::LowLevelAsyncIoProvider& io_;
  kj::Timer& timer_;
  std::unique_ptr<UnixListener> unix_;
  kj::Own<kj::ConnectionReceiver> unixReceiver_;
  kj::Own<kj::ConnectionReceiver> tcpReceiver_;
  std::size_t connections_ = 0;
  kj::TaskSet tasks_;  // last: its connections use everything above
};

}  // namespace qgpu
