#pragma once
// A tenant of the stand-in driver: cuda_program under libqgpu.so, or bare.

#include <string>
#include <vector>

#include "tests/unit/guest_child.h"

namespace qgpu::testing {

// A task on an NVIDIA card.
FakeManager::Options cudaTask();

// The environment of a tenant that comes to the driver's functions by `way`.
std::vector<std::string> cudaTenantOf(const FakeManager& manager, const std::string& way = "dlsym");
std::vector<std::string> bareCuda(const std::string& way = "dlsym");

// The program that fits the way.
std::string cudaProgramFor(const std::string& way);

class CudaTenant : public GuestChild {
 public:
  explicit CudaTenant(const FakeManager& manager, const std::string& way = "dlsym")
      : GuestChild(cudaTenantOf(manager, way), cudaProgramFor(way)) {}
  explicit CudaTenant(const std::vector<std::string>& environment, const std::string& way = "dlsym")
      : GuestChild(environment, cudaProgramFor(way)) {}
};

// What the program's init allocates and keeps.
inline constexpr std::uint64_t kCudaInitBytes = 4096;

}  // namespace qgpu::testing
