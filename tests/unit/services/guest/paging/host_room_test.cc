// Room on the host by files as the kernel writes them, of both versions of cgroups.

#include "services/guest/paging/host_room.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "tests/testing/temp_folder.h"

namespace qgpu::guest {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class HostRoom : public ::testing::Test {
 protected:
  HostRoom() {
    write("proc/meminfo", "MemTotal: 65536 kB\nMemFree: 1 kB\nMemAvailable: 32768 kB\n");
  }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void group(const std::string& path, const std::string& max, const std::string& current,
             const std::string& stat = "") {
    write("sys/fs/cgroup" + path + "/memory.max", max + "\n");
    write("sys/fs/cgroup" + path + "/memory.current", current + "\n");
    if (!stat.empty()) write("sys/fs/cgroup" + path + "/memory.stat", stat);
  }
  std::uint64_t room() const { return hostRoom(folder.path().c_str()); }

  const testing::TempFolder folder{"host"};
};

TEST_F(HostRoom, IsWhatTheMachineHasLessAMargin) {
  EXPECT_EQ(room(), 30 * kMiB);  // 32, less a 32nd of 64
  write("proc/meminfo", "nonsense");
  EXPECT_EQ(room(), 0U);
}

TEST_F(HostRoom, IsTheLeastOfAllCgroupsUpwards) {
  write("proc/self/cgroup", "0::/pods/one\n");
  group("/pods/one", "max", "1");
  group("/pods", std::to_string(16 * kMiB), std::to_string(8 * kMiB));
  EXPECT_EQ(room(), 8 * kMiB - kMiB / 2);
  group("/pods/one", std::to_string(4 * kMiB), std::to_string(4 * kMiB));
  EXPECT_EQ(room(), 0U);
}

TEST_F(HostRoom, CountsPagesOfFilesThatNobodyUsedAsFree) {
  write("proc/self/cgroup", "0::/\n");
  group("", std::to_string(16 * kMiB), std::to_string(16 * kMiB),
        "anon 1\ninactive_file " + std::to_string(4 * kMiB) + "\nactive_file 7\n");
  EXPECT_EQ(room(), 4 * kMiB - kMiB / 2);
}

TEST_F(HostRoom, KnowsTheFirstVersionToo) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n3:hugetlb,memory:/x\n2:memoryless:/\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(16 * kMiB));
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(6 * kMiB));
  EXPECT_EQ(room(), 10 * kMiB - kMiB / 2);
}

TEST_F(HostRoom, IsTakenAsMemoryThatIsThere) {
  void* at = takeHostMemory(kMiB);
  ASSERT_NE(at, nullptr);
  static_cast<char*>(at)[kMiB - 1] = 1;
  giveHostMemory(at, kMiB);
  EXPECT_EQ(takeHostMemory(std::uint64_t{1} << 50), nullptr);
}

}  // namespace
}  // namespace qgpu::guest
