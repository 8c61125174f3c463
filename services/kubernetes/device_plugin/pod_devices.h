#pragma once
// Whose devices these are, as kubelet's PodResources says: the exact answer to the question that
// Allocate leaves open. A device belongs to one pod at a time, so a set of ids names one container.
// Of init containers kubelet does not tell, but their devices are used again by the containers of
// their pod after them: a set that is none of a listed container and has devices of one is an init
// container's of that pod. The closest one is never good enough.

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/kubernetes/device_plugin/device_ids.h"

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

// The devices of ours that kubelet counts, healthy ones, given to somebody or not.
using CountedDevices = std::map<Resource, std::vector<std::string>>;
// Those of `cards` that kubelet counts every device of, by their ids. `resources`: those that it
// was told of.
std::vector<std::string> countedCards(const std::vector<PluginCard>& cards,
                                      const std::vector<Resource>& resources, MemoryUnit unit,
                                      const CountedDevices& counted);

// Sorted, each once: ids come in any order, and in several parts since 1.21.
std::vector<std::string> sortedIds(std::vector<std::string> ids);

struct DevicesOwner {
  ContainerName name;                      // its container is empty: an init container of this pod
  std::map<Resource, std::size_t> counts;  // of all that it has; of an init container, of this one
};
// Whose devices `ids` are. NotFound: kubelet lists no container with any of them; Conflict: several
// have exactly these, or containers of several pods have some. Both say what was seen.
Result<DevicesOwner> ownerOf(const std::vector<ContainerDevices>& listed, Resource resource,
                             const std::vector<std::string>& ids);

}  // namespace qgpu
