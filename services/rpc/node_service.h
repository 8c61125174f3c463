#pragma once
// The Node interface of schema/node.capnp: calls become requests of a NodeDoor in the name of the
// connection's peer.

#include "schema/node.capnp.h"
#include "services/admin/node_door.h"
#include "services/rpc/rpc_session.h"

namespace qgpu {

class NodeRpc final : public RpcService {
 public:
  // `door` outlives every connection.
  explicit NodeRpc(NodeDoor& door) : door_(door) {}
  capnp::Capability::Client serve(kj::Own<RpcSession> session) override;

 private:
  NodeDoor& door_;
};

}  // namespace qgpu
