#include "services/kubernetes/claims/pci_place.h"

#include <filesystem>
#include <fstream>
#include <regex>

namespace qgpu {

namespace fs = std::filesystem;

PciPlace pciPlaceOf(const std::string& sys, const std::string& bus) {
  static const std::regex address("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  PciPlace place;
  if (!std::regex_match(bus, address)) return place;
  place.bus = bus;
  const fs::path link = fs::path(sys) / "bus/pci/devices" / bus;
  // To "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0".
  std::error_code error;
  for (const fs::path& step : fs::read_symlink(link, error)) {
    if (!step.string().starts_with("pci")) continue;
    place.root = step.string();
    break;
  }
  std::ifstream in(link / "numa_node");
  if (std::int64_t node = -1; in >> node && node >= 0 && node <= UINT32_MAX) {
    place.numaNode = static_cast<std::uint32_t>(node);
  }
  return place;
}

}  // namespace qgpu
