#include "services/kubernetes/device_plugin/nvidia_nodes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace qgpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCard = "nvidia";  // and its minor number
constexpr std::string_view kShared[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};

bool isNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "name:  value", as the driver's files have it.
std::optional<std::string> valueIn(const std::string& line, std::string_view name) {
  if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ':') return {};
  const std::size_t from = line.find_first_not_of(" \t", name.size() + 1);
  if (from == std::string::npos) return {};
  return line.substr(from, line.find_last_not_of(" \t") + 1 - from);
}

// Minor numbers by UUID.
std::map<std::string, std::string> minorsIn(const std::string& folder) {
  std::map<std::string, std::string> minors;
  std::error_code error;
  for (const auto& card : fs::directory_iterator(folder, error)) {
    std::ifstream in(card.path() / "information");
    std::string uuid;
    std::string minor;
    for (std::string line; std::getline(in, line);) {
      if (const auto value = valueIn(line, "GPU UUID")) uuid = *value;
      if (const auto value = valueIn(line, "Device Minor")) minor = *value;
    }
    if (!uuid.empty() && isNumber(minor)) minors[uuid] = minor;
  }
  return minors;
}

// The nodes that all cards share, and those of cards that `given` takes by their names.
std::vector<std::string> nodesWhere(const std::string& hostRoot,
                                    const std::function<bool(const std::string&)>& given) {
  std::vector<std::string> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(hostRoot + "/dev", error)) {
    const std::string name = entry.path().filename().string();
    const bool shared =
        std::find(std::begin(kShared), std::end(kShared), name) != std::end(kShared);
    const bool card = name.starts_with(kCard) && isNumber(name.substr(kCard.size()));
    if (shared || (card && given(name))) nodes.push_back("/dev/" + name);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace

Result<std::vector<std::string>> nvidiaNodes(const std::string& hostRoot,
                                             const std::vector<std::string>& uuids) {
  // The driver's files are the same for every container, also where the host's are not to be seen.
  const std::string below = "/proc/driver/nvidia/gpus";
  std::error_code error;
  const bool seen = fs::exists(hostRoot + below, error);
  const auto minors = minorsIn(seen ? hostRoot + below : below);
  std::set<std::string> names;
  for (const std::string& uuid : uuids) {
    const auto minor = minors.find(uuid);
    if (minor == minors.end()) {
      return fail(ErrorCode::NotFound,
                  "no file in " + below + " says which node is that of " + uuid);
    }
    names.insert(std::string(kCard) + minor->second);
  }
  return nodesWhere(hostRoot, [&names](const std::string& name) { return names.contains(name); });
}

std::vector<std::string> allNvidiaNodes(const std::string& hostRoot) {
  return nodesWhere(hostRoot, [](const std::string&) { return true; });
}

}  // namespace qgpu
