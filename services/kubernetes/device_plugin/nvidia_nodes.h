#pragma once
// The device nodes through which a container's driver reaches NVIDIA's cards: those of the cards
// given, by the minor number that the driver tells for each UUID, and those that all cards share.
// Cards that are not ours to share, as ones that are split into instances, stay out of containers.

#include <string>
#include <vector>

namespace qgpu {

// Paths "/dev/...", sorted. `hostRoot` (may be empty) is where the host's root lies for us; `dev`
// and `proc/driver/nvidia` below it are read. Where the driver tells no minor for one of the cards:
// the nodes of all that are there.
std::vector<std::string> nvidiaNodes(const std::string& hostRoot,
                                     const std::vector<std::string>& uuids);

}  // namespace qgpu
