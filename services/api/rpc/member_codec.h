#pragma once
// Words of a member as the network brought them, checked before the scheduler sees them (C7): how
// many, how long, and of a kind that this build knows. What they mean is the scheduler's to judge.

#include "actors/model.h"
#include "runtime/result.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

inline constexpr std::size_t kHeldTasksMax = 16 * 1024;   // in one message
inline constexpr std::size_t kEnvironmentTextMax = 4096;  // bytes of one
inline constexpr std::size_t kSentenceMax = 1024;         // bytes of a message for a person

// `words` is a copy of ours, so that reading it can't fail. InvalidArgument names the field,
// Unsupported a word that only a later version knows.
Status checkMemberMessage(schema::FromMember::Reader words);

// The same checks of what a scheduler said.
Status checkSchedulerMessage(schema::ToMember::Reader words);

}  // namespace qgpu
