#pragma once
// The client to the node actor of a manager; see actor_client.h.

#include "services/api/commands/actor_client.h"

namespace qgpu {

struct NodeApi {
  using Request = schema::Request;
  using Reply = schema::Reply;
  static constexpr const char* kWho = "the node";
  static constexpr const char* kActor = "node";      // of events that a client makes
  static constexpr const char* kChanged = "a node";  // as refusals say
  static ActorClientLimits limits() { return {}; }
  static Request::Builder init(schema::Envelope::Builder message) { return message.initRequest(); }
  static bool isReply(schema::Envelope::Reader message) { return message.isReply(); }
  static Reply::Reader reply(schema::Envelope::Reader message) { return message.getReply(); }
};

using NodeActorClient = ActorClient<NodeApi>;
using Answer = NodeActorClient::Answer;
using EventFeed = Feed<NodeApi>;

extern template class ActorClient<NodeApi>;
extern template class Feed<NodeApi>;

}  // namespace qgpu
