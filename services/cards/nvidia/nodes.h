#pragma once
// The device nodes of NVIDIA's cards: /dev/nvidiaN, the render and display nodes of the same PCI
// device, and what all cards share, /dev/nvidiactl, nvidia-modeset and those of unified memory. The
// number of the last is known once the driver's second module is loaded.

#include <string>
#include <vector>

#include "services/cards/device_nodes.h"

namespace qgpu {

// Of all these cards, as CardBackend::nodes.
std::vector<DeviceNode> nvidiaCardNodes(const std::vector<Card>& cards, const std::string& root);

}  // namespace qgpu
