// Where the device nodes of NVIDIA's and AMD's cards lie, from what their drivers tell of them.

#include "services/cards/paths/node_paths.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "services/cards/paths/nvidia_paths.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::node_paths_test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const std::string kFirst = "GPU-5f1b1b0c-0000-4000-8000-000000000001";
const std::string kSecond = "GPU-5f1b1b0c-0000-4000-8000-000000000002";

struct HostRoot : ::testing::Test {
  HostRoot() { fs::create_directories(root + "/dev"); }

  void node(const std::string& name) { std::ofstream(root + "/dev/" + name); }
  // As the driver has them.
  void card(const std::string& bus, const std::string& uuid, const std::string& minor) {
    const std::string folder = root + "/proc/driver/nvidia/gpus/" + bus;
    fs::create_directories(folder);
    std::ofstream(folder + "/information")
        << "Model: \t\t Tesla T4\nIRQ:   \t\t 52\nGPU UUID: \t " << uuid
        << "\nVideo BIOS: \t 90.04.96.00.01\nDevice Minor: \t " << minor
        << "\nGPU Excluded:\t No\n";
  }
  const testing::TempFolder made{"root"};
  const std::string root = made.path();
};

TEST_F(HostRoot, NodesAreThoseOfTheCardsByTheirMinorsAndTheSharedOnes) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm",
                           "nvidia-uvm-tools", "nvidia-modeset", "null", "nvidiaX"}) {
    node(name);
  }
  card("0000:3b:00.0", kFirst, "1");
  card("0000:af:00.0", kSecond, "0");
  card("0000:d8:00.0", "GPU-of-another", "2");
  EXPECT_EQ(*nvidiaNodes(root, {kFirst}),
            (Names{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia1", "/dev/nvidiactl"}));
  EXPECT_EQ(*nvidiaNodes(root, {kSecond, kFirst}),
            (Names{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1",
                   "/dev/nvidiactl"}));
  EXPECT_EQ(*nvidiaNodes(root, {}),
            (Names{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}));
}

TEST_F(HostRoot, ACardsOwnNodeIsTheOneThatIsNotShared) {
  for (const char* name : {"nvidia1", "nvidiactl", "nvidia-uvm"}) node(name);
  card("0000:3b:00.0", kFirst, "1");
  card("0000:af:00.0", kSecond, "0");
  EXPECT_EQ(*ownNode("nvidia", root, kFirst), "/dev/nvidia1");
  const auto gone = ownNode("nvidia", root, kSecond);
  ASSERT_FALSE(gone.ok()) << "no such node is there";
  EXPECT_NE(gone.error().message.find(kSecond), std::string::npos) << gone.error().message;
  EXPECT_EQ(ownNode("nvidia", root, "GPU-of-nobody").error().code, ErrorCode::NotFound);
}

TEST_F(HostRoot, TheDriversFilesSayOnWhichBusACardIs) {
  card("0000:3b:00.0", kFirst, "1");
  card("0000:af:00.0", kSecond, "none");
  std::map<std::string, std::string> buses;
  for (const NvidiaCardFile& one : nvidiaCardFiles(root)) buses[one.uuid] = one.pciBus;
  EXPECT_EQ(buses, (std::map<std::string, std::string>{{kFirst, "0000:3b:00.0"},
                                                       {kSecond, "0000:af:00.0"}}));
}

TEST_F(HostRoot, ACardWithoutAMinorIsNamedAndAllNodesAreThereToGive) {
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl"}) node(name);
  card("0000:3b:00.0", kFirst, "not told");
  const auto nodes = nvidiaNodes(root, {kFirst});
  ASSERT_FALSE(nodes.ok());
  EXPECT_NE(nodes.error().message.find(kFirst), std::string::npos) << nodes.error().message;
  EXPECT_EQ(allNvidiaNodes(root), (Names{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"}));
}

// AMD's: two of the kernel's nodes are cards, one is a CPU.
struct AmdRoot : HostRoot {
  AmdRoot() {
    kernelsNode("0", "0", "cpu_cores_count 64");
    kernelsNode("1", "51114", "unique_id 1\ndrm_render_minor 128");
    kernelsNode("2", "51115", "unique_id 2\ndrm_render_minor 137");
    kernelsNode("3", "51116", "unique_id 3\ndrm_render_minor 0");
  }
  void kernelsNode(const std::string& number, const std::string& gpu, const std::string& facts) {
    const std::string at = "sys/class/kfd/kfd/topology/nodes/" + number;
    made.write(at + "/gpu_id", gpu + "\n");
    made.write(at + "/properties", facts + "\n");
  }
};

TEST_F(AmdRoot, NodesAreThoseOfTheCardsAndTheOneThatAllShare) {
  EXPECT_EQ(*cardNodes("amd", root, {}), Names{"/dev/kfd"});
  EXPECT_EQ(*cardNodes("amd", root, {"GPU-0000000000000002"}),
            (Names{"/dev/dri/renderD137", "/dev/kfd"}));
  EXPECT_EQ(*cardNodes("amd", root, {"GPU-0000000000000002", "GPU-0000000000000001"}),
            (Names{"/dev/dri/renderD128", "/dev/dri/renderD137", "/dev/kfd"}));
}

TEST_F(AmdRoot, ACardsOwnNodeIsTheOneThatIsNotShared) {
  EXPECT_EQ(*ownNode("amd", root, "GPU-0000000000000002"), "/dev/dri/renderD137");
  EXPECT_EQ(ownNode("amd", root, "GPU-0000000000000003").error().code, ErrorCode::NotFound);
}

TEST_F(AmdRoot, ACardThatTheKernelDoesNotKnowOrThatHasNoNodeIsNamed) {
  for (const char* id : {"GPU-0000000000000003", "GPU-0000000000000004"}) {
    const auto nodes = cardNodes("amd", root, {id});
    ASSERT_FALSE(nodes.ok());
    EXPECT_EQ(nodes.error().code, ErrorCode::NotFound);
    EXPECT_NE(nodes.error().message.find(id), std::string::npos) << nodes.error().message;
  }
}

TEST(NodePaths, OtherKindsOfCardsHaveNone) {
  EXPECT_TRUE(needsNodes("amd"));
  EXPECT_TRUE(needsNodes("nvidia"));
  for (const char* backend : {"opencl", "sim", ""}) {
    EXPECT_FALSE(needsNodes(backend)) << backend;
    EXPECT_EQ(*cardNodes(backend, "", {"0"}), Names{}) << backend;
    EXPECT_EQ(*ownNode(backend, "", "0"), "") << backend;
  }
}

}  // namespace
}  // namespace qgpu::node_paths_test
