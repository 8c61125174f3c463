#pragma once
// Whose devices these are, as kubelet's PodResources says: the exact answer to the question that
// Allocate leaves open. A device belongs to one pod at a time, so a set of ids names one container,
// or none that kubelet tells of; the closest one is never good enough.

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/kubelet_plugin/device_ids.h"

namespace qgpu {

struct ContainerName {
  std::string nameSpace;
  std::string pod;
  std::string container;
  auto operator<=>(const ContainerName&) const = default;
  std::string text() const { return nameSpace + "/" + pod + "/" + container; }
};

// The devices of ours that kubelet gave to one container; ids sorted, without repetition.
struct ContainerDevices {
  ContainerName name;
  std::map<Resource, std::vector<std::string>> ids;
};

// Sorted, each once: ids come in any order, and in several parts since 1.21.
std::vector<std::string> sortedIds(std::vector<std::string> ids);

// The container that has exactly these. NotFound: kubelet lists none; Conflict: it lists several,
// or one that has only some of them. Both say what was seen.
Result<const ContainerDevices*> ownerOf(const std::vector<ContainerDevices>& listed,
                                        Resource resource, const std::vector<std::string>& ids);

}  // namespace qgpu
