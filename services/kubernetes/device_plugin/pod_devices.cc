#include "services/kubernetes/device_plugin/pod_devices.h"

#include <algorithm>
#include <utility>

namespace qgpu {
namespace {

bool share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&b](const std::string& id) {
    return std::binary_search(b.begin(), b.end(), id);
  });
}

bool samePod(const ContainerName& a, const ContainerName& b) {
  return a.nameSpace == b.nameSpace && a.pod == b.pod;
}

std::string describe(Resource resource, const std::vector<std::string>& ids) {
  return std::to_string(ids.size()) + " device(s) of " + resourceName(resource) +
         (ids.empty() ? "" : " (" + ids.front() + (ids.size() > 1 ? ", ...)" : ")"));
}

}  // namespace

std::vector<std::string> countedCards(const std::vector<PluginCard>& cards,
                                      const std::vector<Resource>& resources, MemoryUnit unit,
                                      const CountedDevices& counted) {
  std::vector<std::string> all;
  for (const PluginCard& card : cards) {
    const bool whole = std::all_of(resources.begin(), resources.end(), [&](Resource resource) {
      const auto devices = devicesOf({card}, resource, unit);
      const auto known = counted.find(resource);
      if (!devices || known == counted.end()) return false;
      return std::all_of(devices->begin(), devices->end(), [&](const Device& device) {
        return std::binary_search(known->second.begin(), known->second.end(), device.id);
      });
    });
    if (card.healthy && whole) all.push_back(card.id);
  }
  return all;
}

std::vector<std::string> sortedIds(std::vector<std::string> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<DevicesOwner> ownerOf(const std::vector<ContainerDevices>& listed, Resource resource,
                             const std::vector<std::string>& ids) {
  const std::vector<std::string> wanted = sortedIds(ids);
  const ContainerDevices* owner = nullptr;
  const ContainerDevices* partly = nullptr;
  for (const ContainerDevices& container : listed) {
    const auto has = container.ids.find(resource);
    if (has == container.ids.end() || !share(wanted, has->second)) continue;
    const ContainerDevices*& before = has->second == wanted ? owner : partly;
    const bool another =
        before != nullptr && (has->second == wanted || !samePod(before->name, container.name));
    if (another) {
      return fail(ErrorCode::Conflict, "kubelet says that " + describe(resource, wanted) +
                                           " belong to " + before->name.text() + " and to " +
                                           container.name.text());
    }
    before = &container;
  }
  if (owner != nullptr) {
    DevicesOwner found{owner->name, {}};
    for (const auto& [of, all] : owner->ids) found.counts[of] = all.size();
    return found;
  }
  if (partly != nullptr) {
    return DevicesOwner{{partly->name.nameSpace, partly->name.pod, ""},
                        {{resource, wanted.size()}}};
  }
  return fail(ErrorCode::NotFound,
              "kubelet's PodResources lists no container with " + describe(resource, wanted) +
                  "; of an init container it tells only what a main container of its pod uses too");
}

}  // namespace qgpu
