#include "tests/unit/cuda_tenant.h"

namespace qgpu::testing {

FakeManager::Options cudaTask() {
  FakeManager::Options options;
  options.platform = "NVIDIA CUDA";
  return options;
}

std::vector<std::string> bareCuda(const std::string& way) {
  return {"LD_LIBRARY_PATH=" QGPU_STAND_IN_DIR, "QGPU_TEST_WAY=" + way};
}

std::vector<std::string> cudaTenantOf(const FakeManager& manager, const std::string& way) {
  std::vector<std::string> environment = bareCuda(way);
  environment.push_back("LD_PRELOAD=" QGPU_GUEST_LIBRARY);
  environment.push_back("QGPU_SOCKET=" + manager.socketPath());
  environment.push_back("QGPU_TOKEN=" + FakeManager::token());
  return environment;
}

std::string cudaProgramFor(const std::string& way) {
  return way == "linked" ? QGPU_CUDA_LINKED_PROGRAM : QGPU_CUDA_PROGRAM;
}

}  // namespace qgpu::testing
