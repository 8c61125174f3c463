#include "services/cards/nvidia/nodes.h"

#include <algorithm>
#include <sys/sysmacros.h>

#include "services/cards/paths/nvidia_paths.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu {
namespace {

constexpr unsigned kModesetMinor = 254;  // of /dev/nvidia-modeset
constexpr unsigned kUnifiedMinors = 2;   // /dev/nvidia-uvm and nvidia-uvm-tools

}  // namespace

std::vector<DeviceNode> nvidiaCardNodes(const std::vector<Card>& cards, const std::string& root) {
  std::vector<DeviceNode> nodes;
  for (const Card& card : cards) {
    if (card.minor < 0) continue;
    nodes.push_back({makedev(rm::kDeviceMajor, static_cast<unsigned>(card.minor)), card.index});
  }
  if (nodes.empty()) return nodes;
  for (const NvidiaCardFile& file : nvidiaCardFiles(root)) {
    const auto card = std::ranges::find_if(
        cards, [&](const Card& one) { return std::to_string(one.minor) == file.minor; });
    if (card != cards.end()) addDisplayNodes(root, file.pciBus, card->index, nodes);
  }
  nodes.push_back({makedev(rm::kDeviceMajor, rm::kControlMinor), {}});
  nodes.push_back({makedev(rm::kDeviceMajor, kModesetMinor), {}});
  const unsigned unified = characterMajor(root, "nvidia-uvm");
  for (unsigned one = 0; unified != 0 && one < kUnifiedMinors; ++one) {
    nodes.push_back({makedev(unified, one), {}});
  }
  return nodes;
}

}  // namespace qgpu
