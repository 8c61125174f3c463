#pragma once
// The Scheduler interface of schema/scheduler.capnp: calls become requests of a ClusterDoor in the
// name of the connection's peer, and managers join through Links.
//
// Who may what: everybody reads. Who is known (unix socket, TLS) submits tasks, and deletes those
// of its own user; who may change things does everything. Over TCP without TLS, which is loopback
// unless --insecure was said, managers may join: whoever must not trust the users of the
// scheduler's machine gives certificates.

#include "schema/scheduler.capnp.h"
#include "services/admin/cluster_door.h"
#include "services/admin/housekeeping.h"
#include "services/rpc/links.h"
#include "services/rpc/rpc_session.h"

namespace qgpu {

class SchedulerRpc final : public RpcService {
 public:
  // These outlive every connection.
  SchedulerRpc(ClusterDoor& door, Links& links, Housekeeping& keeping)
      : door_(door), links_(links), keeping_(keeping) {}
  capnp::Capability::Client serve(kj::Own<RpcSession> session) override;

  // For the RpcServer of a scheduler: many calls under way, long words of nodes.
  static RpcLimits limits();

 private:
  ClusterDoor& door_;
  Links& links_;
  Housekeeping& keeping_;
};

}  // namespace qgpu
