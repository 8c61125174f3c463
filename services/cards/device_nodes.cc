#include "services/cards/device_nodes.h"

#include <algorithm>
#include <dirent.h>
#include <fstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "runtime/config.h"
#include "services/nvidia_abi/rm_abi.h"

namespace qgpu {
namespace {

constexpr unsigned kModesetMinor = 254;  // of /dev/nvidia-modeset
constexpr unsigned kUnifiedMinors = 2;   // /dev/nvidia-uvm and nvidia-uvm-tools

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = ::readdir(open)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

// "MAJOR NAME" a line; 0: the driver is not loaded.
unsigned unifiedMajor(const std::string& root) {
  std::ifstream devices(root + "/proc/devices");
  for (std::string line; std::getline(devices, line);) {
    if (line.ends_with(" nvidia-uvm")) return static_cast<unsigned>(std::atoi(line.c_str()));
  }
  return 0;
}

// -1: not told.
int minorOf(const std::string& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Device Minor:")) return std::atoi(line.c_str() + line.rfind(':') + 1);
  }
  return -1;
}

// The numbers of what the display driver made of a PCI device.
void addDisplayNodes(const std::string& drm, std::uint32_t card, std::vector<DeviceNode>& to) {
  for (const std::string& name : namesIn(drm)) {
    std::ifstream file(drm + "/" + name + "/dev");
    unsigned major = 0, minor = 0;
    char colon = 0;
    if (file >> major >> colon >> minor) to.push_back({makedev(major, minor), card});
  }
}

}  // namespace

std::vector<DeviceNode> nvidiaDeviceNodes(const std::vector<Card>& cards, const std::string& root) {
  std::vector<DeviceNode> nodes;
  for (const Card& card : cards) {
    if (card.minor < 0) continue;
    nodes.push_back({makedev(rm::kDeviceMajor, static_cast<unsigned>(card.minor)), card.index});
  }
  if (nodes.empty()) return nodes;
  const std::string gpus = root + "/proc/driver/nvidia/gpus";
  for (const std::string& bus : namesIn(gpus)) {
    const int minor = minorOf(gpus + "/" + bus + "/information");
    const auto card = std::ranges::find_if(
        cards, [minor](const Card& one) { return minor >= 0 && one.minor == minor; });
    if (card == cards.end()) continue;
    addDisplayNodes(root + "/sys/bus/pci/devices/" + bus + "/drm", card->index, nodes);
  }
  nodes.push_back({makedev(rm::kDeviceMajor, rm::kControlMinor), {}});
  nodes.push_back({makedev(rm::kDeviceMajor, kModesetMinor), {}});
  const unsigned unified = unifiedMajor(root);
  for (unsigned minor = 0; unified != 0 && minor < kUnifiedMinors; ++minor) {
    nodes.push_back({makedev(unified, minor), {}});
  }
  return nodes;
}

Result<std::vector<DeviceNode>> parseCardNodes(const std::string& text) {
  std::vector<DeviceNode> nodes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = std::min(one.find(':'), one.size());
    const auto card = parseInteger(one.substr(0, colon), 0, kCardsMax - 1, "card");
    const std::string path = one.substr(std::min(colon + 1, one.size()));
    struct stat facts {};
    if (!card || !path.starts_with('/')) {
      return fail(ErrorCode::InvalidArgument,
                  "\"" + one + "\": CARD:PATH is wanted, as in 0:/dev/dri/renderD128");
    }
    if (::stat(path.c_str(), &facts) != 0 || !S_ISCHR(facts.st_mode)) {
      return fail(ErrorCode::InvalidArgument, path + " is no character device");
    }
    nodes.push_back({facts.st_rdev, static_cast<std::uint32_t>(*card)});
  }
  return nodes;
}

}  // namespace qgpu
