// The library that containers get, over an upgrade and back: who has mapped one keeps it.

#include "services/kubernetes/device_plugin/tenant_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <string>

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

}  // namespace
}  // namespace qgpu::tenant_files_test
