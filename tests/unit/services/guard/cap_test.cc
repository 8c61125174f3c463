// The cap of memory in the kernel, on a driver that stands in for NVIDIA's: what is counted is what
// the driver gave, and no way of asking gets more.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "services/nvidia_abi/rm_objects.h"
#include "tests/guard/standin_card.h"
#include "tests/testing/eventually.h"
#include "tests/unit/services/guard/holder.h"
#include "tests/unit/services/guard/tenants.h"

namespace qgpu::testing {
namespace {

constexpr std::uint64_t kQuota = 64 * kMiB;
constexpr std::uint64_t kOtherTask = 8;

// In a child's body, where an expectation of the test's would be lost: ends it with the line.
#define HOLDS(what)                                                           \
  do {                                                                        \
    if (!(what)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
      return __LINE__ % 250 + 1;                                              \
    }                                                                         \
  } while (false)

constexpr Bytes bytes(std::uint64_t n) {
  return Bytes(static_cast<std::int64_t>(n));
}

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
    ASSERT_TRUE(guard->setQuota(kGuardedTask, 0, bytes(kQuota)));
    ASSERT_EQ(standinGiven(), 0u);
  }
  void TearDown() override {
    if (guard && guard->caps()) {
      EXPECT_EQ(standinGiven(), 0u) << "a process of the test lives on";
    }
    GuardTest::TearDown();
  }
  void open() {
    auto opened = Guard::open(folder);
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
    return static_cast<std::uint64_t>(guard->bytesHeld(task).value_or(Bytes(-1)).value);
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
  EXPECT_EQ(
      attached([&] {
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
  EXPECT_EQ(
      attached([&] {
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
  ASSERT_TRUE(guard->setQuota(kOtherTask, 0, bytes(3 * kMiB)));
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
  EXPECT_EQ(
      tenantOf(kOtherTask,
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

// --- stories ---

// What a program does with files, objects and memory, in no sensible order; and beside it what the
// library's own ledger makes of the same calls.
class Story {
 public:
  explicit Story(std::uint32_t seed) : random_(seed) {}
  ~Story() {
    for (auto& [number, file] : files_) ledger_.end(takeAll(*file.file), onEnd, this);
    ledger_.forget();
  }

  std::uint64_t bytes() const { return bytes_; }

  void step() {
    if (files_.empty() || pick(20) == 0) return openFile();
    auto at = files_.begin();
    std::advance(at, pick(files_.size()));
    Open& of = at->second;
    switch (pick(10)) {
      case 0: {
        rm::Handle made = 0;
        const rm::Handle parent = any(of);
        if (of.file->make(parent, made, pick(2) != 0 ? 0x2080 : 0xa06c) == 0) {
          add(of, parent, made, 0);
        }
        return;
      }
      case 1:
      case 2: {
        rm::Handle made = 0;
        const rm::Handle parent = any(of);
        const std::uint64_t size = pick(3 * kMiB);
        if (of.file->alloc(parent, made, size) == 0) add(of, parent, made, rm::bytesGiven(size));
        return;
      }
      case 3: {
        rm::Handle made = 0;
        constexpr std::uint32_t kWays[] = {rm::kHeapAllocSize, rm::kHeapAllocTiled,
                                           rm::kHeapAllocRange};
        const std::uint64_t size = (1 + pick(40)) << 16;
        if (of.file->heapAlloc(kWays[pick(3)], made, size) == 0) {
          add(of, StandinFile::kDeviceName, made, rm::bytesGiven(size));
        }
        return;
      }
      case 4:
      case 5: {
        auto from = files_.begin();
        std::advance(from, pick(files_.size()));
        rm::Handle made = 0;
        const rm::Handle source = any(from->second);
        if (of.file->duplicate(*from->second.file, source, made) != 0) return;
        rm::Objects::Made name = nameOf(of, StandinFile::kDeviceName, made);
        ledger_.duplicate(name, from->second.file->client(), source, onEnd, this);
        of.names.push_back(made);
        return;
      }
      case 9:
        if (pick(3) != 0) return;
        ledger_.end(takeAll(*of.file), onEnd, this);
        files_.erase(at);
        return;
      default: {
        const rm::Handle gone = any(of);
        if (gone == StandinFile::kDeviceName && pick(4) != 0) return;
        if (of.file->free(gone) != 0) return;
        ledger_.end(ledger_.takeOut(of.file->client(), gone), onEnd, this);
        if (gone == of.file->client()) files_.erase(at);
        return;
      }
    }
  }

 private:
  struct Open {
    std::unique_ptr<StandinFile> file;
    std::vector<rm::Handle> names;
  };

  std::uint64_t pick(std::uint64_t below) {
    return std::uniform_int_distribution<std::uint64_t>(0, below - 1)(random_);
  }
  rm::Handle any(const Open& of) {
    if (of.names.empty() || pick(4) == 0) return StandinFile::kDeviceName;
    return of.names[pick(of.names.size())];
  }
  void openFile() {
    Open opened{std::make_unique<StandinFile>(), {}};
    const rm::Handle client = opened.file->client();
    rm::Objects::Made made;
    made.client = made.parent = made.handle = client;
    made.file = client;
    ledger_.add(made, onEnd, this);
    ledger_.add(nameOf(opened, client, StandinFile::kDeviceName), onEnd, this);
    files_.emplace(client, std::move(opened));
  }
  static rm::Objects::Made nameOf(const Open& of, rm::Handle parent, rm::Handle handle) {
    rm::Objects::Made made;
    made.client = of.file->client();
    made.parent = parent;
    made.handle = handle;
    return made;
  }
  void add(Open& of, rm::Handle parent, rm::Handle handle, std::uint64_t size) {
    rm::Objects::Made made = nameOf(of, parent, handle);
    made.bytes = size;
    bytes_ += size;
    ledger_.add(made, onEnd, this);
    of.names.push_back(handle);
  }
  rm::Object* takeAll(const StandinFile& file) { return ledger_.takeClientOf(file.client()); }
  static void onEnd(const rm::Object&, const rm::Memory* freed, void* self) {
    if (freed != nullptr) static_cast<Story*>(self)->bytes_ -= freed->bytes;
  }

  std::mt19937 random_;
  rm::Objects ledger_;
  std::map<rm::Handle, Open> files_;
  std::uint64_t bytes_ = 0;
};

// QGPU_CAP_STORIES says how many.
std::uint32_t stories() {
  const char* times = std::getenv("QGPU_CAP_STORIES");
  return times == nullptr ? 1'000 : static_cast<std::uint32_t>(std::strtoul(times, nullptr, 10));
}

TEST_F(CapTest, InManyStoriesItAgreesWithTheLibraryAndTheDriver) {
  EXPECT_EQ(attached([&] {
              for (std::uint32_t seed = 1; seed <= stories(); ++seed) {
                const auto story = std::make_unique<Story>(seed);
                for (int i = 0; i < 30; ++i) {
                  story->step();
                  if (counted() == story->bytes() && agrees()) continue;
                  std::fprintf(stderr,
                               "seed %u, step %d: %lu counted, %lu by the library, %lu given\n",
                               seed, i, counted(), story->bytes(), standinGiven());
                  return 1;
                }
              }
              HOLDS(counted() == 0 && agrees());
              return 0;
            }),
            0);
}

// --- ways out ---

// A call to make memory, as a program has it in its own hands.
struct Asking {
  explicit Asking(const StandinFile& file, std::uint64_t bytes) {
    memory.known.size = bytes;
    made.head = {file.client(), StandinFile::kDeviceName, 0x5c000001, rm::kLocalMemory,
                 reinterpret_cast<std::uintptr_t>(&memory)};
  }
  StandinMemory memory;
  StandinAlloc made{};
};

TEST_F(CapTest, AWayThroughAnotherCallCounts) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              StandinMemory memory;
              memory.known.size = kQuota + 1;
              StandinAlloc made{};
              made.head = {file.client(), StandinFile::kDeviceName, 0x5c000001, rm::kLocalMemory,
                           reinterpret_cast<std::uintptr_t>(&memory)};
              HOLDS(file.carried(rm::kEscAlloc, &made, sizeof made) == -ENOMEM);
              memory.known.size = kMiB;
              HOLDS(file.carried(rm::kEscAlloc, &made, sizeof made) == 0 && made.status == 0);
              HOLDS(counted() == kMiB && agrees());
              struct {
                rm::AllocCall head;
                std::uint32_t size, status;
              } brief{{file.client(), StandinFile::kDeviceName, 0x5c000002, rm::kLocalMemory,
                       reinterpret_cast<std::uintptr_t>(&memory)},
                      0,
                      0};
              HOLDS(file.call(rm::kEscAlloc, &brief, 32) == 0 && brief.status == 0);
              HOLDS(counted() == 2 * kMiB && agrees());
              memory.known.size = kQuota;
              brief.head.object = 0x5c000003;
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

TEST_F(CapTest, WhatTheDriverLooksNotAtHelpsNobody) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking large(file, kQuota + 1), fits(file, kMiB);
              HOLDS(file.call(rm::kEscAlloc, &large.made, sizeof large.made, 'X') == -ENOMEM);
              large.made.parametersSize = 8;
              HOLDS(file.call(rm::kEscAlloc, &large.made, sizeof large.made) == -ENOMEM);
              fits.made.parametersSize = 8;
              HOLDS(file.call(rm::kEscAlloc, &fits.made, sizeof fits.made, 'X') == 0);
              HOLDS(fits.made.status == 0 && counted() == kMiB && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, NamesLeftToTheDriverOthersMemoryAndTheDisplayHalfAreRefused) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking unnamed(file, kMiB);
              unnamed.made.head.object = 0;
              HOLDS(file.call(rm::kEscAlloc, &unnamed.made, sizeof unnamed.made) == -EPERM);
              rm::HeapCall heap{};
              heap.client = file.client();
              heap.parent = StandinFile::kDeviceName;
              heap.function = rm::kHeapAllocSize;
              heap.bySize.object = 0x5c000001;  // which the driver does not look at
              heap.bySize.size = kMiB;
              HOLDS(file.call(rm::kEscVidHeapControl, &heap, sizeof heap) == -EPERM);
              rm::Handle fabric = 0;
              HOLDS(file.make(StandinFile::kDeviceName, fabric, rm::kFabricMemory) == -EPERM);
              std::uint8_t display[32] = {};
              for (const std::uint32_t number : {0x41u, 0x4bu, 0xb2u}) {
                HOLDS(file.call(number, display, sizeof display, 'd') == -EPERM);
              }
              HOLDS(counted() == 0 && agrees());
              return 0;
            }),
            0);
}

// The driver that stands in takes any command by a ring. The guard lets who has attached have it.
TEST_F(CapTest, ACommandByARingIsRefusedToWhoHasAQuota) {
  const auto ask = [] {
    StandinFile file;
    const int done = commandByRing(file.fd(), 0);
    return done == commandByRing(file.fd(), IOSQE_ASYNC) ? done : 210;
  };
  if (afterFork(ask) != kGotIn) GTEST_SKIP() << "rings take no commands here";
  EXPECT_EQ(tenantOf(kOtherTask, ask), kGotIn) << "it has no quota";
  const std::uint64_t before = guard->tally(0);
  EXPECT_EQ(attached(ask), EPERM);
  EXPECT_EQ(guard->tally(0), before + 2);
}

TEST_F(CapTest, WhatUnifiedMemoryHoldsIsCountedUntilItLetsGo) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0, held = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 4 * kMiB) == 0);
              HOLDS(file.holdForUnified(one, held) == 0);
              HOLDS(file.free(one) == 0 && counted() == 4 * kMiB && agrees());
              HOLDS(file.letGoForUnified(held) == 0 && counted() == 0 && agrees());
              HOLDS(file.holdForUnified(0x999, held) == -ENOENT && counted() == 0);
              return 0;
            }),
            0);
}

// The call passes the door as it is, and is altered before the driver reads it.
int alteredBehindTheDoor(const StandinFile& file, std::uint32_t number, void* call,
                         std::uint32_t size, const std::function<void()>& alter) {
  int rc = 0;
  standinWaits();
  std::thread caller([&] { rc = file.call(number, call, size); });
  awaitStandinWaiting();
  alter();
  standinGoesOn();
  caller.join();
  return rc;
}

TEST_F(CapTest, WhoAsksForMoreBehindTheDoorIsEnded) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking asking(file, kMiB);
              alteredBehindTheDoor(file, rm::kEscAlloc, &asking.made, sizeof asking.made,
                                   [&] { asking.memory.known.size = kQuota + 4 * kMiB; });
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

TEST_F(CapTest, WhoMakesAnotherObjectBehindTheDoorIsEnded) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking asking(file, kQuota + 4 * kMiB);
              asking.made.head.objectClass = 0xa06c;
              alteredBehindTheDoor(file, rm::kEscAlloc, &asking.made, sizeof asking.made,
                                   [&] { asking.made.head.objectClass = rm::kLocalMemory; });
              return 0;
            }),
            -SIGKILL);
}

TEST_F(CapTest, WhoHasOtherParametersBehindTheDoorIsEnded) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking asking(file, kMiB), other(file, kQuota + 4 * kMiB);
              alteredBehindTheDoor(file, rm::kEscAlloc, &asking.made, sizeof asking.made, [&] {
                asking.made.head.parameters = other.made.head.parameters;
              });
              return 0;
            }),
            -SIGKILL);
}

TEST_F(CapTest, WhoHandsMemoryOnBehindTheDoorIsEnded) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::ExportMany many{};
              rm::ControlCall control{file.client(),
                                      file.client(),
                                      0x1234,
                                      0,
                                      reinterpret_cast<std::uintptr_t>(&many),
                                      sizeof many,
                                      0};
              alteredBehindTheDoor(file, rm::kEscControl, &control, sizeof control,
                                   [&] { control.command = rm::kExportMany; });
              return 0;
            }),
            -SIGKILL);
}

TEST_F(CapTest, ACallThatHidesAnotherBehindTheDoorIsEnded) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking asking(file, kQuota + 4 * kMiB);
              rm::FreeCall freed{file.client(), 0, 0x777, 0};
              rm::TransferCall carrier{rm::kEscFree, sizeof freed,
                                       reinterpret_cast<std::uintptr_t>(&freed)};
              alteredBehindTheDoor(file, rm::kEscTransfer, &carrier, sizeof carrier, [&] {
                carrier = {rm::kEscAlloc, sizeof asking.made,
                           reinterpret_cast<std::uintptr_t>(&asking.made)};
              });
              return 0;
            }),
            -SIGKILL);
}

TEST_F(CapTest, NotEvenALittleIsHadPastTheDoor) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle all = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, all, kQuota) == 0);
              Asking asking(file, 64 << 10);
              asking.made.head.objectClass = 0xa06c;
              alteredBehindTheDoor(file, rm::kEscAlloc, &asking.made, sizeof asking.made,
                                   [&] { asking.made.head.objectClass = rm::kLocalMemory; });
              return 0;
            }),
            -SIGKILL);
}

TEST_F(CapTest, AFileThatOthersHoldIsNoWayAround) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle mine = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, mine, kMiB) == 0);
              const pid_t child = ::fork();
              if (child == 0) {
                const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
                if (!guard->letIn(self, kGuardedTask, {0})) ::_exit(9);
                Asking asking(file, kMiB);
                alteredBehindTheDoor(file, rm::kEscAlloc, &asking.made, sizeof asking.made,
                                     [&] { asking.memory.known.size = 2 * kQuota; });
                ::_exit(0);
              }
              int status = 0;
              HOLDS(::waitpid(child, &status, 0) == child && WIFSIGNALED(status));
              // What the child got is in this process's file. The manager ends the task; the kernel
              // gives it nothing more, and counts it all.
              HOLDS(counted() == 2 * kQuota + kMiB && agrees());
              HOLDS(file.free(mine) == 0);
              HOLDS(file.alloc(StandinFile::kDeviceName, mine, 1) == -ENOMEM);
              return 0;
            }),
            0);
}

TEST_F(CapTest, ANameThatIsTakenWhileItsMemoryIsBeingMadeCounts) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0x5c000001, two = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 2 * kMiB) == 0);
              // It loses its first name between the door and the driver, and has the second then.
              rm::DupCall dup{
                  file.client(), StandinFile::kDeviceName, 0x5c000002, file.client(), one, 0, 0};
              HOLDS(alteredBehindTheDoor(file, rm::kEscDupObject, &dup, sizeof dup,
                                         [&] { file.free(one); }) == 0);
              HOLDS(dup.status != 0 && counted() == 0 && agrees());
              HOLDS(file.alloc(StandinFile::kDeviceName, two, kMiB) == 0 && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, AHeapThatIsMadeLargerBehindTheDoorEndsTheProcess) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::HeapCall heap{};
              heap.client = file.client();
              heap.parent = StandinFile::kDeviceName;
              heap.function = rm::kHeapAllocSize;
              heap.bySize.object = 0x5c000001;
              heap.bySize.flags = 0x4000;
              heap.bySize.size = kMiB;
              alteredBehindTheDoor(file, rm::kEscVidHeapControl, &heap, sizeof heap,
                                   [&] { heap.bySize.size = kQuota + 4 * kMiB; });
              return 0;
            }),
            -SIGKILL);
  EXPECT_TRUE(guard->setQuota(kGuardedTask, 0, bytes(kQuota)));
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, 1) == -ENOMEM);
              return 0;
            }),
            0)
      << "its task has no quota any more, whoever says so";
}

TEST_F(CapTest, WhatWasAlteredAndFitsIsCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking more(file, kMiB), less(file, 16 * kMiB);
              less.made.head.object = 0x5c000002;
              HOLDS(alteredBehindTheDoor(file, rm::kEscAlloc, &more.made, sizeof more.made,
                                         [&] { more.memory.known.size = 8 * kMiB; }) == 0);
              HOLDS(counted() == 8 * kMiB && agrees());
              HOLDS(alteredBehindTheDoor(file, rm::kEscAlloc, &less.made, sizeof less.made,
                                         [&] { less.memory.known.size = kMiB; }) == 0);
              HOLDS(counted() == 9 * kMiB && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, WhatTheDriverCouldNotTellIsCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              void* const page =
                  ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              Asking asking(file, 4 * kMiB);
              std::memcpy(page, &asking.memory, sizeof asking.memory);
              asking.made.head.parameters = reinterpret_cast<std::uintptr_t>(page);
              ::mprotect(page, 4096, PROT_READ);
              HOLDS(file.call(rm::kEscAlloc, &asking.made, sizeof asking.made) == 0);
              HOLDS(asking.made.status == 0x1e);  // an error, and the memory is there
              HOLDS(counted() == 4 * kMiB && agrees());
              rm::Handle one = 0x5c000009;
              Fd holder(::open(kStandinNode, O_RDWR | O_CLOEXEC));
              auto* const passed = static_cast<rm::ExportOne*>(page);
              ::mprotect(page, 4096, PROT_READ | PROT_WRITE);
              HOLDS(file.alloc(StandinFile::kDeviceName, one, kMiB) == 0);
              *passed = {1, StandinFile::kDeviceName, StandinFile::kDeviceName, one, holder.get(),
                         0};
              ::mprotect(page, 4096, PROT_READ);
              HOLDS(file.control(rm::kExportOne, page, sizeof *passed) == 0x1e);
              HOLDS(file.free(one) == 0 && counted() == 5 * kMiB && agrees());
              holder.reset();
              HOLDS(counted() == 4 * kMiB && agrees());
              ::mprotect(page, 4096, PROT_READ | PROT_WRITE);
              return 0;
            }),
            0);
}

TEST_F(CapTest, WhatTheProgramSaysAfterwardsIsNotAsked) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              void* const page =
                  ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              Asking asking(file, 4 * kMiB);
              asking.made.status = 0x51;
              std::memcpy(page, &asking.made, sizeof asking.made);
              ::mprotect(page, 4096, PROT_READ);  // no status, and no handle, comes back to it
              HOLDS(file.call(rm::kEscAlloc, page, sizeof asking.made) == -EFAULT);
              HOLDS(counted() == 4 * kMiB && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, ManyThreadsAtTheEdgeNeverPassIt) {
  EXPECT_EQ(attached([&] {
              std::vector<std::thread> threads;
              std::atomic<bool> over{false};
              for (int i = 0; i < 4; ++i) {
                threads.emplace_back([&] {
                  StandinFile file;
                  for (int round = 0; round < 40; ++round) {
                    rm::Handle one = 0, two = 0;
                    const bool had = file.alloc(StandinFile::kDeviceName, one, 20 * kMiB) == 0;
                    const bool more = file.alloc(StandinFile::kDeviceName, two, 15 * kMiB) == 0;
                    if (standinGiven() > kQuota) over = true;
                    if (had) file.free(one);
                    if (more) file.free(two);
                  }
                });
              }
              for (std::thread& thread : threads) thread.join();
              HOLDS(!over);
              HOLDS(counted() == 0 && agrees());
              return 0;
            }),
            0);
  EXPECT_GT(guard->tally(0), 0u) << "they were at the edge";
}

TEST_F(CapTest, AThreadThatEndsInItsCallLeavesNothingCounted) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              Asking asking(file, 4 * kMiB);
              // The driver can't read what the door could: it never begins.
              void* const page =
                  ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              std::memcpy(page, &asking.made, sizeof asking.made);
              HOLDS(alteredBehindTheDoor(file, rm::kEscAlloc, page, sizeof asking.made,
                                         [&] { ::munmap(page, 4096); }) == -EFAULT);
              HOLDS(eventually([&] { return counted() == 0; }) && agrees());
              return 0;
            }),
            0);
}

TEST_F(CapTest, AChildHasTheQuotaOfItsTask) {
  EXPECT_EQ(attached([&] {
              StandinFile file;
              rm::Handle one = 0;
              HOLDS(file.alloc(StandinFile::kDeviceName, one, kQuota - kMiB) == 0);
              return afterFork([&] {
                // It has not attached, so the guard keeps it from the descriptor that it inherited.
                rm::Handle more = 0;
                HOLDS(file.alloc(StandinFile::kDeviceName, more, 1) == -EPERM);
                const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
                HOLDS(guard->letIn(self, kGuardedTask, {0}).ok());
                HOLDS(file.alloc(StandinFile::kDeviceName, more, 2 * kMiB) == -ENOMEM);
                HOLDS(file.alloc(StandinFile::kDeviceName, more, kMiB) == 0);
                HOLDS(counted() == kQuota && agrees());
                return 0;
              });
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
              HOLDS(guard->setQuota(kGuardedTask, 0, bytes(4 * kMiB)).ok());
              HOLDS(counted() == 8 * kMiB);
              HOLDS(file.alloc(StandinFile::kDeviceName, two, 1) == -ENOMEM);
              HOLDS(guard->setQuota(kGuardedTask, 0, bytes(9 * kMiB)).ok());
              HOLDS(file.alloc(StandinFile::kDeviceName, two, kMiB) == 0);
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace qgpu::testing
