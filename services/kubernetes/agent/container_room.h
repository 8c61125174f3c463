#pragma once
// Which container of a pod starts, as far as kubelet tells. It asks for one resource at a time, and
// its PodResources lists no init containers: their devices are used again by containers after them,
// so the same devices of a resource may stand for several containers of one pod. They are told
// apart by how many of it each asks for, and where this leaves several whose rooms differ, by
// another resource of the container. Nothing is guessed. Pure.

#include <cstdint>
#include <map>
#include <string>

#include "runtime/result.h"
#include "services/kubernetes/agent/pod_book.h"
#include "services/kubernetes/device_plugin/device_ids.h"

namespace qgpu {

// What kubelet gives a container of this plan; memory of whole cards is not counted.
std::map<Resource, std::uint32_t> devicesOf(const ContainerPlan& plan, TaskClass taskClass,
                                            MemoryUnit unit);

// The container whose room the one uses that starts with `count` of `resource`. `container`: as
// PodResources names it; empty: it is not listed, and so an init container. Nullptr: another of its
// resources says. Conflict: none of the pod's containers asks for this, or no resource tells two
// apart.
Result<const ContainerPlan*> roomOf(const PodPlan& pod, const std::string& container,
                                    Resource resource, std::uint32_t count, MemoryUnit unit);

}  // namespace qgpu
