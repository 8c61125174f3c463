#include "services/kubernetes/device_plugin/nodes/card_nodes.h"

#include <algorithm>
#include <filesystem>

#include "services/cards/amd/topology.h"
#include "services/kubernetes/device_plugin/nodes/nvidia_nodes.h"

namespace qgpu {
namespace {

using Nodes = std::vector<std::string>;

Result<Nodes> amdNodes(const std::string& hostRoot, const Nodes& ids) {
  std::error_code error;
  // The same for every container, also where the host's files are not to be seen.
  const bool seen = std::filesystem::exists(hostRoot + kKfdNodes, error);
  const std::vector<AmdDevice> devices = amdDevices((seen ? hostRoot : "") + kKfdNodes);
  Nodes nodes = {"/dev/kfd"};
  for (const std::string& id : ids) {
    const auto device =
        std::ranges::find_if(devices, [&id](const AmdDevice& one) { return one.uuid == id; });
    if (device == devices.end() || device->renderMinor == 0) {
      return fail(ErrorCode::NotFound,
                  "no file in " + std::string(kKfdNodes) + " says which node is that of " + id +
                      "; see what the kernel says of it (dmesg), then start qgpu-manager again");
    }
    nodes.push_back("/dev/dri/renderD" + std::to_string(device->renderMinor));
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

}  // namespace qgpu
