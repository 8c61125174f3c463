#pragma once
// The Node interface of schema/node.capnp: calls become requests of a NodeActorClient in the name
// of the connection's peer. docs/reference/rpc.md has its methods. What is common to both daemons'
// services, rights, limits and errors, is in rpc_calls.h.

#include "schema/node.capnp.h"
#include "services/api/commands/housekeeping.h"
#include "services/api/commands/node_actor_client.h"
#include "services/api/rpc/rpc_session.h"

namespace qgpu {

// Gives connections their KubeletHandler, where this node serves a kubelet.
class KubeletHandlers {
 public:
  virtual schema::KubeletHandler::Client serve(kj::Own<RpcSession> session) = 0;

 protected:
  ~KubeletHandlers() = default;
};

// For the RpcServer of a manager.
class NodeRpc final : public RpcService {
 public:
  // These outlive every connection. Without `handlers` kubelet() is refused, without `keeping`
  // snapshots and log levels are: Unsupported.
  explicit NodeRpc(NodeActorClient& actor, kj::Maybe<KubeletHandlers&> handlers = nullptr,
                   kj::Maybe<Housekeeping&> keeping = nullptr)
      : actor_(actor), handlers_(handlers), keeping_(keeping) {}
  capnp::Capability::Client serve(kj::Own<RpcSession> session) override;

 private:
  NodeActorClient& actor_;
  kj::Maybe<KubeletHandlers&> handlers_;
  kj::Maybe<Housekeeping&> keeping_;
};

}  // namespace qgpu
