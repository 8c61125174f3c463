// What containers get: the library, over an upgrade and back, where who has mapped one keeps it;
// and the nodes of AMD's cards.

#include "services/kubernetes/device_plugin/tenant_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <vector>

#include "tests/testing/temp_folder.h"

namespace qgpu::tenant_files_test {
namespace {

namespace fs = std::filesystem;

std::string contentOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Upgraded : ::testing::Test {
  // As the plugin of a release does at its start: what a container mounts from then on.
  std::map<std::string, std::string> begin(const std::string& library) {
    const std::string path = host.write("image/libqgpu.so", library, 0755);
    TenantFiles files(TenantFilesConfig{host / "run", host / "files", "", path, ""});
    EXPECT_TRUE(files.publish().ok());
    const auto setup = files.claimSetup(host / "claim", NodeNow{}, {});
    std::map<std::string, std::string> mounts;
    if (!setup.ok()) return mounts;
    for (const auto& each : setup->mounts) mounts[each.container] = each.host;
    return mounts;
  }
  const testing::TempFolder host{"host"};
};

TEST_F(Upgraded, ANewLibraryComesBesideTheOldOneWhichStaysAsItIs) {
  const std::string in = "/opt/qgpu/libqgpu.so";
  const auto old = begin("the old library");
  ASSERT_TRUE(old.contains(in));
  std::ifstream mapped(old.at(in));  // a process that runs on
  const auto fresh = begin("a new library");
  EXPECT_NE(fresh.at(in), old.at(in));
  EXPECT_EQ(contentOf(fresh.at(in)), "a new library");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(mapped), {}), "the old library");
  EXPECT_EQ(contentOf(old.at(in)), "the old library") << "a container that starts again has it";
  EXPECT_EQ(contentOf(fresh.at("/etc/ld.so.preload")), in + "\n");
  EXPECT_EQ(begin("the old library"), old) << "and back";
}

TEST_F(Upgraded, TheSameLibraryIsNotWrittenAgain) {
  const std::string in = "/opt/qgpu/libqgpu.so";
  const auto first = begin("the library");
  ASSERT_TRUE(first.contains(in));
  fs::create_hard_link(first.at(in), host / "mapped");
  EXPECT_EQ(begin("the library"), first);
  EXPECT_TRUE(fs::equivalent(first.at(in), host / "mapped"));
}

// --- AMD's cards ---

using Names = std::vector<std::string>;

// Two cards, as the kernel lists them and with their nodes.
struct AmdNode : ::testing::Test {
  AmdNode() {
    node.backend = "amd";
    for (const unsigned minor : {128u, 129u}) {
      const std::string number = std::to_string(minor - 127);
      const std::string at = "sys/class/kfd/kfd/topology/nodes/" + number;
      host.write(at + "/gpu_id", "51114\n");
      host.write(at + "/properties",
                 "unique_id " + number + "\ndrm_render_minor " + std::to_string(minor) + "\n");
      node.cards.push_back({"GPU-000000000000000" + number, Bytes(1), true});
    }
  }
  // Of numbers that no driver has. False: nodes can't be made here.
  bool makeNodes() const {
    fs::create_directories(host / "dev/dri");
    return ::mknod((host / "dev/kfd").c_str(), S_IFCHR | 0666, ::makedev(195, 1)) == 0 &&
           ::mknod((host / "dev/dri/renderD128").c_str(), S_IFCHR | 0666, ::makedev(195, 128)) ==
               0 &&
           ::mknod((host / "dev/dri/renderD129").c_str(), S_IFCHR | 0666, ::makedev(195, 129)) == 0;
  }
  const testing::TempFolder host{"host"};
  const TenantFiles files{TenantFilesConfig{host / "run", host / "files", host.path(), "", ""}};
  NodeNow node;
};

TEST_F(AmdNode, AContainerWithAClaimHasItsOwnCardsNodesAndNothingOfNvidias) {
  const auto setup = files.claimSetup(host / "claim", node, {"GPU-0000000000000002"});
  ASSERT_TRUE(setup.ok()) << setup.error().message;
  EXPECT_EQ(setup->deviceNodes, (Names{"/dev/dri/renderD129", "/dev/kfd"}));
  EXPECT_FALSE(setup->environment.contains("NVIDIA_VISIBLE_DEVICES"));
  EXPECT_TRUE(setup->environment.contains("QGPU_SOCKET"));
  EXPECT_FALSE(files.claimSetup(host / "claim", node, {"GPU-of-another"}).ok());
}

TEST_F(AmdNode, APodHasItsOwnCardsNodesOnceItIsKnown) {
  if (!makeNodes()) GTEST_SKIP() << "making device nodes needs root, and a kernel that allows it";
  const std::string folder = host / "placeholder";
  fs::create_directory(folder);
  const auto setup = files.setup(Resource::Memory, folder, node);
  ASSERT_TRUE(setup.ok()) << setup.error().message;
  ASSERT_EQ(setup->deviceFolders.size(), 1u);
  EXPECT_EQ(setup->deviceNodes, Names{});
  EXPECT_EQ(setup->wide, "");
  const std::string dev = setup->deviceFolders[0].host;
  EXPECT_TRUE(fs::exists(dev + "/kfd"));
  EXPECT_FALSE(fs::exists(dev + "/dri")) << "nobody knows yet whose it is";
  ASSERT_TRUE(files.giveCards(folder, "amd", {"GPU-0000000000000002"}).ok());
  EXPECT_TRUE(fs::exists(dev + "/dri/renderD129"));
  EXPECT_FALSE(fs::exists(dev + "/dri/renderD128"));
}

TEST_F(AmdNode, ACardThatTheKernelDoesNotKnowIsNamedToItsOwnContainersAlone) {
  if (!makeNodes()) GTEST_SKIP() << "making device nodes needs root, and a kernel that allows it";
  node.cards.push_back({"GPU-of-another", Bytes(1), true});
  const std::string folder = host / "placeholder";
  fs::create_directory(folder);
  ASSERT_TRUE(files.setup(Resource::Memory, folder, node).ok());
  EXPECT_TRUE(files.giveCards(folder, "amd", {"GPU-0000000000000001"}).ok());
  const Status other = files.giveCards(folder, "amd", {"GPU-of-another"});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("GPU-of-another"), std::string::npos);
  EXPECT_NE(other.error().message.find("dmesg"), std::string::npos);
}

}  // namespace
}  // namespace qgpu::tenant_files_test
