#include "services/cards/pci_place.h"

#include <filesystem>
#include <fstream>
#include <regex>

namespace qgpu {

namespace fs = std::filesystem;

std::optional<std::uint32_t> numaNodeOf(const std::string& pciDevices, const std::string& bus) {
  std::ifstream in(fs::path(pciDevices) / bus / "numa_node");
  std::int64_t node = -1;
  if (!(in >> node) || node < 0 || node > INT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(node);
}

PciPlace pciPlaceOf(const std::string& sys, const std::string& bus) {
  static const std::regex address("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  PciPlace place;
  if (!std::regex_match(bus, address)) return place;
  place.bus = bus;
  const fs::path devices = fs::path(sys) / "bus/pci/devices";
  // To "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0".
  std::error_code error;
  for (const fs::path& step : fs::read_symlink(devices / bus, error)) {
    if (!step.string().starts_with("pci")) continue;
    place.root = step.string();
    break;
  }
  place.numaNode = numaNodeOf(devices, bus);
  return place;
}

}  // namespace qgpu
