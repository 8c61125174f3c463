// The quota where the kernel driver is asked for memory: with the kernel's stand-in behind
// libqgpu.so, what is charged is exactly what that kernel holds, on every way to memory and out of
// it, by whole trees too; and where the driver's version is not known, the interface's calls count.

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "tests/cuda_stand_in/kernel.h"
#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_cuda_rm_test {
namespace {

constexpr std::uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
constexpr std::uint64_t kGiven = 64 * kKiB;  // what the card gives at least
// What cuda_program's init has in the kernel: a context, its module, and a page of its own.
constexpr std::uint64_t kInit = 2 * kMiB + 64 * kKiB + kGiven;

using Environment = std::vector<std::string>;

struct Scene {
  explicit Scene(std::uint64_t quota = 64 * kMiB, const Environment& more = {},
                 std::uint64_t layoutSeen = 0)
      : manager([&] {
          auto options = cudaTask();
          options.quotaBytes = quota;
          options.layoutSeen = layoutSeen;
          return options;
        }()),
        guest([&] {
          Environment all = root.tenantOf(manager);
          all.insert(all.end(), more.begin(), more.end());
          return all;
        }()) {}
  // With a program that is ready, and a file, client and device of its own beside libcuda's.
  void init() {
    ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("stream a"), "0");
  }
  std::string client(int file) {
    EXPECT_EQ(guest.ask("rm open " + std::to_string(file)), "ok");
    return anotherClient(file);
  }
  std::string anotherClient(int file) {
    const std::string made = guest.ask("rm alloc " + std::to_string(file) + " 0 0 0 65 0");
    EXPECT_EQ(made.substr(0, 4), "0 0 ");
    return made.substr(4);
  }
  std::uint64_t charged() { return manager.bytes(); }
  std::uint64_t held() { return std::stoull(guest.ask("rm held")); }
  DriverRoot root;
  FakeManager manager;
  CudaTenant guest;
};

std::string alloc(const std::string& kind, int id, std::uint64_t bytes) {
  return "alloc " + kind + " " + std::to_string(id) + " " + std::to_string(bytes);
}

// Memory of the card in words of the kernel's interface.
std::string memory(const std::string& client, const std::string& parent, int object,
                   std::uint64_t bytes, int file = 0) {
  return "rm alloc " + std::to_string(file) + " " + client + " " + parent + " " +
         std::to_string(object) + " 64 " + std::to_string(bytes);
}

TEST(CudaRm, ContextsModulesAndAllAllocationsCountAsTheKernelHoldsThem) {
  Scene s;
  s.init();
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
  EXPECT_EQ(s.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_DRIVER});
  EXPECT_EQ(s.guest.ask("module"), "0");
  EXPECT_EQ(s.charged(), kInit + 64 * kKiB);
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.charged(), kInit + 64 * kKiB + 2 * kMiB);
  EXPECT_EQ(s.guest.ask("ctxend"), "0");
  EXPECT_EQ(s.charged(), kInit + 64 * kKiB);
  EXPECT_EQ(s.held(), s.charged());
}

// A way to memory, and how many bytes asked for cost the driver one.
struct Way {
  const char* kind;
  std::uint64_t askedPerByte;
};

class EveryWay : public ::testing::TestWithParam<Way> {};

TEST_P(EveryWay, IsChargedOnceRefusedOverTheQuotaAndReturned) {
  Scene s;
  s.init();
  const std::string kind = GetParam().kind;
  const std::uint64_t asked = GetParam().askedPerByte;
  EXPECT_EQ(s.guest.ask(alloc(kind, 1, asked * 40 * kMiB)), "0");
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask(alloc(kind, 2, asked * 32 * kMiB)), "2") << "CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.held(), s.charged()) << "the kernel was not asked";
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}
INSTANTIATE_TEST_SUITE_P(CudaRm, EveryWay,
                         ::testing::Values(Way{"plain", 1}, Way{"pitch", 1}, Way{"physical", 1},
                                           Way{"array", 4}, Way{"array3d", 4}, Way{"mipmap", 2}),
                         [](const auto& each) { return std::string(each.param.kind); });

class EveryPool : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryPool, CountsWhatItKeepsAndGivesItBackForAnotherSize) {
  Scene s;
  s.init();
  const std::string kind = GetParam();
  EXPECT_EQ(s.guest.ask(alloc(kind, 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.guest.ask("ctxsync"), "0");
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB) << "kept by the pool, so held of the card";
  EXPECT_EQ(s.guest.ask(alloc(kind, 1, 40 * kMiB)), "0") << "the same block";
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.guest.ask("ctxsync"), "0");
  EXPECT_EQ(s.guest.ask(alloc(kind, 2, 50 * kMiB)), "0") << "refused once, and then trimmed";
  EXPECT_EQ(s.charged(), kInit + 50 * kMiB);
  EXPECT_EQ(s.held(), s.charged());
}
INSTANTIATE_TEST_SUITE_P(CudaRm, EveryPool, ::testing::Values("async", "pool"),
                         [](const auto& each) { return std::string(each.param); });

TEST(CudaRm, ManagedMemoryCountsAtItsCallSinceNoOtherSaysASize) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("managed", 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.held(), kInit);
  EXPECT_EQ(s.guest.ask(alloc("plain", 2, 32 * kMiB)), "2") << "one quota for both";
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, PhysicalMemoryOfTheHostCostsNothingAndNeedsNoContext) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("nocontext"), "0");
  for (const char* kind : {"host", "host-node", "host-near"}) {
    EXPECT_EQ(s.guest.ask(alloc(kind, 1, 80 * kMiB)), "0") << kind << ": more than the quota";
    EXPECT_EQ(s.charged(), kInit) << kind;
    EXPECT_EQ(s.held(), kInit) << kind;
    EXPECT_EQ(s.guest.ask("free 1"), "0") << kind;
    EXPECT_EQ(s.charged(), kInit) << kind;
  }
}

TEST(CudaRm, ARangeGrowsPieceByPieceToTheQuotaAndComesBackAtOnce) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("grow 1 " + std::to_string(8 * kMiB) + " 32"), "7 2");
  EXPECT_EQ(s.charged(), kInit + 56 * kMiB);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("unmap 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}

class EveryManagedPool : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryManagedPool, CountsAtItsAllocationsSinceNoCallBelowSaysASize) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc(GetParam(), 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.charged(), kInit + 40 * kMiB);
  EXPECT_EQ(s.held(), kInit);
  EXPECT_EQ(s.guest.ask(alloc("plain", 2, 32 * kMiB)), "2") << "one quota for both";
  EXPECT_EQ(s.guest.ask(alloc(GetParam(), 2, 32 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.guest.ask("ctxsync"), "0");
  EXPECT_EQ(s.charged(), kInit);
}
INSTANTIATE_TEST_SUITE_P(CudaRm, EveryManagedPool,
                         ::testing::Values("pool-managed", "pool-current", "pool-created"),
                         [](const auto& each) { return std::string(each.param).substr(5); });

TEST(CudaRm, APoolThatHasTheHandleOfADestroyedManagedOneIsCountedByTheDriver) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("pool-created", 1, kMiB)), "0");
  EXPECT_EQ(s.guest.ask(alloc("pool-again", 2, 8 * kMiB)), "0");
  EXPECT_EQ(s.charged(), kInit + 9 * kMiB) << "once, not twice";
  EXPECT_EQ(s.held(), kInit + 8 * kMiB);
}

TEST(CudaRm, AManagedPoolThatTwoThreadsFindAtOnceIsForgottenWithItsEnd) {
  Scene s(kInit + 12 * kMiB);
  s.init();
  EXPECT_EQ(s.guest.ask("poolsfound 300"), "0") << "8 MiB of a pool of its handle count once";
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB) << "what the last pool keeps";
}

TEST(CudaRm, MemoryOfAStrangersProcessIsChargedToWhoImportsIt) {
  Scene s(kInit + stand_in::kForeignBytes);
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("imported", 1, 0)), "0");
  EXPECT_EQ(s.charged(), kInit + stand_in::kForeignBytes);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
  s.manager.setQuota(kInit + stand_in::kForeignBytes - 1);
  EXPECT_NE(s.guest.ask(alloc("imported", 1, 0)), "0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit) << "and it is not held";
}

TEST(CudaRm, AContextOverTheQuotaFailsAsCudaSaysIt) {
  Scene s(kMiB);
  EXPECT_EQ(s.guest.ask("init"), "2");
  EXPECT_EQ(s.charged(), 0u);
  EXPECT_EQ(s.held(), 0u);
}

TEST(CudaRm, WhatTheKernelRefusesIsNotCharged) {
  Scene s(1ull << 40, {"QGPU_STAND_IN_BYTES=" + std::to_string(32 * kMiB)});
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 64 * kMiB)).substr(0, 4), "0 81");
  EXPECT_EQ(s.guest.ask(memory(client, "999", 8, kMiB)).substr(0, 4), "0 87") << "no such parent";
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, SizesThatTheDriverRoundsUpCountAsItTookThem) {
  Scene s(64 * kMiB, {"QGPU_STAND_IN_PAGE=" + std::to_string(2 * kMiB)});
  s.init();
  const std::uint64_t before = s.charged();
  EXPECT_EQ(before, 6 * kMiB) << "a context, a module and a page, each of 2 MiB";
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 57 * kMiB)), "0");
  EXPECT_EQ(s.charged(), 64 * kMiB);
  EXPECT_EQ(s.held(), 64 * kMiB);
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.charged(), before);
}

TEST(CudaRm, MemoryOfSmallPagesCountsAsTheCardGivesIt) {
  Scene s(kInit + 3 * kGiven);
  s.init();
  const std::string client = s.client(0);
  for (const int object : {7, 8, 9}) {
    EXPECT_EQ(s.guest.ask(memory(client, client, object, 4096)).substr(0, 4), "0 0 ");
  }
  EXPECT_EQ(s.charged(), kInit + 3 * kGiven);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask(memory(client, client, 10, 4096)).substr(0, 4), "0 81");
  EXPECT_EQ(s.guest.ask("rm free 0 " + client + " " + client), "0 0");
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, ARoundingThatTheQuotaHasNoRoomForIsGivenBackAtOnce) {
  Scene s(63 * kMiB, {"QGPU_STAND_IN_PAGE=" + std::to_string(2 * kMiB)});
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 57 * kMiB)), "2");
  EXPECT_EQ(s.charged(), 6 * kMiB);
  EXPECT_EQ(s.held(), 6 * kMiB);
}

TEST(CudaRm, TheEndOfAParentReturnsAllBeneathIt) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask("rm alloc 0 " + client + " " + client + " 10 128 0").substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask(memory(client, "10", 20, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask(memory(client, "20", 21, 4 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask(memory(client, client, 30, 2 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.charged(), kInit + 14 * kMiB);
  EXPECT_EQ(s.guest.ask("rm free 0 " + client + " 10"), "0 0");
  EXPECT_EQ(s.charged(), kInit + 2 * kMiB);
  EXPECT_EQ(s.guest.ask("rm free 0 " + client + " " + client), "0 0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}

TEST(CudaRm, AFreeThatTheDriverRefusesReturnsNothing) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm open 1"), "ok");
  EXPECT_EQ(s.guest.ask("rm free 1 " + client + " 7"), "0 35") << "another open file's client";
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.guest.ask("rm free 0 " + client + " 7"), "0 0");
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, MemoryWithTwoNamesCountsOnceUntilTheLastIsFreed) {
  Scene s;
  s.init();
  const std::string one = s.client(0), other = s.anotherClient(0);
  EXPECT_EQ(s.guest.ask(memory(one, one, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm dupobject 0 " + other + " " + other + " 9 " + one + " 7"), "0 0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.guest.ask("rm free 0 " + one + " " + one), "0 0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("rm free 0 " + other + " 9"), "0 0");
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, TheLastCloseOfAFileReturnsItsClients) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm dup 0 1"), "ok");
  EXPECT_EQ(s.guest.ask("rm close 0"), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB) << "open by its second descriptor";
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("rm open 2"), "ok");
  EXPECT_EQ(s.guest.ask("rm dup2 2 1"), "ok");
  EXPECT_EQ(s.charged(), kInit) << "replaced, which closes";
}

class EveryCopy : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryCopy, KeepsItsFilesMemoryUntilItIsClosed) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask(std::string("rm ") + GetParam() + " 0 1"), "ok");
  EXPECT_EQ(s.guest.ask("rm close 0"), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("rm close 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}
INSTANTIATE_TEST_SUITE_P(CudaRm, EveryCopy, ::testing::Values("dup", "fcntl", "fcntl64"),
                         [](const auto& each) { return std::string(each.param); });

TEST(CudaRm, ADescriptorThatWasNotSeenMadeIsKnownByItsUse) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask("rm unseen 0 1"), "ok");
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB, 1)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm close 0"), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.guest.ask("rm close 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}

TEST(CudaRm, AChildOfVforkThatClosesItsCopiesEndsNothingOfItsParents) {
  Scene s;
  s.init();
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm vfork 0"), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.guest.ask("rm free 0 " + client + " 7"), "0 0");
  EXPECT_EQ(s.charged(), kInit) << "and it is still followed";
}

TEST(CudaRm, AForkedChildChargesAndReturnsNothing) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 8 * kMiB)), "0");
  EXPECT_EQ(s.guest.ask("fork"), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB);
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.charged(), kInit);
}

// A worker that outlives the program that forked it, as a data loader's does a killed trainer.
class Worker {
 public:
  explicit Worker(const std::string& pid) : pid_(std::stoi(pid)) {}
  ~Worker() { ::kill(pid_, SIGKILL); }
  std::string file(const std::string& descriptor) const {
    return std::filesystem::read_symlink(folder() + "fd/" + descriptor);
  }
  std::string info(const std::string& descriptor) const {
    return text(folder() + "fdinfo/" + descriptor);
  }
  std::string maps() const { return text(folder() + "maps"); }
  // What it may do at an address; empty: nothing is mapped there.
  std::string rights(std::uint64_t address) const {
    std::istringstream lines(maps());
    for (std::string line; std::getline(lines, line);) {
      std::size_t dash = 0, space = 0;
      const std::uint64_t begin = std::stoull(line, &dash, 16);
      const std::uint64_t end = std::stoull(line.substr(dash + 1), &space, 16);
      if (begin <= address && address < end) return line.substr(dash + space + 2, 4);
    }
    return "";
  }

 private:
  static std::string text(const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  std::string folder() const { return "/proc/" + std::to_string(pid_) + "/"; }
  pid_t pid_;
};

// Whether any program has a locked open file of the driver's.
bool isOpen(const Scene& s, const char* name) {
  const int fd = open((s.root.path() + "/dev/" + name).c_str(), O_RDWR | O_CLOEXEC);
  const bool is = flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return is;
}

constexpr const char* kDriverFiles[] = {"nvidiactl", "nvidia0", "nvidia-uvm"};

TEST(CudaRm, AWorkerThatOutlivesAKilledProgramHoldsNoneOfItsFiles) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("rm uvm 9"), "0");
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask(memory(client, client, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm dup 0 1"), "ok");
  EXPECT_EQ(s.guest.ask("rm map 0"), "ok");
  EXPECT_NE(s.guest.ask("rm mapitself 9"), "no map");
  EXPECT_EQ(s.guest.ask("rm lock"), "5") << "libcuda's own two among them";
  const Worker worker(s.guest.ask("rm worker"));
  for (const char* name : kDriverFiles) EXPECT_TRUE(isOpen(s, name)) << name;
  s.guest.kill();
  for (const char* name : kDriverFiles) {
    EXPECT_TRUE(eventually([&] { return !isOpen(s, name); })) << name;
  }
}

TEST(CudaRm, AForkedChildsNumbersAndAddressesStayButLeadNowhere) {
  Scene s;
  s.init();
  const std::string holding = s.client(0), idle = s.client(1);
  EXPECT_EQ(s.guest.ask(memory(holding, holding, 7, 8 * kMiB)).substr(0, 4), "0 0 ");
  EXPECT_EQ(s.guest.ask("rm dup 0 2"), "ok");
  EXPECT_EQ(s.guest.ask("rm map 0"), "ok");
  EXPECT_EQ(s.guest.ask("rm dup 0 3"), "ok");
  EXPECT_EQ(s.guest.ask("rm steal 3"), "ok");
  const Worker worker(s.guest.ask("rm worker"));
  const auto number = [&](int file) { return s.guest.ask("rm number " + std::to_string(file)); };
  EXPECT_TRUE(eventually([&] { return worker.file(number(0)) == "/dev/null"; }));
  EXPECT_NE(worker.info(number(0)).find("02100002"), std::string::npos) << "closes at an exec";
  EXPECT_EQ(worker.file(number(2)), "/dev/null");
  EXPECT_EQ(worker.info(number(2)).find("02100002"), std::string::npos) << "as dup() made it";
  EXPECT_EQ(worker.file(number(1)), s.root.path() + "/dev/nvidiactl") << "it holds no memory";
  EXPECT_EQ(worker.file(number(3)), s.root.path() + "/dev") << "no longer the driver's";
  EXPECT_TRUE(eventually([&] { return worker.maps().find("nvidia0") == std::string::npos; }));
  EXPECT_EQ(s.held(), s.charged()) << "the program goes on";
  EXPECT_EQ(s.guest.ask("rm free 0 " + holding + " 7"), "0 0");
  EXPECT_EQ(s.charged(), kInit);
}

// The driver ends a child that touches unified memory; it is not told zeros in its place.
TEST(CudaRm, AForkedChildsUnifiedMemoryIsItsParentsAloneAndNobodyElsesAddress) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("rm uvm 9"), "0");
  const std::uint64_t address = std::stoull(s.guest.ask("rm mapitself 9"));
  const Worker worker(s.guest.ask("rm worker"));
  EXPECT_TRUE(eventually([&] { return worker.maps().find("nvidia-uvm") == std::string::npos; }));
  EXPECT_EQ(worker.rights(address), "---p");
}

// A new program in the same process has a slot of its own, and the kernel has closed the old one's
// files; a killed one leaves its slot to whoever watches the process.
TEST(CudaRm, AnExecutedOrKilledProgramLeavesOnlyItsSlot) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 8 * kMiB)), "0");
  s.guest.send("exec");
  EXPECT_TRUE(eventually([&] { return s.manager.slot(0).owner & 0x40000000u; }));
  s.manager.slot(0).bytes = 0;  // as the manager does
  ASSERT_EQ(s.guest.ask("init"), "0") << s.guest.errors();
  EXPECT_EQ(s.manager.slot(1).bytes, kInit);
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.manager.slot(0).bytes, 0u);
  CudaTenant other(s.root.tenantOf(s.manager));
  ASSERT_EQ(other.ask("init"), "0") << other.errors();
  EXPECT_EQ(other.ask(alloc("plain", 1, 40 * kMiB)), "2");
  s.guest.kill();
  EXPECT_TRUE(eventually([&] { return s.manager.slot(1).owner & 0x40000000u; }));
  s.manager.slot(1).bytes = 0;
  EXPECT_EQ(other.ask(alloc("plain", 1, 40 * kMiB)), "0");
}

TEST(CudaRm, TwoThreadsChargeExactly) {
  Scene s(kInit + 16 * kMiB);
  s.init();
  EXPECT_EQ(s.guest.ask("race " + std::to_string(8 * kMiB)), "0") << "there is room for both";
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_LE(s.manager.slot(0).bytes_peak, kInit + 16 * kMiB);
  s.manager.setQuota(kInit + 12 * kMiB);
  s.guest.ask("race " + std::to_string(8 * kMiB));
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.held(), kInit);
}

TEST(CudaRm, TheQuotaIsTheTasksOverItsProcesses) {
  Scene s;
  s.init();
  CudaTenant other(s.root.tenantOf(s.manager));
  ASSERT_EQ(other.ask("init"), "0") << other.errors();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 40 * kMiB)), "0");
  EXPECT_EQ(other.ask(alloc("plain", 1, 30 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(other.ask(alloc("plain", 1, 30 * kMiB)), "0");
}

TEST(CudaRm, CudaNvmlAndTheDriverItselfTellTheQuotaAlike) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 16 * kMiB)), "0");
  const std::uint64_t held = kInit + 16 * kMiB;
  const std::string quota = std::to_string(64 * kMiB), left = std::to_string(64 * kMiB - held);
  EXPECT_EQ(s.guest.ask("info"), left + " " + quota + " " + quota);
  EXPECT_EQ(s.guest.ask("nvml"), left + " " + quota + " " + std::to_string(held) + " 0");
  const std::string client = s.client(0);
  EXPECT_EQ(s.guest.ask("rm sizes 0 " + client),
            "64 64 " + std::to_string((64 * kMiB - held) / kMiB));
  const std::string mib = std::to_string((64 * kMiB - held) / kMiB);
  EXPECT_EQ(s.guest.ask("rm heapsizes 0 " + client + " " + std::to_string(1ull << 40)),
            "64 " + mib + " " + mib + " 64");
  EXPECT_EQ(s.charged(), held) << "what names a limit takes nothing";
}

// nvidia-smi asks so, and not by NVML's functions.
TEST(CudaRm, TheDriverItselfTellsOfTheTasksProcessesAlone) {
  Scene s;
  s.init();
  EXPECT_EQ(s.guest.ask("rm pids 0 " + s.client(0)), "1: self");
}

TEST(CudaRm, TheOldestLayoutsCountAlike) {
  for (const char* driver : {"515.43.04", "525.147.05", "535.43.02", "595.45.04"}) {
    Scene s(64 * kMiB, {std::string("QGPU_STAND_IN_DRIVER=") + driver});
    s.root.loaded(driver);
    s.init();
    EXPECT_EQ(s.charged(), kInit) << driver;
    EXPECT_EQ(s.guest.ask(alloc("plain", 1, 63 * kMiB)), "2") << driver;
    EXPECT_EQ(s.guest.ask(alloc("plain", 1, 8 * kMiB)), "0") << driver;
    EXPECT_EQ(s.charged(), kInit + 8 * kMiB) << driver;
    EXPECT_EQ(s.guest.ask("free 1"), "0");
    EXPECT_EQ(s.held(), s.charged()) << driver;
  }
}

// A driver before 530 says what the program said: a library of another release would be believed.
TEST(CudaRm, WhatAnOldDriverIsSysfsTellsAndNotTheProgram) {
  Scene s(64 * kMiB, {"QGPU_STAND_IN_DRIVER=525.147.05"});
  s.init();
  EXPECT_EQ(s.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_CALLS}) << "it is not told";
  Scene told(64 * kMiB, {"QGPU_STAND_IN_DRIVER=525.147.05"});
  told.root.loaded("525.147.05");
  told.init();
  EXPECT_EQ(told.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_DRIVER});
}

TEST(CudaRm, ADriverThatIsNotKnownLeavesTheCountToTheCalls) {
  for (const char* of : {"QGPU_STAND_IN_DRIVER=610.43.02", "QGPU_STAND_IN_SILENT=1"}) {
    Scene s(64 * kMiB, {of});
    s.init();
    EXPECT_EQ(s.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_CALLS}) << of;
    EXPECT_EQ(s.charged(), kCudaInitBytes) << of;
    EXPECT_EQ(s.guest.ask(alloc("plain", 1, 63 * kMiB)), "0") << of;
    EXPECT_EQ(s.charged(), kCudaInitBytes + 63 * kMiB) << of;
    EXPECT_EQ(s.guest.ask(alloc("plain", 2, 2 * kMiB)), "2") << of;
    EXPECT_EQ(s.guest.ask("free 1"), "0");
    EXPECT_EQ(s.charged(), kCudaInitBytes) << of;
  }
}

TEST(CudaRm, ANewerDriverCountsInTheLayoutThatItsManagerSaw) {
  Scene s(64 * kMiB, {"QGPU_STAND_IN_DRIVER=615.71.09"}, 595);
  s.init();
  EXPECT_EQ(s.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_DRIVER});
  EXPECT_EQ(s.charged(), kInit);
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 63 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 8 * kMiB + 1)), "0");
  EXPECT_EQ(s.charged(), kInit + 8 * kMiB + kGiven);
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.held(), s.charged());
  EXPECT_EQ(s.charged(), kInit);
}

TEST(CudaRm, ALayoutThatThisLibraryDoesNotKnowIsNotTaken) {
  Scene s(64 * kMiB, {"QGPU_STAND_IN_DRIVER=640.10"}, 615);  // of a newer manager
  s.init();
  EXPECT_EQ(s.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_CALLS});
  Scene old(64 * kMiB, {"QGPU_STAND_IN_DRIVER=450.102.04"}, 595);
  old.root.loaded("450.102.04");
  old.init();
  EXPECT_EQ(old.manager.slot(0).counted, std::uint32_t{QGPU_COUNTED_BY_CALLS}) << "not newer";
}

TEST(CudaRm, AProgramWithoutATokenIsLeftAlone) {
  DriverRoot root;
  FakeManager manager(cudaTask());
  Environment all = root.tenantOf(manager);
  std::erase_if(all, [](const std::string& each) { return each.rfind("QGPU_TOKEN=", 0) == 0; });
  CudaTenant guest(all);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask(alloc("plain", 1, 8ull << 30)), "0");
  EXPECT_EQ(manager.bytes(), 0u);
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_rm_test
