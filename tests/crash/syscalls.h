#pragma once
// System calls of the real manager fail, each kind in turn, while clients and tenants want things.
// Either it goes on and says clearly what it can't do, or it ends with a documented status, and the
// next one knows everything that was acknowledged (D1, D4, C2, C8, C9).

#include <string>

namespace qgpu::crash {

struct SyscallOptions {
  std::string only;  // the rows whose name contains this
};

// Returns the verdict as one JSON line; throws a Violation, or Skipped.
std::string runSyscalls(const SyscallOptions& options);

}  // namespace qgpu::crash
