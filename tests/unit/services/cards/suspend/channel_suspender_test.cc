// The suspender of suspend=rm by hand.

#include "services/cards/suspend/channel_suspender.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

namespace qgpu::suspend::channel_suspender_test {
namespace {

constexpr std::uint32_t kClient = 0xc1d00001;

Channel channelOf(std::uint32_t name, std::uint32_t group = 1, std::uint32_t engine = 1) {
  return {kClient, name, group, engine, 7, 9};
}

ChannelSuspender withChannels(SuspendMethod method, std::uint32_t count) {
  ChannelSuspender suspender(method);
  for (std::uint32_t i = 0; i < count; i++) suspender.made(channelOf(100 + i, 1 + i / 8));
  while (suspender.next(Nanos(0)))
    suspender.answered(Answer::kDone, {}, Nanos(0));  // they are its own
  return suspender;
}

TEST(ChannelSuspender, ATaskIsStoppedOnceAllItsChannelsAreDisabledAndFreeOnceAllAreEnabled) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 3);
  EXPECT_FALSE(suspender.next(Nanos(0)));
  suspender.hold(Nanos(10));
  const auto disable = suspender.next(Nanos(10));
  ASSERT_TRUE(disable);
  EXPECT_EQ(disable->step, Step::kDisable);
  EXPECT_EQ(disable->channels.size(), 3u);
  EXPECT_FALSE(suspender.next(Nanos(10))) << "one call at a time";
  EXPECT_FALSE(suspender.stopped());
  suspender.answered(Answer::kDone, {}, Nanos(300));
  EXPECT_TRUE(suspender.stopped());
  EXPECT_FALSE(suspender.free());
  suspender.release(Nanos(400));
  const auto enable = suspender.next(Nanos(400));
  ASSERT_TRUE(enable);
  EXPECT_EQ(enable->step, Step::kEnable);
  EXPECT_EQ(enable->channels.size(), 3u);
  suspender.answered(Answer::kDone, {}, Nanos(500));
  EXPECT_TRUE(suspender.free());
  EXPECT_FALSE(suspender.next(Nanos(600)));
}

// Takes every call until there is none left, and says what they were: 'd' for a disable, 'r' and
// 'p' for the commit of what computes, 'R' and 'P' for another.
std::string callAll(ChannelSuspender& suspender) {
  std::string calls;
  while (const auto order = suspender.next(Nanos(0))) {
    const bool computes = order->channels.front().computes();
    if (order->step == Step::kDisable) calls += 'd';
    if (order->step == Step::kRestart) calls += computes ? 'r' : 'R';
    if (order->step == Step::kPreempt) calls += computes ? 'p' : 'P';
    if (order->step == Step::kProve) calls += '?';
    EXPECT_FALSE(suspender.stopped());
    suspender.answered(Answer::kDone, {}, Nanos(1));
  }
  return calls;
}

// Until none is left, which is how many?
int enableAll(ChannelSuspender& suspender) {
  int enables = 0;
  while (const auto order = suspender.next(Nanos(0))) {
    EXPECT_TRUE(order->step == Step::kEnable || order->step == Step::kProve);
    enables += order->step == Step::kEnable;
    suspender.answered(Answer::kDone, {}, Nanos(0));
  }
  return enables;
}

TEST(ChannelSuspender, EachGroupIsCommittedByACallOrEachEngineByARestart) {
  for (const auto& [method, calls] :
       {std::pair{SuspendMethod::kDisable, "d"}, std::pair{SuspendMethod::kDisableRestart, "dr"},
        std::pair{SuspendMethod::kDisablePreempt, "dppp"},
        std::pair{SuspendMethod::kSchedulingPreempt, "dppp"}}) {
    ChannelSuspender suspender = withChannels(method, 20);
    suspender.hold(Nanos(0));
    EXPECT_EQ(callAll(suspender), calls) << nameOf(method);
    EXPECT_TRUE(suspender.stopped()) << nameOf(method);
  }
}

TEST(ChannelSuspender, ARestartIsOfEachEngineThatHasARunlistOfItsOwn) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisableRestart, 3);
  suspender.made(channelOf(90, 50, 9));    // copies, and comes first by name
  suspender.made(channelOf(900, 51, 10));  // copies elsewhere
  suspender.made(channelOf(901, 52, 0));   // nobody knows where: it may compute
  suspender.made(channelOf(902, 53, 0));
  suspender.hold(Nanos(0));
  EXPECT_EQ(callAll(suspender), "drrrdRR");
  EXPECT_TRUE(suspender.stopped());
}

// Copies of a program with many groups would keep online's kernels waiting for each of their calls.
TEST(ChannelSuspender, WhatComputesIsOffBeforeAnythingElseIsWaitedFor) {
  ChannelSuspender suspender(SuspendMethod::kDisablePreempt);
  for (std::uint32_t i = 0; i < 80; i++) suspender.made(channelOf(100 + i, 100 + i, 9));
  suspender.made(channelOf(500, 3));
  suspender.made(channelOf(501, 4));
  suspender.hold(Nanos(0));
  std::string before;
  while (!suspender.computingOff()) {
    const auto order = suspender.next(Nanos(0));
    ASSERT_TRUE(order);
    before += order->step == Step::kDisable ? 'd' : 'p';
    suspender.answered(Answer::kDone, {}, Nanos(1));
  }
  EXPECT_EQ(before, "dpp") << "80 copies wait";
  EXPECT_FALSE(suspender.stopped()) << "they run on";
  EXPECT_EQ(callAll(suspender), "dd" + std::string(80, 'P'));
  EXPECT_TRUE(suspender.stopped());
  suspender.made(channelOf(600, 9));
  EXPECT_FALSE(suspender.computingOff());
}

TEST(ChannelSuspender, MoreChannelsThanACallHoldsGoInSeveralCallsComputeFirst) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 70);
  suspender.made(channelOf(90, 99, 9));  // copies
  suspender.hold(Nanos(0));
  const auto first = suspender.next(Nanos(0));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->channels.size(), ChannelSuspender::kNamedMax);
  suspender.answered(Answer::kDone, {}, Nanos(1));
  EXPECT_FALSE(suspender.stopped());
  const auto second = suspender.next(Nanos(1));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->channels.size(), 6u);
  suspender.answered(Answer::kDone, {}, Nanos(2));
  EXPECT_TRUE(suspender.computingOff());
  EXPECT_FALSE(suspender.stopped());
  const auto third = suspender.next(Nanos(2));
  ASSERT_TRUE(third);
  ASSERT_EQ(third->channels.size(), 1u);
  EXPECT_EQ(third->channels.back().channel, 90u);
  suspender.answered(Answer::kDone, {}, Nanos(3));
  EXPECT_TRUE(suspender.stopped());
}

TEST(ChannelSuspender, GroupsThatEndedUnsaidAreNoDoubt) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisablePreempt, 40);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(0));
  for (int i = 0; i < 39; i++) {
    const auto commit = suspender.next(Nanos(0));
    ASSERT_TRUE(commit && commit->step == Step::kPreempt) << i;
    suspender.answered(Answer::kGone, commit->channels, Nanos(0));
  }
  EXPECT_FALSE(suspender.doubted());
  EXPECT_EQ(callAll(suspender), "p");
  EXPECT_TRUE(suspender.stopped());
}

TEST(ChannelSuspender, ALateChannelIsDisabledAsWellAndUntilThenTheTaskIsNotStopped) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(1));
  suspender.made(channelOf(500));
  EXPECT_FALSE(suspender.stopped());
  const auto late = suspender.next(Nanos(2));
  ASSERT_TRUE(late);
  ASSERT_EQ(late->channels.size(), 1u);
  EXPECT_EQ(late->channels[0].channel, 500u);
}

TEST(ChannelSuspender, AGroupThatIsScheduledWhileItsDisableIsUnderWayIsDisabledAgain) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 2);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.scheduled(kClient, 1);
  suspender.answered(Answer::kDone, {}, Nanos(1));
  EXPECT_FALSE(suspender.stopped());
  ASSERT_TRUE(suspender.next(Nanos(1)));
  suspender.answered(Answer::kDone, {}, Nanos(2));
  EXPECT_TRUE(suspender.stopped());
}

TEST(ChannelSuspender, WhatAProcessPutBackItselfIsNamedByChannelGroupOrClient) {
  for (const std::uint32_t name : {100u, 1u, kClient}) {
    ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
    suspender.hold(Nanos(0));
    suspender.next(Nanos(0));
    suspender.answered(Answer::kDone, {}, Nanos(1));
    ASSERT_TRUE(suspender.stopped());
    suspender.scheduled(kClient + 1, name);
    suspender.scheduled(kClient, 7);
    EXPECT_TRUE(suspender.stopped()) << "others were meant";
    suspender.scheduled(kClient, name);
    EXPECT_FALSE(suspender.stopped());
  }
}

TEST(ChannelSuspender, WhatAnEarlierManagerMayHaveDisabledIsEnabledUnlessItIsHeld) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  suspender.made(channelOf(100), true);
  EXPECT_FALSE(suspender.free());
  EXPECT_EQ(enableAll(suspender), ChannelSuspender::kOffsMax) << "nobody knows how often it was";
  EXPECT_TRUE(suspender.free());

  ChannelSuspender held(SuspendMethod::kDisable);
  held.hold(Nanos(0));
  held.made(channelOf(100), true);
  const auto order = held.next(Nanos(0));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->step, Step::kDisable);
}

// The driver refuses what is asked, as often as it is asked.
void refuseAll(ChannelSuspender& suspender, Nanos now) {
  for (int i = 0; i < ChannelSuspender::kTriesMax; i++) {
    EXPECT_FALSE(suspender.doubted()) << "a driver may be busy";
    ASSERT_TRUE(suspender.next(now));
    suspender.answered(Answer::kFailed, {}, now);
  }
}

TEST(ChannelSuspender, WhatFailedToBeDisabledIsEnabledAndNothingIsDisabledAnyMore) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 2);
  suspender.hold(Nanos(0));
  refuseAll(suspender, Nanos(1));
  EXPECT_TRUE(suspender.doubted());
  EXPECT_FALSE(suspender.free()) << "who knows what the driver did of it";
  EXPECT_EQ(enableAll(suspender), ChannelSuspender::kTriesMax);
  EXPECT_TRUE(suspender.free());
  suspender.release(Nanos(3));
  suspender.hold(Nanos(4));
  EXPECT_FALSE(suspender.next(Nanos(4)));
  EXPECT_FALSE(suspender.stopped());
}

// Each call meets one that has ended since, and whose end is not read yet.
void endOneByOne(ChannelSuspender& suspender, int count) {
  for (int i = 0; i < count; i++) {
    const auto order = suspender.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kDisable) << i;
    suspender.answered(Answer::kGone, {order->channels.front()}, Nanos(0));
  }
}

TEST(ChannelSuspender, AContextThatIsTornDownWhileItsTaskIsTakenOffIsNoDoubt) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 40);
  suspender.hold(Nanos(0));
  endOneByOne(suspender, 24);
  EXPECT_FALSE(suspender.doubted()) << suspender.why();
  EXPECT_EQ(callAll(suspender), "d") << "the rest goes off";
  EXPECT_TRUE(suspender.stopped());
  EXPECT_EQ(suspender.channels(), 16u);
}

TEST(ChannelSuspender, C7_WhoMakesAndEndsChannelsAllTheTimeIsNotTriedForEver) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 200);
  suspender.hold(Nanos(0));
  endOneByOne(suspender, ChannelSuspender::kGonesMax - 1);
  EXPECT_FALSE(suspender.doubted());
  EXPECT_EQ(suspender.next(Nanos(0))->channels.size(), ChannelSuspender::kNamedMax);
  suspender.answered(Answer::kDone, {}, Nanos(0));
  endOneByOne(suspender, ChannelSuspender::kGonesMax);
  EXPECT_TRUE(suspender.doubted()) << "none was taken in between";
}

// Every call of that step meets a driver that is busy, `times` times, each time a little later.
void beBusy(ChannelSuspender& suspender, Step step, int times, Nanos& now) {
  for (int i = 0; i < times; i++) {
    const auto order = suspender.next(now);
    ASSERT_TRUE(order && order->step == step) << i;
    suspender.answered(Answer::kLater, {}, now);
    if (suspender.doubted()) return;
    EXPECT_FALSE(suspender.next(now)) << "not at once again";
    ASSERT_EQ(suspender.retryAt() - now, ChannelSuspender::kRetryFirst * (1 << i));
    now = suspender.retryAt();
  }
}

TEST(ChannelSuspender, WhatMayPassIsTriedForAWhileBeforeItIsADoubt) {
  for (const Step step : {Step::kDisable, Step::kPreempt}) {
    ChannelSuspender suspender = withChannels(SuspendMethod::kDisablePreempt, 4);
    Nanos now(0);
    for (int round = 0; round < 2; round++) {
      suspender.hold(now);
      if (step == Step::kPreempt) {
        ASSERT_EQ(suspender.next(now)->step, Step::kDisable);
        suspender.answered(Answer::kDone, {}, now);
      }
      beBusy(suspender, step, ChannelSuspender::kWaitsMax, now);
      EXPECT_EQ(callAll(suspender), "") << "its time has not come at 0";
      ASSERT_EQ(suspender.next(now)->step, step);
      suspender.answered(Answer::kDone, {}, now);
      while (suspender.next(now)) suspender.answered(Answer::kDone, {}, now);
      EXPECT_TRUE(suspender.stopped()) << "each hold has its own time";
      suspender.release(now);
      ASSERT_EQ(suspender.next(now)->step, Step::kEnable);
      suspender.answered(Answer::kDone, {}, now);
    }
    EXPECT_GE(now, millis(2 * 127));
    suspender.hold(now);
    if (step == Step::kPreempt) {
      suspender.next(now);
      suspender.answered(Answer::kDone, {}, now);
    }
    beBusy(suspender, step, ChannelSuspender::kWaitsMax + 1, now);
    EXPECT_TRUE(suspender.doubted());
    const auto back = suspender.next(now);
    ASSERT_TRUE(back && back->step == Step::kEnable) << "at once";
  }
}

TEST(ChannelSuspender, AManyChanneledTaskIsPutBackSoonAfterADriverThatWasBusyForAMoment) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 20);
  suspender.hold(Nanos(0));
  EXPECT_EQ(callAll(suspender), "d");
  Nanos now = seconds(1);
  suspender.release(now);
  const Nanos wellAt = now + millis(5);
  while (!suspender.free() && now < seconds(3)) {
    const auto order = suspender.next(now);
    if (order) {
      ASSERT_EQ(order->step, Step::kEnable);
      suspender.answered(now < wellAt ? Answer::kLater : Answer::kDone, {}, now);
    } else {
      now = suspender.retryAt();
    }
  }
  EXPECT_TRUE(suspender.free());
  EXPECT_LE(now - wellAt, millis(5));
  EXPECT_FALSE(suspender.doubted()) << suspender.why();
}

// A hold and what comes after it are judged apart, also where an answer comes late.
TEST(ChannelSuspender, WhatWasRefusedInAHoldThatIsOverCountsNoMore) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 2);
  suspender.hold(Nanos(0));
  for (int i = 0; i < ChannelSuspender::kTriesMax; i++) {
    ASSERT_EQ(suspender.next(Nanos(0))->step, Step::kDisable);
    if (i + 1 == ChannelSuspender::kTriesMax) suspender.release(Nanos(0));
    suspender.answered(Answer::kFailed, {}, Nanos(0));
  }
  EXPECT_FALSE(suspender.doubted());
  for (int i = 0; i < ChannelSuspender::kTriesMax; i++) {
    ASSERT_EQ(suspender.next(Nanos(0))->step, Step::kEnable);
    if (i + 1 == ChannelSuspender::kTriesMax) suspender.hold(Nanos(0));
    suspender.answered(Answer::kFailed, {}, Nanos(0));
  }
  EXPECT_FALSE(suspender.doubted());
  EXPECT_EQ(callAll(suspender), "d");
  EXPECT_TRUE(suspender.stopped());
}

// Of how many clients an order names channels.
std::size_t clientsOf(const Order& order) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> clients;
  for (const Channel& each : order.channels) clients.emplace(each.process, each.client);
  return clients.size();
}

// Each is a look into a process, and all who are to be held wait for it.
TEST(ChannelSuspender, C7_ACallLooksIntoFewProcesses) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  for (std::uint32_t i = 0; i < 64; i++) suspender.made({kClient + i, 100, 1, 1, 1 + i / 8, 9});
  for (int i = 0; i < 64; i++) {
    const auto order = suspender.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kProve) << i;
    EXPECT_EQ(clientsOf(*order), 1u) << "nobody waits for it";
    suspender.answered(Answer::kDone, {}, Nanos(0));
  }
  suspender.hold(Nanos(0));
  int calls = 0;
  while (const auto order = suspender.next(Nanos(0))) {
    EXPECT_LE(clientsOf(*order), ChannelSuspender::kOwnersMax);
    suspender.answered(Answer::kDone, {}, Nanos(0));
    calls++;
  }
  EXPECT_TRUE(suspender.stopped());
  EXPECT_EQ(calls, 8);
}

// What the driver did for the others before it met the one that is gone, nobody knows.
TEST(ChannelSuspender, AHoldAfterAnEnableThatWasNotWhollyDoneDisablesAgain) {
  for (const Answer answer : {Answer::kGone, Answer::kFailed}) {
    ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 2);
    suspender.hold(Nanos(0));
    suspender.next(Nanos(0));
    suspender.answered(Answer::kDone, {}, Nanos(1));
    ASSERT_TRUE(suspender.stopped());
    suspender.release(Nanos(2));
    ASSERT_EQ(suspender.next(Nanos(2))->step, Step::kEnable);
    suspender.hold(Nanos(3));
    std::vector<Channel> gone;
    if (answer == Answer::kGone) gone.push_back(channelOf(100));
    suspender.answered(answer, gone, Nanos(4));
    EXPECT_FALSE(suspender.stopped());
    const auto again = suspender.next(Nanos(4));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->step, Step::kDisable);
    EXPECT_EQ(again->channels.size(), 2u - gone.size());
  }
}

TEST(ChannelSuspender, ADoubtOfAStoppedTaskLeavesItOffUntilItIsReleased) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(1));
  suspender.made(channelOf(500));
  refuseAll(suspender, Nanos(3));
  EXPECT_TRUE(suspender.doubted());
  EXPECT_FALSE(suspender.next(Nanos(3))) << "others have the card";
  EXPECT_EQ(suspender.retryAt(), kNever);
  suspender.release(Nanos(4));
  const auto back = suspender.next(Nanos(4));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, Step::kEnable);
  EXPECT_EQ(back->channels.size(), 2u);
  suspender.answered(Answer::kDone, {}, Nanos(5));
  enableAll(suspender);
  EXPECT_TRUE(suspender.free());
  suspender.hold(Nanos(6));
  EXPECT_FALSE(suspender.next(Nanos(6))) << "it is not held so any more";
}

TEST(ChannelSuspender, AnEnableThatFailsIsTriedUntilItIsTaken) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_EQ(suspender.retryAt(), ChannelSuspender::kAgainFirst) << "held, and nothing else to do";
  suspender.release(Nanos(0));
  Nanos now(0);
  for (int i = 0; i < 30; i++) {
    const auto enable = suspender.next(now);
    ASSERT_TRUE(enable);
    suspender.answered(Answer::kFailed, {}, now);
    EXPECT_FALSE(suspender.next(now)) << "not at once again";
    EXPECT_LE(suspender.retryAt() - now, ChannelSuspender::kRetryMax);
    now = suspender.retryAt();
  }
  ASSERT_TRUE(suspender.next(now));
  suspender.answered(Answer::kDone, {}, now);
  EXPECT_TRUE(suspender.free());
}

TEST(ChannelSuspender, AChannelThatTheDriverDoesNotEnableKeepsNobodyElseOff) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 5);
  suspender.hold(Nanos(0));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(0));
  suspender.release(Nanos(0));
  std::set<std::uint32_t> on;
  Nanos now(0);
  for (int i = 0; i < 40; i++) {
    const auto order = suspender.next(now);
    if (!order) {
      now = suspender.retryAt();
      continue;
    }
    bool stuck = false;
    for (const Channel& each : order->channels) stuck = stuck || each.channel == 102;
    if (!stuck) {
      for (const Channel& each : order->channels) on.insert(each.channel);
    }
    suspender.answered(stuck ? Answer::kFailed : Answer::kDone, {}, now);
  }
  EXPECT_EQ(on, (std::set<std::uint32_t>{100, 101, 103, 104}));
  EXPECT_FALSE(suspender.free()) << "it is tried on";
  suspender.processGone(7);
  EXPECT_TRUE(suspender.free());
}

// Seen on an H200 with driver 580.159: what is disabled twice runs again after two enables.
TEST(ChannelSuspender, AChannelIsEnabledAsOftenAsItWasDisabled) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 2);
  suspender.hold(Nanos(0));
  EXPECT_EQ(callAll(suspender), "d");
  suspender.again();
  EXPECT_EQ(callAll(suspender), "d");
  suspender.made(channelOf(200));  // once
  EXPECT_EQ(callAll(suspender), "d");
  suspender.release(Nanos(0));
  auto enable = suspender.next(Nanos(0));
  ASSERT_TRUE(enable);
  EXPECT_EQ(enable->channels.size(), 3u);
  suspender.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_FALSE(suspender.free());
  enable = suspender.next(Nanos(0));
  ASSERT_TRUE(enable);
  EXPECT_EQ(enable->channels.size(), 2u);
  suspender.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_TRUE(suspender.free());
  EXPECT_FALSE(suspender.next(Nanos(0)));
}

TEST(ChannelSuspender, ATaskWhoseChannelsComeBackAllTheTimeIsInDoubtAndNothingOfItStaysOff) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  int disables = 0;
  while (!suspender.doubted()) {
    ASSERT_LE(disables, ChannelSuspender::kOffsMax);
    if (disables++ > 0) suspender.again();
    ASSERT_TRUE(suspender.next(Nanos(0)));
    suspender.answered(Answer::kDone, {}, Nanos(0));
  }
  EXPECT_EQ(disables, ChannelSuspender::kOffsMax);
  EXPECT_FALSE(suspender.next(Nanos(0))) << "others have the card";
  suspender.release(Nanos(0));
  EXPECT_EQ(enableAll(suspender), disables);
  EXPECT_TRUE(suspender.free());
}

// What lasts is looked after ever more seldom: each time is one more to be undone.
TEST(ChannelSuspender, AHoldOfADayIsTakenOffAgainAFewTimes) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  int disables = 0;
  for (Nanos now(0); now < seconds(86'400); now = suspender.retryAt()) {
    ASSERT_TRUE(suspender.next(now));
    suspender.answered(Answer::kDone, {}, now);
    ++disables;
  }
  EXPECT_EQ(disables, 34) << "after 2 s, 4 s and so on, then each hour";
}

// Most run after the first enable, and others wait for none of the rest.
TEST(ChannelSuspender, EachChannelIsEnabledOnceBeforeAnyIsAgain) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  constexpr std::uint32_t kMany = 2 * ChannelSuspender::kNamedMax;
  for (std::uint32_t i = 0; i < kMany; i++) suspender.made(channelOf(1'000 + i), true);
  std::set<std::uint32_t> named;
  bool refused = false;
  for (int call = 0; named.size() < kMany; call++) {
    ASSERT_LT(call, 2 * static_cast<int>(kMany)) << "one after the other";
    const auto order = suspender.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kEnable);
    if (!std::exchange(refused, true)) {  // from then on one by one, until each had its turn
      suspender.answered(Answer::kFailed, {}, Nanos(0));
      continue;
    }
    for (const Channel& each : order->channels) named.insert(each.channel);
    suspender.answered(Answer::kDone, {}, Nanos(0));
  }
  const auto order = suspender.next(Nanos(0));
  ASSERT_TRUE(order);
  EXPECT_EQ(order->channels.size(), ChannelSuspender::kNamedMax) << "together again";
}

// Its process tells all that it has once more, as after the driver refused to free something.
TEST(ChannelSuspender, WhatIsToldOnceMoreKeepsItsCount) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.hold(Nanos(0));
  EXPECT_EQ(callAll(suspender), "d");
  suspender.made(channelOf(100), true);
  EXPECT_FALSE(suspender.stopped()) << "who knows what it did meanwhile";
  EXPECT_EQ(callAll(suspender), "d");
  suspender.release(Nanos(0));
  EXPECT_EQ(enableAll(suspender), 2);
  suspender.made(channelOf(100), true);
  EXPECT_TRUE(suspender.free());
}

// The driver does so about address spaces, and tells nobody.
TEST(ChannelSuspender, WhatTheDriverPutsOnByItselfIsTakenOffAgain) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisablePreempt, 9);
  suspender.hold(Nanos(0));
  EXPECT_EQ(callAll(suspender), "dpp");
  ASSERT_TRUE(suspender.stopped());
  Nanos now = suspender.retryAt();
  EXPECT_LE(now, Nanos(1) + ChannelSuspender::kAgainFirst);
  EXPECT_FALSE(suspender.next(now - Nanos(1)));
  for (int round = 0; round < 3; round++) {
    const auto order = suspender.next(now);
    ASSERT_TRUE(order) << "it may be on";
    EXPECT_EQ(order->step, Step::kDisable);
    EXPECT_EQ(order->channels.size(), 9u);
    suspender.answered(Answer::kDone, {}, now);
    EXPECT_EQ(callAll(suspender), "pp");
    EXPECT_TRUE(suspender.stopped());
    suspender.again();
    EXPECT_EQ(callAll(suspender), "dpp") << "when asked for, at once";
    now = suspender.retryAt();
  }
  suspender.release(now);
  EXPECT_EQ(enableAll(suspender), 7);
  suspender.again();
  EXPECT_FALSE(suspender.next(now));
  EXPECT_EQ(suspender.retryAt(), kNever) << "nothing is held";
}

TEST(ChannelSuspender, WhoseAChannelIsIsAskedBeforeAHoldNeedsIt) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  for (std::uint32_t i = 0; i < 70; i++) suspender.made(channelOf(100 + i));
  const auto asked = suspender.next(Nanos(0));
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->step, Step::kProve);
  EXPECT_EQ(asked->channels.size(), ChannelSuspender::kNamedMax);
  suspender.scheduled(kClient, 1);  // each is, when it was made
  suspender.answered(Answer::kGone, {asked->channels[0]}, Nanos(0));
  EXPECT_EQ(suspender.channels(), 69u) << "another's";
  const auto more = suspender.next(Nanos(0));
  ASSERT_TRUE(more);
  EXPECT_EQ(more->channels.size(), 6u);
  suspender.answered(Answer::kFailed, {}, Nanos(0));
  EXPECT_FALSE(suspender.next(Nanos(0))) << "its first disable asks again";
  EXPECT_FALSE(suspender.doubted());
  suspender.hold(Nanos(0));
  const auto disable = suspender.next(Nanos(0));
  ASSERT_TRUE(disable);
  EXPECT_EQ(std::count_if(disable->channels.begin(), disable->channels.end(),
                          [](const Channel& each) { return each.proven; }),
            63);
}

// A child that was forked keeps the files of the driver open, and with them what runs.
TEST(ChannelSuspender, WhatADeadProcessLeftOnTheCardIsTakenOffForGoodOrIsADoubt) {
  for (const Answer answer : {Answer::kGone, Answer::kDone, Answer::kFailed}) {
    for (const SuspendMethod method : {SuspendMethod::kDisable, SuspendMethod::kDisablePreempt}) {
      SCOPED_TRACE(std::string(nameOf(method)) + ", answer " +
                   std::to_string(static_cast<int>(answer)));
      ChannelSuspender suspender = withChannels(method, 1);
      suspender.made({kClient + 1, 200, 2, 1, 8, 9});
      suspender.hold(Nanos(0));
      EXPECT_EQ(callAll(suspender), method == SuspendMethod::kDisable ? "d" : "dpp");
      suspender.release(Nanos(0));
      EXPECT_EQ(suspender.next(Nanos(0))->step, Step::kEnable);
      suspender.answered(Answer::kDone, {}, Nanos(0));
      suspender.processGone(7);
      EXPECT_FALSE(suspender.free()) << "it may run";
      const bool sure =
          answer == Answer::kGone || (answer == Answer::kDone && method == SuspendMethod::kDisable);
      Nanos now(0);
      for (int i = 0; i < (sure ? 1 : ChannelSuspender::kReapsMax); i++) {
        EXPECT_FALSE(suspender.doubted()) << "the driver may let go of its files later";
        EXPECT_LE(suspender.retryAt(), now + ChannelSuspender::kReapEvery);
        now = std::max(now, suspender.retryAt());
        const auto order = suspender.next(now);
        ASSERT_TRUE(order) << "also without a hold";
        EXPECT_EQ(order->step, Step::kDisable);
        ASSERT_EQ(order->channels.size(), 1u);
        EXPECT_TRUE(order->channels[0].dead);
        const bool gone = answer == Answer::kGone;
        suspender.answered(answer, gone ? order->channels : std::vector<Channel>{}, now);
        EXPECT_FALSE(suspender.next(now));
      }
      EXPECT_EQ(suspender.retryAt(), kNever);
      EXPECT_TRUE(suspender.free()) << "it is never put on";
      EXPECT_EQ(suspender.doubted(), !sure);
    }
  }
}

TEST(ChannelSuspender, AHeldTaskIsNotStoppedBeforeWhatItsDeadLeftIsOff) {
  ChannelSuspender suspender = withChannels(SuspendMethod::kDisable, 1);
  suspender.made({kClient + 1, 200, 2, 1, 8, 9});
  suspender.next(Nanos(0));
  suspender.answered(Answer::kDone, {}, Nanos(0));
  suspender.hold(Nanos(0));
  suspender.processGone(8);
  ASSERT_EQ(suspender.next(Nanos(0))->channels[0].channel, 100u);
  suspender.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_FALSE(suspender.stopped());
  const auto left = suspender.next(Nanos(0));
  ASSERT_TRUE(left && left->channels[0].dead);
  suspender.answered(Answer::kDone, {}, Nanos(0));
  EXPECT_TRUE(suspender.stopped());
  suspender.processGone(7);
  EXPECT_EQ(suspender.channels(), 0u) << "what was off stays off";
}

TEST(ChannelSuspender, OfADeadProcessThatCouldNotBeAskedAboutTheresADoubt) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  suspender.made(channelOf(100));
  suspender.next(Nanos(0));
  suspender.answered(Answer::kFailed, {}, Nanos(0));
  suspender.processGone(7);
  EXPECT_TRUE(suspender.doubted());

  ChannelSuspender young(SuspendMethod::kDisable);
  young.made(channelOf(100));
  young.processGone(7);
  EXPECT_FALSE(young.doubted()) << "it died at once";
}

TEST(ChannelSuspender, WhoCouldNotBeAskedAboutForAMomentIsAskedAgain) {
  for (const int moments : {3, ChannelSuspender::kProofsMax}) {
    ChannelSuspender suspender(SuspendMethod::kDisable);
    suspender.made(channelOf(100));
    Nanos now(0);
    for (int i = 0; i < moments; i++) {
      const auto order = suspender.next(now);
      ASSERT_TRUE(order && order->step == Step::kProve) << i;
      suspender.answered(Answer::kLater, {}, now);
      EXPECT_FALSE(suspender.next(now)) << "not at once";
      const bool again = i + 1 < ChannelSuspender::kProofsMax;
      ASSERT_EQ(suspender.retryAt(), again ? now + ChannelSuspender::kProveEvery : kNever);
      now += ChannelSuspender::kProveEvery;
    }
    suspender.processGone(7);
    EXPECT_EQ(suspender.doubted(), moments == ChannelSuspender::kProofsMax);
  }
}

TEST(ChannelSuspender, ATaskWithoutChannelsIsNeverStopped) {
  ChannelSuspender suspender(SuspendMethod::kDisable);
  suspender.hold(Nanos(0));
  EXPECT_FALSE(suspender.next(Nanos(0)));
  EXPECT_FALSE(suspender.stopped());
}

TEST(ChannelSuspender, MoreChannelsThanATaskMayHaveAreADoubt) {
  ChannelSuspender suspender =
      withChannels(SuspendMethod::kDisable, ChannelSuspender::kChannelsMax);
  EXPECT_FALSE(suspender.doubted());
  suspender.made(channelOf(5000));
  EXPECT_TRUE(suspender.doubted());
}

}  // namespace
}  // namespace qgpu::suspend::channel_suspender_test
