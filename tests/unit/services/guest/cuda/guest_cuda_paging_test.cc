// CUDA memory that leaves the card and comes back under a program that knows nothing of it. What is
// not on the card is mapped nowhere: a kernel, a copy or a call that touches it ends the program.

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <thread>

#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_cuda_paging_test {
namespace {

using paging::Answer;
using paging::Phase;

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kQuota = 1024 * kMiB, kPageable = 768 * kMiB;
constexpr std::uint64_t kFirst = 68 * kMiB, kSecond = 4 * kMiB;  // two chunks and one

FakeManager::Options pageableTask() {
  FakeManager::Options options = cudaTask();
  options.quotaBytes = kQuota;
  options.pageableBytes = kPageable;
  return options;
}

std::string number(std::uint64_t n) {
  return std::to_string(n);
}

class CudaPaging : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
    ASSERT_EQ(guest.ask("stream a 1"), "0");
    ASSERT_EQ(alloc(1, kFirst), "0");
    ASSERT_EQ(alloc(2, kSecond), "0");
    ASSERT_EQ(guest.ask("fill 1 a 11"), "0");
    ASSERT_EQ(guest.ask("fill 2 null 22"), "0");
    ASSERT_EQ(guest.ask("stir 1 a"), "0");
    ASSERT_EQ(guest.ask("ctxsync"), "0");
  }
  void TearDown() override {
    EXPECT_EQ(guest.ask("stats").substr(0, 4), "0 0 ") << "misuses, broken captures";
  }
  std::string alloc(int id, std::uint64_t bytes, const std::string& kind = "plain") {
    return guest.ask("alloc " + kind + " " + std::to_string(id) + " " + number(bytes));
  }
  bool answers(std::uint32_t epoch, Answer answer) {
    return eventually([&] { return manager.answerTo(epoch) == answer; });
  }
  void in() { ASSERT_TRUE(answers(manager.setPaging(Phase::In), Answer::In)); }
  void out(std::uint32_t permille = 1000) {
    ASSERT_TRUE(answers(manager.setPaging(Phase::Drain), Answer::Idle));
    ASSERT_TRUE(answers(manager.setPaging(Phase::Out, permille), Answer::Left));
  }
  std::uint64_t cardBytes() { return std::stoull(guest.ask("cardbytes")); }
  std::uint64_t held() { return manager.slot(0).pageable_held; }
  std::uint64_t away() { return manager.slot(0).pageable_out; }
  // How often the driver was asked whether anything runs, or more.
  std::uint64_t asked() { return std::stoull(guest.ask("calls cuCtxSetCurrent")); }
  void expectIntact() {
    EXPECT_EQ(guest.ask("check 1 a 11 1"), "0 0");
    EXPECT_EQ(guest.ask("check 2 null 22 0"), "0 0");
  }

  FakeManager manager{pageableTask()};
  CudaTenant guest{manager};
};

TEST_F(CudaPaging, WhatLeftComesBackAsItWasAtTheSameAddresses) {
  EXPECT_EQ(held(), kFirst + kSecond);
  EXPECT_EQ(manager.bytes(), kCudaInitBytes) << "firm memory has a counter of its own";
  EXPECT_EQ(cardBytes(), kFirst + kSecond + kCudaInitBytes);
  out();
  EXPECT_EQ(cardBytes(), kCudaInitBytes);
  EXPECT_EQ(away(), kFirst + kSecond);
  EXPECT_EQ(held(), kFirst + kSecond);
  in();
  EXPECT_EQ(cardBytes(), kFirst + kSecond + kCudaInitBytes);
  EXPECT_EQ(away(), 0U);
  expectIntact();
}

TEST_F(CudaPaging, NoMoreLeavesThanIsWanted) {
  out(300);  // 21 MiB of 72: the first chunk, of 64
  EXPECT_EQ(away(), 64 * kMiB);
  EXPECT_EQ(cardBytes(), kFirst + kSecond + kCudaInitBytes - 64 * kMiB);
  in();
  expectIntact();
}

// From the word on, with no regard to what the program does meanwhile.
TEST_F(CudaPaging, AProgramAtWorkNoticesNothing) {
  std::atomic<bool> over{false};
  std::atomic<int> ways{0};
  std::thread pages([&] {
    std::mt19937 dice(7);
    while (!over) {
      const std::uint32_t epoch = manager.setPaging(Phase::Drain);
      eventually([&] { return over || manager.answerTo(epoch) == Answer::Idle; });
      const std::uint32_t left =
          manager.setPaging(Phase::Out, static_cast<std::uint32_t>(dice() % 1001));
      eventually([&] { return manager.answerTo(left) == Answer::Left; });
      const std::uint32_t back = manager.setPaging(Phase::In);
      eventually([&] { return manager.answerTo(back) == Answer::In; });
      ++ways;
    }
  });
  int rounds = 0;
  for (int i = 0; i < 6 || ways < 5; ++i) {
    EXPECT_EQ(guest.ask("stir 2 a"), "0");
    EXPECT_EQ(guest.ask("check 2 a 22 " + std::to_string(++rounds)), "0 0");
    EXPECT_EQ(alloc(3, 4 * kMiB), "0");
    EXPECT_EQ(guest.ask("fill 3 null " + std::to_string(i)), "0");
    EXPECT_EQ(guest.ask("check 3 null " + std::to_string(i) + " 0"), "0 0");
    EXPECT_EQ(guest.ask("free 3"), "0");
  }
  over = true;
  pages.join();
  EXPECT_EQ(guest.ask("check 1 null 11 1"), "0 0");
}

// The table of docs/internals/paging.md: who names an address waits.
class WhileOut : public CudaPaging, public ::testing::WithParamInterface<const char*> {};

TEST_P(WhileOut, TheCallWaitsAndThenIsMade) {
  const std::string all = GetParam();
  const std::string function = all.substr(0, all.find(' ')), call = all.substr(all.find(' ') + 1);
  ASSERT_EQ(guest.ask("copygraph 1 2"), "0");
  ASSERT_EQ(guest.ask("use 1"), "ok");
  out();
  const std::string before = guest.ask("calls " + function);
  ASSERT_EQ(guest.ask("aside " + call), "ok");
  ASSERT_TRUE(eventually([&] { return guest.ask("asideat") == "S"; })) << "it waits";
  EXPECT_EQ(guest.ask("calls " + function), before) << function;
  in();
  EXPECT_EQ(guest.ask("joinaside").substr(0, 1), "0") << call;
  EXPECT_NE(guest.ask("calls " + function), before) << function;
  EXPECT_EQ(guest.ask("set"), "ok");
  EXPECT_EQ(guest.ask("ctxsync"), "0");
}
INSTANTIATE_TEST_SUITE_P(
    CudaPaging, WhileOut,
    ::testing::Values("cuLaunchKernel stir 1 a", "cuGraphLaunch launch copy null",
                      "cuStreamWriteValue32 do cuStreamWriteValue32",
                      "cuStreamWaitValue32_v2 waitvalue a", "cuMemsetD8_v2 do cuMemsetD8_v2",
                      "cuMemcpyDtoH_v2 do cuMemcpyDtoH_v2",
                      "cuMemcpyHtoDAsync_v2 do cuMemcpyHtoDAsync_v2",
                      "cuLaunchHostFunc do cuLaunchHostFunc", "cuMemCreate alloc plain 4 4194304",
                      "cuGraphAddMemcpyNode copygraph 1 2",
                      "cuPointerGetAttributes addresses 1 66000000"),
    [](const auto& each) {
      const std::string all = each.param;
      return all.substr(0, all.find(' '));
    });

TEST_F(CudaPaging, WhatIsFreedWhileItIsAwayIsGone) {
  out();
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(away(), kSecond);
  EXPECT_EQ(held(), kSecond);
  in();
  EXPECT_EQ(guest.ask("check 2 null 22 0"), "0 0");
  EXPECT_EQ(cardBytes(), kSecond + kCudaInitBytes);
}

TEST_F(CudaPaging, AFreeWaitsForWorkAndReturnsAllAtOnce) {
  ASSERT_EQ(guest.ask("sleep a 20000"), "0");
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(guest.ask("query a"), "0") << "as the driver's own free, it waits";
  EXPECT_EQ(held(), kSecond);
  EXPECT_EQ(cardBytes(), kSecond + kCudaInitBytes);
}

TEST_F(CudaPaging, NothingLeavesUnderWorkNorUnderAWaitNorUnderACapture) {
  ASSERT_EQ(guest.ask("check 2 own 22 0"), "0 0");  // a stream that none but its thread can ask
  const std::pair<std::string, std::string> kept[] = {{"waitvalue a", "set"},
                                                      {"waitvalue own", "set"},
                                                      {"waitvalue null", "set"},
                                                      {"begin a 2", "end a"}};
  for (const auto& [begin, end] : kept) {
    guest.ask("set 0");
    ASSERT_EQ(guest.ask(begin), "0") << begin;
    const bool work = begin[0] == 'w';
    if (work) {
      EXPECT_EQ(guest.ask("stir 2 " + begin.substr(begin.find(' ') + 1)), "0");
    }
    const std::uint32_t epoch = manager.setPaging(Phase::Out, 1000);
    const std::uint64_t before = asked();
    EXPECT_TRUE(eventually([&] { return asked() > before + 5; })) << "it was asked for";
    EXPECT_EQ(manager.answerTo(epoch), Answer::None) << begin;
    EXPECT_EQ(away(), 0U) << begin;
    const std::string answer = guest.ask(end);
    EXPECT_TRUE(answer == "ok" || answer.starts_with("0")) << end << ": " << answer;
    EXPECT_TRUE(answers(epoch, Answer::Left)) << begin;
    in();
  }
  EXPECT_EQ(guest.ask("check 1 a 11 1"), "0 0");
  EXPECT_EQ(guest.ask("check 2 null 22 3"), "0 0");
}

// The word comes back while the wait is there: the program goes on by itself.
TEST_F(CudaPaging, AWaitThatNoWorkEndsKeepsNobodyLong) {
  ASSERT_EQ(guest.ask("check 2 own 22 0"), "0 0");
  guest.ask("set 0");
  ASSERT_EQ(guest.ask("waitvalue own"), "0");
  const std::uint64_t before = asked();
  manager.setPaging(Phase::Drain);
  ASSERT_TRUE(eventually([&] { return asked() > before; })) << "the word is seen";
  ASSERT_EQ(guest.ask("aside writevalue a"), "ok");
  ASSERT_TRUE(eventually([&] { return guest.ask("asideat") == "S"; }));
  in();
  EXPECT_EQ(guest.ask("joinaside"), "0");
  EXPECT_EQ(guest.ask("ctxsync"), "0");
}

TEST_F(CudaPaging, AFreeFromAnotherContextWaitsForWorkAsWell) {
  ASSERT_EQ(guest.ask("sleep a 50000"), "0");
  ASSERT_EQ(guest.ask("stir 1 a"), "0");
  ASSERT_EQ(guest.ask("ctxnew"), "0");
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(guest.ask("query a"), "0");
  EXPECT_EQ(held(), kSecond);
}

TEST_F(CudaPaging, AFreeBesideACaptureIsLate) {
  ASSERT_EQ(guest.ask("stream b 1"), "0");
  ASSERT_EQ(guest.ask("begin b 2"), "0");
  ASSERT_EQ(guest.ask("waitvalue a"), "0");
  ASSERT_EQ(guest.ask("stir 1 a"), "0");
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(held(), kFirst + kSecond);
  EXPECT_EQ(guest.ask("end b"), "0 graph");
  EXPECT_EQ(guest.ask("set"), "ok");
  EXPECT_TRUE(eventually([&] { return held() == kSecond; }));
  EXPECT_EQ(guest.ask("query a"), "0");
}

TEST_F(CudaPaging, AStreamOrderedFreeOfItIsAFree) {
  ASSERT_EQ(guest.ask("stir 1 a"), "0");
  EXPECT_EQ(guest.ask("freeasync 1 a"), "0");
  EXPECT_EQ(held(), kSecond);
}

TEST_F(CudaPaging, WhatCouldNotLeaveIsFreedAllTheSame) {
  ASSERT_EQ(guest.ask("answer cuMemcpyDtoH_v2 719"), "ok");
  out();
  EXPECT_EQ(away(), 0U);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(held(), kSecond);
  EXPECT_EQ(cardBytes(), kSecond + kCudaInitBytes);
}

TEST_F(CudaPaging, WhatCantBeCopiedBackIsTriedAgain) {
  out();
  ASSERT_EQ(guest.ask("answer cuMemcpyHtoD_v2 719"), "ok");
  EXPECT_TRUE(answers(manager.setPaging(Phase::In), Answer::NoRoom));
  EXPECT_EQ(away(), kFirst + kSecond);
  ASSERT_EQ(guest.ask("answer cuMemcpyHtoD_v2 0"), "ok");
  in();
  expectIntact();
}

// Nobody brings it back any more: what the program's last handlers do must not wait for that.
TEST(CudaPagingAtExit, AProgramThatEndsWhileItIsOutEnds) {
  FakeManager manager(pageableTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("atexit"), "0");  // before the library's own
  ASSERT_EQ(guest.ask("alloc plain 1 " + number(kSecond)), "0");
  ASSERT_EQ(guest.ask("use 1"), "ok");
  const std::uint32_t epoch = manager.setPaging(Phase::Out, 1000);
  EXPECT_TRUE(eventually([&] { return manager.answerTo(epoch) == Answer::Left; }));
}

TEST_F(CudaPaging, AboveTheLimitAnAllocationWaitsAndAboveTheQuotaItFails) {
  manager.setPageableLimit(kFirst + kSecond + 4 * kMiB);
  ASSERT_EQ(guest.ask("aside alloc plain 3 " + number(8 * kMiB)), "ok");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).pageable_more == 8 * kMiB; }));
  EXPECT_EQ(alloc(4, 4 * kMiB), "0") << "there is room for less";
  manager.setPageableLimit(kQuota);
  EXPECT_EQ(guest.ask("joinaside"), "0");
  EXPECT_EQ(manager.slot(0).pageable_more, 0U);
  EXPECT_EQ(alloc(5, kPageable), "2");
  EXPECT_EQ(manager.slot(0).refused, 1U);
  EXPECT_EQ(held(), kFirst + kSecond + 12 * kMiB);
}

TEST_F(CudaPaging, FirmMemoryHasTheRestOfTheQuota) {
  const std::uint64_t firm = kQuota - kPageable;
  EXPECT_EQ(alloc(3, firm, "managed"), "2");
  EXPECT_EQ(alloc(3, firm - kCudaInitBytes, "managed"), "0");
  EXPECT_EQ(alloc(4, 4096), "2") << "small ones are firm too";
  EXPECT_EQ(guest.ask("info").substr(0, guest.ask("info").find(' ')),
            number(kPageable - kFirst - kSecond));
  out();
  in();
  expectIntact();
}

TEST_F(CudaPaging, WithoutRoomOnTheCardItIsToldAndTriedAgain) {
  out();
  ASSERT_EQ(guest.ask("answer cuMemCreate 2"), "ok");
  EXPECT_TRUE(answers(manager.setPaging(Phase::In), Answer::NoRoom));
  EXPECT_EQ(away(), kFirst + kSecond);
  ASSERT_EQ(guest.ask("answer cuMemCreate 0"), "ok");
  in();
  expectIntact();
}

TEST_F(CudaPaging, WhatCantBeCopiedStays) {
  ASSERT_EQ(guest.ask("answer cuMemcpyDtoH_v2 719"), "ok");
  out();
  EXPECT_EQ(away(), 0U);
  ASSERT_EQ(guest.ask("answer cuMemcpyDtoH_v2 0"), "ok");
  in();
  expectIntact();
}

TEST_F(CudaPaging, AnAddressIsOfOneAllocationWhateverItIsMadeOf) {
  const std::string whole = ":0:" + number(kFirst);
  for (const std::uint64_t offset : {std::uint64_t{0}, 66 * kMiB}) {  // in either chunk
    EXPECT_EQ(guest.ask("addresses 1 " + number(offset)), "0" + whole + " 0" + whole);
  }
}

TEST_F(CudaPaging, NobodyElseGetsAHandleToIt) {
  EXPECT_EQ(guest.ask("share 1"), "1");
  EXPECT_EQ(guest.ask("handle 1"), "1");
  EXPECT_NE(guest.errors().find("start it without --pageable"), std::string::npos);
}

TEST_F(CudaPaging, AContextTakesItsMemoryWithIt) {
  EXPECT_EQ(guest.ask("reset"), "0");
  EXPECT_EQ(held(), 0U);
}
TEST_F(CudaPaging, AContextTakesItsMemoryWithItAlsoWhileThatIsOut) {
  out();
  EXPECT_EQ(guest.ask("reset"), "0");
  EXPECT_EQ(held(), 0U);
  EXPECT_EQ(away(), 0U);
}
// CUDA's runtime makes no other; whose end nobody here may know.
TEST_F(CudaPaging, MemoryOfAnotherContextThanThePrimaryOneIsFirm) {
  ASSERT_EQ(guest.ask("ctxnew"), "0");
  ASSERT_EQ(alloc(3, 6 * kMiB), "0");
  EXPECT_EQ(held(), kFirst + kSecond);
  EXPECT_EQ(manager.bytes(), kCudaInitBytes + 6 * kMiB);
  ASSERT_EQ(guest.ask("ctxend"), "0");
  expectIntact();
}

TEST_F(CudaPaging, WithoutAManagerWhoIsOutStaysOutAndANewOneLetsItReturn) {
  out();
  manager.die();
  ASSERT_EQ(guest.ask("aside stir 2 a"), "ok");
  ASSERT_TRUE(eventually([&] { return guest.ask("asideat") == "S"; }));
  EXPECT_EQ(away(), kFirst + kSecond);
  manager.restart(QGPU_GATE_OPEN);  // its page says "in"
  EXPECT_EQ(guest.ask("joinaside"), "0");
  EXPECT_EQ(guest.ask("check 1 a 11 1"), "0 0");
  EXPECT_EQ(guest.ask("check 2 a 22 1"), "0 0");
}

TEST_F(CudaPaging, AForkOfItIsNoTenantOfThatMemory) {
  EXPECT_EQ(guest.ask("fork"), "0");
  out();
  in();
  expectIntact();
}

// A task beside one that may lend.
struct Needy {
  explicit Needy(std::uint64_t patienceNs)
      : manager([&] {
          FakeManager::Options options = cudaTask();
          options.needWaitNs = patienceNs;
          return options;
        }()),
        guest(manager) {
    EXPECT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("answer cuMemAlloc_v2 2"), "ok");
  }
  FakeManager manager;
  CudaTenant guest;
};

TEST(CudaNeeds, WhatTheCardRefusesIsToldAndAskedForAgain) {
  Needy s(3'600'000'000'000);
  const std::uint64_t bytes = 900 * kMiB;  // most of the quota
  ASSERT_EQ(s.guest.ask("aside alloc plain 1 " + number(bytes)), "ok");
  EXPECT_TRUE(eventually([&] { return s.manager.slot(0).need_bytes == bytes; }));
  EXPECT_GT(s.manager.slot(0).need_since_ns, 0U);
  EXPECT_TRUE(eventually([&] { return s.manager.bytes() == kCudaInitBytes; })) << "not both";
  ASSERT_EQ(s.guest.ask("answer cuMemAlloc_v2 0"), "ok");
  EXPECT_EQ(s.guest.ask("joinaside"), "0");
  EXPECT_EQ(s.manager.slot(0).need_bytes, 0U);
  EXPECT_EQ(s.manager.bytes(), bytes + kCudaInitBytes);
}

TEST(CudaNeeds, WhatNobodyLeavesInTimeIsRefused) {
  Needy s(10'000'000);
  EXPECT_EQ(s.guest.ask("alloc plain 1 " + number(kMiB)), "2");
  EXPECT_GT(s.manager.slot(0).need_since_ns, 0U);
  EXPECT_EQ(s.manager.slot(0).need_bytes, 0U);
  EXPECT_EQ(s.manager.bytes(), kCudaInitBytes);
}

TEST(CudaNeeds, WhatTheQuotaRefusesIsNoNeedNorAnythingBesideNobody) {
  Needy s(3'600'000'000'000);
  EXPECT_EQ(s.guest.ask("alloc plain 1 " + number(kQuota * 2)), "2");
  EXPECT_EQ(s.manager.slot(0).need_since_ns, 0U);
  Needy alone(0);
  EXPECT_EQ(alone.guest.ask("alloc plain 1 " + number(kMiB)), "2");
  EXPECT_EQ(alone.manager.slot(0).need_since_ns, 0U);
}

TEST_F(CudaPaging, OfATaskWithoutSuchMemoryAllIsFirm) {
  FakeManager::Options plain = cudaTask();
  plain.quotaBytes = kQuota;
  FakeManager other(plain);
  CudaTenant tenant(other);
  ASSERT_EQ(tenant.ask("init"), "0") << tenant.errors();
  EXPECT_EQ(tenant.ask("alloc plain 1 " + number(kFirst)), "0");
  EXPECT_EQ(other.bytes(), kFirst + kCudaInitBytes);
  EXPECT_EQ(other.slot(0).pageable_held, 0U);
  EXPECT_EQ(other.slot(0).paging_answer, 0U) << "it takes no part";
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_paging_test
