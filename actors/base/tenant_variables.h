#pragma once
// The variables of a tenant's environment that a node and a scheduler may speak of: which cards a
// task got, and what may be told of a node's programs at all. What only the node itself adds, the
// library and its socket, stands in services/api/commands/tenant_environment.h.
//
// A launcher may be root on another machine, so it takes from a node only names that are listed
// here, and no value that could be a path. Library and socket it finds itself.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qgpu {

using Variables = std::vector<std::pair<std::string, std::string>>;  // name, value

// CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, the cards' UUIDs, never an index, which another
// program may count in another way; of AMD's cards ROCR_VISIBLE_DEVICES alone, by which ROCm's
// runtime chooses beneath HIP and OpenCL. Nothing where a card is of another kind.
Variables cardVariables(const std::vector<std::string>& cardIds);

// What a node may say of all of its programs: how PoCL makes its devices, so that a program counts
// them as its manager does (HAZARDS 14).
bool nodeMayGive(std::string_view name, std::string_view value);
// What may be told of one task: that, its token and its cards.
bool taskMayCarry(std::string_view name, std::string_view value);

// NAME=VALUE of each.
std::vector<std::string> assignments(const Variables& variables);

}  // namespace qgpu
