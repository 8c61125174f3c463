#include "services/kubelet_plugin/pod_devices.h"

#include <algorithm>
#include <utility>

namespace qgpu {
namespace {

bool share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&b](const std::string& id) {
    return std::binary_search(b.begin(), b.end(), id);
  });
}

std::string describe(Resource resource, const std::vector<std::string>& ids) {
  return std::to_string(ids.size()) + " device(s) of " + resourceName(resource) +
         (ids.empty() ? "" : " (" + ids.front() + (ids.size() > 1 ? ", ...)" : ")"));
}

}  // namespace

std::vector<std::string> sortedIds(std::vector<std::string> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<const ContainerDevices*> ownerOf(const std::vector<ContainerDevices>& listed,
                                        Resource resource, const std::vector<std::string>& ids) {
  const std::vector<std::string> wanted = sortedIds(ids);
  const ContainerDevices* owner = nullptr;
  const ContainerDevices* partly = nullptr;
  for (const ContainerDevices& container : listed) {
    const auto has = container.ids.find(resource);
    if (has == container.ids.end()) continue;
    if (has->second != wanted) {
      if (share(wanted, has->second)) partly = &container;
      continue;
    }
    if (owner != nullptr) {
      return fail(ErrorCode::Conflict, "kubelet says that " + describe(resource, wanted) +
                                           " belong to " + owner->name.text() + " and to " +
                                           container.name.text());
    }
    owner = &container;
  }
  if (owner != nullptr) return owner;
  if (partly != nullptr) {
    return fail(ErrorCode::Conflict,
                "kubelet says that only some of " + describe(resource, wanted) + " belong to " +
                    partly->name.text() + "; whose the others are it does not tell");
  }
  return fail(ErrorCode::NotFound,
              "kubelet's PodResources lists no container with " + describe(resource, wanted));
}

}  // namespace qgpu
