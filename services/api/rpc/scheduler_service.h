#pragma once
// The Scheduler interface of schema/scheduler.capnp: calls become requests of a ClusterActorClient
// in the name of the connection's peer, and managers join through Links.
//
// Who may what: everybody reads. Users of this machine (unix socket) submit tasks, and delete those
// of their own; who may change things does everything: root, the daemon's user and group qgpu, and
// over TLS a certificate of that role. Who joins as a node: links.h.

#include "schema/scheduler.capnp.h"
#include "services/api/commands/cluster_actor_client.h"
#include "services/api/commands/housekeeping.h"
#include "services/api/rpc/links.h"
#include "services/api/rpc/rpc_session.h"

namespace qgpu {

class SchedulerRpc final : public RpcService {
 public:
  // These outlive every connection.
  SchedulerRpc(ClusterActorClient& actor, Links& links, Housekeeping& keeping)
      : actor_(actor), links_(links), keeping_(keeping) {}
  capnp::Capability::Client serve(kj::Own<RpcSession> session) override;

  // For the RpcServer of a scheduler: many calls under way, long words of nodes.
  static RpcLimits limits();

 private:
  ClusterActorClient& actor_;
  Links& links_;
  Housekeeping& keeping_;
};

}  // namespace qgpu
