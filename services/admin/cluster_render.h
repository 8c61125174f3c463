#pragma once
// Replies of the scheduler as JSON documents, with the field names of the contract. Pure: what it
// is given is all it knows. A task's "state" is what its node last said of it while it is bound,
// else how far its placement is; "place" is always the latter.

#include <string>

#include "schema/cluster.capnp.h"

namespace qgpu {

// {"ok":true,...} of any reply, or {"ok":false,...} of `failed`.
std::string renderClusterReply(schema::ClusterReply::Reader reply);

}  // namespace qgpu
