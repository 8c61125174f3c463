// The workload: its arithmetic against the naive loop, and against the device itself.

#include <cerrno>
#include <gtest/gtest.h>

#include "services/demo/workload/ways_out.h"
#include "services/demo/workload/work_device.h"
#include "services/demo/workload/work_options.h"
#include "services/demo/workload/work_recurrence.h"
#include "services/demo/workload/work_report.h"
#include "services/demo/workload/work_run.h"

namespace qgpu::demo::demo_work_test {
namespace {

std::uint32_t naive(std::uint32_t value, std::uint64_t loops) {
  for (std::uint64_t i = 0; i < loops; i++) value = value * kMultiplier + kIncrement;
  return value;
}

TEST(Recurrence, StepsJumpToWhatTheLoopReaches) {
  for (const std::uint64_t loops : {0U, 1U, 2U, 3U, 255U, 1000U, 65537U}) {
    EXPECT_EQ(steps(loops)(12345), naive(12345, loops)) << loops;
  }
  EXPECT_EQ(compose(steps(1000), steps(337)), steps(1337));
}

TEST(Recurrence, EveryItemIsCheckedAndOneWrongBitIsFound) {
  std::vector<std::uint32_t> items(256);
  for (std::uint32_t i = 0; i < items.size(); i++) items[i] = naive(firstValue(7, 1000 + i), 99);
  EXPECT_EQ(wrongItems(items, 1000, 7, steps(99)), 0U);
  EXPECT_EQ(wrongItems(items, 1000, 7, steps(98)), items.size());
  EXPECT_EQ(wrongItems(items, 1001, 7, steps(99)), items.size());
  items[200] ^= 1;
  EXPECT_EQ(wrongItems(items, 1000, 7, steps(99)), 1U);
}

// What harms nobody, and anybody may open.
TEST(WaysOut, EachLeadsToANodeThatNobodyGuardsOrCantBeTriedHere) {
  const auto ways = parseWays(waysText("/dev/null"));
  ASSERT_TRUE(ways.ok()) << ways.error().message;
  ASSERT_EQ(ways->size(), waysOut().size());
  for (const WayTried& way : *ways) {
    EXPECT_TRUE(way.result == kGotIn || way.result == kNoWay) << way.name << " " << way.result;
  }
  EXPECT_EQ(ways->front().name, "open");
  EXPECT_EQ(ways->front().result, kGotIn);
}

TEST(WaysOut, WhatEndsOtherwiseSaysHow) {
  for (const WayOut& way : waysOut()) {
    const int result = tryWay(way, "/dev/no-such-node");
    EXPECT_TRUE(result == ENOENT || result == kNoWay) << way.name << " " << result;
  }
}

TEST(WaysOut, AreReadAsTheyAreWritten) {
  for (const char* text : {"", "\n", "open", "open x", "open 1 2", "open 1\n\n"}) {
    EXPECT_FALSE(parseWays(text).ok()) << text;
  }
  for (const char* node : {"", "dev/null", "/dev/no-such-node", "/etc/passwd"}) {
    EXPECT_FALSE(parseWorkOptions({std::string("--ways-out=") + node}).ok()) << node;
  }
  EXPECT_EQ(parseWorkOptions({"--ways-out", "/dev/null"})->waysOut, "/dev/null");
}

class OnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    DeviceTrouble trouble = DeviceTrouble::None;
    auto opened = WorkDevice::open(1, 42, trouble);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    device_ = std::move(*opened);
  }
  std::unique_ptr<WorkDevice> device_;
};

TEST_F(OnTheDevice, ResultsAreWhatTheHostExpectsAlsoWhenAWindowComesAroundAgain) {
  for (std::uint32_t i = 0; i < 40; i++) {  // 1 MiB has 16 windows
    InFlight work;
    ASSERT_TRUE(device_->submit(10 + i, work).ok());
    ASSERT_TRUE(device_->await(work).ok());
    EXPECT_EQ(work.wrong, 0U) << "kernel " << i;
    EXPECT_LE(work.submitNs, work.startNs);
    EXPECT_LE(work.startNs, work.endNs);
  }
  const auto wrong = device_->verifyAll();
  ASSERT_TRUE(wrong.ok());
  EXPECT_EQ(*wrong, 0U);
  EXPECT_GE(*device_->progress(), 40 * WorkDevice::kItems / WorkDevice::kGroup);
}

TEST_F(OnTheDevice, AnExpectationThatIsOneLoopOffFails) {
  InFlight work;
  ASSERT_TRUE(device_->submit(100, work).ok());
  work.expected = compose(work.expected, steps(1));
  ASSERT_TRUE(device_->await(work).ok());
  EXPECT_EQ(work.wrong, std::size_t{WorkDevice::kItems});
}

TEST_F(OnTheDevice, AShortRunReportsItselfAndTheReportIsReadBack) {
  WorkOptions options;
  options.mode = WorkOptions::Mode::Bursts;
  options.idleMs = {1, 2};
  options.kernelMs = {1, 1};
  WorkControl control(false, monotonicNs() + 100'000'000);
  control.mark();
  const auto report = runWork(*device_, options, 10, control);
  ASSERT_TRUE(report.ok()) << report.error().message;
  control.mark();
  ASSERT_EQ(control.marks().size(), 2U);
  EXPECT_EQ(control.marks()[0].loops, 0U);
  EXPECT_EQ(control.marks()[1].loops, report->loops) << "every one was right";
  EXPECT_TRUE(report->checksumOk());
  const auto again = parseWorkReport(report->json());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->kernels, report->kernels);
  EXPECT_EQ(again->device, report->device);
  ASSERT_EQ(again->bursts.size(), report->bursts.size());
  EXPECT_EQ(again->bursts.back().endNs, report->bursts.back().endNs);
  EXPECT_TRUE(again->checksumOk());
  ASSERT_EQ(again->marks.size(), 1U);
  EXPECT_EQ(again->marks[0].atNs, control.marks()[0].atNs);
}

TEST(WorkReport, WhatIsNoReportIsRefused) {
  EXPECT_FALSE(parseWorkReport("").ok());
  EXPECT_FALSE(parseWorkReport("qgpu-work: no").ok());
  EXPECT_FALSE(parseWorkReport("[1]").ok());
}

TEST(WorkReport, NoKernelsAtAllIsNoRightChecksum) {
  EXPECT_FALSE(WorkReport().checksumOk());
}

TEST(WorkOptions, RangesAndNumbersAreReadAndBadOnesNamed) {
  const auto options = parseWorkOptions(
      {"--mode", "bursts", "--kernel-ms=2..100", "--memory-mib", "64", "--json", "--verify"});
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->mode, WorkOptions::Mode::Bursts);
  EXPECT_DOUBLE_EQ(options->kernelMs.low, 2);
  EXPECT_DOUBLE_EQ(options->kernelMs.high, 100);
  EXPECT_EQ(options->memoryMib, 64U);
  for (const char* bad : {"--kernel-ms=5..2", "--kernel-ms=a", "--memory-mib=0", "--seconds=-1",
                          "--mode=slow", "--memory-mib=1.5", "--nonsense", "--seconds"}) {
    const auto refused = parseWorkOptions({bad});
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_FALSE(refused.error().message.empty());
  }
}

TEST(Draw, StaysInItsRangeAndRepeatsItselfForTheSameSeed) {
  Draw one(5);
  Draw two(5);
  for (int i = 0; i < 1000; i++) {
    const double value = one.from({2, 100});
    EXPECT_GE(value, 2);
    EXPECT_LT(value, 100);
    EXPECT_EQ(value, two.from({2, 100}));
  }
}

}  // namespace
}  // namespace qgpu::demo::demo_work_test
