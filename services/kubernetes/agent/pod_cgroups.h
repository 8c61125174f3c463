#pragma once
// Where kubelet keeps the cgroup of a pod, with those of all its containers below it. Kubelet makes
// it before it asks for anything of the pod's containers, and names it after the pod's uid:
//
//   driver cgroupfs   kubepods/podUID               and kubepods/burstable/podUID, .../besteffort/
//   driver systemd    kubepods.slice/kubepods-podU_I_D.slice
//                     kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_I_D.slice
//
// with the pod's class of service between, but for guaranteed. --cgroup-root of kubelet puts one
// folder above it, whose name systemd's slices begin with. Nothing is asked of kubelet's
// configuration: what is there is found. Reads the tree that it is given, and keeps nothing.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// Where cgroups are mounted that tell containers apart: version 2, and version 1's controller
// `devices`. From the text of /proc/self/mountinfo.
std::vector<std::string> cgroupMounts(std::string_view mountinfo);

// Of these, those of version 2.
std::vector<std::string> unifiedMounts(std::string_view mountinfo);

// The folders of a pod, at most one of each hierarchy and driver; none: kubelet has not made it, or
// it is not to be seen from here. What is no uid has none.
std::vector<std::string> podFolders(const std::vector<std::string>& mounts, std::string_view uid);

// Those of all pods. Unavailable: a folder can't be read, and so not all are known.
Result<std::vector<std::string>> allPodFolders(const std::vector<std::string>& mounts);

}  // namespace qgpu
