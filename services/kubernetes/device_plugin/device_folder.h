#pragma once
// The device nodes of one container, in a folder of the host. Allocate can't name them: kubelet
// calls it before anybody knows whose container it is and which card was chosen for that. But it
// may name a folder, out of which a container runtime takes the nodes that lie there when it
// creates the container, and that is after PreStartContainer, which knows. So from its first
// instruction on the container has the nodes of its own cards alone, its cgroup, of whichever
// version, lets it open no others, and what the runtime sets up nobody has to narrow later.
//
// The nodes are copies of the host's: number, mode and owner. Runtimes read those and open none of
// them, so that a file system that is mounted without devices (nodev) serves.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

namespace qgpu {

// Below the run dir, for people: why containers get the nodes of all shared cards. It is not there
// where each gets those of its own.
inline constexpr const char* kWideNote = "/kubelet/all-nodes";

// `folder`, made where it is missing, holds copies of exactly these nodes from now on, a folder of
// /dev as a folder of its own. `nodes`: paths "/dev/NAME" or "/dev/FOLDER/NAME", below `hostRoot`.
// NotFound: one of them is no character device; Unavailable: it can't be copied, as without
// CAP_MKNOD. What was made until then stays.
Status fillDeviceFolder(const std::string& folder, const std::string& hostRoot,
                        const std::vector<std::string>& nodes);

}  // namespace qgpu
