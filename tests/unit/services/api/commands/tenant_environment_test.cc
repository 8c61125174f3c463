// What stands in the environment of a tenant's program, part by part.

#include "services/api/commands/tenant_environment.h"

#include <gtest/gtest.h>

namespace qgpu::tenant_environment_test {
namespace {

const std::string kFirst = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
const std::string kSecond = "GPU-5f1b1b0c-0000-4000-8000-000000000002";

using Lines = std::vector<std::string>;

TEST(TenantEnvironment, ANodeGivesTheLibraryBothWaysAndWhatItsCardsNeed) {
  EXPECT_EQ(assignments(nodeVariables({"/opt/libqgpu.so", {{"POCL_DEVICES", "pthread"}}})),
            (Lines{"LD_PRELOAD=/opt/libqgpu.so", "OPENCL_LAYERS=/opt/libqgpu.so",
                   "POCL_DEVICES=pthread"}));
  EXPECT_EQ(assignments(nodeVariables({"", {{"POCL_DEVICES", "pthread"}}})),
            Lines{"POCL_DEVICES=pthread"});
}

TEST(TenantEnvironment, AProgramSeesTheCardsOfItsTaskByUuidInTheirOrder) {
  EXPECT_EQ(assignments(cardVariables({kSecond, kFirst})),
            (Lines{"CUDA_VISIBLE_DEVICES=" + kSecond + "," + kFirst,
                   "NVIDIA_VISIBLE_DEVICES=" + kSecond + "," + kFirst}));
}

TEST(TenantEnvironment, ACardOfAnotherVendorGetsNone) {
  EXPECT_EQ(cardVariables({"opencl-portable-computing-language-0"}), Variables());
  EXPECT_EQ(cardVariables({"sim-0"}), Variables());
  EXPECT_EQ(
      assignments(cardVariables({"GPU-123456789abcdef0", "GPU-ffffffffffffffff"})),
      std::vector<std::string>({"ROCR_VISIBLE_DEVICES=GPU-123456789abcdef0,GPU-ffffffffffffffff"}))
      << "AMD's";
  EXPECT_EQ(cardVariables({}), Variables());
}

TEST(TenantEnvironment, ALauncherTakesListedNamesWithValuesThatAreNoPath) {
  EXPECT_TRUE(nodeMayGive("POCL_DEVICES", "pthread pthread"));
  EXPECT_TRUE(nodeMayGive("POCL_MAX_PTHREAD_COUNT", "2"));
  for (const char* name : {"LD_PRELOAD", "OPENCL_LAYERS", "QGPU_SOCKET", "PATH", "POCL_CACHE_DIR",
                           "POCL_EXTRA_BUILD_FLAGS", "QGPU_TOKEN", "CUDA_VISIBLE_DEVICES", ""}) {
    EXPECT_FALSE(nodeMayGive(name, "1")) << name;
  }
  for (const char* name : {"QGPU_TOKEN", "CUDA_VISIBLE_DEVICES", "POCL_DEVICES"}) {
    EXPECT_TRUE(taskMayCarry(name, "GPU-1,GPU-2")) << name;
    for (const char* value : {"/tmp/evil.so", "a\nLD_PRELOAD=b", "a=b", "$(reboot)", "a:b"}) {
      EXPECT_FALSE(taskMayCarry(name, value)) << name << value;
    }
  }
  EXPECT_FALSE(taskMayCarry("LD_PRELOAD", "evil.so"));
  EXPECT_EQ(cardVariables({"GPU-../../dev/null"}), Variables());
}

TEST(TenantEnvironment, TheDoorIsSocketAndToken) {
  EXPECT_EQ(assignments(doorVariables("/run/qgpu/attach.sock", "abc")),
            (Lines{"QGPU_SOCKET=/run/qgpu/attach.sock", "QGPU_TOKEN=abc"}));
}

}  // namespace
}  // namespace qgpu::tenant_environment_test
