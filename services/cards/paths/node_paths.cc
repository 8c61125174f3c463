#include "services/cards/paths/node_paths.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "services/cards/amd/topology.h"
#include "services/cards/paths/nvidia_paths.h"

namespace qgpu {
namespace {

using Nodes = std::vector<std::string>;

constexpr const char* kAmdShared = "/dev/kfd";

// Of each card of AMD's that has one, by its id.
std::map<std::string, std::string> amdRenderNodes(const std::string& hostRoot) {
  std::error_code error;
  // The same for every container, also where the host's files are not to be seen.
  const bool seen = std::filesystem::exists(hostRoot + kKfdNodes, error);
  std::map<std::string, std::string> nodes;
  for (const AmdDevice& device : amdDevices((seen ? hostRoot : "") + kKfdNodes)) {
    if (device.renderMinor == 0) continue;
    nodes.emplace(device.uuid, "/dev/dri/renderD" + std::to_string(device.renderMinor));
  }
  return nodes;
}

Result<Nodes> amdNodes(const std::string& hostRoot, const Nodes& ids) {
  const auto known = amdRenderNodes(hostRoot);
  Nodes nodes = {kAmdShared};
  for (const std::string& id : ids) {
    const auto node = known.find(id);
    if (node == known.end()) {
      return fail(ErrorCode::NotFound,
                  "no file in " + std::string(kKfdNodes) + " says which node is that of " + id +
                      "; see what the kernel says of it (dmesg), then start qgpu-manager again");
    }
    nodes.push_back(node->second);
  }
  std::ranges::sort(nodes);
  return nodes;
}

}  // namespace

bool needsNodes(std::string_view backend) {
  return backend == "nvidia" || backend == "amd";
}

Result<Nodes> cardNodes(std::string_view backend, const std::string& hostRoot, const Nodes& ids) {
  if (backend == "nvidia") return nvidiaNodes(hostRoot, ids);
  if (backend == "amd") return amdNodes(hostRoot, ids);
  return Nodes{};
}

Result<std::string> ownNode(std::string_view backend, const std::string& hostRoot,
                            const std::string& id) {
  const Result<Nodes> nodes = cardNodes(backend, hostRoot, {id});
  if (!nodes) return nodes.error();
  if (nodes->empty()) return std::string();
  const Result<Nodes> shared = cardNodes(backend, hostRoot, {});
  const auto own = std::ranges::find_if(
      *nodes, [&](const std::string& node) { return std::ranges::count(*shared, node) == 0; });
  if (own != nodes->end()) return *own;
  return fail(ErrorCode::NotFound, "there is no device node in /dev of card " + id);
}

Nodes knownAmdNodes(const std::string& hostRoot, const Nodes& ids) {
  const auto known = amdRenderNodes(hostRoot);
  Nodes nodes;
  for (const std::string& id : ids) {
    if (const auto node = known.find(id); node != known.end()) nodes.push_back(node->second);
  }
  if (!nodes.empty()) nodes.emplace_back(kAmdShared);
  std::ranges::sort(nodes);
  return nodes;
}

}  // namespace qgpu
