#include "services/cards/pci_place.h"

#include <filesystem>
#include <fstream>

namespace qgpu {

namespace fs = std::filesystem;

namespace {

// "0000:3b:00.0", as the kernel writes it.
bool isAddress(const std::string& bus) {
  constexpr std::string_view kForm = "xxxx:xx:xx.o";
  if (bus.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const char c = bus[i];
    const bool octal = c >= '0' && c <= '7';
    const bool hex = octal || c == '8' || c == '9' || (c >= 'a' && c <= 'f');
    if (kForm[i] == 'x' ? !hex : kForm[i] == 'o' ? !octal : c != kForm[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<std::uint32_t> numaNodeOf(const std::string& pciDevices, const std::string& bus) {
  std::ifstream in(fs::path(pciDevices) / bus / "numa_node");
  std::int64_t node = -1;
  if (!(in >> node) || node < 0 || node > INT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(node);
}

PciPlace pciPlaceOf(const std::string& sys, const std::string& bus) {
  PciPlace place;
  if (!isAddress(bus)) return place;
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
