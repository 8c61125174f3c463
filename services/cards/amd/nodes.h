#pragma once
// The device nodes of AMD's cards: the render and display nodes of a card's PCI device, and
// /dev/kfd, which all cards share. Who has /dev/kfd alone has no card: the driver takes no memory
// and no queue for one before it was given an open render node of it (AMDKFD_IOC_ACQUIRE_VM).

#include <string>
#include <vector>

#include "services/cards/device_nodes.h"

namespace qgpu {

// Of all these cards, as CardBackend::nodes.
std::vector<DeviceNode> amdCardNodes(const std::vector<Card>& cards, const std::string& root);

}  // namespace qgpu
