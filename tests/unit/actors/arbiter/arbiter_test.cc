// What the arbiter promises, one promise per test.

#include "actors/arbiter/arbiter.h"

#include <gtest/gtest.h>
#include <string>

namespace qgpu::arbiter_test {
namespace {

using Away = Arbiter::Away;

constexpr TaskId kA{1}, kB{2}, kC{3}, kOn{9};

// A card at a chosen time; every call gives the orders as text, such as "hold 1, open 2 contended".
class ArbiterCase : public testing::Test {
 protected:
  explicit ArbiterCase(ArbiterConfig config = {}) : arbiter(config, now) {}

  std::string join(TaskId id, TaskClass taskClass, std::int64_t share = 300) {
    ArbiterTask task;
    task.id = id;
    task.taskClass = taskClass;
    task.share = Permille(share);
    return take([&] { arbiter.join(task, now, out); });
  }
  std::string busy(TaskId id) {
    return take([&] { arbiter.busy(id, now, now, out); });
  }
  std::string quiet(TaskId id) {
    return take([&] { arbiter.quiet(id, now, now, out); });
  }
  std::string settle(TaskId id) {
    return take([&] { arbiter.settled(id, lastHold, now, now, out); });
  }
  std::string settleEpoch(TaskId id, std::uint32_t epoch) {
    return take([&] { arbiter.settled(id, epoch, now, now, out); });
  }
  std::string died(TaskId id) {
    return take([&] { arbiter.died(id, now, out); });
  }
  std::string leave(TaskId id) {
    return take([&] { arbiter.leave(id, now, out); });
  }
  std::string retired(TaskId id) {
    return take([&] { arbiter.retired(id, now, out); });
  }
  std::string away(TaskId id, Away how = Away::Waits) {
    return take([&] { arbiter.setAway(id, how, now, out); });
  }
  std::string back(TaskId id) { return away(id, Away::Back); }
  std::string policy(Policy next) {
    return take([&] { arbiter.setPolicy(next, now, out); });
  }
  // Lets time pass with all deadlines kept.
  std::string after(Nanos span) {
    const Nanos end = now + span;
    std::string all;
    while (arbiter.nextDeadline() <= end) {
      now = std::max(now, arbiter.nextDeadline());
      const std::string orders = take([&] { arbiter.expire(now, out); });
      if (!orders.empty()) all += (all.empty() ? "" : ", ") + orders;
    }
    now = end;
    return all;
  }
  // Whether the last call noted this about the task.
  bool noted(ArbiterNote::Kind kind, TaskId id) const {
    for (const ArbiterNote& note : out.notes) {
      if (note.kind == kind && note.task == id) return true;
    }
    return false;
  }
  Arbiter::TaskView view(TaskId id) const { return *arbiter.task(id, now); }

  Nanos now = seconds(1);
  Decisions out;
  std::uint32_t lastHold = 0;
  Arbiter arbiter;

 private:
  template <typename Call>
  std::string take(Call call) {
    out.clear();
    call();
    std::string text;
    for (const GateDecision& order : out.gates) {
      constexpr const char* kWords[] = {"open ", "hold ", "hasten "};
      if (order.kind == GateDecision::Kind::Hold) lastHold = order.epoch;
      text += (text.empty() ? "" : ", ") + std::string(kWords[static_cast<int>(order.kind)]);
      text += std::to_string(static_cast<std::uint64_t>(order.task));
      if (order.patience > Nanos(0)) text += " patient";
      if (order.notify) text += " notify";
      if (order.contended) text += " contended";
    }
    return text;
  }
};

TEST_F(ArbiterCase, A7_GrantsAnIdleCardInTheTurnInWhichATaskWantsIt) {
  EXPECT_EQ(join(kA, TaskClass::Ordinary), "");
  EXPECT_EQ(busy(kA), "open 1");
}

TEST_F(ArbiterCase, A1_GrantsTheNextOnlyWhenTheHolderHasSettled) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += millis(5);
  EXPECT_EQ(busy(kB), "hold 1");
  now += millis(1);
  EXPECT_EQ(settle(kA), "open 2 contended");
}

TEST_F(ArbiterCase, A3_HoldsTheOfflineTaskInTheTurnThatOnlineArrives) {
  EXPECT_EQ(join(kOn, TaskClass::Online), "open 9 notify");
  join(kA, TaskClass::Offline);
  EXPECT_EQ(busy(kA), "open 1 contended");
  now += micros(10);
  EXPECT_EQ(busy(kOn), "hold 1, open 9");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(ArbiterCase, A3_ResumesTheOfflineTaskWhenOnlineWasIdleLongEnough) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kA);
  busy(kOn);
  settle(kA);
  now += millis(3);
  EXPECT_EQ(quiet(kOn), "");
  EXPECT_EQ(after(millis(100) - Nanos(1)), "");
  EXPECT_EQ(after(Nanos(1)), "open 9 notify, open 1 contended");
}

TEST_F(ArbiterCase, ALoneTaskThatWantsNothingIsParkedAndResumesWithoutAHold) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(quiet(kA), "");
  EXPECT_EQ(after(millis(1)), "open 1 notify");
  EXPECT_EQ(view(kA).used, millis(1) + micros(500));
  EXPECT_EQ(busy(kA), "open 1");
}

TEST_F(ArbiterCase, A1_ParkedGateIsHeldBeforeAnotherOpens) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  quiet(kA);
  EXPECT_EQ(after(millis(1)), "open 1 notify");
  EXPECT_EQ(busy(kB), "hold 1");
  EXPECT_EQ(settle(kA), "open 2");
}

TEST_F(ArbiterCase, A2_NeverShutsAnOnlineGate) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kA);
  EXPECT_EQ(busy(kOn), "hold 1, open 9");
  settle(kA);
  now += seconds(60);
  EXPECT_EQ(after(Nanos(0)), "");
  EXPECT_TRUE(view(kOn).gateOpen);
  died(kOn);
  EXPECT_TRUE(view(kOn).gateOpen);
}

TEST_F(ArbiterCase, A3_LastRetiredWorkOfAnyOnlineTaskPutsTheOthersOff) {
  join(kOn, TaskClass::Online);
  join(kC, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kOn);
  EXPECT_EQ(busy(kC), "open 3");
  busy(kA);
  quiet(kC);
  now += millis(300);
  EXPECT_EQ(after(Nanos(0)), "");
  quiet(kOn);
  now += millis(60);
  quiet(kC);  // seen again: it retired work of which no word had come
  EXPECT_EQ(after(millis(99)), "");
  EXPECT_EQ(after(millis(1)), "open 9 notify, open 3 notify, open 1 contended");
}

TEST_F(ArbiterCase, A3_OnlineWorkThatEndedLongAgoReleasesTheCardAtOnce) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kOn);
  busy(kA);
  now += millis(500);
  out.clear();
  arbiter.quiet(kOn, now - millis(200), now, out);
  EXPECT_EQ(out.gates.size(), 2u);
  EXPECT_TRUE(noted(ArbiterNote::Kind::Running, kA));
}

TEST_F(ArbiterCase, A3_NothingIsHeldTwiceWhenOnlineArrivesDuringSettling) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(2)), "hold 1");
  EXPECT_EQ(busy(kOn), "open 9");
  EXPECT_EQ(settle(kA), "");
}

// Cards whose holds stop work in the middle.
class PatientCase : public ArbiterCase {
 protected:
  static ArbiterConfig patient(Policy policy = Policy::BestEffort) {
    ArbiterConfig config;
    config.policy = policy;
    config.patience = millis(15);
    config.drainFor = millis(800);
    return config;
  }
  PatientCase() : ArbiterCase(patient()) {}
};

TEST_F(PatientCase, ASliceThatIsOverLetsWhatIsInFlightEnd) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(2)), "hold 1 patient");
  now += millis(3);
  EXPECT_EQ(settle(kA), "open 2 contended");
  EXPECT_EQ(view(kA).used, millis(5)) << "what ran on is charged";
}

TEST_F(PatientCase, A3_OnlineEndsThePatienceInItsOwnTurnAndOnce) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(2)), "hold 1 patient");
  now += millis(1);
  EXPECT_EQ(busy(kOn), "hasten 1, open 9");
  EXPECT_EQ(out.gates.at(0).epoch, lastHold);
  EXPECT_EQ(quiet(kOn), "");
  EXPECT_EQ(busy(kOn), "");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(PatientCase, A3_NothingIsHastenedOnceThePatienceIsOver) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(2)), "hold 1 patient");
  now += millis(15);
  EXPECT_EQ(busy(kOn), "open 9");
}

TEST_F(PatientCase, A3_AHoldForOnlineHasNoPatience) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kA);
  EXPECT_EQ(busy(kOn), "hold 1, open 9");
}

TEST_F(PatientCase, WhoWakesAndHasUsedLessWaitsForShortWorkAlone) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += millis(5);
  EXPECT_EQ(busy(kB), "hold 1 patient");
  EXPECT_EQ(out.gates.at(0).patience, ArbiterConfig{}.sliceMin);
}

TEST_F(PatientCase, A6_WhoLivesOnIdleTimeGivesWayAtOnce) {
  arbiter = Arbiter(patient(Policy::BurstShare), now);
  join(kA, TaskClass::Offline, 0);
  join(kB, TaskClass::Offline, 500);
  busy(kA);
  now += millis(5);
  EXPECT_EQ(busy(kB), "hold 1");
}

TEST_F(PatientCase, A4_ThePatienceOfACapIsPaidBack) {
  arbiter = Arbiter(patient(Policy::FixedShare), now);
  join(kA, TaskClass::Ordinary, 500);
  busy(kA);
  EXPECT_EQ(after(millis(60)), "hold 1 patient") << "one slice above half of the time";
  now += millis(10);
  settle(kA);
  EXPECT_EQ(view(kA).used, millis(70));
  EXPECT_EQ(after(millis(11)), "") << "5 ms above the cap, and room for a new slice";
  EXPECT_EQ(after(millis(1)), "open 1");
}

TEST_F(ArbiterCase, A12_WhoWasBetweenTwoPiecesOfWorkIsNoneThatWakes) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  ASSERT_EQ(after(millis(2)), "hold 1");
  now += millis(1);  // so that slices are longer than the least
  ASSERT_EQ(settle(kA), "open 2 contended");
  quiet(kA);
  now += micros(100);
  busy(kA);
  EXPECT_EQ(after(millis(8)), "") << "it has used less, and was not away";
  quiet(kA);
  now += millis(1);
  EXPECT_EQ(busy(kA), "hold 2") << "it was away for longer than a linger";
}

// What ran on is no cost of switching, so slices stay short where stopping is cheap.
TEST_F(PatientCase, SlicesDoNotGrowWithWhatHoldsLetEnd) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  for (int i = 0; i < 20; ++i) {
    const TaskId holder = arbiter.card(now).holder;
    const Nanos from = now;
    do {
      after(arbiter.nextDeadline() - now);
    } while (!noted(ArbiterNote::Kind::Suspending, holder));
    ASSERT_LE(now - from, millis(13)) << "slice " << i;
    now += i == 0 ? millis(1) : millis(10);
    settle(holder);
  }
}

// A share is work done, and a program that was held does none before it woke and launched again.
TEST_F(ArbiterCase, A9_WhatASliceTakesToResumeIsNobodysAndIsIdleTime) {
  ArbiterConfig config;
  config.resumeCost = micros(200);
  arbiter = Arbiter(config, now);
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += micros(150);
  EXPECT_EQ(view(kA).used, Nanos(0));
  now += millis(1);
  EXPECT_EQ(view(kA).used, micros(950));
  EXPECT_EQ(arbiter.card(now).idle, micros(200));
  quiet(kA);
  after(millis(5));
  const Nanos before = view(kA).used;
  busy(kA);
  now += millis(1);
  EXPECT_EQ(view(kA).used - before, millis(1)) << "its gate was open: it runs from its launch on";
}

TEST_F(ArbiterCase, A10_AnOldEpochChangesNothing) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(2)), "hold 1");
  const std::uint64_t before = arbiter.digest();
  EXPECT_EQ(settleEpoch(kA, lastHold - 1), "");
  EXPECT_EQ(settleEpoch(kB, lastHold), "");
  EXPECT_EQ(arbiter.digest(), before);
  EXPECT_EQ(settle(kA), "open 2 contended");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(ArbiterCase, A10_EpochsGoOnFromTheFirstAndSkipZeroWhenTheyWrap) {
  arbiter = Arbiter(ArbiterConfig{}, now, UINT32_MAX);
  join(kA, TaskClass::Ordinary);
  busy(kA);
  EXPECT_EQ(out.gates.at(0).epoch, UINT32_MAX);
  died(kA);
  EXPECT_EQ(out.gates.at(0).epoch, 1u);
}

TEST_F(ArbiterCase, A11_AHolderThatDiesPassesTheCardOnInTheSameTurn) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  EXPECT_EQ(died(kA), "hold 1, open 2");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(ArbiterCase, A11_AHolderThatLeavesWhileItSettlesPassesTheCardOn) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  after(millis(2));
  EXPECT_EQ(leave(kA), "open 2");
  EXPECT_FALSE(arbiter.task(kA, now).has_value());
}

TEST_F(ArbiterCase, A11_AHolderThatDoesNotSettleCostsItselfAndNotTheCard) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  after(millis(2));
  EXPECT_EQ(after(millis(100) - Nanos(1)), "");
  EXPECT_EQ(after(Nanos(1)), "open 2");
  EXPECT_TRUE(noted(ArbiterNote::Kind::Overrun, kA));
  EXPECT_TRUE(view(kA).quarantined);
  quiet(kB);
  after(millis(10));
  EXPECT_FALSE(view(kA).gateOpen) << "nobody else wants the card, and still it is not granted";
  EXPECT_EQ(arbiter.card(now).overruns, 1u);
}

TEST_F(ArbiterCase, A11_QuarantineEndsAtTheNextRetirementAndTheOverrunIsCharged) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  join(kOn, TaskClass::Online);
  busy(kOn);
  EXPECT_EQ(after(millis(100)), "");
  EXPECT_TRUE(view(kA).quarantined);
  now += millis(400);
  retired(kA);
  EXPECT_TRUE(noted(ArbiterNote::Kind::QuarantineOver, kA));
  EXPECT_FALSE(view(kA).quarantined);
  EXPECT_EQ(view(kA).overrun, millis(500));
  now += millis(50);
  settle(kA);
  EXPECT_EQ(view(kA).overrun, millis(550)) << "what still ran after the retirement is charged too";
  now += millis(50);
  EXPECT_EQ(view(kA).overrun, millis(550));
}

TEST_F(ArbiterCase, A11_ALongMeasuredSettlingWidensTheBoundButNotForEver) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  after(millis(2));
  now += millis(50);
  settle(kA);
  for (int i = 0; i < 8 && !noted(ArbiterNote::Kind::Suspending, kA); ++i) {
    after(arbiter.nextDeadline() - now);
    if (noted(ArbiterNote::Kind::Suspending, kB)) settle(kB);
  }
  ASSERT_TRUE(noted(ArbiterNote::Kind::Suspending, kA));
  EXPECT_EQ(arbiter.nextDeadline(), now + millis(200));
}

TEST_F(ArbiterCase, A12_AHoldIsFollowedByOneTerminalNote) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  after(millis(2));
  EXPECT_TRUE(noted(ArbiterNote::Kind::Suspending, kA));
  settle(kA);
  EXPECT_TRUE(noted(ArbiterNote::Kind::Suspended, kA));
  EXPECT_TRUE(noted(ArbiterNote::Kind::Running, kB));
}

TEST_F(ArbiterCase, A12_TheHolderIsProtectedForTheLeastSlice) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(busy(kB), "open 1 contended");
  EXPECT_EQ(after(millis(1) - Nanos(1)), "");
  EXPECT_EQ(after(Nanos(1)), "hold 1");
}

TEST_F(ArbiterCase, A9_EachNanosecondHasOneLabel) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  now += millis(10);  // idle
  busy(kA);
  now += millis(7);  // used
  busy(kOn);
  now += millis(3);  // online, and the settling of A is its own debt
  settle(kA);
  now += millis(20);
  quiet(kOn);
  quiet(kA);
  after(millis(150));
  const Arbiter::CardView card = arbiter.card(now);
  EXPECT_EQ(card.used, millis(7));
  EXPECT_EQ(card.online, millis(123));
  EXPECT_EQ(card.idle, millis(60));
  EXPECT_EQ(view(kA).used, millis(7));
  EXPECT_EQ(view(kA).overrun, millis(3));
}

TEST_F(ArbiterCase, A9_StatusBetweenTwoEventsSaysWhatTheNextEventWillFind) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kA);
  now += millis(7);
  EXPECT_EQ(view(kA).used, millis(7));
  EXPECT_EQ(arbiter.card(now).used, millis(7));
  busy(kOn);
  now += millis(3);  // A settles in online's time
  const Arbiter::TaskView before = view(kA);
  EXPECT_EQ(before.used, millis(7));
  EXPECT_EQ(before.overrun, millis(3));
  EXPECT_EQ(arbiter.card(now).online, millis(3));
  settle(kA);
  EXPECT_EQ(view(kA).used, before.used);
  EXPECT_EQ(view(kA).overrun, before.overrun);
}

TEST_F(ArbiterCase, A9_ATimerThatFiresLateDoesNotLengthenALinger) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  quiet(kA);
  now += seconds(1);
  after(Nanos(0));
  EXPECT_EQ(view(kA).used, micros(500));
}

TEST_F(ArbiterCase, A9_HeldTimeIsTimeWithoutAnOpenGate) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  after(millis(2));
  settle(kA);
  EXPECT_EQ(view(kB).held, millis(2));
  now += millis(1);
  EXPECT_EQ(view(kA).held, millis(1));
  EXPECT_EQ(view(kB).held, millis(2));
}

TEST_F(ArbiterCase, ATaskThatSynchronisesAfterEachKernelKeepsItsSliceThroughTheLinger) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  busy(kB);
  quiet(kA);
  now += micros(100);
  EXPECT_EQ(busy(kA), "") << "the first gap sets the usual one";
  quiet(kA);
  EXPECT_EQ(after(micros(200) - Nanos(1)), "");
  EXPECT_EQ(after(Nanos(1)), "hold 1");
  EXPECT_EQ(settle(kA), "open 2");
}

TEST_F(ArbiterCase, ASliceThatNobodyContestsGoesOnWithoutOrders) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  EXPECT_EQ(arbiter.nextDeadline(), kNever);
  EXPECT_EQ(after(seconds(5)), "");
}

TEST_F(ArbiterCase, H10_TheHoldersGateSaysWhenSomebodyElseWantsTheCard) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  EXPECT_EQ(busy(kA), "open 1");
  EXPECT_EQ(busy(kB), "open 1 contended");
  EXPECT_EQ(quiet(kB), "");
  EXPECT_EQ(after(millis(2)), "open 1") << "lowered at the end of the slice, not at once";
}

TEST_F(ArbiterCase, H11_SavedCreditIsAtMostOneSlice) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += seconds(30);  // B could have had half of this
  EXPECT_EQ(busy(kB), "hold 1");
  settle(kA);
  Nanos alone{0};
  while (!view(kA).gateOpen) {
    after(millis(1));
    alone += millis(1);
    if (noted(ArbiterNote::Kind::Suspending, kB)) settle(kB);
  }
  EXPECT_LE(alone, ArbiterConfig{}.sliceMax + ArbiterConfig{}.sliceMin);
}

TEST_F(ArbiterCase, A6_ABorrowerWithoutShareGivesWayAtOnce) {
  policy(Policy::BurstShare);
  join(kA, TaskClass::Offline, 0);
  join(kB, TaskClass::Offline, 500);
  EXPECT_EQ(busy(kA), "open 1");
  now += micros(1);
  EXPECT_EQ(busy(kB), "hold 1");
  EXPECT_EQ(settle(kA), "open 2 contended");
  EXPECT_EQ(after(seconds(1)), "") << "without a share it has only idle time";
}

TEST_F(ArbiterCase, A4_ATaskAloneIsHeldAtItsShareAndGrantedAgainInTime) {
  policy(Policy::FixedShare);
  join(kA, TaskClass::Ordinary, 300);
  busy(kA);
  const Nanos start = now;
  EXPECT_EQ(after(Nanos(42'857'142)), "hold 1") << "30 ms of bucket at 0.7 ns per ns";
  EXPECT_EQ(settle(kA), "");
  EXPECT_GT(arbiter.nextDeadline(), now);
  const Nanos again = arbiter.nextDeadline();
  EXPECT_EQ(after(again - now), "open 1");
  EXPECT_LE(view(kA).used, scale(now - start, Permille(300)) + ArbiterConfig{}.sliceMax);
}

TEST_F(ArbiterCase, A4_AShareOfNothingNeverRunsUnderFixedShare) {
  policy(Policy::FixedShare);
  join(kA, TaskClass::Offline, 0);
  EXPECT_EQ(busy(kA), "");
  EXPECT_EQ(arbiter.nextDeadline(), kNever);
  EXPECT_EQ(policy(Policy::BestEffort), "open 1");
}

TEST_F(ArbiterCase, ANewPolicyTakesEffectAtTheEndOfTheRunningSlice) {
  join(kA, TaskClass::Ordinary, 300);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(policy(Policy::FixedShare), "");
  EXPECT_EQ(arbiter.card(now).policy, Policy::BestEffort);
  after(millis(1));
  EXPECT_EQ(arbiter.card(now).policy, Policy::FixedShare);
}

// Simulator seed 17: what the owner had used alone was taken for a debt to the others.
TEST_F(ArbiterCase, A8_WhoRanWhileNobodyElseMightOwesNothingUnderANewPolicy) {
  policy(Policy::BurstShare);
  join(kA, TaskClass::Ordinary, 300);
  join(kB, TaskClass::Ordinary, 0);
  busy(kA);
  busy(kB);
  after(millis(500));
  policy(Policy::BestEffort);
  EXPECT_EQ(after(millis(31)), "hold 1");
  EXPECT_EQ(settle(kA), "open 2 contended");
  EXPECT_EQ(after(millis(31)), "hold 2");
}

// Simulator seed 53782: the share of the time before the policy was not taken off a debt of then.
TEST_F(ArbiterCase, A8_WhoRunsLateOwesASliceAtMostOfTheTimeBeforeANewPolicy) {
  join(kA, TaskClass::Ordinary, 500);
  join(kB, TaskClass::Ordinary, 500);
  busy(kA);
  busy(kB);
  EXPECT_EQ(after(millis(30)), "hold 1");
  const std::uint32_t lateEpoch = lastHold;
  EXPECT_EQ(after(millis(100)), "open 2");
  leave(kB);
  now += seconds(1);
  policy(Policy::FixedShare);
  now += millis(10);
  EXPECT_EQ(settleEpoch(kA, lateEpoch), "");
  // 30 ms of before and half of the 10 ms since; 29 leave room for the least slice.
  EXPECT_EQ(after(millis(12)), "open 1");
}

TEST_F(ArbiterCase, AWholeCardIsNeverHeld) {
  ArbiterTask whole;
  whole.id = kA;
  whole.exclusive = true;
  whole.share = kWholeCard;
  out.clear();
  arbiter.join(whole, now, out);
  ASSERT_EQ(out.gates.size(), 1u);
  EXPECT_TRUE(out.gates[0].notify);
  EXPECT_EQ(policy(Policy::FixedShare), "");
  EXPECT_EQ(busy(kA), "open 1");
  EXPECT_EQ(after(seconds(10)), "");
  quiet(kA);
  EXPECT_EQ(after(millis(1)), "open 1 notify");
  EXPECT_EQ(view(kA).used, seconds(10) + micros(500));
  busy(kA);
  EXPECT_EQ(died(kA), "open 1 notify");
  EXPECT_EQ(leave(kA), "hold 1");
}

// Simulator seed 1236: the whole card came right after an online task left.
TEST_F(ArbiterCase, A12_AWholeCardThatWorksAgainBeforeOnlineIsIdleGetsNoOrderThatChangesNothing) {
  join(kOn, TaskClass::Online, 0);
  busy(kOn);
  leave(kOn);
  ArbiterTask whole;
  whole.id = kA;
  whole.exclusive = true;
  whole.share = kWholeCard;
  arbiter.join(whole, now, out);
  EXPECT_EQ(busy(kA), "open 1");
  now += millis(1);
  EXPECT_EQ(died(kA), "");
  EXPECT_EQ(busy(kA), "");
  EXPECT_EQ(after(millis(200)), "");
  EXPECT_EQ(quiet(kA) + after(millis(1)), "open 1 notify");
}

TEST_F(ArbiterCase, M1_WhoIsAwayIsHeldAndGrantedOnlyWhenItIsBack) {
  join(kA, TaskClass::Offline);
  EXPECT_EQ(busy(kA), "open 1");
  now += millis(1);
  EXPECT_EQ(away(kA), "hold 1");
  EXPECT_EQ(settle(kA), "");
  EXPECT_TRUE(view(kA).away);
  EXPECT_EQ(after(seconds(5)), "");
  EXPECT_EQ(busy(kA), "");
  EXPECT_EQ(away(kA), "") << "said again";
  EXPECT_EQ(back(kA), "open 1");
  EXPECT_EQ(back(kA), "") << "said again";
}

TEST_F(ArbiterCase, M1_WhoBeginsToWantTheCardWhileItIsAwayWaitsUntilItIsBack) {
  join(kA, TaskClass::Offline);
  away(kA);
  EXPECT_EQ(busy(kA), "");
  EXPECT_TRUE(noted(ArbiterNote::Kind::Ready, kA));
  EXPECT_EQ(back(kA), "open 1");
  EXPECT_TRUE(noted(ArbiterNote::Kind::Running, kA));
}

TEST_F(ArbiterCase, M1_WhoWantsNothingAnyMoreGetsNothingWhenItIsBack) {
  join(kA, TaskClass::Offline);
  away(kA);
  busy(kA);
  EXPECT_EQ(quiet(kA), "");
  EXPECT_EQ(back(kA), "");
  EXPECT_EQ(busy(kA), "open 1");
}

TEST_F(ArbiterCase, M1_ATaskLeavesTheQueueAndTheOthersGoOn) {
  for (const TaskId id : {kA, kB, kC}) join(id, TaskClass::Offline);
  busy(kA);
  busy(kB);
  busy(kC);
  away(kB);
  const std::string turns = after(millis(31));
  EXPECT_EQ(turns, "hold 1");
  EXPECT_EQ(settle(kA), "open 3 contended");
  EXPECT_EQ(back(kB), "");
  after(millis(31));
  EXPECT_EQ(settle(kC), "open 2 contended");
}

TEST_F(ArbiterCase, M1_AParkedHolderThatGoesAwayIsShut) {
  join(kA, TaskClass::Offline);
  busy(kA);
  quiet(kA);
  after(millis(1));
  EXPECT_EQ(away(kA), "hold 1");
  EXPECT_EQ(settle(kA), "");
  EXPECT_EQ(busy(kA), "");
}

TEST_F(ArbiterCase, M1_AHoldThatSettlesAfterTheTaskWentAwayQueuesNobody) {
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  now += millis(5);
  EXPECT_EQ(busy(kB), "hold 1");
  EXPECT_EQ(away(kA), "");
  EXPECT_EQ(settle(kA), "open 2") << "nobody else is there";
  EXPECT_EQ(after(seconds(1)), "");
}

TEST_F(ArbiterCase, M1_WhoIsBackBeforeItsHoldSettledIsQueuedByThat) {
  join(kA, TaskClass::Offline);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(away(kA), "hold 1");
  EXPECT_EQ(back(kA), "");
  EXPECT_EQ(settle(kA), "open 1");
}

TEST_F(ArbiterCase, A8_WhoWasAwayIsOwedNoTurnsOfThatTime) {
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  busy(kB);
  away(kB);
  after(seconds(60));
  EXPECT_EQ(back(kB), "hold 1");
  EXPECT_EQ(settle(kA), "open 2 contended");
  EXPECT_EQ(after(millis(40)), "hold 2") << "one turn, and not those of a minute";
}

TEST_F(ArbiterCase, A11_AQuarantineThatEndsGrantsNobodyWhoIsAway) {
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  now += millis(5);
  busy(kB);
  after(seconds(2));
  ASSERT_TRUE(view(kA).quarantined);
  away(kA);
  quiet(kB);
  after(millis(1));
  EXPECT_EQ(retired(kA), "");
  EXPECT_FALSE(view(kA).gateOpen);
}

TEST_F(ArbiterCase, M1_OnlineAndWholeCardsAreNeverAway) {
  join(kOn, TaskClass::Online);
  EXPECT_EQ(away(kOn), "");
  EXPECT_FALSE(view(kOn).away);
}

TEST_F(ArbiterCase, ADrainIsNothingWhereWorkEndsByItself) {
  join(kA, TaskClass::Offline);
  busy(kA);
  EXPECT_EQ(away(kA, Away::DrainsNow), "hold 1");
  EXPECT_EQ(settle(kA) + after(seconds(1)), "");
}

TEST_F(PatientCase, WhatAHoldStoppedHasATurnToEndBeforeItsMemoryLeaves) {
  join(kA, TaskClass::Offline);
  join(kOn, TaskClass::Online);
  busy(kA);
  busy(kOn);
  settle(kA);
  quiet(kOn);
  EXPECT_EQ(after(millis(150)), "open 9 notify, open 1 contended");
  busy(kOn);
  settle(kA);
  EXPECT_EQ(away(kA, Away::DrainsNow), "hold 1 patient") << "its gate stays shut";
  EXPECT_EQ(out.gates.at(0).patience, millis(800));
  EXPECT_FALSE(view(kA).gateOpen);
  const Nanos owed = view(kA).overrun;
  now += millis(30);
  EXPECT_EQ(quiet(kA) + settle(kA), "");
  EXPECT_EQ(view(kA).overrun - owed, millis(30)) << "online had the card";
  EXPECT_EQ(after(millis(50)), "");
}

TEST_F(PatientCase, ADrainOfTheHolderIsItsHold) {
  join(kA, TaskClass::Offline);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(away(kA, Away::Drains), "hold 1 patient");
  EXPECT_EQ(out.gates.at(0).patience, millis(800));
  EXPECT_EQ(away(kA, Away::Drains), "") << "under way";
  now += millis(30);
  EXPECT_EQ(settle(kA), "") << "one is enough";
  EXPECT_EQ(view(kA).used, millis(31));
  EXPECT_EQ(away(kA) + after(seconds(2)), "");
}

TEST_F(PatientCase, A3_OnlineEndsADrainThatNobodyNeeds) {
  join(kA, TaskClass::Offline);
  join(kOn, TaskClass::Online);
  busy(kA);
  away(kA, Away::Drains);
  EXPECT_EQ(busy(kOn), "hasten 1, open 9");
  EXPECT_EQ(settle(kA), "");
  EXPECT_EQ(away(kA, Away::Drains), "") << "online has the card";
  quiet(kOn);
  EXPECT_EQ(after(millis(99)), "");
  EXPECT_EQ(after(millis(1)), "open 9 notify, hold 1 patient");
}

TEST_F(PatientCase, M6_OnlineLeavesADrainThatANeedWaitsFor) {
  join(kA, TaskClass::Offline);
  join(kOn, TaskClass::Online);
  busy(kA);
  EXPECT_EQ(away(kA, Away::Drains), "hold 1 patient");
  EXPECT_EQ(away(kA, Away::DrainsNow), "") << "the one under way is hurried";
  EXPECT_EQ(busy(kOn), "open 9");
  EXPECT_EQ(after(millis(800)), "");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(PatientCase, M6_ANeedThatComesAfterOnlineEndedADrainHasAnother) {
  join(kA, TaskClass::Offline);
  join(kOn, TaskClass::Online);
  busy(kA);
  away(kA, Away::Drains);
  busy(kOn);
  EXPECT_EQ(away(kA, Away::DrainsNow), "") << "its hold has not settled yet";
  EXPECT_EQ(settle(kA), "hold 1 patient");
}

TEST_F(PatientCase, ADrainComesBeforeTheTurnsOfOthers) {
  join(kA, TaskClass::Offline);
  join(kB, TaskClass::Offline);
  busy(kA);
  busy(kB);
  after(millis(2));
  settle(kA);
  ASSERT_TRUE(view(kB).gateOpen);
  EXPECT_EQ(away(kA, Away::Drains), "hold 2 patient") << "as a turn that is over";
  EXPECT_EQ(settle(kB), "hold 1 patient");
  now += millis(100);
  EXPECT_EQ(quiet(kA) + settle(kA), "open 2");
}

TEST_F(PatientCase, A11_ADrainThatDoesNotEndIsLateAfterItsPatience) {
  join(kA, TaskClass::Offline);
  busy(kA);
  away(kA, Away::DrainsNow);
  EXPECT_EQ(after(millis(800) + ArbiterConfig{}.settleMax - Nanos(1)), "");
  EXPECT_FALSE(view(kA).quarantined);
  after(Nanos(1));
  EXPECT_TRUE(view(kA).quarantined);
  EXPECT_EQ(away(kA, Away::DrainsNow) + after(seconds(1)), "") << "it ends by itself, or not";
}

TEST_F(PatientCase, WhoComesBackOrLeavesHasNoDrainLeft) {
  join(kA, TaskClass::Offline);
  join(kOn, TaskClass::Online);
  busy(kA);
  busy(kOn);
  settle(kA);
  away(kA, Away::Drains);
  back(kA);
  quiet(kOn);
  EXPECT_EQ(after(millis(100)), "open 9 notify, open 1 contended");
  busy(kOn);
  settle(kA);
  away(kA, Away::Drains);
  leave(kA);
  quiet(kOn);
  EXPECT_EQ(after(millis(100)), "open 9 notify");
}

TEST_F(ArbiterCase, WordsAboutUnknownTasksChangeNothing) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  const std::uint64_t before = arbiter.digest();
  EXPECT_EQ(busy(kC) + quiet(kC) + settleEpoch(kC, 1) + died(kC) + leave(kC) + retired(kC), "");
  EXPECT_EQ(arbiter.digest(), before);
}

TEST_F(ArbiterCase, ATaskThatJoinsAgainOrHasNoNameChangesNothing) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  const std::uint64_t before = arbiter.digest();
  EXPECT_EQ(join(kA, TaskClass::Online), "");
  EXPECT_EQ(join(TaskId::kNone, TaskClass::Online), "");
  EXPECT_EQ(arbiter.digest(), before);
  EXPECT_EQ(view(kA).task.taskClass, TaskClass::Ordinary);
}

TEST_F(ArbiterCase, A8_SharesStayEvenAfterMoreUseThanVirtualTimeCanCount) {
  policy(Policy::BurstShare);
  join(kA, TaskClass::Ordinary, 1);  // a thousand ns of virtual time for each ns
  join(kB, TaskClass::Ordinary, 1);
  for (int age = 0; age < 200; ++age) {
    busy(kA);
    now += seconds(100'000);
    quiet(kA);
    after(millis(1));
  }
  const Nanos usedBefore = view(kA).used;
  busy(kA);
  busy(kB);
  for (int step = 0; step < 1000; ++step) {
    after(millis(1));
    if (noted(ArbiterNote::Kind::Suspending, kA)) settle(kA);
    if (noted(ArbiterNote::Kind::Suspending, kB)) settle(kB);
  }
  const Nanos difference = view(kA).used - usedBefore - view(kB).used;
  EXPECT_LE(difference, ArbiterConfig{}.sliceMax * 2);
  EXPECT_GE(difference, ArbiterConfig{}.sliceMax * -2);
}

TEST_F(ArbiterCase, TimesFromTheFutureAndThePastAreReadAsNow) {
  join(kA, TaskClass::Ordinary);
  out.clear();
  arbiter.busy(kA, now + seconds(9), now, out);
  arbiter.quiet(kA, Nanos(INT64_MIN), now - seconds(1), out);
  arbiter.busy(kA, Nanos(INT64_MAX), now, out);
  arbiter.settled(kA, 1, Nanos(INT64_MIN), now, out);
  arbiter.expire(Nanos(INT64_MAX), out);
  const Arbiter::CardView card = arbiter.card(kNever);
  EXPECT_EQ(card.used + card.idle + card.online, kNever / 2 - now);
}

TEST_F(ArbiterCase, ACardHoldsAThousandTasksInTurn) {
  for (std::uint64_t i = 1; i <= Arbiter::kTasksMax; ++i) {
    join(TaskId{i}, TaskClass::Ordinary, 1);
    busy(TaskId{i});
  }
  std::uint64_t turns = 0;
  for (int i = 0; i < 3000; ++i) {
    after(arbiter.nextDeadline() - now);
    for (const ArbiterNote& note : std::vector<ArbiterNote>(out.notes)) {
      if (note.kind == ArbiterNote::Kind::Suspending) settle(note.task);
    }
  }
  for (std::uint64_t i = 1; i <= Arbiter::kTasksMax; ++i) {
    EXPECT_GE(view(TaskId{i}).turns, 1u);
    turns += view(TaskId{i}).turns;
  }
  EXPECT_GE(turns, 2000u);
}

}  // namespace
}  // namespace qgpu::arbiter_test
