#include "services/cards/amd/nodes.h"

#include <algorithm>
#include <sys/sysmacros.h>

#include "services/cards/amd/topology.h"

namespace qgpu {
namespace {

constexpr unsigned kDisplayMajor = 226;  // of /dev/dri

}  // namespace

std::vector<DeviceNode> amdCardNodes(const std::vector<Card>& cards, const std::string& root) {
  std::vector<DeviceNode> nodes;
  for (const AmdDevice& device : amdDevices(root + kKfdNodes)) {
    const auto card = std::ranges::find(cards, device.uuid, &Card::id);
    if (card == cards.end()) continue;
    addDisplayNodes(root, device.bus, card->index, nodes);
    const DeviceNode render{makedev(kDisplayMajor, device.renderMinor), card->index};
    if (device.renderMinor != 0 && std::ranges::find(nodes, render) == nodes.end()) {
      nodes.push_back(render);
    }
  }
  const unsigned compute = characterMajor(root, "kfd");
  if (!nodes.empty() && compute != 0) nodes.push_back({makedev(compute, 0), {}});
  return nodes;
}

}  // namespace qgpu
