#include "services/cards/device_nodes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "runtime/config.h"

namespace qgpu {

void addDisplayNodes(const std::string& root, const std::string& bus, std::uint32_t card,
                     std::vector<DeviceNode>& to) {
  std::error_code error;
  const std::string drm = root + "/sys/bus/pci/devices/" + bus + "/drm";
  for (const auto& entry : std::filesystem::directory_iterator(drm, error)) {
    std::ifstream file(entry.path() / "dev");
    unsigned major = 0, minor = 0;
    char colon = 0;
    if (file >> major >> colon >> minor) to.push_back({makedev(major, minor), card});
  }
}

unsigned characterMajor(const std::string& root, const std::string& driver) {
  std::ifstream devices(root + "/proc/devices");
  unsigned major = 0;
  for (std::string line; std::getline(devices, line) && !line.starts_with("Block devices");) {
    std::istringstream words(line);  // "MAJOR NAME", below two headings
    if (std::string name; words >> major >> name && name == driver) return major;
  }
  return 0;
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
