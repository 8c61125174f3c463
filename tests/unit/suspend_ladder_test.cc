// The ladder of suspend=rm by hand, and against a driver that fails, forgets and is late, in any
// order that a seed decides.

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <set>

#include "services/suspend/ladder.h"

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

// --- every order ---

// Of the groups of a story; a group is in one engine's runlist.
std::uint32_t engineOf(std::uint32_t group) {
  constexpr std::uint32_t kEngines[] = {1, 1, 9, 10, 0};
  return kEngines[(group - 1) % std::size(kEngines)];
}

// The card: which channels live, are disabled, and still run because nobody committed.
struct Hardware {
  std::set<std::uint32_t> live, disabled, running;
  std::map<std::uint32_t, std::uint32_t> groupOf;

  void make(std::uint32_t name, std::uint32_t group) {
    live.insert(name);
    running.insert(name);
    groupOf[name] = group;
  }
  void end(std::uint32_t name) {
    live.erase(name);
    disabled.erase(name);
    running.erase(name);
  }
  void apply(const Order& order, std::uint32_t name, Rung rung) {
    if (!live.contains(name)) return;
    switch (order.step) {
      case Step::kDisable:
        disabled.insert(name);
        if (rung == Rung::kDisable) running.erase(name);
        break;
      case Step::kEnable:
        disabled.erase(name);
        running.insert(name);
        break;
      case Step::kProve:
        break;
      case Step::kRestart:
        for (const std::uint32_t each : disabled) {
          if (engineOf(groupOf[each]) == engineOf(groupOf[name])) running.erase(each);
        }
        break;
      case Step::kPreempt:
        for (const std::uint32_t each : disabled) {
          if (groupOf[each] == groupOf[name]) running.erase(each);
        }
        break;
    }
  }
};

class Story {
 public:
  Story(std::uint32_t seed, Rung rung) : random_(seed), rung_(rung), ladder_(rung) {}

  void go() {
    for (int i = 0; i < 400 && !::testing::Test::HasFailure(); i++) {
      now_ += Nanos(draw(2'000'000));
      something();
      check();
    }
    // The driver is well again, and nobody wants a hold: nothing stays off the card.
    mayFail_ = false;
    ladder_.release(now_);
    for (int i = 0; i < 100 && !ladder_.free(); i++) {
      now_ += Ladder::kRetryMax;
      call();
      answer();
    }
    EXPECT_TRUE(ladder_.free());
    for (const std::uint32_t name : card_.disabled) EXPECT_TRUE(left_.contains(name));
  }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::uint32_t someLive() {
    if (card_.live.empty()) return 0;
    return *std::next(card_.live.begin(), draw(static_cast<std::uint32_t>(card_.live.size())));
  }

  void something() {
    switch (draw(13)) {
      case 12:
        return killOne(1 + draw(kProcesses));
      case 0:
        return ladder_.hold(now_);
      case 1:
        return ladder_.release(now_);
      case 2:
        return makeOne(++lastName_);
      case 3:
        return endOne(someLive(), draw(4) != 0);
      case 4:
        return scheduleSome();
      case 5:
        if (draw(20) == 0) ladder_.doubt("work went on");
        if (draw(4) == 0) undoOne(someLive());
        if (draw(2) == 0) ladder_.again();
        return;
      case 6:
      case 7:
      case 8:
        return call();
      default:
        return answer();
    }
  }

  void makeOne(std::uint32_t name) {
    const std::uint32_t group = 1 + name % 5;
    card_.make(name, group);
    ladder_.made({kClient, name, group, engineOf(group), 1 + name % kProcesses, 9});
  }
  // A guest that dies or lies does not say so.
  void endOne(std::uint32_t name, bool told) {
    if (name == 0) return;
    card_.end(name);
    if (told) ladder_.ended(kClient, name);
  }
  // Its channels end with it, but for one in a while, which somebody keeps.
  void killOne(std::uint32_t process) {
    if (draw(8) != 0) return;
    std::vector<std::uint32_t> its;
    for (const std::uint32_t name : card_.live) {
      if (1 + name % kProcesses == process) its.push_back(name);
    }
    for (const std::uint32_t name : its) {
      if (draw(3) == 0 && proven_.contains(name)) {
        left_.insert(name);
      } else {
        card_.end(name);
      }
    }
    ladder_.processGone(process);
  }
  // The driver puts one on by itself, and tells nobody.
  void undoOne(std::uint32_t name) {
    if (left_.contains(name) || card_.disabled.erase(name) == 0) return;
    card_.running.insert(name);
    undone_.insert(name);
  }
  void scheduleSome() {
    const std::uint32_t group = 1 + draw(5);
    for (const std::uint32_t name : card_.live) {
      if (card_.groupOf[name] != group || left_.contains(name)) continue;
      card_.disabled.erase(name);
      card_.running.insert(name);
    }
    ladder_.scheduled(kClient, group);
  }

  void call() {
    auto order = ladder_.next(now_);
    if (!order) return;
    ASSERT_FALSE(asked_) << "two calls at once";
    ASSERT_FALSE(order->channels.empty());
    ASSERT_LE(order->channels.size(), Ladder::kNamedMax);
    if (order->step != Step::kEnable) {
      ASSERT_FALSE(ladder_.doubted());
    }
    asked_ = std::move(order);
  }

  void answer() {
    if (!asked_) return;
    const Order order = *std::exchange(asked_, std::nullopt);
    std::vector<Channel> gone;
    for (const Channel& channel : order.channels) {
      if (!card_.live.contains(channel.channel)) gone.push_back(channel);
    }
    if (mayFail_ && draw(10) == 0) {  // half done, at a place that nobody tells
      for (const Channel& channel : order.channels) {
        if (draw(2) == 0) apply(order, channel.channel);
      }
      return ladder_.answered(Answer::kFailed, {}, now_);
    }
    if (!gone.empty()) return ladder_.answered(Answer::kGone, gone, now_);
    for (const Channel& channel : order.channels) {
      apply(order, channel.channel);
      if (order.step == Step::kProve || order.step == Step::kDisable) {
        proven_.insert(channel.channel);
      }
    }
    ladder_.answered(Answer::kDone, {}, now_);
  }

  void apply(const Order& order, std::uint32_t name) {
    card_.apply(order, name, rung_);
    if (order.step == Step::kDisable) undone_.erase(name);
  }

  void check() {
    if (ladder_.stopped()) {
      std::set<std::uint32_t> running, known = card_.live;
      std::set_difference(card_.running.begin(), card_.running.end(), undone_.begin(),
                          undone_.end(), std::inserter(running, running.end()));
      ASSERT_TRUE(running.empty())
          << "told to be stopped, and runs: " << *running.begin() << " of " << ladder_.channels();
      for (const std::uint32_t name : undone_) known.erase(name);
      ASSERT_EQ(card_.disabled, known);
    }
    if (ladder_.computingOff()) {
      for (const std::uint32_t name : card_.running) {
        ASSERT_TRUE(engineOf(card_.groupOf[name]) > 8 || undone_.contains(name))
            << "told to compute nothing, and does";
      }
    }
    if (ladder_.free()) {
      for (const std::uint32_t name : card_.disabled) {
        ASSERT_TRUE(left_.contains(name)) << "told to be free, and is not";
      }
      for (const std::uint32_t name : left_) {
        ASSERT_TRUE(ladder_.doubted() || !card_.running.contains(name) || undone_.contains(name))
            << "of a dead process, and runs";
      }
    }
  }

  std::mt19937 random_;
  const Rung rung_;
  Ladder ladder_;
  Hardware card_;
  static constexpr std::uint32_t kProcesses = 2;
  std::set<std::uint32_t> proven_, left_;  // left by a dead process
  std::set<std::uint32_t> undone_;         // on, and nobody was told
  std::optional<Order> asked_;
  std::uint32_t lastName_ = 1000;
  bool mayFail_ = true;
  Nanos now_{0};
};

TEST(Ladder, WhateverHappensStoppedMeansStoppedAndFreeMeansFree) {
  for (const Rung rung : kRungs) {
    for (std::uint32_t seed = 1; seed <= 3'000 && !HasFailure(); seed++) {
      SCOPED_TRACE(std::string(nameOf(rung)) + ", seed " + std::to_string(seed));
      Story(seed, rung).go();
    }
  }
}

}  // namespace
}  // namespace qgpu::suspend
