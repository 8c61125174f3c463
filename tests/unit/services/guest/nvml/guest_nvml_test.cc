// What a tenant is told of the processes on its card: those of its own task, with the memory that
// counts against the quota, in every list that NVML has.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_nvml_test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kTold = 777;  // what the driver says of anybody
constexpr const char* kLists[] = {"Compute", "Graphics", "MPSCompute"};

class NvmlProcesses : public ::testing::Test {
 protected:
  NvmlProcesses() : manager(cudaTask()) {}
  ~NvmlProcesses() override { std::filesystem::remove(path_); }

  std::vector<std::string> environment(const FakeManager& its, int third) const {
    std::vector<std::string> all = cudaTenantOf(its);
    all.push_back("QGPU_STAND_IN_PROCESSES=" + path_);
    all.push_back("QGPU_STAND_IN_ENTRY=" + std::to_string(third));
    return all;
  }
  // A program of the task with a context, and so much memory.
  std::unique_ptr<CudaTenant> start(std::uint64_t bytes, const FakeManager& its, int third = 24) {
    auto made = std::make_unique<CudaTenant>(environment(its, third));
    EXPECT_EQ(made->ask("init"), "0") << made->errors();
    EXPECT_EQ(made->ask("alloc plain 1 " + std::to_string(bytes)), "0");
    return made;
  }
  std::unique_ptr<CudaTenant> start(std::uint64_t bytes, int third = 24) {
    return start(bytes, manager, third);
  }
  const std::string& path() const { return path_; }
  void onCard(const std::vector<pid_t>& pids) const {
    std::ofstream file(path_);
    for (const pid_t pid : pids) file << pid << '|' << kTold << '\n';
  }
  static std::string ask(CudaTenant& tenant, const std::string& list, int room, int entry,
                         int pidAt = 0) {
    return tenant.ask("processes nvmlDeviceGet" + list + " " + std::to_string(room) + " " +
                      std::to_string(entry) + " " + std::to_string(pidAt));
  }
  static std::string entry(const CudaTenant& tenant, std::uint64_t bytes) {
    return std::to_string(tenant.pid()) + ":" + std::to_string(bytes + kCudaInitBytes);
  }

  FakeManager manager;

 private:
  const TempFolder folder_;
  const std::string path_ = folder_.write("processes", "");
};

TEST_F(NvmlProcesses, ATenantSeesItsOwnTasksWithWhatCountsInEveryList) {
  const auto one = start(16 * kMiB), two = start(8 * kMiB);
  const FakeManager others(cudaTask());
  const auto stranger = start(kMiB, others);
  onCard({1, two->pid(), stranger->pid(), one->pid()});
  const std::string own = "0 2 " + entry(*two, 8 * kMiB) + " " + entry(*one, 16 * kMiB);
  for (const std::string list : kLists) {
    EXPECT_EQ(ask(*one, list + "RunningProcesses", 4, 16), own) << list;
    EXPECT_EQ(ask(*two, list + "RunningProcesses_v2", 4, 24), own) << list;
    EXPECT_EQ(ask(*one, list + "RunningProcesses_v3", 4, 24), own) << list;
  }
  EXPECT_EQ(ask(*one, "RunningProcessDetailList", 4, 32), own);
  EXPECT_EQ(ask(*stranger, "ComputeRunningProcesses_v3", 4, 24), "0 1 " + entry(*stranger, kMiB));
}

// Their sum is what the sizes tell as used.
TEST_F(NvmlProcesses, TheListAndTheSizesAgree) {
  const auto one = start(16 * kMiB);
  onCard({one->pid()});
  EXPECT_EQ(ask(*one, "ComputeRunningProcesses_v3", 1, 24), "0 1 " + entry(*one, 16 * kMiB));
  const std::uint64_t quota = cudaTask().quotaBytes, used = 16 * kMiB + kCudaInitBytes;
  EXPECT_EQ(one->ask("nvml"), std::to_string(quota - used) + " " + std::to_string(quota) + " " +
                                  std::to_string(used) + " 0");
}

// Drivers changed it behind the name, and callers were made for either.
TEST_F(NvmlProcesses, AnEntryIsAsLongAsTheDriverMakesIt) {
  for (const int length : {16, 24, 32}) {
    const auto one = start(kMiB, length), two = start(kMiB, length);
    onCard({1, one->pid(), 2, two->pid(), 3});
    EXPECT_EQ(ask(*one, "ComputeRunningProcesses_v3", 5, length),
              "0 2 " + entry(*one, kMiB) + " " + entry(*two, kMiB))
        << length;
    onCard({one->pid()});
    EXPECT_EQ(ask(*one, "ComputeRunningProcesses_v3", 1, length), "0 1 " + entry(*one, kMiB));
  }
}

TEST_F(NvmlProcesses, RoomIsAskedForTheTasksOwnAlone) {
  const auto one = start(kMiB), two = start(kMiB);
  std::vector<pid_t> many = {one->pid(), two->pid()};
  for (pid_t pid = 1; pid <= 100; ++pid) many.push_back(pid);
  onCard(many);
  for (const std::string list : {"ComputeRunningProcesses_v3", "RunningProcessDetailList"}) {
    EXPECT_EQ(ask(*one, list, 0, 32), "7 2") << list << ": NVML_ERROR_INSUFFICIENT_SIZE";
    EXPECT_EQ(ask(*one, list, 1, 32), "7 2") << list;
    EXPECT_EQ(ask(*one, list, 2, 32).substr(0, 4), "0 2 ") << list;
  }
  onCard({1, 2, 3});
  EXPECT_EQ(ask(*one, "ComputeRunningProcesses_v3", 0, 24), "0 0") << "others are nobody";
}

TEST_F(NvmlProcesses, AListThatFitsNoRoomThoughItIsEmptyIsRefusedAsTheDriverRefusesIt) {
  const auto one = start(kMiB);
  std::ofstream(path()) << "!full\n";
  for (const std::string list : {"ComputeRunningProcesses_v3", "RunningProcessDetailList"}) {
    EXPECT_EQ(ask(*one, list, 4, 32).substr(0, 2), "7 ")
        << list << ": NVML_ERROR_INSUFFICIENT_SIZE";
  }
  onCard({one->pid()});
  EXPECT_EQ(ask(*one, "ComputeRunningProcesses_v3", 1, 24), "0 1 " + entry(*one, kMiB));
}

TEST_F(NvmlProcesses, HowBusyOthersKeepTheCardIsNotShown) {
  const auto one = start(kMiB);
  onCard({1, one->pid(), 2});
  const std::string own = "0 1 " + std::to_string(one->pid()) + ":" + std::to_string(kTold);
  EXPECT_EQ(ask(*one, "ProcessUtilization", 3, 32), own);
  EXPECT_EQ(ask(*one, "ProcessesUtilizationInfo", 3, 40, 8), own);
  EXPECT_EQ(ask(*one, "ProcessUtilization", 0, 32), "7 3") << "the driver's room";
  onCard({1, 2});
  EXPECT_EQ(ask(*one, "ProcessUtilization", 3, 32).substr(0, 2), "6 ") << "NVML_ERROR_NOT_FOUND";
  EXPECT_EQ(ask(*one, "ProcessesUtilizationInfo", 3, 40, 8).substr(0, 2), "6 ");
}

TEST_F(NvmlProcesses, WhoIsNoTenantIsToldWhatTheDriverSays) {
  onCard({1, 2});
  std::vector<std::string> bare = bareCuda();
  for (const std::string& each : environment(manager, 24)) {
    if (each.starts_with("QGPU_STAND_IN_")) bare.push_back(each);
  }
  CudaTenant program(bare);
  EXPECT_EQ(ask(program, "ComputeRunningProcesses_v3", 2, 24), "0 2 1:777 2:777");
}

}  // namespace
}  // namespace qgpu::testing::guest_nvml_test
