#pragma once
// Records in words, for a person who is told that two of them are not the same.

#include <string>

#include "schema/recording.capnp.h"

namespace qgpu {

// "sends clusterReply.assigned to actor 3".
std::string inWords(schema::Recorded::Reader record);
// What a message is: "clusterRequest.submit".
std::string kindOf(schema::Envelope::Reader message);
// Of two that are not the same, bytes for bytes: the first field that differs, and its values.
std::string differenceOf(schema::Recorded::Reader recorded, schema::Recorded::Reader now);

}  // namespace qgpu
