#pragma once
// What the capabilities of one RPC connection share: who the peer is, what it may use, and the way
// to end it. A service gives each connection its first capability.
//
// A unix socket tells its user. Over TLS a peer showed a certificate of our CA, whose units say
// what it may (certificate.h). A TCP peer without TLS is nobody in particular: it may read and
// watch.

#include <capnp/capability.h>
#include <kj/async-io.h>
#include <kj/timer.h>
#include <string>

#include "runtime/result.h"
#include "services/api/commands/actor_client.h"
#include "services/api/rpc/certificate.h"

namespace qgpu {

// What one server lets its peers cost. Beyond a limit a connection is closed or a call is refused
// as Overloaded.
struct RpcLimits {
  std::size_t connectionsMax = 64;
  std::size_t connectionsReserved = 16;  // of these, only for peers that may change things
  std::size_t callsMax = 64;             // of one connection, under way at once
  std::size_t watchesMax = 4;            // subscriptions of one connection
  std::size_t messageWordsMax = 16 * 1024;
  std::size_t flowWordsMax = 64 * 1024;     // requests of one connection in memory at once
  std::size_t trustedWordsMax = 16 * 1024;  // the same two for who may change or join
  std::size_t trustedFlowWordsMax = 64 * 1024;
  std::size_t largeCallsMax = 2;         // of callsMax, those whose answers may be long lists
  Nanos eventDeadline = seconds(30);     // a watcher that does not take an event is dropped
  Nanos writeDeadline = seconds(60);     // a peer that reads nothing for so long is dropped
  Nanos handshakeDeadline = seconds(5);  // of TLS
  Nanos goodbye = seconds(1);            // from close() to the end, for what was said last
};

// How a peer came in: by the unix socket, over TCP without TLS, over TLS.
enum class Face : std::uint8_t { Unix, Plain, Tls };

// One connection. RpcServer makes it; the connection's capabilities share it, so that it lives
// until the last of them is dropped.
struct RpcSession : public kj::Refcounted {
  RpcSession(kj::Timer& t, const RpcLimits& l, Peer p, Face f, std::size_t& connections,
             CertificateOwner o = {})
      : timer(t),
        limits(l),
        peer(std::move(p)),
        face(f),
        owner(std::move(o)),
        connections_(&connections) {
    ++connections;
  }

  // May have tasks: a user of this machine, or who may change anything. A certificate names no
  // user, so one that only reads has none.
  bool mayOwnTasks() const { return face == Face::Unix || peer.mayChange; }
  // Its messages may be long: trustedWordsMax and trustedFlowWordsMax apply.
  bool trusted() const { return peer.mayChange || owner.mayJoin(); }

  // The connection ends soon; what was said last still leaves. May be called again.
  void close() {
    if (over_.get() != nullptr) over_->fulfill();
  }

  // From now on it is not one of the server's connectionsMax: the caller has a limit of its own.
  void countElsewhere() {
    if (connections_ != nullptr) --*connections_;
    connections_ = nullptr;
  }

  // Done once, by the server: fulfilled by close().
  kj::Promise<void> whenClosed() {
    auto paf = kj::newPromiseAndFulfiller<void>();
    over_ = kj::mv(paf.fulfiller);
    return kj::mv(paf.promise);
  }

  kj::Timer& timer;
  const RpcLimits& limits;
  const Peer peer;
  const Face face;
  const CertificateOwner owner;  // of Face::Tls
  std::size_t calls = 0;         // under way
  std::size_t largeCalls = 0;    // of them
  std::size_t watches = 0;       // subscriptions that live
  bool joined = false;           // as a node

 private:
  std::size_t* connections_;  // the server's count, while this is one of them
  kj::Own<kj::PromiseFulfiller<void>> over_;
};

// What a server serves: NodeRpc of a manager, SchedulerRpc of a scheduler.
class RpcService {
 public:
  virtual ~RpcService() noexcept(false) = default;
  // The first capability of a connection; it lives until the connection is over.
  virtual capnp::Capability::Client serve(kj::Own<RpcSession> session) = 0;
};

// The exception that stands for an error on the wire (docs/reference/rpc.md), and the way back for
// clients. What is no error of ours becomes Internal; a lost connection becomes Unavailable.
kj::Exception toException(const Error& error);
Error fromException(const kj::Exception& exception);

}  // namespace qgpu
