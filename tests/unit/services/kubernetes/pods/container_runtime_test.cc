// Container runtimes by the names that nodes have for them.

#include "services/kubernetes/pods/container_runtime.h"

#include <gtest/gtest.h>

namespace qgpu::container_runtime_test {
namespace {

TEST(ContainerRuntimes, AllButContainerdBefore1_5TakeFoldersOfNodes) {
  for (const char* runtime : {"containerd://1.5.0", "containerd://1.6.20~ds1", "containerd://2.1.3",
                              "containerd://v1.10.0", "containerd://1.7.0-k3s1", "docker://18.9.1",
                              "cri-o://1.14.0", "containerd://Unknown", "containerd://", ""}) {
    EXPECT_TRUE(takesDeviceFolders(runtime)) << runtime;
  }
  for (const char* runtime : {"containerd://1.4.13", "containerd://v1.2.0",
                              "containerd://1.4.4-k3s1", "containerd://1.4"}) {
    EXPECT_FALSE(takesDeviceFolders(runtime)) << runtime;
  }
}

TEST(ContainerRuntimes, AllButContainerdBefore1_7GiveCdiDevices) {
  for (const char* runtime : {"containerd://1.7.0", "containerd://1.7.24~ds1", "containerd://2.1.3",
                              "containerd://v1.10.0", "cri-o://1.36.0", "containerd://", ""}) {
    EXPECT_TRUE(takesCdiDevices(runtime)) << runtime;
  }
  for (const char* runtime :
       {"containerd://1.6.20~ds1", "containerd://1.6.38-k3s1", "containerd://v1.4.13"}) {
    EXPECT_FALSE(takesCdiDevices(runtime)) << runtime;
  }
}

}  // namespace
}  // namespace qgpu::container_runtime_test
