#pragma once
// The pod annotation qgpu.io/assigned: which cards the scheduler chose for which container. Written
// when a pod is bound, read by the manager of its node.
//
//   {"main":["GPU-1"],"sidecar":["GPU-2"]}

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

inline constexpr std::size_t kAssignedContainersMax = 64;
inline constexpr std::size_t kAssignedCardsMax = 64;  // of one container

using AssignedCards = std::map<std::string, std::vector<std::string>>;  // by container

// InvalidArgument where it is not of this form, or too long.
Result<AssignedCards> readAssignedAnnotation(std::string_view json);

}  // namespace qgpu
