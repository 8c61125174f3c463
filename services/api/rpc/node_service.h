#pragma once
// The Node interface of schema/node.capnp: calls become requests of a NodeDoor in the name of the
// connection's peer.

#include "schema/node.capnp.h"
#include "services/admin/housekeeping.h"
#include "services/admin/node_door.h"
#include "services/rpc/rpc_session.h"

namespace qgpu {

// Gives connections their KubeletDesk, where this node serves a kubelet.
class KubeletDesks {
 public:
  virtual schema::KubeletDesk::Client serve(kj::Own<RpcSession> session) = 0;

 protected:
  ~KubeletDesks() = default;
};

class NodeRpc final : public RpcService {
 public:
  // These outlive every connection.
  explicit NodeRpc(NodeDoor& door, kj::Maybe<KubeletDesks&> desks = nullptr,
                   kj::Maybe<Housekeeping&> keeping = nullptr)
      : door_(door), desks_(desks), keeping_(keeping) {}
  capnp::Capability::Client serve(kj::Own<RpcSession> session) override;

 private:
  NodeDoor& door_;
  kj::Maybe<KubeletDesks&> desks_;
  kj::Maybe<Housekeeping&> keeping_;
};

}  // namespace qgpu
