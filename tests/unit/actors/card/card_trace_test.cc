#include "actors/card/card_trace.h"

#include <gtest/gtest.h>

namespace qgpu::card_trace_test {
namespace {

using Kind = CardTrace::Kind;

CardTrace filled(std::size_t kept, std::uint64_t entries) {
  CardTrace trace(kept);
  for (std::uint64_t i = 1; i <= entries; ++i) trace.add(Kind::RUNNING, i, Nanos(std::int64_t(i)));
  return trace;
}

TEST(CardTrace, NumbersItsEntriesFromOneOn) {
  const CardTrace trace = filled(4, 3);
  EXPECT_EQ(trace.newest(), 3u);
  const CardTrace::Part part = trace.after(0);
  EXPECT_EQ(part.first, 1u);
  EXPECT_EQ(part.count, 3u);
  EXPECT_EQ(part.lost, 0u);
  EXPECT_EQ(trace[2].task, 2u);
  EXPECT_EQ(trace[2].at, Nanos(2));
}

TEST(CardTrace, AReaderGetsWhatCameAfterTheNumberItHas) {
  const CardTrace trace = filled(8, 5);
  EXPECT_EQ(trace.after(3).first, 4u);
  EXPECT_EQ(trace.after(3).count, 2u);
  EXPECT_EQ(trace.after(5).first, 6u);
  EXPECT_EQ(trace.after(5).count, 0u);
}

TEST(CardTrace, OverwritesTheOldestAndTellsAReaderWhatItLost) {
  const CardTrace trace = filled(4, 10);
  const CardTrace::Part late = trace.after(2);
  EXPECT_EQ(late.first, 7u);
  EXPECT_EQ(late.count, 4u);
  EXPECT_EQ(late.lost, 4u) << "3 to 6";
  EXPECT_EQ(trace[7].task, 7u);
  EXPECT_EQ(trace[10].task, 10u);
  EXPECT_EQ(trace.after(6).lost, 0u);
}

TEST(CardTrace, ANumberOfAnEarlierLifeReadsAsNone) {
  const CardTrace trace = filled(4, 2);
  EXPECT_EQ(trace.after(99).first, 1u);
  EXPECT_EQ(trace.after(99).count, 2u);
  EXPECT_EQ(trace.after(99).lost, 0u);
}

TEST(CardTrace, OneAnswerHasSoManyAndTheNextHasTheRest) {
  const CardTrace trace = filled(CardTrace::kKept, CardTrace::kPerReply + 7);
  const CardTrace::Part part = trace.after(0);
  EXPECT_EQ(part.count, CardTrace::kPerReply);
  EXPECT_EQ(trace.after(part.first + part.count - 1).count, 7u);
}

TEST(CardTrace, WithoutRoomItKeepsNothing) {
  const CardTrace trace = filled(0, 3);
  EXPECT_EQ(trace.newest(), 0u);
  EXPECT_EQ(trace.after(0).count, 0u);
  EXPECT_EQ(trace.after(3).count, 0u);
}

TEST(CardTrace, ForgetsNamesOfThoseThatLeftLongAgoAlone) {
  CardTrace trace(4);
  for (std::uint64_t task = 1; task <= CardTrace::kGoneKept + 2; ++task) {
    trace.name(task, {"t" + std::to_string(task), TaskClass::Offline});
    if (task != 1) trace.gone(task);
  }
  EXPECT_EQ(trace.nameOf(2), nullptr);
  ASSERT_NE(trace.nameOf(3), nullptr);
  EXPECT_EQ(trace.nameOf(3)->name, "t3");
  EXPECT_EQ(trace.nameOf(3)->taskClass, TaskClass::Offline);
  EXPECT_NE(trace.nameOf(1), nullptr) << "it is here";
}

}  // namespace
}  // namespace qgpu::card_trace_test
