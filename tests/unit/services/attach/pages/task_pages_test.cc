#include "services/attach/pages/task_pages.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/actor.h"
#include "services/wire/loans.h"

namespace qgpu::task_pages_test {
namespace {

// A clock that stands still, and nobody who waits.
class StillPlatform final : public PagePlatform {
 public:
  Nanos now() override { return seconds(100); }
  Nanos stored(std::uint64_t, const qgpu_gate_page&) override { return now(); }
  void wake(std::uint64_t, qgpu_gate_page&, int) override {}
};

// A clock that goes on while the manager works, or waits for its CPU.
class MovingPlatform final : public PagePlatform {
 public:
  Nanos now() override { return at; }
  Nanos stored(std::uint64_t, const qgpu_gate_page&) override { return at; }
  void wake(std::uint64_t, qgpu_gate_page&, int) override {}
  Nanos at = seconds(1000);
};

TaskPages makePagesIn(PagePlatform& around, std::uint64_t task, Bytes quota) {
  TaskPagesSpec spec;
  spec.task = task;
  spec.quota = quota;
  spec.incarnation = 3;
  Result<TaskPages> pages = TaskPages::create(spec, around);
  QGPU_CHECK(pages.ok(), "this machine has memory for a page");
  return std::move(*pages);
}

TaskPages makePages(std::uint64_t task = 7, Bytes quota = mebibytes(64)) {
  static StillPlatform still;
  return makePagesIn(still, task, quota);
}

qgpu_report_page* mapReport(const TaskPages& pages) {
  void* at =
      ::mmap(nullptr, kReportPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, pages.reportFd(), 0);
  return static_cast<qgpu_report_page*>(at);
}

// The guest's map of a report page, for one test.
class GuestMap {
 public:
  explicit GuestMap(const TaskPages& pages) : page_(mapReport(pages)) {}
  ~GuestMap() { ::munmap(page_, kReportPageBytes); }
  qgpu_report_page* operator->() { return page_; }
  qgpu_report_page& page() { return *page_; }
  qgpu_slot& slot(std::uint32_t i) { return page_->slot[i]; }

 private:
  qgpu_report_page* page_;
};

Fd duplicate(int fd) {
  return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

std::string selfPath(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

std::uint64_t timesliceOf(const TaskPages& pages) {
  void* at = ::mmap(nullptr, kGatePageBytes, PROT_READ, MAP_SHARED, pages.gateFd(), 0);
  const std::uint64_t us = static_cast<const qgpu_gate_page*>(at)->timeslice_us;
  ::munmap(at, kGatePageBytes);
  return us;
}

TEST(TaskPages, ProcessesOfAnOfflineTaskThatTakeTurnsAmongThemselvesDoItSeldom) {
  StillPlatform still;
  TaskPagesSpec spec;
  spec.task = 7;
  spec.taskClass = QGPU_OFFLINE;
  spec.timeslices = true;
  auto made = TaskPages::create(spec, still);
  ASSERT_TRUE(made.ok());
  TaskPages pages = std::move(*made);
  EXPECT_EQ(timesliceOf(pages), 200u);
  ASSERT_TRUE(pages.takeSlot(10, 1).ok());
  EXPECT_EQ(timesliceOf(pages), 200u);
  const auto second = pages.takeSlot(11, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(timesliceOf(pages), 2'000u);
  pages.freeSlot(*second);
  EXPECT_EQ(timesliceOf(pages), 200u);
}

TEST(TaskPages, HAZARDS9_AGuestCannotWriteTheGatePageHoweverItOpensIt) {
  const TaskPages pages = makePages();
  const int fd = pages.gateFd();
  EXPECT_EQ(::fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::write(fd, "x", 1), -1);
  const Fd again(::open(selfPath(fd).c_str(), O_RDWR | O_CLOEXEC));
  if (again) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
              MAP_FAILED);
    EXPECT_EQ(::write(again.get(), "x", 1), -1);
    EXPECT_EQ(errno, EPERM);
  }
  void* reading = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(reading, MAP_FAILED);
  EXPECT_EQ(::mprotect(reading, 4096, PROT_READ | PROT_WRITE), -1);
  ::munmap(reading, 4096);
}

TEST(TaskPages, HAZARDS9_NoPageCanBeTruncatedOrSealedFurther) {
  const TaskPages pages = makePages();
  const Fd gate(::open(selfPath(pages.gateFd()).c_str(), O_RDWR | O_CLOEXEC));
  for (const int fd : {gate.get(), pages.reportFd()}) {
    if (fd < 0) continue;
    EXPECT_EQ(::ftruncate(fd, 0), -1);
    EXPECT_EQ(::ftruncate(fd, 1 << 20), -1);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  }
}

TEST(TaskPages, TheManagerStillWritesItsSealedPage) {
  TaskPages pages = makePages();
  pages.storeGate(0x12345, QGPU_GATE_OPEN);
  void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, pages.gateFd(), 0);
  const auto* page = static_cast<const qgpu_gate_page*>(at);
  EXPECT_EQ(page->magic, QGPU_GATE_MAGIC);
  EXPECT_EQ(page->incarnation, 3u);
  EXPECT_EQ(page->gate, (0x12345u << QGPU_GATE_SEQ_SHIFT) | QGPU_GATE_OPEN);
  EXPECT_EQ(page->epoch, 0x12345u);
  EXPECT_GT(page->gate_stored_ns, 0u);
  ::munmap(at, 4096);
}

TEST(TaskPages, SlotsAreGivenOutOnceAndAfterTheLastOneThereIsAReason) {
  TaskPages pages = makePages();
  for (std::uint32_t i = 0; i < QGPU_SLOTS; i++) EXPECT_EQ(*pages.takeSlot(i + 1, 1), i);
  const auto none = pages.takeSlot(99, 1);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::NoRoom);
  pages.freeSlot(5);
  EXPECT_EQ(*pages.takeSlot(99, 1), 5u);
}

TEST(TaskPages, A14_AFreedSlotReturnsItsBytesAndKeepsWhatItsProcessDid) {
  TaskPages pages = makePages();
  GuestMap guest(pages);
  const std::uint32_t a = *pages.takeSlot(1, 1), b = *pages.takeSlot(2, 1);
  guest.slot(a).bytes = 1000;
  guest.slot(a).launches = 5;
  guest.slot(b).bytes = 10;
  EXPECT_EQ(pages.use().memBytes, 1010u);
  pages.freeSlot(a);
  EXPECT_EQ(pages.use().memBytes, 10u);
  EXPECT_EQ(pages.use().launches, 5u);
  EXPECT_EQ(pages.use().memPeak, 1010u);
  EXPECT_EQ(guest.slot(a).bytes, 0u);
}

TEST(TaskPages, A14_WhatOthersHoldOfADeadProcesssMemoryCountsUntilTheyAreDeadToo) {
  TaskPages pages = makePages(7, Bytes(1000));
  GuestMap guest(pages);
  const std::uint32_t lender = *pages.takeSlot(1, 1), borrower = *pages.takeSlot(2, 1);
  guest.slot(lender).bytes = 1000;
  loans::publish(guest.slot(lender), 77);
  const std::uint32_t loan =
      loans::take(guest.page(), QGPU_LOANS, borrower, lender, loans::nameOf(77, 5));
  ASSERT_TRUE(loans::settle(guest.page(), loan, 600));
  EXPECT_EQ(pages.use().memBytes, 1000u);
  pages.freeSlot(lender);
  EXPECT_EQ(pages.use().memBytes, 600u);
  EXPECT_EQ(pages.use().memPeak, 1000u);
  ASSERT_EQ(*pages.takeSlot(3, 1), lender);
  guest.slot(lender).bytes = 400;
  pages.judgeQuota();
  pages.judgeQuota();
  EXPECT_EQ(pages.faults() & kFaultBytes, 0u) << "the quota is full and not passed";
  guest.slot(lender).bytes = 401;
  pages.judgeQuota();
  pages.judgeQuota();
  EXPECT_NE(pages.faults() & kFaultBytes, 0u) << "the loan is judged with the rest";
  guest.slot(lender).bytes = 0;
  pages.freeSlot(borrower);
  EXPECT_EQ(pages.use().memBytes, 0u);
}

TEST(TaskPages, LoansAreAnnouncedInTheGatePageWhichNoManagerInherits) {
  const TaskPages before = makePages();
  GuestMap guest(before);
  guest->loans_kept_before = QGPU_LOANS;
  TaskPages pages = makePages();
  ASSERT_TRUE(pages.adoptReport(duplicate(before.reportFd())));
  void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, pages.gateFd(), 0);
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_EQ(static_cast<const qgpu_gate_page*>(at)->loans_kept, QGPU_LOANS);
  ::munmap(at, 4096);
  EXPECT_EQ(guest->loans_kept_before, 0u) << "an earlier manager may come again and find it";
}

TEST(TaskPages, WhatIsInFlightIsTheSumOverLiveProcesses) {
  TaskPages pages = makePages();
  GuestMap guest(pages);
  const std::uint32_t a = *pages.takeSlot(1, 1), b = *pages.takeSlot(2, 1);
  guest.slot(a).admitted = 5;
  guest.slot(a).retired = 3;
  guest.slot(b).admitted = 1;
  guest.slot(b).waiting = 2;
  GateSample sample = pages.sample(seconds(1000));
  EXPECT_EQ(sample.inFlight, 3u);
  EXPECT_EQ(sample.waiting, 2u);
  EXPECT_FALSE(sample.stopped);
  guest.slot(a).owner = FUTEX_OWNER_DIED;
  sample = pages.sample(seconds(1000));
  EXPECT_EQ(sample.inFlight, 1u);
  EXPECT_EQ(sample.died, 1u << a);
  EXPECT_EQ(pages.sample(seconds(1000)).died, 0u);
}

TEST(TaskPages, NonsenseIsBoundedAndNamed) {
  TaskPages pages = makePages();
  GuestMap guest(pages);
  const std::uint32_t a = *pages.takeSlot(1, 1);
  guest.slot(a).admitted = ~0ull;
  EXPECT_EQ(pages.sample(seconds(1000)).inFlight, QGPU_MAX_INFLIGHT);
  EXPECT_EQ(pages.faults(), kFaultInFlight);
  guest.slot(a).retired = 50;
  pages.sample(seconds(1000));
  guest.slot(a).retired = 20;
  pages.sample(seconds(1000));
  EXPECT_NE(pages.faults() & kFaultBackwards, 0u);
  guest.slot(a).last_submit_ns = ~0ull;
  EXPECT_EQ(pages.sample(seconds(1000)).lastSubmit, Nanos(0)) << "it would be news at every look";
  EXPECT_NE(pages.faults() & kFaultFuture, 0u);
  guest.slot(a).driver_threads = 1000;
  EXPECT_EQ(pages.driverThreads(a), 0u);
  EXPECT_NE(pages.faults() & kFaultThreads, 0u);
  guest.slot(a).bytes = ~0ull;
  pages.judgeQuota();
  EXPECT_EQ(pages.faults() & kFaultBytes, 0u) << "one sighting may be a racing reservation";
  pages.judgeQuota();
  EXPECT_NE(pages.faults() & kFaultBytes, 0u);
  EXPECT_EQ(pages.use().memBytes, static_cast<std::uint64_t>(mebibytes(64).value));
  EXPECT_NE(TaskPages::faultText(pages.faults()).find("ran backwards"), std::string::npos);
}

TEST(TaskPages, AStampWrittenWhileTheManagerWaitedForItsCpuIsNoFault) {
  MovingPlatform around;
  TaskPages pages = makePagesIn(around, 7, mebibytes(64));
  GuestMap guest(pages);
  const std::uint32_t a = *pages.takeSlot(1, 1);
  const Nanos before = around.now();
  around.at += millis(20);
  guest.slot(a).last_submit_ns = static_cast<std::uint64_t>(around.at.value);
  EXPECT_EQ(pages.sample(before).lastSubmit, before) << "no submit is after the look's own time";
  EXPECT_EQ(pages.faults(), 0u);
  EXPECT_EQ(pages.sample(around.at).lastSubmit, around.at);
  EXPECT_EQ(pages.faults(), 0u);
  guest.slot(a).last_submit_ns = static_cast<std::uint64_t>((around.at + millis(20)).value);
  EXPECT_EQ(pages.sample(around.at).lastSubmit, around.at) << "what it said before still holds";
  EXPECT_EQ(pages.faults(), kFaultFuture);
}

TEST(TaskPages, C7_RandomBytesNeverBreakTheReader) {
  TaskPages pages = makePages();
  GuestMap guest(pages);
  for (std::uint32_t i = 0; i < 8; i++) (void)pages.takeSlot(i + 1, 1);
  auto* words = reinterpret_cast<std::uint64_t*>(&guest.slot(0));
  Prng prng(1);
  std::uint64_t launches = 0, gpuNs = 0;
  Nanos now = seconds(1000);
  for (std::uint32_t round = 0; round < 5000; round++) {
    now += micros(250);
    for (std::size_t w = 0; w < 8 * sizeof(qgpu_slot) / 8; w++) {
      const std::uint64_t r = prng.next();
      words[w] = (r & 3) == 0 ? r : (r & 3) == 1 ? ~0ull : r >> 40;
    }
    if (round % 16 == 0) guest.slot(round / 16 % 8).owner = 0;
    const GateSample sample = pages.sample(now);
    ASSERT_LE(sample.inFlight, QGPU_MAX_INFLIGHT);
    ASSERT_LE(sample.lastSubmit, now);
    ASSERT_LE(sample.lastRetire, now);
    ASSERT_LE(sample.frozenAt, now);
    const UseSample use = pages.use();
    ASSERT_LE(use.memBytes, static_cast<std::uint64_t>(mebibytes(64).value));
    ASSERT_GE(use.launches, launches);
    ASSERT_GE(use.gpuNs, gpuNs);
    launches = use.launches;
    gpuNs = use.gpuNs;
    for (std::uint32_t i = 0; i < 8; i++) ASSERT_LE(pages.driverThreads(i), QGPU_DRIVER_THREADS);
    if (round % 500 == 499) {
      pages.freeSlot(static_cast<std::uint32_t>(round / 500 % 8));
      (void)pages.takeSlot(1, 1);
    }
  }
}

TEST(TaskPages, HAZARDS9_APageThatIsBroughtBackMustBeOneOfOurs) {
  TaskPages pages = makePages(7);
  const auto refused = [&](Fd page) {
    const Status adopted = pages.adoptReport(std::move(page));
    return !adopted.ok() && adopted.error().code == ErrorCode::Denied;
  };
  EXPECT_TRUE(refused(Fd(::memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING))));
  EXPECT_TRUE(refused(Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))));
  EXPECT_TRUE(refused(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  Fd small(::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.get(), 4096), 0);
  ASSERT_EQ(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_TRUE(refused(std::move(small)));
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kReportPageBytes), 0);
  EXPECT_TRUE(refused(std::move(unsealed)));
  const TaskPages other = makePages(8);
  EXPECT_TRUE(refused(duplicate(other.reportFd())));
  EXPECT_TRUE(refused(duplicate(pages.gateFd())));
}

TEST(TaskPages, TheFirstPageBroughtBackCountsAndTheSecondMustBeTheSame) {
  TaskPages earlier = makePages(7), strange = makePages(7);
  GuestMap guest(earlier);
  const std::uint32_t slot = *earlier.takeSlot(11, 22);
  guest.slot(slot).bytes = 4096;
  TaskPages pages = makePages(7);
  ASSERT_TRUE(pages.adoptReport(duplicate(earlier.reportFd())).ok());
  EXPECT_TRUE(pages.adoptReport(duplicate(earlier.reportFd())).ok());
  EXPECT_EQ(pages.adoptReport(duplicate(strange.reportFd())).error().code, ErrorCode::Conflict);
  EXPECT_EQ(pages.claimSlot(slot, 11, 23).error().code, ErrorCode::Denied);
  EXPECT_EQ(pages.claimSlot(64, 11, 22).error().code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(pages.claimSlot(slot, 11, 22).ok());
  EXPECT_EQ(pages.claimSlot(slot, 11, 22).error().code, ErrorCode::Conflict);
  EXPECT_EQ(pages.use().memBytes, 4096u);
}

}  // namespace
}  // namespace qgpu::task_pages_test
