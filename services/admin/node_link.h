#pragma once
// The RequestSink of a daemon: requests leave through an outlet of the loop on which door and node
// actor live.

#include "runtime/dispatcher.h"
#include "services/admin/node_door.h"

namespace qgpu {

class NodeLink final : public RequestSink {
 public:
  // `dispatcher` outlives the link. `door` is the address under which the NodeDoor is registered
  // there (Dispatcher::reserve, then attach), `node` that of the node actor.
  NodeLink(Dispatcher& dispatcher, ActorId door, ActorId node)
      : outlet_(dispatcher, door), node_(node) {}

  SendResult send(Build build) override {
    return outlet_.send(node_, [&](schema::Envelope::Builder envelope) { build(envelope); });
  }

 private:
  Outlet outlet_;
  ActorId node_;
};

}  // namespace qgpu
