#pragma once
// The attach socket in a folder of its own, which containers may be given without the sockets
// through which a node is changed.

#include <string>

#include "runtime/result.h"

namespace qgpu {

// RUN_DIR/tenant/attach.sock leads to RUN_DIR/attach.sock from now on. The folder stays the same
// one over restarts, so that containers which have it mounted see the next manager's socket.
Status openTenantSocket(const std::string& runDir);

}  // namespace qgpu
