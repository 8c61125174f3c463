#include "tests/unit/services/guest/cuda/cuda_tenant.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

std::vector<std::string> preloading(std::vector<std::string> environment,
                                    const std::string& library) {
  for (std::string& each : environment) {
    if (each.starts_with("LD_PRELOAD=")) each += " " + library;
  }
  return environment;
}

DriverRoot::DriverRoot() {
  for (const char* name : {"dev/nvidiactl", "dev/nvidia0", "dev/nvidia-uvm"}) {
    folder_.write(name, std::string("/") + name);
  }
}

void DriverRoot::loaded(const std::string& driver) const {
  folder_.write("sys/module/nvidia/version", driver + "\n");
}

std::vector<std::string> DriverRoot::tenantOf(const FakeManager& manager,
                                              const std::string& kernel) const {
  std::vector<std::string> environment = preloading(cudaTenantOf(manager), kernel);
  environment.push_back("QGPU_DRIVER_ROOT=" + path());
  return environment;
}

std::string cudaProgramFor(const std::string& way) {
  return way == "linked" ? QGPU_CUDA_LINKED_PROGRAM : QGPU_CUDA_PROGRAM;
}

}  // namespace qgpu::testing
