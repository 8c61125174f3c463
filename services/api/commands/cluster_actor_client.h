#pragma once
// The client to the scheduler actor; see actor_client.h. A submit is answered when its node has
// confirmed it, so that an answer may take as long as the scheduler waits for a node.

#include "services/api/commands/actor_client.h"

namespace qgpu {

// What ActorClient has to know of the scheduler actor: its messages, how it is called in texts for
// people, and how many requests of how long are under way.
struct ClusterApi {
  using Request = schema::ClusterRequest;
  using Reply = schema::ClusterReply;
  static constexpr const char* kWho = "the scheduler";  // in errors: who does not answer
  static constexpr const char* kActor = "scheduler";    // of events that a client makes
  static constexpr const char* kChanged = "a cluster";  // as refusals say
  static ActorClientLimits limits() {
    ActorClientLimits limits;
    limits.outstandingMax = 4'096;  // many of them wait for a node
    limits.reserved = 256;
    limits.deadline = seconds(35);  // beyond the 30 s in which a node has to confirm
    return limits;
  }
  static Request::Builder init(schema::Envelope::Builder message) {
    return message.initClusterRequest();
  }
  static bool isReply(schema::Envelope::Reader message) { return message.isClusterReply(); }
  static Reply::Reader reply(schema::Envelope::Reader message) { return message.getClusterReply(); }
};

// One for each scheduler daemon: admin socket, RPC, web page, metrics and extender ask by it.
using ClusterActorClient = ActorClient<ClusterApi>;
using ClusterAnswer = ClusterActorClient::Answer;
using ClusterFeed = Feed<ClusterApi>;

extern template class ActorClient<ClusterApi>;
extern template class Feed<ClusterApi>;

}  // namespace qgpu
