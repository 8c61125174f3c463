#include "actors/arbiter/share_meter.h"

#include <gtest/gtest.h>

namespace qgpu::share_meter_test {
namespace {

constexpr Nanos kStart = seconds(1);

TEST(ShareMeter, CountsVirtualTimeExactlyHoweverSmallTheCharges) {
  ShareMeter fine(Permille(600), Permille(600), kStart);
  ShareMeter coarse = fine;
  for (int i = 0; i < 60'000; ++i) fine.charge(Nanos(1), kStart + Nanos(i + 1));
  coarse.charge(Nanos(60'000), kStart + Nanos(60'000));
  EXPECT_EQ(coarse.virtualTime(), 100'000);
  EXPECT_EQ(fine.virtualTime(), coarse.virtualTime());
  EXPECT_EQ(fine.level(kStart + Nanos(60'000)), coarse.level(kStart + Nanos(60'000)));
  EXPECT_EQ(fine.used(), Nanos(60'000));
}

TEST(ShareMeter, FillsAtOneMinusTheShareAndDrainsAtTheShare) {
  ShareMeter meter(Permille(300), Permille(300), kStart);
  meter.charge(millis(10), kStart + millis(10));
  EXPECT_EQ(meter.level(kStart + millis(10)), millis(7));
  EXPECT_EQ(meter.level(kStart + millis(20)), millis(4));
}

TEST(ShareMeter, ForgetsCreditThatWasNotUsed) {
  ShareMeter meter(Permille(300), Permille(300), kStart);
  EXPECT_EQ(meter.level(kStart + seconds(5)), Nanos(0));
  meter.charge(millis(10), kStart + seconds(5) + millis(10));
  EXPECT_EQ(meter.level(kStart + seconds(5) + millis(10)), millis(7));
}

TEST(ShareMeter, ChargesDebtBesideUsedTime) {
  ShareMeter meter(Permille(500), Permille(500), kStart);
  meter.charge(millis(1), kStart + millis(1));
  meter.chargeDebt(millis(3), kStart + millis(4));
  EXPECT_EQ(meter.used(), millis(1));
  EXPECT_EQ(meter.overrun(), millis(3));
  EXPECT_EQ(meter.virtualTime(), millis(8).value);
  EXPECT_EQ(meter.level(kStart + millis(4)), millis(2));
}

TEST(ShareMeter, SaysHowLongATaskMayRunUntilItsBucketIsFull) {
  ShareMeter meter(Permille(400), Permille(400), kStart);
  EXPECT_EQ(meter.room(millis(30), kStart), millis(50));
  meter.charge(millis(50), kStart + millis(50));
  EXPECT_EQ(meter.room(millis(30), kStart + millis(50)), Nanos(0));
  EXPECT_EQ(ShareMeter(kWholeCard, kWholeCard, kStart).room(millis(30), kStart), kNever);
}

TEST(ShareMeter, NamesTheFirstInstantWithRoomEnough) {
  ShareMeter meter(Permille(300), Permille(300), kStart);
  meter.charge(millis(100), kStart + millis(100));
  const Nanos now = kStart + millis(100);
  const Nanos ready = meter.readyAt(millis(30), millis(2), now);
  EXPECT_GE(meter.room(millis(30), ready), millis(2));
  EXPECT_LT(meter.room(millis(30), ready - Nanos(4)), millis(2));
  EXPECT_EQ(meter.readyAt(millis(30), millis(2), ready + millis(1)), ready + millis(1));
  EXPECT_EQ(ShareMeter(Permille(0), kWholeCard, now).readyAt(millis(30), millis(2), now), kNever);
}

TEST(ShareMeter, KeepsWhatATaskIsAheadAcrossAChangeOfWeight) {
  ShareMeter meter(Permille(250), Permille(250), kStart);
  meter.charge(millis(3), kStart + millis(3));
  EXPECT_EQ(meter.virtualTime(), millis(12).value);
  meter.reweigh(millis(4).value, kWholeCard);
  EXPECT_EQ(meter.virtualTime(), millis(2).value);
}

TEST(ShareMeter, AveragesGaps) {
  ShareMeter meter(Permille(0), kWholeCard, kStart);
  EXPECT_EQ(meter.usualGap(), kNever);
  meter.noteGap(micros(100));
  EXPECT_EQ(meter.usualGap(), micros(100));
  meter.noteGap(micros(500));
  EXPECT_EQ(meter.usualGap(), micros(200));
}

TEST(ShareMeter, CountsHeldTimeOnce) {
  ShareMeter meter(Permille(0), kWholeCard, kStart);
  meter.beginHeld(kStart);
  meter.beginHeld(kStart + millis(1));
  EXPECT_EQ(meter.held(kStart + millis(2)), millis(2));
  meter.endHeld(kStart + millis(3));
  EXPECT_EQ(meter.held(kStart + millis(9)), millis(3));
}

TEST(ShareMeter, ABucketThatNobodyLimitsStaysFullHoweverLongItsTaskRuns) {
  ShareMeter meter(Permille(1), kWholeCard, Nanos(0));
  Nanos now{0};
  for (int age = 0; age < 200; ++age) {  // 231 days; 107 of them fill what 64 bits can count
    now += seconds(100'000);
    meter.charge(seconds(100'000), now);
    ASSERT_GE(meter.level(now), seconds(90'000)) << "age " << age;
  }
  meter.limitLevel(millis(30), now);
  EXPECT_EQ(meter.level(now), millis(30)) << "fixed-share begins with one slice to pay";
}

TEST(ShareMeter, SurvivesAClockThatJumpsByYears) {
  ShareMeter meter(Permille(1), Permille(1), Nanos(0));
  meter.charge(kNever / 2, kNever / 2);
  EXPECT_EQ(meter.used(), kNever / 2);
  EXPECT_GT(meter.virtualTime(), 0);
  EXPECT_GE(meter.level(kNever / 2), Nanos(0));
}

}  // namespace
}  // namespace qgpu::share_meter_test
