#pragma once
// The device nodes through which a container's driver reaches its cards, by the kind of cards: a
// backend's name, as cards have it (backend.h). NVIDIA's are in nvidia_paths.h.
// AMD's are /dev/kfd, which all cards share, and each card's /dev/dri/renderDN: the driver asks the
// cgroup of devices whether a program may open the latter before it gives it the card. Other kinds
// need none: OpenCL on the CPU, imagined cards.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

bool needsNodes(std::string_view backend);

// Paths "/dev/...", sorted: those that all cards of this kind share, and those of the cards with
// these ids. `hostRoot` (may be empty) is where the host's root lies for us. NotFound: the driver
// does not say which are a card's. Empty where such cards need none.
Result<std::vector<std::string>> cardNodes(std::string_view backend, const std::string& hostRoot,
                                           const std::vector<std::string>& ids);

// The one that leads to the card with this id alone, as /dev/nvidia0 or /dev/dri/renderD128. Empty
// where such cards need none; NotFound as above.
Result<std::string> ownNode(std::string_view backend, const std::string& hostRoot,
                            const std::string& id);

// cardNodes() of those of AMD's cards that the driver knows; empty where it knows none of them.
std::vector<std::string> knownAmdNodes(const std::string& hostRoot,
                                       const std::vector<std::string>& ids);

}  // namespace qgpu
