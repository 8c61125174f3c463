#pragma once
// What stands in the environment of a tenant's program, for every way in which one is started: by
// `qgpuctl run`, by a launcher that submitted a task, by kubelet. Each part is known at another
// moment: what the node's programs share, which door and token are the task's, and which cards it
// got. Whoever starts programs joins the parts that it has.
//
// A launcher may be root on another machine, so it takes from a node only names that are listed
// here, and no value that could be a path. Library and socket it finds itself.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qgpu {

using Variables = std::vector<std::pair<std::string, std::string>>;  // name, value

// Of a node.
struct TenantEnvironment {
  std::string library;  // path of libqgpu.so, as the program sees it; may be empty
  Variables extras;     // POCL_* pairs of an OpenCL card
};

// LD_PRELOAD and OPENCL_LAYERS of the library, and the extras: the same for every tenant.
Variables nodeVariables(const TenantEnvironment& node);
// QGPU_SOCKET and QGPU_TOKEN.
Variables doorVariables(const std::string& attachSocket, const std::string& token);
// CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, the cards' UUIDs, never an index, which another
// program may count in another way. Nothing where a card is none of NVIDIA's.
Variables cardVariables(const std::vector<std::string>& cardIds);

// What a node may say of all of its programs: how PoCL makes its devices, so that a program counts
// them as its manager does (HAZARDS 14).
bool nodeMayGive(std::string_view name, std::string_view value);
// What may be told of one task: that, its token and its cards.
bool taskMayCarry(std::string_view name, std::string_view value);

// NAME=VALUE of each.
std::vector<std::string> assignments(const Variables& variables);

}  // namespace qgpu
