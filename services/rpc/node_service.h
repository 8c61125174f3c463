#pragma once
// One connection's Node capability: calls become requests of a NodeDoor in the name of the
// connection's peer.

#include <kj/timer.h>

#include <memory>

#include "services/rpc/rpc_server.h"

namespace qgpu {

// What the capabilities of one connection share; counted, because they may outlive each other.
struct RpcSession : public kj::Refcounted {
  RpcSession(NodeDoor& d, kj::Timer& t, const RpcLimits& l, Peer p, bool known)
      : door(d), timer(t), limits(l), peer(p), peerKnown(known) {}

  NodeDoor& door;
  kj::Timer& timer;
  const RpcLimits& limits;
  const Peer peer;
  const bool peerKnown;   // false over TCP: reads only
  std::size_t calls = 0;    // under way
  std::size_t watches = 0;  // subscriptions that live
};

// Serves until the last reference of the connection is gone. Door, timer and limits outlive it.
schema::Node::Client makeNodeService(kj::Own<RpcSession> session);

}  // namespace qgpu
