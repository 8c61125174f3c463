// Memory of the card that several processes hold, in real programs under libqgpu.so on a stand-in
// of the kernel's driver that they share: what counts is what that driver holds, whoever frees
// first, exits or is killed, and the quota is never passed.

#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "services/nvidia_abi/rm_abi.h"
#include "tests/unit/services/guest/cuda/shared_driver.h"

namespace qgpu::testing::guest_cuda_shared_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr int kMemory = 7, kCopy = 9;  // objects: a lender's, and a borrower's name for it

std::uint64_t held() {
  return rm_stand_in::heldBytes(driver());
}

FakeManager::Options taskOf(std::uint64_t quota, std::vector<std::uint32_t> cards = {0}) {
  FakeManager::Options options = cudaTask();
  options.devices = std::move(cards);
  options.quotaBytes = quota;
  return options;
}

template <typename... More>
std::string words(const std::string& verb, const More&... more) {
  std::ostringstream all;
  all << "rm " << verb;
  ((all << ' ' << more), ...);
  return all.str();
}

// A program with a file 0 and a client of its own, beside what its libcuda has.
class Program {
 public:
  explicit Program(const FakeManager& manager)
      : slot(manager.attaches()), guest(sharedTenantOf(manager)) {
    EXPECT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("rm open 0"), "ok");
    const std::string made = guest.ask("rm alloc 0 0 0 0 65 0");
    client = made.substr(made.rfind(' ') + 1);
  }
  template <typename... More>
  std::string ask(const std::string& verb, const More&... more) {
    return guest.ask(words(verb, more...));
  }
  // "0 0", or the call's and the driver's refusal.
  std::string allocate(std::uint64_t bytes, int object = kMemory) {
    const std::string made = ask("alloc 0", client, client, object, 64, bytes);
    return made.substr(0, made.rfind(' '));
  }
  std::string take(const Program& from, int object = kMemory, int as = kCopy) {
    return ask("dupobject 0", client, client, as, from.client, object);
  }
  std::string letGo(int object) { return ask("free 0", client, object); }

  std::uint32_t slot;
  CudaTenant guest;
  std::string client;
};

constexpr const char* kDone = "0 0";
constexpr const char* kNoMemory = "0 81";

struct Scene {
  explicit Scene(std::uint64_t quota = 1ull << 30, std::vector<std::uint32_t> cards = {0})
      : manager(taskOf(quota, std::move(cards))) {
    lender = std::make_unique<Program>(manager);
    borrower = std::make_unique<Program>(manager);
    base = manager.bytes() / 2;
    EXPECT_EQ(held(), 2 * base) << "what both have for themselves";
  }
  // The process ends, and the manager hears of it.
  void kill(Program& program) {
    program.guest.kill();
    EXPECT_TRUE(eventually([&] { return manager.slot(program.slot).owner & 0x40000000u; }));
    manager.reap(program.slot);
  }
  // To the byte: so much more is had, and no byte beyond.
  void expectRoom(Program& program, std::uint64_t bytes) {
    const std::uint64_t before = manager.bytes();
    manager.setQuota(before + bytes);
    EXPECT_EQ(program.allocate(bytes + 4096, 77), kNoMemory);
    EXPECT_EQ(program.allocate(bytes, 77), kDone);
    EXPECT_EQ(manager.bytes(), before + bytes);
    EXPECT_EQ(held(), before + bytes);
    EXPECT_EQ(program.letGo(77), kDone);
  }
  // What counts beyond the programs' own, which is what the driver holds.
  void expectShared(std::uint64_t bytes, std::uint64_t programs = 2) {
    EXPECT_EQ(manager.bytes(), programs * base + bytes);
    EXPECT_EQ(held(), programs * base + bytes);
  }
  FakeManager manager;
  std::unique_ptr<Program> lender, borrower;
  std::uint64_t base = 0;
};

TEST(CudaShared, MemoryCountsOnceWhileItsLenderLives) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender, kMemory, 10), kDone) << "and a second time";
  s.expectShared(8 * kMiB);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  EXPECT_EQ(s.borrower->letGo(10), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(0);
}

TEST(CudaShared, MemoryCostsNothingToTakeInAFullQuota) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  s.manager.setQuota(s.manager.bytes());
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.borrower->allocate(4096, 50), kNoMemory);
  s.expectShared(8 * kMiB);
}

TEST(CudaShared, MemoryThatItsLenderFreedFirstCountsUntilTheLastBorrowerFreesIt) {
  Scene s;
  Program third(s.manager);
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(third.take(*s.lender), kDone);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(8 * kMiB, 3);
  s.expectRoom(*s.lender, 4 * kMiB);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  s.expectShared(8 * kMiB, 3);
  EXPECT_EQ(third.letGo(kCopy), kDone);
  s.expectShared(0, 3);
}

TEST(CudaShared, MemoryOfSmallPagesCountsAsTheCardGivesItForWhoHoldsItOn) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(4096), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(64 << 10);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  s.expectShared(0);
}

TEST(CudaShared, AClientsEndEndsTheNamesBeneathIt) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.lender->ask("free 0", s.lender->client, s.lender->client), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(s.borrower->ask("close 0"), "0");
  s.expectShared(0);
}

TEST(CudaShared, ANameThatIsGivenAgainIsAnotherMemory) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  EXPECT_EQ(s.lender->allocate(2 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender, kMemory, 10), kDone);
  s.expectShared(10 * kMiB);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(10 * kMiB);
}

TEST(CudaShared, AKilledLendersMemoryCountsAsLongAsOthersHoldIt) {
  Scene s;
  Program third(s.manager);
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.lender->allocate(2 * kMiB, 8), kDone) << "nobody's but its own";
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(third.take(*s.lender), kDone);
  s.kill(*s.lender);
  s.expectShared(8 * kMiB);
  s.expectRoom(*s.borrower, 4 * kMiB);
  EXPECT_EQ(third.letGo(kCopy), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  s.expectShared(0);
}

TEST(CudaShared, AKilledBorrowerLeavesTheLendersCharge) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  s.kill(*s.borrower);
  s.expectShared(8 * kMiB, 1);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(0, 1);
}

TEST(CudaShared, AKilledBorrowerOfADeadLenderLeavesNothing) {
  Scene s;
  Program third(s.manager);
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  s.kill(*s.lender);
  s.expectShared(8 * kMiB);
  s.kill(*s.borrower);
  s.expectShared(0, 1);
  s.expectRoom(third, 8 * kMiB);
}

TEST(CudaShared, AWorkerThatABorrowerForkedHoldsNothingOnceThatIsKilled) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  const pid_t worker = std::stoi(s.borrower->ask("worker"));
  s.expectShared(8 * kMiB);
  s.kill(*s.borrower);
  EXPECT_TRUE(eventually([&] { return held() == s.base; })) << held();
  s.expectShared(0, 1);
  EXPECT_EQ(kill(worker, SIGKILL), 0);
}

TEST(CudaShared, WhatWasBorrowedCanBeLentOn) {
  Scene s;
  Program third(s.manager);
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(third.take(*s.borrower, kCopy), kDone);
  s.expectShared(8 * kMiB, 3);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(8 * kMiB, 3);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  s.expectShared(8 * kMiB, 3);
  EXPECT_EQ(third.letGo(kCopy), kDone);
  s.expectShared(0, 3);
}

TEST(CudaShared, ALenderThatHoldsItByASecondNameCountsTooMuchAndNeverTooLittle) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.lender->take(*s.lender, kMemory, 8), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  EXPECT_EQ(s.manager.bytes(), 2 * s.base + 16 * kMiB);
  EXPECT_EQ(s.lender->letGo(8), kDone);
  s.expectShared(8 * kMiB);
}

TEST(CudaShared, MemoryOfAnotherTaskCountsInBothAndWithinBothQuotas) {
  Scene s;
  FakeManager other(taskOf(1ull << 30));
  Program stranger(other);
  const std::uint64_t own = other.bytes();
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  other.setQuota(own + 8 * kMiB - 1);
  const std::uint64_t before = held();
  EXPECT_EQ(stranger.take(*s.lender), kNoMemory);
  EXPECT_EQ(other.bytes(), own);
  EXPECT_EQ(other.slot(0).refused, 1u);
  s.kill(*s.lender);
  EXPECT_EQ(held(), before - s.base - 8 * kMiB) << "what was refused is not held";
  EXPECT_EQ(s.borrower->allocate(8 * kMiB), kDone);
  other.setQuota(own + 8 * kMiB);
  EXPECT_EQ(stranger.take(*s.borrower), kDone);
  EXPECT_EQ(other.bytes(), own + 8 * kMiB);
  EXPECT_EQ(s.borrower->letGo(kMemory), kDone);
  EXPECT_EQ(other.bytes(), own + 8 * kMiB);
  EXPECT_EQ(s.manager.bytes(), s.base);
  EXPECT_EQ(stranger.letGo(kCopy), kDone);
  EXPECT_EQ(other.bytes(), own);
}

TEST(CudaShared, UnderAManagerThatKnowsNoLoansTheBorrowerPays) {
  Scene s;
  s.manager.keepNoLoans();
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  EXPECT_EQ(s.manager.bytes(), 2 * s.base + 16 * kMiB);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(8 * kMiB);
}

TEST(CudaShared, OfWhatIsLentWhenAManagerComesThatKnowsNoLoansNothingIsLost) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender), kDone);
  s.expectShared(8 * kMiB);
  s.manager.die();
  s.manager.keepNoLoans();
  s.manager.restart(QGPU_GATE_OPEN);
  EXPECT_TRUE(eventually([&] { return s.manager.bytes() == 2 * s.base + 16 * kMiB; }))
      << "both pay";
  s.lender->guest.kill();
  s.manager.slot(s.lender->slot).bytes = 0;  // which is all that such a manager does
  s.expectShared(8 * kMiB, 1);
  EXPECT_EQ(s.borrower->letGo(kCopy), kDone);
  s.expectShared(0, 1);
}

TEST(CudaShared, WhatTheDriverTellsNoSizeOfIsGivenBack) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  driver().refuseSizes = 1;
  EXPECT_EQ(s.borrower->take(*s.lender), kNoMemory);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(s.lender->letGo(kMemory), kDone);
  s.expectShared(0);
}

TEST(CudaShared, MemoryOfTheHostAndWhatIsNoneCostNothing) {
  Scene s;
  EXPECT_EQ(s.lender->ask("alloc 0", s.lender->client, s.lender->client, 20, 62, 8 * kMiB),
            "0 0 20");
  EXPECT_EQ(s.lender->ask("alloc 0", s.lender->client, s.lender->client, 21, 128, 0), "0 0 21");
  EXPECT_EQ(s.lender->ask("alloc 0", s.lender->client, s.lender->client, 22, 253, 0), "0 0 22");
  EXPECT_EQ(s.lender->ask("alloc 0", s.lender->client, s.lender->client, 23, 0x50a0, 8 * kMiB),
            "0 0 23");
  s.manager.setQuota(1);
  EXPECT_EQ(s.borrower->take(*s.lender, 20, 30), kDone);
  EXPECT_EQ(s.borrower->take(*s.lender, 21, 31), kDone);
  s.expectShared(0);
  EXPECT_EQ(s.borrower->take(*s.lender, 22, 32), kDone) << "addresses alone";
  EXPECT_EQ(s.borrower->take(*s.lender, 23, 33), kDone) << "the same of one card";
  s.expectShared(0);
}

TEST(CudaShared, MemoryInAFileCountsUntilItIsClosed) {
  Scene s;
  Program& p = *s.lender;
  EXPECT_EQ(p.allocate(8 * kMiB), kDone);
  EXPECT_EQ(p.ask("open 1"), "ok");
  EXPECT_EQ(p.ask("export 0", p.client, kMemory, 1), kDone);
  EXPECT_EQ(p.letGo(kMemory), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(p.ask("import 0", p.client, p.client, kCopy, 1), kDone) << "one's own costs nothing";
  s.expectShared(8 * kMiB);
  EXPECT_EQ(p.ask("dup 1 2"), "ok");
  EXPECT_EQ(p.ask("close 1"), "0");
  EXPECT_EQ(p.letGo(kCopy), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(p.ask("close 2"), "0");
  s.expectShared(0);
}

TEST(CudaShared, MemoryInADmaBufCountsUntilThatIsClosed) {
  Scene s;
  Program& p = *s.lender;
  EXPECT_EQ(p.allocate(8 * kMiB), kDone);
  EXPECT_EQ(p.ask("dmabuf", 1, p.client, kMemory), kDone);
  EXPECT_EQ(p.letGo(kMemory), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(p.ask("dup 1 2"), "ok");
  EXPECT_EQ(p.ask("close 1"), "0");
  s.expectShared(8 * kMiB);
  EXPECT_EQ(p.ask("close 2"), "0");
  s.expectShared(0);
}

TEST(CudaShared, AWorkerThatWasForkedHoldsNothingThatWasExported) {
  Scene s;
  Program& p = *s.lender;
  EXPECT_EQ(p.allocate(8 * kMiB, 7), kDone);
  EXPECT_EQ(p.allocate(2 * kMiB, 8), kDone);
  EXPECT_EQ(p.ask("dmabuf", 1, p.client, 7), kDone);
  EXPECT_EQ(p.ask("open 2"), "ok");
  EXPECT_EQ(p.ask("export 0", p.client, 8, 2), kDone);
  const pid_t worker = std::stoi(p.ask("worker"));
  s.expectShared(10 * kMiB);
  s.kill(p);
  EXPECT_TRUE(eventually([&] { return held() == s.base; })) << held();
  s.expectShared(0, 1);
  EXPECT_EQ(kill(worker, SIGKILL), 0);
}

TEST(CudaShared, MemoryOutOfAFileOfAnotherProcessIsTheImportersToPay) {
  Scene s;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.lender->ask("open 1"), "ok");
  EXPECT_EQ(s.lender->ask("export 0", s.lender->client, kMemory, 1), kDone);
  const std::string number = s.lender->ask("number 1");
  const auto pid = static_cast<std::uint64_t>(s.lender->guest.pid());
  Program& b = *s.borrower;
  ASSERT_EQ(b.ask("fetch 1", pid, number), "ok");
  s.manager.setQuota(2 * s.base + 16 * kMiB - 1);
  EXPECT_EQ(b.ask("import 0", b.client, b.client, kCopy, 1), kNoMemory);
  s.manager.setQuota(2 * s.base + 16 * kMiB);
  EXPECT_EQ(b.ask("import 0", b.client, b.client, kCopy, 1), kDone);
  EXPECT_EQ(s.manager.bytes(), 2 * s.base + 16 * kMiB);
  EXPECT_EQ(b.ask("close 1"), "0");
  s.kill(*s.lender);
  s.expectShared(8 * kMiB, 1);
  EXPECT_EQ(b.letGo(kCopy), kDone);
  s.expectShared(0, 1);
}

// As ranks of one job do, each with the buffers of all others.
TEST(CudaShared, ATaskThatHasItsCardsAloneCountsNothingTwice) {
  Scene s(1ull << 30, {0, 1});
  Program& b = *s.borrower;
  EXPECT_EQ(s.lender->allocate(8 * kMiB), kDone);
  EXPECT_EQ(s.lender->ask("open 1"), "ok");
  EXPECT_EQ(s.lender->ask("export 0", s.lender->client, kMemory, 1), kDone);
  ASSERT_EQ(b.ask("fetch 1", s.lender->guest.pid(), s.lender->ask("number 1")), "ok");
  s.manager.setQuota(s.manager.bytes());
  EXPECT_EQ(b.ask("import 0", b.client, b.client, kCopy, 1), kDone);
  s.expectShared(8 * kMiB);
}

TEST(CudaShared, SeveralObjectsOfAFileAreHadAllOrNone) {
  Scene s;
  Program &a = *s.lender, &b = *s.borrower;
  EXPECT_EQ(a.allocate(8 * kMiB, 7), kDone);
  EXPECT_EQ(a.allocate(2 * kMiB, 8), kDone);
  EXPECT_EQ(a.ask("open 1"), "ok");
  EXPECT_EQ(a.ask("exportmany 0", a.client, 1, 3, 7, 0, 8), kDone);
  const auto pid = static_cast<std::uint64_t>(a.guest.pid());
  ASSERT_EQ(b.ask("fetch 1", pid, a.ask("number 1")), "ok");
  EXPECT_EQ(a.letGo(7), kDone);
  EXPECT_EQ(a.letGo(8), kDone);
  s.expectShared(10 * kMiB);
  s.manager.setQuota(2 * s.base + 20 * kMiB - 1);
  EXPECT_EQ(b.ask("importmany 0", b.client, b.client, 1, 3, 30, 31, 32), kNoMemory);
  s.expectShared(10 * kMiB);
  EXPECT_EQ(b.letGo(30), "0 87") << "no object is left of it";
  s.manager.setQuota(2 * s.base + 20 * kMiB);
  EXPECT_EQ(b.ask("importmany 0", b.client, b.client, 1, 3, 30, 31, 32), kDone);
  EXPECT_EQ(a.ask("close 1"), "0");
  EXPECT_EQ(b.ask("close 1"), "0");
  s.expectShared(10 * kMiB);
  EXPECT_EQ(b.letGo(30), kDone);
  s.expectShared(2 * kMiB);
  EXPECT_EQ(b.letGo(32), kDone);
  s.expectShared(0);
}

TEST(CudaShared, AddressesForOtherCardsHoldTheirMemory) {
  Scene s;
  Program &a = *s.lender, &b = *s.borrower;
  EXPECT_EQ(a.allocate(8 * kMiB), kDone);
  EXPECT_EQ(a.ask("fabric 0", a.client, a.client, 20, kMemory), "ok");
  s.expectShared(8 * kMiB);
  EXPECT_EQ(a.letGo(kMemory), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(b.take(a, 20), kDone);
  EXPECT_EQ(a.letGo(20), kDone);
  s.expectShared(8 * kMiB);
  EXPECT_EQ(b.letGo(kCopy), kDone);
  s.expectShared(0);
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_shared_test
