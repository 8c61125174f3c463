#pragma once
// The device nodes that lead to a card, by their numbers: whoever is kept from these is kept from
// the card. Each kind of cards knows its own (backend.h), beside which there are those that
// --guard-nodes names.

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

// Of all these cards, as the kernel tells below `root` (empty but in tests) now. A driver's part
// that is loaded later may bring more.
std::vector<DeviceNode> deviceNodes(const std::vector<Card>& cards, const std::string& root);

// For kinds of cards: the display and render nodes of the PCI device called `bus`, as in
// "0000:83:00.0", for this card.
void addDisplayNodes(const std::string& root, const std::string& bus, std::uint32_t card,
                     std::vector<DeviceNode>& to);
// And the major number that a driver has for its character devices; 0: it is not loaded.
unsigned characterMajor(const std::string& root, const std::string& driver);

// "CARD:PATH,...", as in "0:/dev/dri/renderD128": a card by its index. InvalidArgument: it is not
// so written, or a path is no character device.
Result<std::vector<DeviceNode>> parseCardNodes(const std::string& text);

}  // namespace qgpu
