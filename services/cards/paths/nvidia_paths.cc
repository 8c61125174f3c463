#include "services/cards/paths/nvidia_paths.h"

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

constexpr const char* kCardFiles = "/proc/driver/nvidia/gpus";

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

std::vector<NvidiaCardFile> nvidiaCardFiles(const std::string& hostRoot) {
  // The driver's files are the same for every container, also where the host's are not to be seen.
  std::error_code error;
  const bool seen = fs::exists(hostRoot + kCardFiles, error);
  std::vector<NvidiaCardFile> cards;
  for (const auto& folder : fs::directory_iterator((seen ? hostRoot : "") + kCardFiles, error)) {
    NvidiaCardFile card;
    card.pciBus = folder.path().filename().string();
    std::ifstream in(folder.path() / "information");
    for (std::string line; std::getline(in, line);) {
      if (const auto value = valueIn(line, "GPU UUID")) card.uuid = *value;
      if (const auto value = valueIn(line, "Device Minor")) card.minor = *value;
    }
    if (!isNumber(card.minor)) card.minor.clear();
    if (!card.uuid.empty()) cards.push_back(std::move(card));
  }
  return cards;
}

Result<std::vector<std::string>> nvidiaNodes(const std::string& hostRoot,
                                             const std::vector<std::string>& uuids) {
  std::map<std::string, std::string> minors;
  for (NvidiaCardFile& card : nvidiaCardFiles(hostRoot)) {
    if (!card.minor.empty()) minors[card.uuid] = std::move(card.minor);
  }
  std::set<std::string> names;
  for (const std::string& uuid : uuids) {
    const auto minor = minors.find(uuid);
    if (minor == minors.end()) {
      return fail(ErrorCode::NotFound,
                  std::string("no file in ") + kCardFiles + " says which node is that of " + uuid);
    }
    names.insert(std::string(kCard) + minor->second);
  }
  return nodesWhere(hostRoot, [&names](const std::string& name) { return names.contains(name); });
}

std::vector<std::string> allNvidiaNodes(const std::string& hostRoot) {
  return nodesWhere(hostRoot, [](const std::string&) { return true; });
}

}  // namespace qgpu
