// libqgpu.so before NVIDIA's own libraries, of each driver in the folder QGPU_DRIVERS (fetch.sh
// brings some). What programs are given is the library's, what the hook table says of versions is
// true, and where there is no card they are told so. With the kernel's stand-in behind them, which
// tells of one, they go as far as a card need not work: memory counts, and channels are told.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "services/guest/cuda/cuda_names.h"
#include "services/nvidia_abi/cuda_calls.h"
#include "tests/testing/child_process.h"
#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing {
namespace {

namespace fs = std::filesystem;

// The environment of a program on that driver.
std::vector<std::string> on(std::vector<std::string> environment, const fs::path& driver) {
  std::erase_if(environment, [](const auto& e) { return e.starts_with("LD_LIBRARY_PATH="); });
  environment.push_back("LD_LIBRARY_PATH=" + driver.string());
  return environment;
}

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

std::string outputOf(const std::vector<std::string>& environment, const std::string& program) {
  std::vector<std::string> command = {"env"};
  command.insert(command.end(), environment.begin(), environment.end());
  command.insert(command.end(), {"sh", "-c", program});
  return run(command).output;
}

std::vector<std::string> exportsOf(const fs::path& library) {
  std::istringstream lines(outputOf({}, "nm -D --defined-only " + library.string()));
  std::vector<std::string> names;
  for (std::string address, kind, name; lines >> address >> kind >> name;) {
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

// --- with the kernel's stand-in behind them, which tells of a card ---

constexpr std::uint64_t kMiB = 1 << 20;

struct Card {
  explicit Card(const fs::path& of, FakeManager::Options options = cudaTask())
      : driver(of), manager(std::move(options)) {
    root.loaded(version());
    for (const char* name : {"/dev/nvidiactl", "/dev/nvidia0"}) {  // what is mapped of them
      fs::resize_file(root.path() + name, 64 * kMiB);
    }
  }
  std::string version() const { return driver.filename(); }
  int major() const { return std::stoi(version()); }

  std::vector<std::string> tenant() const { return with(root.tenantOf(manager)); }
  std::vector<std::string> bare() const {
    return with({"LD_PRELOAD=" QGPU_STAND_IN_KERNEL, "QGPU_DRIVER_ROOT=" + root.path()});
  }

  // What counts is what the kernel gave.
  bool charges(GuestChild& tenant) const {
    return tenant.ask("held") == std::to_string(manager.bytes());
  }

  const fs::path driver;
  FakeManager manager;
  DriverRoot root;

 private:
  std::vector<std::string> with(std::vector<std::string> environment) const {
    environment.push_back("QGPU_STAND_IN_DRIVER=" + version());
    environment.push_back("QGPU_STAND_IN_LENIENT=1");
    return on(preloading(std::move(environment), QGPU_DRIVER_NAMES), driver);
  }
};

FakeManager::Options quotaOf(std::uint64_t mib) {
  FakeManager::Options options = cudaTask();
  options.quotaBytes = mib * kMiB;
  return options;
}

// With each driver that finds the card: check(Card&, GuestChild& tenant) of a tenant that started.
template <typename Check>
void onEachCard(const std::set<fs::path>& drivers, const FakeManager::Options& options,
                const Check& check) {
  for (const fs::path& driver : drivers) {
    SCOPED_TRACE(driver);
    Card card(driver, options);
    if (card.major() < 525) continue;
    GuestChild tenant(card.tenant(), QGPU_DRIVER_PROGRAM);
    ASSERT_EQ(tenant.ask("init"), "0") << tenant.errors();
    check(card, tenant);
  }
}

// CUDA's library from 535 on asks for no version, so libqgpu.so would never know how to read the
// rest if it did not ask itself.
TEST_F(Drivers, TheKernelsVersionIsAskedForOnceAlsoWhereNobodyElseAsks) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    Card card(driver);
    GuestChild tenant(card.tenant(), QGPU_DRIVER_PROGRAM), bare(card.bare(), QGPU_DRIVER_PROGRAM);
    EXPECT_EQ(tenant.ask("init"), bare.ask("init"));
    const int asked = std::stoi(bare.ask("questions"));
    EXPECT_EQ(asked > 0, card.major() < 535) << asked;
    EXPECT_EQ(std::stoi(tenant.ask("questions")), asked + 1);
    if (card.major() < 470) continue;  // it wants more than the stand-in has
    EXPECT_NE(bare.ask("allocations"), "0");
    EXPECT_EQ(tenant.ask("allocations"), bare.ask("allocations"));
  }
}

// Those that find the card. What they ask the kernel for is counted, for as long as they hold it: a
// piece that is mapped outlives its release.
TEST_F(Drivers, MemoryCountsWhereTheLibraryAsksTheKernelForIt) {
  onEachCard(all_, quotaOf(256), [&](Card& card, GuestChild& tenant) {
    EXPECT_EQ(card.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_DRIVER});
    const std::uint64_t before = card.manager.bytes();
    EXPECT_EQ(tenant.ask("create 1 " + std::to_string(128 * kMiB)), "0");
    EXPECT_EQ(card.manager.bytes(), before + 128 * kMiB);
    EXPECT_TRUE(card.charges(tenant));
    EXPECT_EQ(tenant.ask("create 2 " + std::to_string(256 * kMiB)), "2") << "out of memory";
    EXPECT_EQ(tenant.ask("map 1"), "0");
    EXPECT_EQ(tenant.ask("release 1"), "0");
    EXPECT_EQ(card.manager.bytes(), before + 128 * kMiB);
    EXPECT_EQ(tenant.ask("unmap 1"), "0");
    EXPECT_EQ(card.manager.bytes(), before);
    EXPECT_TRUE(card.charges(tenant));
    EXPECT_EQ(tenant.errors(),
              "qgpu: 256 MiB refused: 128 of 256 MiB in use; start with --memory 384MiB\n");
  });
}

// As NCCL asks for it, in threads without a context too.
TEST_F(Drivers, PhysicalMemoryOfTheHostCostsNothingAndNeedsNoContext) {
  int taken = 0;
  onEachCard(all_, quotaOf(64), [&](Card& card, GuestChild& tenant) {
    GuestChild bare(card.bare(), QGPU_DRIVER_PROGRAM);
    ASSERT_EQ(bare.ask("init"), "0");
    const std::uint64_t before = card.manager.bytes();
    const std::string more = "create-on-host 1 " + std::to_string(128 * kMiB);  // than the quota
    const std::string told = bare.ask(more);
    EXPECT_EQ(tenant.ask(more), told);
    EXPECT_EQ(card.manager.bytes(), before);
    EXPECT_EQ(tenant.errors(), "");
    if (told != "0") return;  // there is no such place before CUDA 12.2
    EXPECT_EQ(tenant.ask("release 1"), "0");
    EXPECT_EQ(card.manager.bytes(), before);
    ++taken;
  });
  if (taken == 0) GTEST_SKIP() << "none of the drivers makes memory on the host with this card";
}

// As llama.cpp's pool takes memory.
TEST_F(Drivers, PiecesAreMappedUpToTheQuotaAndComeBack) {
  onEachCard(all_, quotaOf(64), [&](Card& card, GuestChild& tenant) {
    const std::uint64_t before = card.manager.bytes();
    std::uint64_t pieces = 0;
    for (; pieces < 20; ++pieces) {
      const std::string id = std::to_string(pieces);
      if (tenant.ask("create " + id + " " + std::to_string(8 * kMiB)) != "0") break;
      EXPECT_EQ(tenant.ask("map " + id), "0");
      EXPECT_EQ(tenant.ask("release " + id), "0");
    }
    EXPECT_EQ(pieces, (64 * kMiB - before) / (8 * kMiB));
    EXPECT_EQ(card.manager.bytes(), before + pieces * 8 * kMiB);
    EXPECT_TRUE(card.charges(tenant));
    for (std::uint64_t id = 0; id < pieces; ++id) {
      EXPECT_EQ(tenant.ask("unmap " + std::to_string(id)), "0");
    }
    EXPECT_EQ(card.manager.bytes(), before);
    EXPECT_TRUE(card.charges(tenant));
  });
}

// Its files of the driver are nobody's any more; the library finds that as it would find a fork.
TEST_F(Drivers, AForkedChildEndsAsItWouldAndHarmsNothingOfItsParents) {
  onEachCard(all_, cudaTask(), [&](Card& card, GuestChild& tenant) {
    GuestChild bare(card.bare(), QGPU_DRIVER_PROGRAM);
    ASSERT_EQ(bare.ask("init"), "0");
    EXPECT_EQ(tenant.ask("create 1 " + std::to_string(16 * kMiB)), "0");
    const std::uint64_t before = card.manager.bytes();
    EXPECT_EQ(tenant.ask("fork"), bare.ask("fork"));
    EXPECT_EQ(card.manager.bytes(), before);
    EXPECT_EQ(tenant.ask("map 1"), "0");
    EXPECT_EQ(tenant.ask("release 1"), "0");
    EXPECT_EQ(tenant.ask("unmap 1"), "0");
    EXPECT_EQ(card.manager.bytes(), before - 16 * kMiB);
    EXPECT_EQ(tenant.errors(), "");
  });
}

// A context's eight channels are told as they are made, in one group that computes, before the
// library waits for the card to work, which this one never does.
TEST_F(Drivers, TheChannelsOfAContextAreTold) {
  FakeManager::Options options = quotaOf(4096);
  options.suspend = QGPU_SUSPEND_RM;
  onEachCard(all_, options, [&](Card& card, GuestChild& tenant) {
    ASSERT_EQ(tenant.ask("context"), "begun");
    const auto channels = [&] {
      std::vector<qgpu_note> made;
      for (const FakeManager::Note& each : card.manager.notes()) {
        if (each.said.what == QGPU_NOTE_MADE) made.push_back(each.said);
      }
      return made;
    };
    EXPECT_TRUE(eventually([&] { return channels().size() == 8; })) << channels().size();
    std::set<std::uint32_t> groups, engines;
    for (const qgpu_note& each : channels()) {
      groups.insert(each.group);
      engines.insert(each.engine);
    }
    EXPECT_EQ(groups.size(), 1u);
    EXPECT_FALSE(groups.contains(0));
    EXPECT_EQ(engines, std::set<std::uint32_t>{1});
    EXPECT_TRUE(card.charges(tenant)) << "of the host's memory, so far";
    EXPECT_EQ(tenant.errors(), "");
    tenant.kill();
  });
}

// They decode with functions of CUDA that they look up themselves, and with files of the driver
// that they open themselves. Each function that has a hook is the hook in a tenant.
TEST_F(Drivers, LibrariesForVideoAnswerAsTheyDoAndAreGivenTheHooks) {
  int met = 0;
  onEachCard(all_, cudaTask(), [&](Card& card, GuestChild& tenant) {
    if (!fs::exists(card.driver / "libnvcuvid.so.1")) return;
    GuestChild bare(card.bare(), QGPU_DRIVER_PROGRAM);
    ASSERT_EQ(bare.ask("init"), "0");
    const std::string told = bare.ask("video");
    for (const char* name : {"cuLaunchKernel", "cuMemAlloc_v2", "cuMemcpyDtoHAsync_v2"}) {
      EXPECT_NE(told.find(name), told.npos) << told;
    }
    EXPECT_EQ(tenant.ask("video"), told);
    EXPECT_EQ(tenant.errors(), "");
    ++met;
  });
  if (met == 0) GTEST_SKIP() << "none of the drivers has libraries for video";
}

// It asks NVML for the memory by name, and for the processes by a table of its own.
TEST_F(Drivers, NvidiaSmiInATenantShowsItsQuotaAndItselfAlone) {
  int shown = 0;
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    FakeManager::Options options = cudaTask();
    options.quotaBytes = 12000 * kMiB;
    Card card(driver, options);
    const fs::path smi = driver / "nvidia-smi";
    if (!fs::exists(smi)) continue;
    const std::string bare = outputOf(card.bare(), smi);
    if (bare.find("No devices") != bare.npos) continue;  // it wants more than the stand-in has
    EXPECT_NE(bare.find(" / 16384MiB"), bare.npos) << bare;
    EXPECT_NE(bare.find(" 1  M+C+G "), bare.npos) << bare;
    const std::string tenant = outputOf(card.tenant(), smi);
    EXPECT_NE(tenant.find(" / 12000MiB"), tenant.npos) << tenant;
    EXPECT_EQ(tenant.find(" 1  M+C+G "), tenant.npos) << tenant;
    EXPECT_NE(tenant.find("/nvidia-smi "), tenant.npos) << tenant;
    ++shown;
  }
  if (shown == 0) GTEST_SKIP() << "none of the drivers has an nvidia-smi that finds the card";
}

// --- without one ---

TEST_F(Drivers, WithoutACardATenantIsToldSoAndIsATenantAllTheSame) {
  for (const fs::path& driver : all_) {
    SCOPED_TRACE(driver);
    FakeManager manager(cudaTask());
    const std::string nowhere = "QGPU_DRIVER_ROOT=/nonexistent";
    auto environment = preloading(cudaTenantOf(manager), QGPU_DRIVER_NAMES);
    environment.push_back(nowhere);
    GuestChild tenant(on(environment, driver), QGPU_DRIVER_PROGRAM);
    GuestChild bare(on({"LD_PRELOAD=" QGPU_DRIVER_NAMES, nowhere}, driver), QGPU_DRIVER_PROGRAM);
    for (const char* start : {"init", "nvml"}) {
      const std::string told = bare.ask(start);
      EXPECT_NE(told, "0") << start;
      EXPECT_EQ(tenant.ask(start), told) << start;
    }
    EXPECT_EQ(manager.attaches(), 1u);
    EXPECT_EQ(tenant.errors(), "");
  }
}

}  // namespace
}  // namespace qgpu::testing
