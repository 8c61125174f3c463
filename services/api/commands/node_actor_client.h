#pragma once
// The door to the node actor of a manager; see door.h.

#include "services/admin/door.h"

namespace qgpu {

struct NodeWords {
  using Request = schema::Request;
  using Reply = schema::Reply;
  static constexpr const char* kWho = "the node";
  static constexpr const char* kActor = "node";        // of events that a door makes
  static constexpr const char* kChanged = "a node";    // as refusals say
  static DoorLimits limits() { return {}; }
  static Request::Builder init(schema::Envelope::Builder message) { return message.initRequest(); }
  static bool isReply(schema::Envelope::Reader message) { return message.isReply(); }
  static Reply::Reader reply(schema::Envelope::Reader message) { return message.getReply(); }
};

using NodeDoor = Door<NodeWords>;
using Answer = NodeDoor::Answer;
using EventFeed = Feed<NodeWords>;

extern template class Door<NodeWords>;
extern template class Feed<NodeWords>;

}  // namespace qgpu
