#pragma once
// What a pod's containers are called as tasks of the scheduler. A task's name and its request id
// have at most 64 bytes; a namespace, a pod and a container may have 63, 253 and 63. Whoever knows
// the pod can build both again, so that extender, bridge and device plugin agree without asking.

#include <optional>
#include <string>
#include <string_view>

namespace qgpu {

inline constexpr std::size_t kPodTaskNameMax = 64;

// "namespace/pod/container" where that fits; else a begin of it, '~' and 16 hex digits of a hash of
// the whole, so that two containers never share a name by being cut. For people and for matching.
std::string podTaskName(std::string_view nameSpace, std::string_view pod,
                        std::string_view container);

// The begin of request ids of containers' tasks on their node.
inline constexpr const char* kPodTasksRequestStart = "pod:";

// The parts of a name that was not shortened.
struct PodTaskParts {
  std::string_view nameSpace;
  std::string_view pod;
  std::string_view container;
};
std::optional<PodTaskParts> podTaskParts(std::string_view name);

// "UID/container#attempt", shortened as names of tasks are. The UID stays whole at its begin. Each
// try to bind the pod is an attempt of its own: a request that was taken back must not be answered
// as if it lived.
std::string podRequestId(std::string_view uid, std::string_view container,
                         std::string_view attempt);
// The UID of the pod whose request this is; empty where it is no pod's.
std::string_view podUidOf(std::string_view requestId);

}  // namespace qgpu
