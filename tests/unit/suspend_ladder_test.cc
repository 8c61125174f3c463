// The ladder of suspend=rm by hand.

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "services/cards/suspend/ladder.h"

namespace qgpu::suspend {
namespace {

constexpr std::uint32_t kClient = 0xc1d00001;

Channel channelOf(std::uint32_t name, std::uint32_t group = 1, std::uint32_t engine = 1) {
  return {kClient, name, group, engine, 7, 9};
}

Ladder withChannels(Rung rung, std::uint32_t count) {
  Ladder ladder(rung);
  for (std::uint32_t i = 0; i < count; i++) ladder.made(channelOf(100 + i, 1 + i / 8));
  while (ladder.next(Nanos(0))) ladder.answered(Answer::kDone, {}, Nanos(0));  // they are its own
  return ladder;
}

TEST(Ladder, ATaskIsStoppedOnceAllItsChannelsAreDisabledAndFreeOnceAllAreEnabled) {
  Ladder ladder = withChannels(Rung::kDisable, 3);
  EXPECT_FALSE(ladder.next(Nanos(0)));
  ladder.hold(Nanos(10));
  const auto disable = ladder.next(Nanos(10));
  ASSERT_TRUE(disable);
  EXPECT_EQ(disable->step, Step::kDisable);
  EXPECT_EQ(disable->channels.size(), 3u);
  EXPECT_FALSE(ladder.next(Nanos(10))) << "one call at a time";
  EXPECT_FALSE(ladder.stopped());
  ladder.answered(Answer::kDone, {}, Nanos(300));
  EXPECT_TRUE(ladder.stopped());
  EXPECT_FALSE(ladder.free());
  EXPECT_EQ(ladder.took(), Nanos(290));
  ladder.release(Nanos(400));
  const auto enable = ladder.next(Nanos(400));
  ASSERT_TRUE(enable);
  EXPECT_EQ(enable->step, Step::kEnable);
  EXPECT_EQ(enable->channels.size(), 3u);
  ladder.answered(Answer::kDone, {}, Nanos(500));
  EXPECT_TRUE(ladder.free());
  EXPECT_FALSE(ladder.next(Nanos(600)));
}

// Takes every call until there is none left, and says what they were: 'd' for a disable, 'r' and
// 'p' for the commit of what computes, 'R' and 'P' for another.
std::string callAll(Ladder& ladder) {
  std::string calls;
  while (const auto order = ladder.next(Nanos(0))) {
    const bool computes = order->channels.front().computes();
    if (order->step == Step::kDisable) calls += 'd';
    if (order->step == Step::kRestart) calls += computes ? 'r' : 'R';
    if (order->step == Step::kPreempt) calls += computes ? 'p' : 'P';
    if (order->step == Step::kProve) calls += '?';
    EXPECT_FALSE(ladder.stopped());
    ladder.answered(Answer::kDone, {}, Nanos(1));
  }
  return calls;
}

TEST(Ladder, EachGroupIsCommittedByACallOrEachEngineByARestart) {
  for (const auto& [rung, calls] :
       {std::pair{Rung::kDisable, "d"}, std::pair{Rung::kDisableRestart, "dr"},
        std::pair{Rung::kDisablePreempt, "dppp"}, std::pair{Rung::kSchedulingPreempt, "dppp"}}) {
    Ladder ladder = withChannels(rung, 20);
    ladder.hold(Nanos(0));
    EXPECT_EQ(callAll(ladder), calls) << nameOf(rung);
    EXPECT_TRUE(ladder.stopped()) << nameOf(rung);
  }
}

TEST(Ladder, ARestartIsOfEachEngineThatHasARunlistOfItsOwn) {
  Ladder ladder = withChannels(Rung::kDisableRestart, 3);
  ladder.made(channelOf(90, 50, 9));    // copies, and comes first by name
  ladder.made(channelOf(900, 51, 10));  // copies elsewhere
  ladder.made(channelOf(901, 52, 0));   // nobody knows where: it may compute
  ladder.made(channelOf(902, 53, 0));
  ladder.hold(Nanos(0));
  EXPECT_EQ(callAll(ladder), "drrrRR");
  EXPECT_TRUE(ladder.stopped());
}

// Copies of a program with many groups would keep online's kernels waiting for each of their calls.
TEST(Ladder, WhatComputesIsOffBeforeAnythingElseIsWaitedFor) {
  Ladder ladder(Rung::kDisablePreempt);
  for (std::uint32_t i = 0; i < 80; i++) ladder.made(channelOf(100 + i, 100 + i, 9));
  ladder.made(channelOf(500, 3));
  ladder.made(channelOf(501, 4));
  ladder.hold(Nanos(0));
  std::string before;
  while (!ladder.computingOff()) {
    const auto order = ladder.next(Nanos(0));
    ASSERT_TRUE(order);
    before += order->step == Step::kDisable ? 'd' : 'p';
    ladder.answered(Answer::kDone, {}, Nanos(1));
  }
  EXPECT_EQ(before, "dpp") << "80 copies wait";
  EXPECT_FALSE(ladder.stopped()) << "they run on";
  EXPECT_EQ(callAll(ladder), "d" + std::string(80, 'P'));
  EXPECT_TRUE(ladder.stopped());
  ladder.made(channelOf(600, 9));
  EXPECT_FALSE(ladder.computingOff());
}

TEST(Ladder, MoreChannelsThanACallHoldsGoInSeveralCallsComputeFirst) {
  Ladder ladder = withChannels(Rung::kDisable, 70);
  ladder.made(channelOf(90, 99, 9));  // copies
  ladder.hold(Nanos(0));
  const auto first = ladder.next(Nanos(0));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->channels.size(), Ladder::kNamedMax);
  ladder.answered(Answer::kDone, {}, Nanos(1));
  EXPECT_FALSE(ladder.stopped());
  const auto second = ladder.next(Nanos(1));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->channels.size(), 7u);
  EXPECT_EQ(second->channels.back().channel, 90u);
  ladder.answered(Answer::kDone, {}, Nanos(2));
  EXPECT_TRUE(ladder.stopped());
}

TEST(Ladder, GroupsThatEndedUnsaidAreNoDoubt) {
  Ladder ladder = withChannels(Rung::kDisablePreempt, 40);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(0));
  for (int i = 0; i < 39; i++) {
    const auto commit = ladder.next(Nanos(0));
    ASSERT_TRUE(commit && commit->step == Step::kPreempt) << i;
    ladder.answered(Answer::kGone, commit->channels, Nanos(0));
  }
  EXPECT_FALSE(ladder.doubted());
  EXPECT_EQ(callAll(ladder), "p");
  EXPECT_TRUE(ladder.stopped());
}

TEST(Ladder, ALateChannelIsDisabledAsWellAndUntilThenTheTaskIsNotStopped) {
  Ladder ladder = withChannels(Rung::kDisable, 1);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(1));
  ladder.made(channelOf(500));
  EXPECT_FALSE(ladder.stopped());
  const auto late = ladder.next(Nanos(2));
  ASSERT_TRUE(late);
  ASSERT_EQ(late->channels.size(), 1u);
  EXPECT_EQ(late->channels[0].channel, 500u);
}

TEST(Ladder, AGroupThatIsScheduledWhileItsDisableIsUnderWayIsDisabledAgain) {
  Ladder ladder = withChannels(Rung::kDisable, 2);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.scheduled(kClient, 1);
  ladder.answered(Answer::kDone, {}, Nanos(1));
  EXPECT_FALSE(ladder.stopped());
  ASSERT_TRUE(ladder.next(Nanos(1)));
  ladder.answered(Answer::kDone, {}, Nanos(2));
  EXPECT_TRUE(ladder.stopped());
}

TEST(Ladder, WhatAProcessPutBackItselfIsNamedByChannelGroupOrClient) {
  for (const std::uint32_t name : {100u, 1u, kClient}) {
    Ladder ladder = withChannels(Rung::kDisable, 1);
    ladder.hold(Nanos(0));
    ladder.next(Nanos(0));
    ladder.answered(Answer::kDone, {}, Nanos(1));
    ASSERT_TRUE(ladder.stopped());
    ladder.scheduled(kClient + 1, name);
    ladder.scheduled(kClient, 7);
    EXPECT_TRUE(ladder.stopped()) << "others were meant";
    ladder.scheduled(kClient, name);
    EXPECT_FALSE(ladder.stopped());
  }
}

TEST(Ladder, WhatAnEarlierManagerMayHaveDisabledIsEnabledUnlessItIsHeld) {
  Ladder ladder(Rung::kDisable);
  ladder.made(channelOf(100), true);
  EXPECT_FALSE(ladder.free());
  auto order = ladder.next(Nanos(0));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->step, Step::kEnable);
  ladder.answered(Answer::kDone, {}, Nanos(1));
  EXPECT_TRUE(ladder.free());

  Ladder held(Rung::kDisable);
  held.hold(Nanos(0));
  held.made(channelOf(100), true);
  order = held.next(Nanos(0));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->step, Step::kDisable);
}

// The driver refuses what is asked, as often as it is asked.
void refuseAll(Ladder& ladder, Nanos now) {
  for (int i = 0; i < Ladder::kTriesMax; i++) {
    EXPECT_FALSE(ladder.doubted()) << "a driver may be busy";
    ASSERT_TRUE(ladder.next(now));
    ladder.answered(Answer::kFailed, {}, now);
  }
}

TEST(Ladder, WhatFailedToBeDisabledIsEnabledAndNothingIsDisabledAnyMore) {
  Ladder ladder = withChannels(Rung::kDisable, 2);
  ladder.hold(Nanos(0));
  refuseAll(ladder, Nanos(1));
  EXPECT_TRUE(ladder.doubted());
  EXPECT_FALSE(ladder.free()) << "who knows what the driver did of it";
  const auto back = ladder.next(Nanos(1));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, Step::kEnable);
  ladder.answered(Answer::kDone, {}, Nanos(2));
  EXPECT_TRUE(ladder.free());
  ladder.release(Nanos(3));
  ladder.hold(Nanos(4));
  EXPECT_FALSE(ladder.next(Nanos(4)));
  EXPECT_FALSE(ladder.stopped());
}

// Each call meets one that has ended since, and whose end is not read yet.
void endOneByOne(Ladder& ladder, int count) {
  for (int i = 0; i < count; i++) {
    const auto order = ladder.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kDisable) << i;
    ladder.answered(Answer::kGone, {order->channels.front()}, Nanos(0));
  }
}

TEST(Ladder, AContextThatIsTornDownWhileItsTaskIsTakenOffIsNoDoubt) {
  Ladder ladder = withChannels(Rung::kDisable, 40);
  ladder.hold(Nanos(0));
  endOneByOne(ladder, 24);
  EXPECT_FALSE(ladder.doubted()) << ladder.why();
  EXPECT_EQ(callAll(ladder), "d") << "the rest goes off";
  EXPECT_TRUE(ladder.stopped());
  EXPECT_EQ(ladder.channels(), 16u);
}

TEST(Ladder, C7_WhoMakesAndEndsChannelsAllTheTimeIsNotTriedForEver) {
  Ladder ladder = withChannels(Rung::kDisable, 200);
  ladder.hold(Nanos(0));
  endOneByOne(ladder, Ladder::kGonesMax - 1);
  EXPECT_FALSE(ladder.doubted());
  EXPECT_EQ(ladder.next(Nanos(0))->channels.size(), Ladder::kNamedMax);
  ladder.answered(Answer::kDone, {}, Nanos(0));
  endOneByOne(ladder, Ladder::kGonesMax);
  EXPECT_TRUE(ladder.doubted()) << "none was taken in between";
}

// Every call of that step meets a driver that is busy, `times` times, each time a little later.
void beBusy(Ladder& ladder, Step step, int times, Nanos& now) {
  for (int i = 0; i < times; i++) {
    const auto order = ladder.next(now);
    ASSERT_TRUE(order && order->step == step) << i;
    ladder.answered(Answer::kLater, {}, now);
    if (ladder.doubted()) return;
    EXPECT_FALSE(ladder.next(now)) << "not at once again";
    ASSERT_EQ(ladder.retryAt() - now, Ladder::kRetryFirst * (1 << i));
    now = ladder.retryAt();
  }
}

TEST(Ladder, WhatMayPassIsTriedForAWhileBeforeItIsADoubt) {
  for (const Step step : {Step::kDisable, Step::kPreempt}) {
    Ladder ladder = withChannels(Rung::kDisablePreempt, 4);
    Nanos now(0);
    for (int round = 0; round < 2; round++) {
      ladder.hold(now);
      if (step == Step::kPreempt) {
        ASSERT_EQ(ladder.next(now)->step, Step::kDisable);
        ladder.answered(Answer::kDone, {}, now);
      }
      beBusy(ladder, step, Ladder::kWaitsMax, now);
      EXPECT_EQ(callAll(ladder), "") << "its time has not come at 0";
      ASSERT_EQ(ladder.next(now)->step, step);
      ladder.answered(Answer::kDone, {}, now);
      while (ladder.next(now)) ladder.answered(Answer::kDone, {}, now);
      EXPECT_TRUE(ladder.stopped()) << "each hold has its own time";
      ladder.release(now);
      ASSERT_EQ(ladder.next(now)->step, Step::kEnable);
      ladder.answered(Answer::kDone, {}, now);
    }
    EXPECT_GE(now, millis(2 * 127));
    ladder.hold(now);
    if (step == Step::kPreempt) {
      ladder.next(now);
      ladder.answered(Answer::kDone, {}, now);
    }
    beBusy(ladder, step, Ladder::kWaitsMax + 1, now);
    EXPECT_TRUE(ladder.doubted());
    const auto back = ladder.next(now);
    ASSERT_TRUE(back && back->step == Step::kEnable) << "at once";
  }
}

TEST(Ladder, AManyChanneledTaskIsPutBackSoonAfterADriverThatWasBusyForAMoment) {
  Ladder ladder = withChannels(Rung::kDisable, 20);
  ladder.hold(Nanos(0));
  EXPECT_EQ(callAll(ladder), "d");
  Nanos now = seconds(1);
  ladder.release(now);
  const Nanos wellAt = now + millis(5);
  while (!ladder.free() && now < seconds(3)) {
    const auto order = ladder.next(now);
    if (order) {
      ASSERT_EQ(order->step, Step::kEnable);
      ladder.answered(now < wellAt ? Answer::kLater : Answer::kDone, {}, now);
    } else {
      now = ladder.retryAt();
    }
  }
  EXPECT_TRUE(ladder.free());
  EXPECT_LE(now - wellAt, millis(5));
  EXPECT_FALSE(ladder.doubted()) << ladder.why();
}

// A hold and what comes after it are judged apart, also where an answer comes late.
TEST(Ladder, WhatWasRefusedInAHoldThatIsOverCountsNoMore) {
  Ladder ladder = withChannels(Rung::kDisable, 2);
  ladder.hold(Nanos(0));
  for (int i = 0; i < Ladder::kTriesMax; i++) {
    ASSERT_EQ(ladder.next(Nanos(0))->step, Step::kDisable);
    if (i + 1 == Ladder::kTriesMax) ladder.release(Nanos(0));
    ladder.answered(Answer::kFailed, {}, Nanos(0));
  }
  EXPECT_FALSE(ladder.doubted());
  for (int i = 0; i < Ladder::kTriesMax; i++) {
    ASSERT_EQ(ladder.next(Nanos(0))->step, Step::kEnable);
    if (i + 1 == Ladder::kTriesMax) ladder.hold(Nanos(0));
    ladder.answered(Answer::kFailed, {}, Nanos(0));
  }
  EXPECT_FALSE(ladder.doubted());
  EXPECT_EQ(callAll(ladder), "d");
  EXPECT_TRUE(ladder.stopped());
}

// Of how many clients an order names channels.
std::size_t clientsOf(const Order& order) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> clients;
  for (const Channel& each : order.channels) clients.emplace(each.process, each.client);
  return clients.size();
}

// Each is a look into a process, and all who are to be held wait for it.
TEST(Ladder, C7_ACallLooksIntoFewProcesses) {
  Ladder ladder(Rung::kDisable);
  for (std::uint32_t i = 0; i < 64; i++) ladder.made({kClient + i, 100, 1, 1, 1 + i / 8, 9});
  for (int i = 0; i < 64; i++) {
    const auto order = ladder.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kProve) << i;
    EXPECT_EQ(clientsOf(*order), 1u) << "nobody waits for it";
    ladder.answered(Answer::kDone, {}, Nanos(0));
  }
  ladder.hold(Nanos(0));
  int calls = 0;
  while (const auto order = ladder.next(Nanos(0))) {
    EXPECT_LE(clientsOf(*order), Ladder::kOwnersMax);
    ladder.answered(Answer::kDone, {}, Nanos(0));
    calls++;
  }
  EXPECT_TRUE(ladder.stopped());
  EXPECT_EQ(calls, 8);
}

// What the driver did for the others before it met the one that is gone, nobody knows.
TEST(Ladder, AHoldAfterAnEnableThatWasNotWhollyDoneDisablesAgain) {
  for (const Answer answer : {Answer::kGone, Answer::kFailed}) {
    Ladder ladder = withChannels(Rung::kDisable, 2);
    ladder.hold(Nanos(0));
    ladder.next(Nanos(0));
    ladder.answered(Answer::kDone, {}, Nanos(1));
    ASSERT_TRUE(ladder.stopped());
    ladder.release(Nanos(2));
    ASSERT_EQ(ladder.next(Nanos(2))->step, Step::kEnable);
    ladder.hold(Nanos(3));
    std::vector<Channel> gone;
    if (answer == Answer::kGone) gone.push_back(channelOf(100));
    ladder.answered(answer, gone, Nanos(4));
    EXPECT_FALSE(ladder.stopped());
    const auto again = ladder.next(Nanos(4));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->step, Step::kDisable);
    EXPECT_EQ(again->channels.size(), 2u - gone.size());
  }
}

TEST(Ladder, ADoubtOfAStoppedTaskLeavesItOffUntilItIsReleased) {
  Ladder ladder = withChannels(Rung::kDisable, 1);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(1));
  ladder.made(channelOf(500));
  refuseAll(ladder, Nanos(3));
  EXPECT_TRUE(ladder.doubted());
  EXPECT_FALSE(ladder.next(Nanos(3))) << "others have the card";
  EXPECT_EQ(ladder.retryAt(), kNever);
  ladder.release(Nanos(4));
  const auto back = ladder.next(Nanos(4));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, Step::kEnable);
  EXPECT_EQ(back->channels.size(), 2u);
  ladder.answered(Answer::kDone, {}, Nanos(5));
  EXPECT_TRUE(ladder.free());
  ladder.hold(Nanos(6));
  EXPECT_FALSE(ladder.next(Nanos(6))) << "it is not held so any more";
}

TEST(Ladder, AnEnableThatFailsIsTriedUntilItIsTaken) {
  Ladder ladder = withChannels(Rung::kDisable, 1);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_EQ(ladder.retryAt(), Ladder::kAgainEvery) << "held, and nothing else to do";
  ladder.release(Nanos(0));
  Nanos now(0);
  for (int i = 0; i < 30; i++) {
    const auto enable = ladder.next(now);
    ASSERT_TRUE(enable);
    ladder.answered(Answer::kFailed, {}, now);
    EXPECT_FALSE(ladder.next(now)) << "not at once again";
    EXPECT_LE(ladder.retryAt() - now, Ladder::kRetryMax);
    now = ladder.retryAt();
  }
  ASSERT_TRUE(ladder.next(now));
  ladder.answered(Answer::kDone, {}, now);
  EXPECT_TRUE(ladder.free());
}

TEST(Ladder, AChannelThatTheDriverDoesNotEnableKeepsNobodyElseOff) {
  Ladder ladder = withChannels(Rung::kDisable, 5);
  ladder.hold(Nanos(0));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(0));
  ladder.release(Nanos(0));
  std::set<std::uint32_t> on;
  Nanos now(0);
  for (int i = 0; i < 40; i++) {
    const auto order = ladder.next(now);
    if (!order) {
      now = ladder.retryAt();
      continue;
    }
    bool stuck = false;
    for (const Channel& each : order->channels) stuck = stuck || each.channel == 102;
    if (!stuck) {
      for (const Channel& each : order->channels) on.insert(each.channel);
    }
    ladder.answered(stuck ? Answer::kFailed : Answer::kDone, {}, now);
  }
  EXPECT_EQ(on, (std::set<std::uint32_t>{100, 101, 103, 104}));
  EXPECT_FALSE(ladder.free()) << "it is tried on";
  ladder.processGone(7);
  EXPECT_TRUE(ladder.free());
}

// The driver does so about address spaces, and tells nobody.
TEST(Ladder, WhatTheDriverPutsOnByItselfIsTakenOffAgain) {
  Ladder ladder = withChannels(Rung::kDisablePreempt, 9);
  ladder.hold(Nanos(0));
  EXPECT_EQ(callAll(ladder), "dpp");
  ASSERT_TRUE(ladder.stopped());
  Nanos now = ladder.retryAt();
  EXPECT_LE(now, Nanos(1) + Ladder::kAgainEvery);
  EXPECT_FALSE(ladder.next(now - Nanos(1)));
  for (int round = 0; round < 3; round++) {
    const auto order = ladder.next(now);
    ASSERT_TRUE(order) << "it may be on";
    EXPECT_EQ(order->step, Step::kDisable);
    EXPECT_EQ(order->channels.size(), 9u);
    ladder.answered(Answer::kDone, {}, now);
    EXPECT_EQ(callAll(ladder), "pp");
    EXPECT_TRUE(ladder.stopped());
    ladder.again();
    EXPECT_EQ(callAll(ladder), "dpp") << "when asked for, at once";
    EXPECT_EQ(ladder.took(), Nanos(1)) << "the hold was reached long ago";
    now = ladder.retryAt();
  }
  ladder.release(now);
  EXPECT_EQ(ladder.next(now)->step, Step::kEnable);
  ladder.answered(Answer::kDone, {}, now);
  ladder.again();
  EXPECT_FALSE(ladder.next(now));
  EXPECT_EQ(ladder.retryAt(), kNever) << "nothing is held";
}

TEST(Ladder, WhoseAChannelIsIsAskedBeforeAHoldNeedsIt) {
  Ladder ladder(Rung::kDisable);
  for (std::uint32_t i = 0; i < 70; i++) ladder.made(channelOf(100 + i));
  const auto asked = ladder.next(Nanos(0));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->step, Step::kProve);
  EXPECT_EQ(asked->channels.size(), Ladder::kNamedMax);
  ladder.scheduled(kClient, 1);  // each is, when it was made
  ladder.answered(Answer::kGone, {asked->channels[0]}, Nanos(0));
  EXPECT_EQ(ladder.channels(), 69u) << "another's";
  const auto more = ladder.next(Nanos(0));
  ASSERT_TRUE(more);
  EXPECT_EQ(more->channels.size(), 6u);
  ladder.answered(Answer::kFailed, {}, Nanos(0));
  EXPECT_FALSE(ladder.next(Nanos(0))) << "its first disable asks again";
  EXPECT_FALSE(ladder.doubted());
  ladder.hold(Nanos(0));
  const auto disable = ladder.next(Nanos(0));
  ASSERT_TRUE(disable);
  EXPECT_EQ(std::count_if(disable->channels.begin(), disable->channels.end(),
                          [](const Channel& each) { return each.proven; }),
            63);
}

// A child that was forked keeps the files of the driver open, and with them what runs.
TEST(Ladder, WhatADeadProcessLeftOnTheCardIsTakenOffForGoodOrIsADoubt) {
  for (const Answer answer : {Answer::kGone, Answer::kDone, Answer::kFailed}) {
    for (const Rung rung : {Rung::kDisable, Rung::kDisablePreempt}) {
      SCOPED_TRACE(std::string(nameOf(rung)) + ", answer " +
                   std::to_string(static_cast<int>(answer)));
      Ladder ladder = withChannels(rung, 1);
      ladder.made({kClient + 1, 200, 2, 1, 8, 9});
      ladder.hold(Nanos(0));
      EXPECT_EQ(callAll(ladder), rung == Rung::kDisable ? "d" : "dpp");
      ladder.release(Nanos(0));
      EXPECT_EQ(ladder.next(Nanos(0))->step, Step::kEnable);
      ladder.answered(Answer::kDone, {}, Nanos(0));
      ladder.processGone(7);
      EXPECT_FALSE(ladder.free()) << "it may run";
      const bool sure =
          answer == Answer::kGone || (answer == Answer::kDone && rung == Rung::kDisable);
      Nanos now(0);
      for (int i = 0; i < (sure ? 1 : Ladder::kBuriesMax); i++) {
        EXPECT_FALSE(ladder.doubted()) << "the driver may let go of its files later";
        EXPECT_LE(ladder.retryAt(), now + Ladder::kBuryEvery);
        now = std::max(now, ladder.retryAt());
        const auto order = ladder.next(now);
        ASSERT_TRUE(order) << "also without a hold";
        EXPECT_EQ(order->step, Step::kDisable);
        ASSERT_EQ(order->channels.size(), 1u);
        EXPECT_TRUE(order->channels[0].dead);
        const bool gone = answer == Answer::kGone;
        ladder.answered(answer, gone ? order->channels : std::vector<Channel>{}, now);
        EXPECT_FALSE(ladder.next(now));
      }
      EXPECT_EQ(ladder.retryAt(), kNever);
      EXPECT_TRUE(ladder.free()) << "it is never put on";
      EXPECT_EQ(ladder.doubted(), !sure);
    }
  }
}

TEST(Ladder, AHeldTaskIsNotStoppedBeforeWhatItsDeadLeftIsOff) {
  Ladder ladder = withChannels(Rung::kDisable, 1);
  ladder.made({kClient + 1, 200, 2, 1, 8, 9});
  ladder.next(Nanos(0));
  ladder.answered(Answer::kDone, {}, Nanos(0));
  ladder.hold(Nanos(0));
  ladder.processGone(8);
  ASSERT_EQ(ladder.next(Nanos(0))->channels[0].channel, 100u);
  ladder.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_FALSE(ladder.stopped());
  const auto left = ladder.next(Nanos(0));
  ASSERT_TRUE(left && left->channels[0].dead);
  ladder.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_TRUE(ladder.stopped());
  ladder.processGone(7);
  EXPECT_EQ(ladder.channels(), 0u) << "what was off stays off";
}

TEST(Ladder, OfADeadProcessThatCouldNotBeAskedAboutTheresADoubt) {
  Ladder ladder(Rung::kDisable);
  ladder.made(channelOf(100));
  ladder.next(Nanos(0));
  ladder.answered(Answer::kFailed, {}, Nanos(0));
  ladder.processGone(7);
  EXPECT_TRUE(ladder.doubted());

  Ladder young(Rung::kDisable);
  young.made(channelOf(100));
  young.processGone(7);
  EXPECT_FALSE(young.doubted()) << "it died at once";
}

TEST(Ladder, WhoCouldNotBeAskedAboutForAMomentIsAskedAgain) {
  for (const int moments : {3, Ladder::kProofsMax}) {
    Ladder ladder(Rung::kDisable);
    ladder.made(channelOf(100));
    Nanos now(0);
    for (int i = 0; i < moments; i++) {
      const auto order = ladder.next(now);
      ASSERT_TRUE(order && order->step == Step::kProve) << i;
      ladder.answered(Answer::kLater, {}, now);
      EXPECT_FALSE(ladder.next(now)) << "not at once";
      const bool again = i + 1 < Ladder::kProofsMax;
      ASSERT_EQ(ladder.retryAt(), again ? now + Ladder::kProveEvery : kNever);
      now += Ladder::kProveEvery;
    }
    ladder.processGone(7);
    EXPECT_EQ(ladder.doubted(), moments == Ladder::kProofsMax);
  }
}

TEST(Ladder, ATaskWithoutChannelsIsNeverStopped) {
  Ladder ladder(Rung::kDisable);
  ladder.hold(Nanos(0));
  EXPECT_FALSE(ladder.next(Nanos(0)));
  EXPECT_FALSE(ladder.stopped());
}

TEST(Ladder, MoreChannelsThanATaskMayHaveAreADoubt) {
  Ladder ladder = withChannels(Rung::kDisable, Ladder::kChannelsMax);
  EXPECT_FALSE(ladder.doubted());
  ladder.made(channelOf(5000));
  EXPECT_TRUE(ladder.doubted());
}

}  // namespace
}  // namespace qgpu::suspend
