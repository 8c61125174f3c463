// libqgpu.so before NVIDIA's own libraries, of each driver in the folder QGPU_DRIVERS (fetch.sh
// brings some). There is no card: they are loaded, asked for their functions and started, and say
// that there is none. What programs are given is the library's, and what the hook table says of
// versions is true.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "services/guest/cuda_calls.h"
#include "services/guest/cuda_names.h"
#include "tests/unit/cuda_tenant.h"

namespace qgpu::testing {
namespace {

namespace fs = std::filesystem;

class Drivers : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QGPU_DRIVERS");
    if (!folder) GTEST_SKIP() << "QGPU_DRIVERS names no folder (./dev test-drivers makes one)";
    for (const auto& each : fs::directory_iterator(folder)) {
      if (fs::exists(each.path() / "libcuda.so.1")) all_.insert(each.path());
    }
    ASSERT_FALSE(all_.empty()) << folder << " holds no VERSION/libcuda.so.1";
  }

  // Programs on that driver: a tenant, and one without the library.
  static std::vector<std::string> on(std::vector<std::string> environment, const fs::path& driver) {
    std::erase_if(environment, [](const auto& e) { return e.starts_with("LD_LIBRARY_PATH="); });
    environment.push_back("LD_LIBRARY_PATH=" + driver.string());
    return environment;
  }
  std::set<fs::path> all_;
};

struct Hook {
  std::string name, byName, byAddress;
  int since = 0;
};

std::vector<Hook> hooksOf(GuestChild& program) {
  std::istringstream words(program.ask("hooks"));
  std::vector<Hook> all;
  for (std::string word; words >> word;) {
    std::istringstream parts(word);
    Hook hook;
    std::string since;
    std::getline(parts, hook.name, ':');
    std::getline(parts, since, ':');
    std::getline(parts, hook.byName, ':');
    std::getline(parts, hook.byAddress);
    hook.since = std::stoi(since);
    all.push_back(hook);
  }
  return all;
}

std::vector<std::string> exportsOf(const fs::path& library) {
  const std::string command = "nm -D --defined-only " + library.string();
  const std::unique_ptr<FILE, int (*)(FILE*)> out(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> names;
  std::array<char, 512> line;
  while (out && std::fgets(line.data(), line.size(), out.get())) {
    std::istringstream words(line.data());
    std::string address, kind, name;
    words >> address >> kind >> name;
    names.push_back(name.substr(0, name.find('@')));
  }
  return names;
}

TEST_F(Drivers, EachHasTheFunctionsOfItsVersionAndNoOther) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    GuestChild bare(on({}, driver), QGPU_DRIVER_PROGRAM);
    const int version = std::stoi(bare.ask("version"));
    for (const Hook& hook : hooksOf(bare)) {
      EXPECT_EQ(hook.byName, hook.since <= version ? "driver" : "none") << hook.name;
    }
  }
}

TEST_F(Drivers, ATenantIsGivenTheHooksByNameAndByAddress) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    FakeManager manager(cudaTask());
    GuestChild tenant(on(cudaTenantOf(manager), driver), QGPU_DRIVER_PROGRAM);
    const int version = std::stoi(tenant.ask("version"));
    for (const Hook& hook : hooksOf(tenant)) {
      EXPECT_EQ(hook.byName, hook.since <= version ? "guest" : "none") << hook.name;
      EXPECT_NE(hook.byAddress, "driver") << hook.name;
      const bool asked = version >= 11030 && hook.since <= version;  // before there was no asking
      EXPECT_EQ(asked ? hook.byAddress : "guest", "guest") << hook.name;
    }
    EXPECT_EQ(tenant.errors(), "");
  }
}

TEST_F(Drivers, NothingThatLooksLikeWorkIsExportedWithoutAHook) {
  const std::set<std::string> hooked = {
#define QGPU_NAME(symbol, base, since, stream, types) #symbol,
      QGPU_CUDA_HOOKED(QGPU_NAME)
#undef QGPU_NAME
  };
  for (const fs::path& driver : all_) {
    const auto names = exportsOf(driver / "libcuda.so.1");
    EXPECT_GT(names.size(), 400u) << driver;
    for (const std::string& name : names) {
      const bool known = hooked.contains(name) || hooked.contains(name + "_v2");  // of CUDA 3.1
      EXPECT_TRUE(known || !cuda::looksLikeWork(name)) << name << " of " << driver;
    }
  }
}

// Its first calls, on the kernel's stand-in: CUDA's library from 535 on asks for no version, so
// libqgpu.so would never know how to read the rest if it did not ask itself.
TEST_F(Drivers, TheKernelsVersionIsAskedForOnceAlsoWhereNobodyElseAsks) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    const std::string version = driver.filename();
    FakeManager manager(cudaTask());
    DriverRoot root;
    root.loaded(version);
    auto environment = on(root.tenantOf(manager), driver);
    environment.push_back("QGPU_STAND_IN_DRIVER=" + version);
    for (std::string& each : environment) {
      if (each.rfind("LD_PRELOAD=", 0) == 0) each += " " QGPU_DRIVER_NAMES;
    }
    GuestChild tenant(environment, QGPU_DRIVER_PROGRAM);
    GuestChild alone(on({"LD_PRELOAD=" QGPU_STAND_IN_KERNEL " " QGPU_DRIVER_NAMES,
                         "QGPU_DRIVER_ROOT=" + root.path(), "QGPU_STAND_IN_DRIVER=" + version},
                        driver),
                     QGPU_DRIVER_PROGRAM);
    EXPECT_EQ(tenant.ask("init"), alone.ask("init"));
    const int asked = std::stoi(alone.ask("questions"));
    EXPECT_EQ(asked > 0, std::stoi(version) < 535) << asked;
    EXPECT_EQ(std::stoi(tenant.ask("questions")), asked + 1);
    if (std::stoi(version) < 470) continue;  // it wants more than the stand-in has
    EXPECT_GT(std::stoi(alone.ask("allocations")), 0);
    EXPECT_EQ(tenant.ask("allocations"), alone.ask("allocations"));
  }
}

TEST_F(Drivers, WithoutACardATenantIsToldSoAndIsATenantAllTheSame) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    FakeManager manager(cudaTask());
    GuestChild tenant(on(cudaTenantOf(manager), driver), QGPU_DRIVER_PROGRAM);
    GuestChild bare(on({}, driver), QGPU_DRIVER_PROGRAM);
    for (const char* start : {"init", "nvml"}) {
      const std::string told = bare.ask(start);
      EXPECT_NE(told, "0") << start << ": this machine has a card";
      EXPECT_EQ(tenant.ask(start), told) << start;
    }
    EXPECT_EQ(manager.attaches(), 1u);
    EXPECT_EQ(tenant.errors(), "");
  }
}

}  // namespace
}  // namespace qgpu::testing
