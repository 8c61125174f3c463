// The cap of memory in the kernel, on a driver that stands in for NVIDIA's: what is counted is what
// the driver gave, and no way of asking gets more.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "services/nvidia_abi/rm_objects.h"
#include "tests/unit/services/guard/holder.h"
#include "tests/unit/services/guard/standin_card.h"
#include "tests/unit/services/guard/tenants.h"

namespace qgpu::testing {
namespace {

constexpr std::uint64_t kQuota = 64 * kMiB;
constexpr std::uint64_t kOtherTask = 8;

// In a child's body, where an expectation of the test's would be lost: ends it with the line.
#define HOLDS(what)                                                             \
  do {                                                                          \
    if (!(what)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);   \
      return __LINE__ % 250 + 1;                                                \
    }                                                                           \
  } while (false)

class CapTest : public GuardTest {
 protected:
  void SetUp() override {
    GuardTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const char* driver = std::getenv("QGPU_STANDIN_DRIVER");
    if (driver == nullptr || !loadStandin(driver)) {
      GTEST_SKIP() << "no driver that stands in for NVIDIA's: ./dev test-guard makes one";
    }
    struct stat facts {};
    ASSERT_EQ(::stat(kStandinNode, &facts), 0);
    node = facts.st_rdev;
    guard.reset();
    open();
    ASSERT_TRUE(guard->setNodes({{node, kGuardShared}}));
    ASSERT_TRUE(guard->setQuota(kGuardedTask, 0, kQuota));
    ASSERT_EQ(standinGiven(), 0u);
  }
  void TearDown() override {
    if (guard && guard->caps()) {
      EXPECT_EQ(standinGiven(), 0u) << "a process of the test lives on";
    }
    GuardTest::TearDown();
  }
  void open() {
    const rm::AllocForms forms = rm::allocForms(kStandinLayout);
    auto opened = Guard::open(folder, &forms);
    ASSERT_TRUE(opened) << opened.error().message;
    guard = std::move(*opened);
    ASSERT_TRUE(guard->caps()) << guard->whyNoCap();
  }
  int tenantOf(std::uint64_t task, const std::function<int()>& body) {
    Held held(body);
    EXPECT_TRUE(guard->letIn(held.pidfd(), task, {0}));
    held.letGo();
    return held.wait();
  }
  int attached(const std::function<int()>& body) { return tenantOf(kGuardedTask, body); }
  std::uint64_t counted(std::uint64_t task = kGuardedTask) const {
    return guard->bytesHeld(task).value_or(~std::uint64_t{0});
  }
  bool agrees() const { return counted() == standinGiven(); }

  dev_t node = 0;
};

TEST_F(CapTest, CountsWhatTheDriverGave) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0, two = 77, three = 0, four = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 3 * kMiB + 1) == 0);
              HOLDS(counted() == 3 * kMiB + (64 << 10) && agrees());
              HOLDS(file.heapAlloc(rm::kHeapAllocSize, two, 5 * kMiB) == 0);
              HOLDS(file.heapAlloc(rm::kHeapAllocTiled, three, 1 * kMiB) == 0);
              HOLDS(file.heapAlloc(rm::kHeapAllocRange, four, 2 * kMiB) == 0);
              HOLDS(counted() == 11 * kMiB + (64 << 10) && agrees());
              HOLDS(file.free(one) == 0 && agrees());
              HOLDS(file.heapFree(two) == 0 && agrees());
              HOLDS(counted() == 3 * kMiB);
              return 0;
            }),
            0);
  EXPECT_EQ(counted(), 0u) << "its files are closed";
}

TEST_F(CapTest, WhatTakesNoMemoryOfTheCardIsFree) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle address = 0, host = 0, context = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, address, 1ull << 40, rm::kFlagVirtual) == 0);
              HOLDS(file.heapAlloc(rm::kHeapAllocSize, host, 80 * kMiB, 1u << 25) == 0);
              HOLDS(file.make(StandinFile::kDeviceName, context, 0xa06c) == 0);
              HOLDS(counted() == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, RefusesWhatTheQuotaHasNoRoomFor) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0, two = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, kQuota + 1) == -ENOMEM);
              HOLDS(file.alloc(StandinFile::kDeviceName, one, kQuota) == 0);
              HOLDS(file.alloc(StandinFile::kDeviceName, two, 1) == -ENOMEM);
              HOLDS(counted() == kQuota && agrees());
              HOLDS(file.free(one) == 0);
              HOLDS(file.alloc(StandinFile::kDeviceName, two, kQuota) == 0);
              return 0;
            }),
            0);
  EXPECT_EQ(guard->tally(0), 2u);
  bool told = false;
  guard->takeNews([&](const GuardRefusal& refusal) {
    told = refusal.task == kGuardedTask && refusal.card == 0 &&
           refusal.way == GuardRefusal::Way::Quota;
  });
  EXPECT_TRUE(told);
}

TEST_F(CapTest, WhatTheDriverRefusesIsNotCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0, nowhere = 5;
              HOLDS(file.alloc(0xbad, one, kMiB) == static_cast<int>(rm::kObjectNotFound));
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 0) == static_cast<int>(rm::kNoMemory));
              HOLDS(file.free(nowhere) == static_cast<int>(rm::kObjectNotFound));
              HOLDS(counted() == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, WhatIsAboveTakesWhatIsBeneathAlong) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle sub = 0, deeper = 0, one = 0, two = 0, beside = 0;
              HOLDS(file.make(StandinFile::kDeviceName, sub, rm::kSubdevice) == 0);
              HOLDS(file.make(sub, deeper, 0x1234) == 0);
              HOLDS(file.alloc(sub, one, kMiB) == 0 && file.alloc(deeper, two, kMiB) == 0);
              HOLDS(file.alloc(StandinFile::kDeviceName, beside, kMiB) == 0);
              HOLDS(counted() == 3 * kMiB);
              HOLDS(file.free(sub) == 0 && counted() == kMiB && agrees());
              HOLDS(file.free(file.client()) == 0 && counted() == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, AFileThatIsClosedEndsItsClients) {
  EXPECT_EQ(attached([&] {
              StandinFile one, two;
              rm::Handle a = 0, b = 0;
              HOLDS(one.alloc(StandinFile::kDeviceName, a, kMiB) == 0);
              HOLDS(two.alloc(StandinFile::kDeviceName, b, 2 * kMiB) == 0);
              const Fd copy(::dup(one.fd()));
              one.close();
              HOLDS(counted() == 3 * kMiB && agrees());
              two.close();
              HOLDS(counted() == kMiB && agrees());
              return 0;
            }),
            0);
  EXPECT_EQ(counted(), 0u);
}

TEST_F(CapTest, MemoryWithSeveralNamesIsFreeWithTheLast) {
  EXPECT_EQ(attached([&] {
              StandinFile one, two;
              rm::Handle a = 0, b = 0;
              HOLDS(one.alloc(StandinFile::kDeviceName, a, 4 * kMiB) == 0);
              HOLDS(two.duplicate(one, a, b) == 0 && counted() == 4 * kMiB);
              HOLDS(one.free(a) == 0 && counted() == 4 * kMiB && agrees());
              HOLDS(two.free(b) == 0 && counted() == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, AFileHoldsWhatWasPutIntoIt) {
  EXPECT_EQ(attached([&] {
              StandinFile one, two;
              Fd holder(::open(kStandinNode, O_RDWR | O_CLOEXEC));
              rm::Handle a = 0, b = 0;
              HOLDS(one.alloc(StandinFile::kDeviceName, a, 4 * kMiB) == 0);
              HOLDS(one.exportTo(holder.get(), a) == 0);
              HOLDS(one.free(a) == 0 && counted() == 4 * kMiB && agrees());
              HOLDS(two.importFrom(holder.get(), b) == 0 && counted() == 4 * kMiB);
              holder.reset();
              HOLDS(counted() == 4 * kMiB && agrees());
              HOLDS(two.free(b) == 0 && counted() == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, AnotherTasksMemoryCountsForBoth) {
  ASSERT_TRUE(guard->setQuota(kOtherTask, 0, 3 * kMiB));
  Pipe made, end;
  Held first([&] {
    StandinFile file;
    rm::Handle a = 0xaaa, b = 0xbbb;
    HOLDS(file.alloc(StandinFile::kDeviceName, a, 2 * kMiB) == 0);
    HOLDS(file.alloc(StandinFile::kDeviceName, b, 4 * kMiB) == 0);
    if (::write(made.in.get(), "", 1) != 1) return 1;
    const rm::Handle client = file.client();
    if (::write(made.in.get(), &client, sizeof client) != sizeof client) return 1;
    return end.hear() ? 0 : 1;
  });
  ASSERT_TRUE(guard->letIn(first.pidfd(), kGuardedTask, {0}));
  first.letGo();
  ASSERT_TRUE(made.hear());
  rm::Handle client = 0;
  ASSERT_EQ(::read(made.out.get(), &client, sizeof client), static_cast<ssize_t>(sizeof client));
  EXPECT_EQ(tenantOf(kOtherTask,
                     [&] {
                       StandinFile file;
                       rm::DupCall small{file.client(), StandinFile::kDeviceName, 0, client, 0xaaa, 0, 0};
                       HOLDS(file.call(rm::kEscDupObject, &small, sizeof small) == 0);
                       HOLDS(small.status == 0 && counted(kOtherTask) == 2 * kMiB);
                       rm::DupCall large{file.client(), StandinFile::kDeviceName, 0, client, 0xbbb, 0, 0};
                       HOLDS(file.call(rm::kEscDupObject, &large, sizeof large) == -ENOMEM);
                       HOLDS(counted(kOtherTask) == 2 * kMiB && counted() == 6 * kMiB);
                       return 0;
                     }),
            0);
  EXPECT_EQ(counted(kOtherTask), 0u);
  end.say();
  EXPECT_EQ(first.wait(), 0);
}

TEST_F(CapTest, WhoHasNoQuotaIsNotCounted) {
  EXPECT_EQ(tenantOf(kOtherTask,
                     [&] {
                       StandinFile file;
                       rm::Handle one = 0;
                       HOLDS(file.alloc(StandinFile::kDeviceName, one, 2 * kQuota) == 0);
                       return 0;
                     }),
            0);
  StandinFile mine;
  rm::Handle one = 0;
  EXPECT_EQ(mine.alloc(StandinFile::kDeviceName, one, 2 * kQuota), 0) << "of no task at all";
  EXPECT_EQ(counted(), 0u);
}

// --- ways out ---

TEST_F(CapTest, AWayThroughAnotherCallCounts) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              StandinMemory memory;
              memory.known.size = kQuota + 1;
              StandinAlloc made{};
              made.head = {file.client(), StandinFile::kDeviceName, 0, rm::kLocalMemory,
                           reinterpret_cast<std::uintptr_t>(&memory)};
              HOLDS(file.carried(rm::kEscAlloc, &made, sizeof made) == -ENOMEM);
              memory.known.size = kMiB;
              HOLDS(file.carried(rm::kEscAlloc, &made, sizeof made) == 0 && made.status == 0);
              HOLDS(counted() == kMiB && agrees());
              struct {
                rm::AllocCall head;
                std::uint32_t size, status;
              } brief{{file.client(), StandinFile::kDeviceName, 0, rm::kLocalMemory,
                       reinterpret_cast<std::uintptr_t>(&memory)},
                      0, 0};
              HOLDS(file.call(rm::kEscAlloc, &brief, 32) == 0 && brief.status == 0);
              HOLDS(counted() == 2 * kMiB && agrees());
              memory.known.size = kQuota;
              brief.head.object = 0;
              HOLDS(file.call(rm::kEscAlloc, &brief, 32) == -ENOMEM);
              return 0;
            }),
            0);
}

TEST_F(CapTest, ManyObjectsAtOnceAndDmaBufsAreRefused) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::ExportMany many{};
              HOLDS(file.control(rm::kExportMany, &many, sizeof many) == -EPERM);
              rm::ImportMany into{};
              HOLDS(file.control(rm::kImportMany, &into, sizeof into) == -EPERM);
              std::uint8_t dma[2608] = {};
              HOLDS(file.call(rm::kEscExportDmaBuf, dma, sizeof dma) == -EPERM);
              HOLDS(file.carried(rm::kEscExportDmaBuf, dma, sizeof dma) == -EPERM);
              return 0;
            }),
            0);
}

// What a program asks at the door, and what it has the driver read instead.
int altersWhileTheDriverReads(StandinFile& file, std::uint64_t asked, std::uint64_t taken) {
  static StandinMemory memory;
  static StandinAlloc made;
  memory.known.size = asked;
  made.head = {file.client(), StandinFile::kDeviceName, 0, rm::kLocalMemory,
               reinterpret_cast<std::uintptr_t>(&memory)};
  standinWaits();
  std::thread caller([&file] { file.call(rm::kEscAlloc, &made, sizeof made); });
  // It sleeps in the driver once it was judged.
  const std::string stat = "/proc/self/task/";
  for (bool asleep = false; !asleep;) {
    asleep = false;
    const Fd tasks(::open("/proc/self/task", O_RDONLY | O_DIRECTORY));
    for (int tid = ::getpid() + 1; tid < ::getpid() + 50 && !asleep; ++tid) {
      const Fd wchan(::open((stat + std::to_string(tid) + "/wchan").c_str(), O_RDONLY));
      char where[64] = {};
      asleep = wchan && ::read(wchan.get(), where, sizeof where - 1) > 0 &&
               std::string_view(where).find("do_call") != std::string_view::npos;
      if (wchan && where[0] == '0') asleep = false;
    }
    std::this_thread::yield();
  }
  memory.known.size = taken;
  standinGoesOn();
  caller.join();
  return static_cast<int>(made.status);
}

TEST_F(CapTest, ACallThatIsAlteredBehindTheDoorEndsTheProcess) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              altersWhileTheDriverReads(file, kMiB, kQuota + 4 * kMiB);
              return 0;
            }),
            -SIGKILL);
  EXPECT_EQ(counted(), 0u) << "and what it got is given back";
  bool told = false;
  guard->takeNews([&](const GuardRefusal& refusal) {
    told |= refusal.way == GuardRefusal::Way::Altered && refusal.task == kGuardedTask;
  });
  EXPECT_TRUE(told);
}

TEST_F(CapTest, WhatWasAlteredAndFitsIsCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              HOLDS(altersWhileTheDriverReads(file, kMiB, 8 * kMiB) == 0);
              HOLDS(counted() == 8 * kMiB && agrees());
              HOLDS(altersWhileTheDriverReads(file, 16 * kMiB, kMiB) == 0);
              HOLDS(counted() == 9 * kMiB && agrees());
              return 0;
            }),
            0);
}

// --- its life ---

TEST_F(CapTest, TheNextManagerGoesOnCounting) {
  Pipe made, end;
  Held tenantThatStays([&] {
    StandinFile file;
    rm::Handle one = 0, two = 0;
    HOLDS(file.alloc(StandinFile::kDeviceName, one, 8 * kMiB) == 0);
    made.say();
    HOLDS(end.hear());
    HOLDS(file.alloc(StandinFile::kDeviceName, two, kQuota) == -ENOMEM);
    HOLDS(file.alloc(StandinFile::kDeviceName, two, kMiB) == 0);
    HOLDS(counted() == 9 * kMiB && agrees());
    HOLDS(file.free(one) == 0 && counted() == kMiB);
    return 0;
  });
  ASSERT_TRUE(guard->letIn(tenantThatStays.pidfd(), kGuardedTask, {0}));
  tenantThatStays.letGo();
  ASSERT_TRUE(made.hear());
  for (int i = 0; i < 3; ++i) {
    open();
    EXPECT_EQ(counted(), 8 * kMiB);
  }
  end.say();
  EXPECT_EQ(tenantThatStays.wait(), 0);
  EXPECT_EQ(counted(), 0u);
}

TEST_F(CapTest, AQuotaThatChangesKeepsWhatIsCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0, two = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 8 * kMiB) == 0);
              HOLDS(guard->setQuota(kGuardedTask, 0, 4 * kMiB).ok());
              HOLDS(counted() == 8 * kMiB);
              HOLDS(file.alloc(StandinFile::kDeviceName, two, 1) == -ENOMEM);
              HOLDS(guard->setQuota(kGuardedTask, 0, 9 * kMiB).ok());
              HOLDS(file.alloc(StandinFile::kDeviceName, two, kMiB) == 0);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace qgpu::testing
