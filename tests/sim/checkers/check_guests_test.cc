// What guests do beside what is said of them: what keeps an invariant passes, what breaks it is
// found.
#include <gtest/gtest.h>

#include "services/wire/gate_abi.h"
#include "tests/sim/checkers/scripted_card.h"

namespace qgpu::sim::check_guests_test {
namespace {

using Kind = GuestNews::Kind;
constexpr auto kOnline = Class::Online;
constexpr auto kOrdinary = Class::Ordinary;

// The loop of the cards does not stall until then.
void runsOn(ScriptedCard& card, std::int64_t untilUs) {
  for (std::int64_t us = 2'500; us <= untilUs; us += 2'500) card.at(us).tick();
}

TEST(CheckGuests, A1_TwoOpenGatesOfOneCardAreFound) {
  ScriptedCard card;
  card.joins(1, kOrdinary, 500);
  card.joins(2, kOrdinary, 500);
  card.stores(1, QGPU_GATE_OPEN);
  card.stores(1, 0);
  card.stores(2, QGPU_GATE_OPEN);
  EXPECT_EQ(card.broken(), "");
  card.stores(1, QGPU_GATE_OPEN);
  EXPECT_EQ(card.broken(), "A1");
}

TEST(CheckGuests, A1_AGrantBesideAnOpenGateOfTheLastManagerIsFound) {
  for (const bool comesBack : {true, false}) {
    ScriptedCard card;
    card.joins(1, kOrdinary, 500);
    card.joins(2, kOrdinary, 500);
    card.guest(Kind::Attached, 1, 1001);
    card.stores(1, QGPU_GATE_OPEN);
    card.restarts();
    if (comesBack) card.guest(Kind::Attached, 1, 1001);
    card.stores(2, QGPU_GATE_OPEN);
    EXPECT_EQ(card.broken(), comesBack ? "" : "A1");
  }
}

TEST(CheckGuests, A1_AKernelThatRunsOnAfterSettledIsFound) {
  for (const std::uint32_t inFlight : {0u, 1u}) {
    ScriptedCard card;
    card.joins(1, kOrdinary, 500);
    card.guest(Kind::Attached, 1, 1001);
    card.stores(1, QGPU_GATE_OPEN);
    card.guest(Kind::Submitted, 1, 1001, 0, 1);
    card.guest(Kind::Retired, 1, 1001, 0, inFlight);
    card.stores(1, 0);
    card.portSays([](auto envelope) { envelope.initSettled().setTask(1); });
    EXPECT_EQ(card.broken(), inFlight == 0 ? "" : "A1");
  }
}

TEST(CheckGuests, A2_OnlineWorkThatNobodyTellsIsFound) {
  for (const bool told : {true, false}) {
    ScriptedCard card;
    card.joins(1, kOnline, 0, {idle(1)});
    card.guest(Kind::Attached, 1, 1001);
    card.stores(1, QGPU_GATE_OPEN | QGPU_GATE_NOTIFY);
    card.guest(Kind::Submitted, 1, 1001, 0, 1);
    if (told) card.at(60).portSays([](auto envelope) { envelope.initBusy().setTask(1); });
    runsOn(card, 20'000);
    card.guest(Kind::Started, 1, 1001, 0, 1);
    EXPECT_EQ(card.broken(), told ? "" : "A2");
  }
}

TEST(CheckGuests, A3_QuietWithWorkInFlightIsFound) {
  ScriptedCard card;
  card.joins(1, kOnline, 0, {idle(1)});
  card.guest(Kind::Attached, 1, 1001);
  card.guest(Kind::Submitted, 1, 1001, 0, 1);
  card.portSays([](auto envelope) { envelope.initQuiet().setTask(1); });
  EXPECT_EQ(card.broken(), "A3");
}

TEST(CheckGuests, A11_ADeathThatNobodyTellsIsFound) {
  for (const bool told : {true, false}) {
    ScriptedCard card;
    card.joins(1, kOrdinary, 500);
    card.guest(Kind::Attached, 1, 1001);
    card.stores(1, QGPU_GATE_OPEN);
    card.guest(Kind::Died, 1, 1001);
    if (told) card.at(2'000).portSays([](auto envelope) { envelope.initOwnerDied().setTask(1); });
    runsOn(card, 20'000);
    card.guest(Kind::BytesReturned, 1, 1001);
    EXPECT_EQ(card.broken(), told ? "" : "A11");
  }
}

TEST(CheckGuests, A11_ATaskThatLivesOnInAProcessThatIsJustAttachingIsNotDead) {
  ScriptedCard card;
  card.joins(1, kOrdinary, 500);
  card.guest(Kind::Attached, 1, 1001);
  card.stores(1, QGPU_GATE_OPEN);
  card.guest(Kind::Died, 1, 1001);
  card.at(400).portSays([](auto envelope) { envelope.initProcessAttached().setTask(1); });
  runsOn(card, 20'000);
  card.guest(Kind::BytesReturned, 1, 1001);
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckGuests, C7_AStampOfTheFutureIsFound) {
  ScriptedCard card;
  card.portSays([](auto envelope) { envelope.initBusy().setSinceNs(5'000'000'000); });
  EXPECT_EQ(card.broken(), "C7");
}

void says(ScriptedCard& card, std::uint64_t bytes) {
  card.portSays([&](auto envelope) {
    auto used = envelope.initUsed();
    used.setTask(1);
    used.setMemBytes(bytes);
  });
}

void known(ScriptedCard& card, std::uint64_t quota) {
  card.tells([&](auto envelope) {
    auto task = envelope.initTaskKnown();
    task.setTask(1);
    task.setQuotaBytes(quota);
  });
}

TEST(CheckMemory, A14_BytesAboveTheQuotaOverAllProcessesAreFound) {
  ScriptedCard card;
  known(card, 100);
  card.guest(Kind::Allocated, 1, 1001, 60);
  card.guest(Kind::Allocated, 1, 1002, 40);
  EXPECT_EQ(card.broken(), "");
  card.guest(Kind::Allocated, 1, 1002, 1);
  EXPECT_EQ(card.broken(), "A14");
}

TEST(CheckMemory, A14_BytesOfTheDeadReturnOnceAndAreThenNotCounted) {
  ScriptedCard card;
  known(card, 100);
  card.guest(Kind::Allocated, 1, 1001, 60);
  card.guest(Kind::Died, 1, 1001);
  card.guest(Kind::BytesReturned, 1, 1001, 60);
  card.guest(Kind::Allocated, 1, 1002, 100);
  EXPECT_EQ(card.broken(), "");
  card.guest(Kind::BytesReturned, 1, 1001, 60);
  EXPECT_EQ(card.broken(), "A14");
}

TEST(CheckMemory, A14_BytesThatTheManagerKeepsCountingOrForgetsAreFound) {
  ScriptedCard keeps;
  known(keeps, 100);
  for (std::int64_t us = 0; us < 900'000; us += 300'000) {
    keeps.at(us);
    says(keeps, 60);
  }
  EXPECT_EQ(keeps.broken(), "");
  keeps.at(1'200'000);
  says(keeps, 60);
  EXPECT_EQ(keeps.broken(), "A14");
  ScriptedCard forgets;
  known(forgets, 100);
  forgets.guest(Kind::Attached, 1, 1001);
  forgets.guest(Kind::Allocated, 1, 1001, 60);
  says(forgets, 50);
  EXPECT_EQ(forgets.broken(), "A14");
}

}  // namespace
}  // namespace qgpu::sim::check_guests_test
