#pragma once
// A tenant of the stand-in driver: cuda_program under libqgpu.so, or bare.

#include <string>
#include <vector>

#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing {

// A task on an NVIDIA card.
FakeManager::Options cudaTask();

// The environment of a tenant that comes to the driver's functions by `way`.
std::vector<std::string> cudaTenantOf(const FakeManager& manager, const std::string& way = "dlsym");
std::vector<std::string> bareCuda(const std::string& way = "dlsym");
// With a library behind those that are preloaded there.
std::vector<std::string> preloading(std::vector<std::string> environment,
                                    const std::string& library);

// A folder in the place of / for one test: files that the kernel's stand-in answers for.
class DriverRoot {
 public:
  DriverRoot();
  const std::string& path() const { return folder_.path(); }
  void loaded(const std::string& driver) const;  // as sysfs tells the version of its module
  // What a tenant needs beside the rest to have that kernel behind libqgpu.so, or another.
  std::vector<std::string> tenantOf(const FakeManager& manager,
                                    const std::string& kernel = QGPU_STAND_IN_KERNEL) const;

 private:
  const TempFolder folder_{"driver"};
};

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
