#pragma once
// Whether a manager serves a kubelet, and how it starts the device plugin for it.

#include <string>
#include <vector>

#include "runtime/result.h"
#include "services/cards/cards.h"
#include "services/daemons/options.h"

namespace qgpu {

// --kubelet=on; or auto, where kubelet takes device plugins and a cluster is near: KUBECONFIG is
// set, or this is a pod.
bool servesKubelet(const ManagerOptions& options);

// InvalidArgument where --memory-unit=MiB would mean more devices than kubelet can be told of.
Status checkMemoryUnit(const ManagerOptions& options, const CardsFound& cards);

// qgpu-kubelet-plugin beside this program, and its arguments. What containers map lies beside the
// database; where that is below /host, the host knows it without.
std::vector<std::string> pluginCommand(const ManagerOptions& options, const std::string& runDir,
                                       const std::string& library);

}  // namespace qgpu
