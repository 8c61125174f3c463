#pragma once
// The manager's database on a disk that is full again and again. Binds are refused with a reason
// and a code that means "later", running tenants and their slices go on, service resumes without a
// restart once there is space, and nothing that was acknowledged is lost by a kill (D1, D4).

#include <cstdint>
#include <string>

namespace qgpu::crash {

struct DiskFullOptions {
  std::uint64_t rounds = 8;
  std::uint64_t seed = 1;
};

// Returns the verdict as one JSON line; throws a Violation, or Skipped.
std::string runDiskFull(const DiskFullOptions& options);

}  // namespace qgpu::crash
