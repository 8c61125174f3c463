#pragma once
// The device nodes that lead to a card, by their numbers: whoever is kept from these is kept from
// the card. Of NVIDIA's cards: /dev/nvidiaN, the render and display nodes of the same PCI device,
// and what all cards share, /dev/nvidiactl, nvidia-modeset and those of unified memory. Other kinds
// of cards have those that --guard-nodes names.

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "runtime/result.h"
#include "services/cards/cards.h"

namespace qgpu {

struct DeviceNode {
  dev_t device = 0;
  std::optional<std::uint32_t> card;  // by index; none: all cards share it
  auto operator<=>(const DeviceNode&) const = default;
};

// As the kernel tells below `root` (empty but in tests) now: the number of unified memory's nodes
// is known once the driver's second module is loaded.
std::vector<DeviceNode> nvidiaDeviceNodes(const std::vector<Card>& cards, const std::string& root);

// "CARD:PATH,...", as in "0:/dev/dri/renderD128": a card by its index. InvalidArgument: it is not
// so written, or a path is no character device.
Result<std::vector<DeviceNode>> parseCardNodes(const std::string& text);

}  // namespace qgpu
