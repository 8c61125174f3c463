#pragma once
// Checks of the messages between a scheduler and its members as the network brought them, before an
// actor sees them (C7): how many things they name, how long texts are, and whether this build knows
// their kind. Whether what they say makes sense is decided by the actors.

#include "actors/model.h"
#include "runtime/result.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

inline constexpr std::size_t kHeldTasksMax = 16 * 1024;   // in one message
inline constexpr std::size_t kEnvironmentTextMax = 4096;  // bytes of one
inline constexpr std::size_t kSentenceMax = 1024;         // bytes of a message for a person

// `message` is a copy of ours, so that reading it can't fail. InvalidArgument names the field,
// Unsupported says that only a later version knows this kind of message.
Status checkMemberMessage(schema::FromMember::Reader message);

// The same checks of what a scheduler said.
Status checkSchedulerMessage(schema::ToMember::Reader message);

}  // namespace qgpu
