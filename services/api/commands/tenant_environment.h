#pragma once
// What a node puts into the environment of a tenant's program, for every way in which one is
// started: by `qgpuctl run`, by a launcher that submitted a task, by kubelet. Each part is known at
// another moment: what the node's programs share, which socket and token are the task's, and which
// cards it got (actors/base/tenant_variables.h). Whoever starts programs joins the parts it has.

#include <string>

#include "actors/base/tenant_variables.h"

namespace qgpu {

// Of a node.
struct TenantEnvironment {
  std::string library;  // path of libqgpu.so, as the program sees it; may be empty
  Variables extras;     // POCL_* pairs of an OpenCL card
};

// LD_PRELOAD and OPENCL_LAYERS of the library, and the extras: the same for every tenant.
inline Variables nodeVariables(const TenantEnvironment& node) {
  Variables all;
  if (!node.library.empty()) {
    all.emplace_back("LD_PRELOAD", node.library);
    all.emplace_back("OPENCL_LAYERS", node.library);
  }
  all.insert(all.end(), node.extras.begin(), node.extras.end());
  return all;
}

// QGPU_SOCKET and QGPU_TOKEN.
inline Variables doorVariables(const std::string& attachSocket, const std::string& token) {
  return {{"QGPU_SOCKET", attachSocket}, {"QGPU_TOKEN", token}};
}

}  // namespace qgpu
