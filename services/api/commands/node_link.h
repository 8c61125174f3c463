#pragma once
// The RequestSink of a daemon: requests leave through an outlet of the loop on which client and
// node actor live. In a cluster the scheduler places tasks, so binds go to the member actor, which
// forwards them; everything else goes to the node.

#include <capnp/message.h>

#include "runtime/dispatcher.h"
#include "services/api/commands/node_actor_client.h"

namespace qgpu {

// Adapters of both daemons have one each: the client of an actor, and the ends of links.
class NodeLink final : public RequestSink {
 public:
  // `dispatcher` outlives the link. `actor` is the address under which the NodeActorClient is
  // registered there (Dispatcher::reserve, then attach), `node` that of the node actor, `member`
  // that of the member actor where there is one.
  NodeLink(Dispatcher& dispatcher, ActorId actor, ActorId node, ActorId member = ActorId::kNobody)
      : outlet_(dispatcher, actor), node_(node), member_(member) {}

  // Refused where the mailbox of the actor that the request is for is full.
  SendResult send(Build build) override {
    if (member_ == ActorId::kNobody) {
      return outlet_.send(node_, [&](schema::Envelope::Builder envelope) { build(envelope); });
    }
    capnp::MallocMessageBuilder message;  // whose it is shows only when it is built
    auto built = message.initRoot<schema::Envelope>();
    build(built);
    const schema::Request::Reader request = built.asReader().getRequest();
    return outlet_.send(request.isBind() ? member_ : node_,
                        [&](schema::Envelope::Builder envelope) { envelope.setRequest(request); });
  }

 private:
  Outlet outlet_;
  ActorId node_;
  ActorId member_;
};

}  // namespace qgpu
