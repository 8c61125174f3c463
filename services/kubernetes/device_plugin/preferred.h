#pragma once
// Which of the free devices kubelet should take, so that a container's devices are of as few cards
// as can be: kubelet's picture then breaks no card that ours keeps whole.

#include <string>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// `size` ids out of `available`, all of `mustInclude` among them. Cards of `mustInclude` come
// first; then the card with the fewest free devices that suffices; where none does, the fullest
// ones. Ties: as `available` has them. InvalidArgument where there are not enough.
Result<std::vector<std::string>> preferredDevices(const std::vector<std::string>& available,
                                                  const std::vector<std::string>& mustInclude,
                                                  std::size_t size);

}  // namespace qgpu
