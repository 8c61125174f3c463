#include "services/kubernetes/agent/container_room.h"

#include <algorithm>
#include <vector>

namespace qgpu {
namespace {

using Plans = std::vector<const ContainerPlan*>;

bool asksFor(const ContainerPlan& plan, TaskClass taskClass, Resource resource, std::uint32_t count,
             MemoryUnit unit) {
  if (plan.whole() && resource == Resource::Memory) return true;  // as many as it likes
  const auto devices = devicesOf(plan, taskClass, unit);
  const auto found = devices.find(resource);
  return count != 0 && found != devices.end() && found->second == count;
}

const ContainerPlan* roomOwner(const PodPlan& pod, const ContainerPlan& plan) {
  if (plan.uses.empty()) return &plan;
  for (const ContainerPlan& other : pod.containers) {
    if (other.name == plan.uses) return &other;
  }
  return &plan;
}

// Whether each of `plans` has the same room as the first.
bool oneRoom(const PodPlan& pod, const Plans& plans) {
  return std::all_of(plans.begin(), plans.end(), [&](const ContainerPlan* plan) {
    return roomOwner(pod, *plan) == roomOwner(pod, *plans.front());
  });
}

// Whether one of the container's resources stands for no room but its own.
bool isTold(const PodPlan& pod, const ContainerPlan& plan, MemoryUnit unit) {
  for (const auto& [resource, count] : devicesOf(plan, pod.taskClass, unit)) {
    if (count == 0) continue;
    Plans alike = {&plan};
    for (const ContainerPlan& other : pod.containers) {
      if (asksFor(other, pod.taskClass, resource, count, unit)) alike.push_back(&other);
    }
    if (oneRoom(pod, alike)) return true;
  }
  return false;
}

std::string textOf(std::uint32_t count, Resource resource) {
  return std::to_string(count) + " of " + resourceName(resource);
}

}  // namespace

std::map<Resource, std::uint32_t> devicesOf(const ContainerPlan& plan, TaskClass taskClass,
                                            MemoryUnit unit) {
  const auto percent = static_cast<std::uint32_t>(plan.share.value / 10);
  const auto cards = static_cast<std::uint32_t>(plan.cards.size());
  std::map<Resource, std::uint32_t> devices = {{Resource::Core, 0}, {Resource::Greedy, 0}};
  if (taskClass != TaskClass::Online) {
    const bool offline = taskClass == TaskClass::Offline;
    devices[offline ? Resource::Greedy : Resource::Core] = percent * cards;
  }
  if (!plan.whole()) {
    const Bytes one = unit == MemoryUnit::GiB ? gibibytes(1) : mebibytes(1);
    devices[Resource::Memory] = static_cast<std::uint32_t>(plan.mem / one);
  }
  return devices;
}

Result<const ContainerPlan*> roomOf(const PodPlan& pod, const std::string& container,
                                    Resource resource, std::uint32_t count, MemoryUnit unit) {
  Plans may;
  for (const ContainerPlan& plan : pod.containers) {
    const bool listed = !container.empty() && plan.name == container;
    const bool unlisted = plan.init && asksFor(plan, pod.taskClass, resource, count, unit);
    if (listed || unlisted) may.push_back(&plan);
  }
  const std::string name = pod.nameSpace + "/" + pod.name;
  if (may.empty()) {
    return fail(ErrorCode::Conflict, "kubelet starts an init container of " + name + " with " +
                                         textOf(count, resource) +
                                         ", and the scheduler decided upon none that asks for it");
  }
  if (oneRoom(pod, may)) return roomOwner(pod, *may.front());
  for (const ContainerPlan* plan : may) {
    if (isTold(pod, *plan, unit)) continue;
    return fail(ErrorCode::Conflict,
                "container '" + plan->name + "' of " + name +
                    " can't be told from others of its pod, since init containers ask for the "
                    "same of each of its resources: let them ask for no more than a main container "
                    "does, or for all the same");
  }
  return static_cast<const ContainerPlan*>(nullptr);
}

}  // namespace qgpu
