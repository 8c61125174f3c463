// The thread that keeps held tasks off a card: what it tells, in which order it calls a driver that
// blocks, refuses and forgets, and that nothing stays off when it ends.

#include <gtest/gtest.h>
#include <map>
#include <optional>

#include "tests/unit/services/cards/suspend/suspend_scene.h"

namespace qgpu::suspend::suspender_test {
namespace {

constexpr std::uint32_t kTries = ChannelSuspender::kTriesMax;

class SuspenderTest : public ::testing::Test {
 protected:
  void TearDown() override {
    suspender.reset();
    EXPECT_TRUE(scene.off.empty()) << "something was left off the card";
  }
  std::optional<Suspender>& start() {
    suspender.emplace(
        std::make_unique<ScriptedCalls>(scene), SuspendMethod::kDisable,
        [this](News news) { scene.change([&] { scene.news.push_back(std::move(news)); }); });
    return suspender;
  }
  bool stopped(std::uint64_t task, std::uint32_t hold) {
    return scene.until([&] { return scene.stopped(task, hold); });
  }
  bool allBack() {
    return scene.until([&] { return scene.off.empty(); });
  }

  Scene scene;
  std::optional<Suspender> suspender;
};

TEST_F(SuspenderTest, AHoldIsToldOnceItsChannelsAreOffAndAReleasePutsThemBack) {
  auto& card = start();
  card->made(5, channelOf(100), false);
  card->made(5, channelOf(101), false);
  for (std::uint32_t number = 1; number <= 3; number++) {
    card->hold(5, number);
    ASSERT_TRUE(stopped(5, number));
    EXPECT_EQ(scene.off.size(), 2u);
    card->release(5);
    ASSERT_TRUE(allBack());
  }
  EXPECT_EQ(scene.told(News::What::kStopped, 5), 3u);
}

TEST_F(SuspenderTest, AHoldThatEndsBeforeItIsReachedIsNotTold) {
  auto& card = start();
  card->made(5, channelOf(100), false);
  scene.change([&] { scene.blocks = true; });
  card->hold(5, 1);
  ASSERT_TRUE(scene.until([&] { return scene.blocked == 1; }));
  card->release(5);
  card->hold(6, 1);  // a task that has nothing: never stopped
  scene.change([&] { scene.blocks = false; });
  card->hold(5, 2);
  ASSERT_TRUE(stopped(5, 2));
  suspender.reset();
  EXPECT_FALSE(scene.stopped(6, 1));
}

TEST_F(SuspenderTest, AChannelThatComesLateIsTakenOffAsWell) {
  auto& card = start();
  card->made(5, channelOf(100), false);
  card->hold(5, 1);
  ASSERT_TRUE(stopped(5, 1));
  card->made(5, channelOf(101), false);
  ASSERT_TRUE(scene.until([&] { return scene.off.contains(101); }));
  card->enabled(5, kClient, 100);
  ASSERT_TRUE(scene.until([&] { return scene.orders.size() == 3; }));
  EXPECT_EQ(scene.orders.back().step, Step::kDisable);
  EXPECT_EQ(scene.told(News::What::kStopped, 5), 1u);
}

TEST_F(SuspenderTest, WhatIsHeldGoesBeforeWhatIsPutBack) {
  auto& card = start();
  for (std::uint32_t task = 1; task <= 4; task++) {
    card->made(task, channelOf(100 * task, task), false);
  }
  for (const std::uint32_t task : {1u, 2u, 3u}) card->hold(task, 1);
  for (const std::uint32_t task : {1u, 2u, 3u}) ASSERT_TRUE(stopped(task, 1));
  scene.change([&] { scene.blocks = true; });
  card->release(1);
  ASSERT_TRUE(scene.until([&] { return scene.blocked == 1; }));
  card->release(2);
  card->release(3);
  card->hold(4, 1);
  scene.change([&] { scene.blocks = false; });
  ASSERT_TRUE(stopped(4, 1));
  ASSERT_TRUE(scene.until([&] { return scene.off.size() == 1; }));
  std::vector<std::uint32_t> touched;
  for (const Order& order : scene.orders) touched.push_back(order.channels[0].channel);
  touched.erase(touched.begin(), touched.begin() + 3);
  EXPECT_EQ(touched, (std::vector<std::uint32_t>{100, 400, 200, 300}));
}

TEST_F(SuspenderTest, ADoubtIsToldOnceWithTheDriversWordAndTheTaskIsNotHeldAnyMore) {
  auto& card = start();
  scene.refuses = kTries;
  card->made(5, channelOf(100), false);
  card->hold(5, 1);
  ASSERT_TRUE(scene.until([&] { return scene.told(News::What::kDoubted, 5) == 1; }));
  EXPECT_EQ(scene.news[0].why, "the driver refused to disable channels (it does not like this)");
  card->release(5);
  card->hold(5, 2);
  card->made(6, channelOf(200, 8), false);
  card->hold(6, 1);
  ASSERT_TRUE(stopped(6, 1)) << "another is held all the same";
  EXPECT_FALSE(scene.stopped(5, 2));
  EXPECT_EQ(scene.told(News::What::kDoubted, 5), 1u);
}

TEST_F(SuspenderTest, ADriverThatIsBusyForAMomentIsNoDoubt) {
  auto& card = start();
  scene.busyFor = 5;
  card->made(5, channelOf(100), false);
  card->hold(5, 1);
  ASSERT_TRUE(stopped(5, 1));
  EXPECT_EQ(scene.busyFor, 0u);
  EXPECT_EQ(scene.told(News::What::kDoubted, 5), 0u);
}

TEST_F(SuspenderTest, ThreeRefusedTasksInARowAreTheCards) {
  auto& card = start();
  for (std::uint32_t task = 1; task <= 6; task++) {
    card->made(task, channelOf(100 * task, task), false);
  }
  const auto doubted = [&](std::uint64_t task) {
    return scene.until([&] { return scene.told(News::What::kDoubted, task) == 1; });
  };
  // Two, then one that works: no word of the card.
  scene.change([&] { scene.refuses = 2 * kTries; });
  card->hold(1, 1);
  ASSERT_TRUE(doubted(1));
  card->hold(2, 1);
  ASSERT_TRUE(doubted(2));
  card->hold(3, 1);
  ASSERT_TRUE(stopped(3, 1));
  card->release(3);
  scene.change([&] { scene.refuses = 3 * kTries; });
  for (const std::uint32_t task : {4u, 5u, 6u}) {
    card->hold(task, 1);
    ASSERT_TRUE(doubted(task));
  }
  ASSERT_TRUE(scene.until([&] { return scene.told(News::What::kCardLost, 0) == 1; }));
  card->made(7, channelOf(700, 7), false);
  card->hold(7, 1);
  ASSERT_TRUE(doubted(7)) << "nobody is held so from now on";
  EXPECT_TRUE(doubted(3));
}

class ScriptedCheck final : public CardCheck {
 public:
  ScriptedCheck(Scene& scene, Verdict verdict) : scene_(scene), verdict_(std::move(verdict)) {}
  void start(Loop& loop, std::function<void(Verdict)> done) override {
    wait(loop, std::move(done));
  }

 private:
  // Until the scene says that it is over; meanwhile the loop goes on.
  void wait(Loop& loop, std::function<void(Verdict)> done) {
    loop.post([this, &loop, done = std::move(done)] {
      bool over = false;
      scene_.change([&] { over = std::exchange(scene_.checking, true) && scene_.checked; });
      if (over) return done(verdict_);
      wait(loop, done);
    });
  }
  Scene& scene_;
  const Verdict verdict_;
};

TEST_F(SuspenderTest, WhileACardIsCheckedOthersAreHeldAndWhatComesOfItIsHeeded) {
  for (const auto says : {Verdict::Says::kWorks, Verdict::Says::kFails}) {
    scene.news.clear();
    scene.checking = scene.checked = false;
    const bool fails = says == Verdict::Says::kFails;
    suspender.emplace(
        std::make_unique<ScriptedCalls>(scene), SuspendMethod::kDisable,
        [this](News news) { scene.change([&] { scene.news.push_back(std::move(news)); }); },
        std::function<void()>(),
        std::make_unique<ScriptedCheck>(scene, Verdict{says, fails ? "it went on" : ""}));
    auto& card = suspender;
    scene.change([&] { scene.refuses = 3 * kTries; });
    for (std::uint32_t task = 1; task <= 5; task++) {
      card->made(task, channelOf(100 * task, task), false);
      if (task > 3) continue;
      card->hold(task, 1);
      ASSERT_TRUE(scene.until([&] { return scene.told(News::What::kDoubted, task) == 1; }));
    }
    ASSERT_TRUE(scene.until([&] { return scene.checking; }));
    card->hold(4, 1);
    ASSERT_TRUE(stopped(4, 1)) << "nobody waits for the check";
    scene.change([&] { scene.checked = true; });
    if (fails) {
      ASSERT_TRUE(scene.until([&] { return scene.told(News::What::kCardLost, 0) == 1; }));
      continue;
    }
    card->hold(5, 1);
    ASSERT_TRUE(stopped(5, 1));
    suspender.reset();
    EXPECT_EQ(scene.told(News::What::kCardLost, 0), 0u);
  }
}

TEST(Holds, TasksThatNameWhatTheyHaveNotSayNothingOfTheCard) {
  Holds holds(SuspendMethod::kDisable);
  std::size_t doubted = 0;
  for (std::uint64_t task = 1; task <= 2 * Holds::kRefusedInARow; task++) {
    for (std::uint32_t name = 0; name < 100; name++) holds.made(task, channelOf(100 + name), false);
    holds.hold(task, 1, Nanos(0));
    while (const auto order = holds.next(Nanos(0))) {
      const bool off = order->step == Step::kDisable;
      const std::vector<Channel> gone(order->channels.begin(), order->channels.begin() + off);
      holds.answered({off ? Answer::kGone : Answer::kDone, gone, "it is not its own"}, Nanos(0));
    }
    for (const News& each : holds.news(Nanos(0))) {
      EXPECT_NE(each.what, News::What::kCardLost);
      doubted += each.what == News::What::kDoubted;
    }
  }
  EXPECT_EQ(doubted, 2 * Holds::kRefusedInARow);
}

// Every call is refused, whose task it be.
void refuseTask(Holds& holds, std::uint64_t task, Nanos now) {
  holds.made(task, channelOf(100, 7), false);
  holds.hold(task, 1, now);
  while (const auto order = holds.next(now)) {
    const bool off = order->step == Step::kDisable;
    holds.answered({off ? Answer::kFailed : Answer::kDone, {}, "no"}, now);
  }
}

std::size_t toldOf(Holds& holds, News::What what) {
  std::size_t count = 0;
  for (const News& each : holds.news(Nanos(0))) count += each.what == what;
  return count;
}

// Its client's handle is the next one's to whom the driver gives it, which may be another task's.
TEST(Holds, WhatADeadProcessLeftIsNotTakenFromWhoeverHasItsNameNow) {
  Holds holds(SuspendMethod::kDisable);
  const auto prove = [&] {
    const auto order = holds.next(Nanos(0));
    ASSERT_TRUE(order && order->step == Step::kProve);
    holds.answered({Answer::kDone, {}, ""}, Nanos(0));
  };
  for (const std::uint32_t name : {100u, 101u}) holds.made(1, channelOf(name, 7), false);
  prove();
  holds.made(2, channelOf(100, 8), false);
  prove();
  holds.gone(1, 7);
  const auto left = holds.next(Nanos(0));
  ASSERT_TRUE(left);
  ASSERT_EQ(left->channels.size(), 1u);
  EXPECT_EQ(left->channels[0].channel, 101u) << "100 is told by a process that lives";
  holds.answered({Answer::kDone, {}, ""}, Nanos(0));
  EXPECT_FALSE(holds.next(Nanos(0)));
  // Whoever tells of it late finds it off.
  holds.made(3, channelOf(101, 9), false);
  for (int i = 0; i < ChannelSuspender::kOffsMax; i++) {
    const auto back = holds.next(Nanos(0));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->step, Step::kEnable);
    holds.answered({Answer::kDone, {}, ""}, Nanos(0));
  }
  prove();
  EXPECT_FALSE(holds.next(Nanos(0)));
}

// They may be one tenant's, who knows how to make the driver refuse.
TEST(Holds, C7_TasksThatTheDriverRefusesCostNoCardBeforeItsOwnTestFails) {
  using Says = Verdict::Says;
  Holds holds(SuspendMethod::kDisable);
  Nanos now(0);
  std::uint64_t task = 0;
  for (const Says says : {Says::kWorks, Says::kUnclear}) {
    while (toldOf(holds, News::What::kCardDoubted) == 0) refuseTask(holds, ++task, now);
    for (int i = 0; i < 5; i++) refuseTask(holds, ++task, now);
    EXPECT_EQ(toldOf(holds, News::What::kCardDoubted), 0u) << "it is being tested";
    holds.checked({says, "nobody knows"}, now);
    for (int i = 0; i < 5; i++) refuseTask(holds, ++task, now);
    EXPECT_EQ(toldOf(holds, News::What::kCardDoubted), 0u) << "a test takes a part of the card";
    EXPECT_EQ(toldOf(holds, News::What::kCardLost), 0u);
    holds.made(1'000 + task, channelOf(200), false);
    holds.hold(1'000 + task, 1, now);
    ASSERT_TRUE(holds.next(now)) << "who is not refused is held";
    holds.answered({Answer::kDone, {}, ""}, now);
    EXPECT_EQ(toldOf(holds, News::What::kStopped), 1u);
    now += Holds::kCheckEvery;
  }
  while (toldOf(holds, News::What::kCardDoubted) == 0) refuseTask(holds, ++task, now);
  holds.checked({Says::kFails, "the kernel went on while it was off"}, now);
  const auto news = holds.news(now);
  ASSERT_FALSE(news.empty());
  EXPECT_EQ(news[0].what, News::What::kCardLost);
  EXPECT_EQ(news[0].why, "the kernel went on while it was off");
}

// A tenant that is held may say as often as it likes that its channels are on again.
TEST(Holds, C7_NobodyKeepsOthersWaitingByWhatItSays) {
  Holds holds(SuspendMethod::kDisable);
  holds.made(1, channelOf(100, 1), false);
  holds.made(2, channelOf(200, 2), false);
  holds.made(3, channelOf(300, 3), false);
  for (const std::uint32_t task : {1u, 2u}) holds.hold(task, 1, Nanos(0));
  const auto call = [&] {
    const auto order = holds.next(Nanos(0));
    holds.answered({Answer::kDone, {}, ""}, Nanos(0));
    holds.news(Nanos(0));
    holds.enabled(2, kClient, 200);
    return order ? order->channels[0].channel : 0;
  };
  while (call() != 200) {
  }
  holds.release(1, Nanos(0));
  holds.hold(3, 1, Nanos(0));
  std::set<std::uint32_t> served;
  for (int i = 0; i < 4; i++) served.insert(call());
  EXPECT_TRUE(served.contains(100)) << "what is to be put back";
  EXPECT_TRUE(served.contains(300)) << "another's hold";
}

// Each group takes a call of some hundred microseconds.
TEST(Holds, KernelsOfOneTaskAreNotKeptWaitingForTheCopiesOfAnother) {
  Holds holds(SuspendMethod::kDisablePreempt);
  for (std::uint32_t i = 0; i < 40; i++) {
    for (const std::uint32_t task : {1u, 2u, 3u, 4u}) {
      holds.made(task, {kClient + task, 100 + i, 100 + i, task == 2 ? 1u : 9u, task, 9}, false);
    }
  }
  for (const std::uint32_t task : {1u, 2u, 3u, 4u}) holds.hold(task, 1, Nanos(0));
  std::map<std::uint32_t, int> calls;
  bool stopped = false;
  for (int i = 0; i < 200 && !stopped; i++) {
    const auto order = holds.next(Nanos(0));
    ASSERT_TRUE(order);
    calls[order->channels[0].process]++;
    holds.answered({Answer::kDone, {}, ""}, Nanos(0));
    for (const News& each : holds.news(Nanos(0))) stopped = stopped || each.task == 2;
  }
  EXPECT_EQ(calls[2], 41);
  EXPECT_LE(calls[1] + calls[3] + calls[4], 41) << "all copies together have every other call";
}

TEST_F(SuspenderTest, WhatTheDriverDoesNotTakeBackIsTriedAgain) {
  auto& card = start();
  card->made(5, channelOf(100), false);
  card->hold(5, 1);
  ASSERT_TRUE(stopped(5, 1));
  scene.change([&] { scene.refusesBack = 4; });
  card->release(5);
  ASSERT_TRUE(allBack());
  EXPECT_EQ(scene.refusesBack, 0u);
}

TEST_F(SuspenderTest, WhatIsRemovedOrHeldAtTheEndIsPutBack) {
  auto& card = start();
  for (const std::uint32_t task : {5u, 6u}) {
    card->made(task, channelOf(100 * task, task), false);
    card->hold(task, 1);
    ASSERT_TRUE(stopped(task, 1));
  }
  card->removed(5);
  ASSERT_TRUE(scene.until([&] { return !scene.off.contains(500); }));
  EXPECT_TRUE(scene.off.contains(600));
}  // TearDown ends it with 6 held

TEST_F(SuspenderTest, AProcessIsReachedUntilItIsGone) {
  auto& card = start();
  card->attached(7, Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  card->made(5, channelOf(100), false);
  ASSERT_TRUE(scene.until([&] { return scene.processes.contains(7); }));
  card->hold(5, 1);
  ASSERT_TRUE(stopped(5, 1));
  card->gone(5, 7);
  ASSERT_TRUE(scene.until([&] { return scene.processes.empty(); }));
  scene.off.clear();  // they went with it
  card->release(5);
  card->made(5, channelOf(300), false);
  card->hold(5, 2);
  ASSERT_TRUE(stopped(5, 2));
  for (const Order& order : scene.orders) EXPECT_NE(order.step, Step::kEnable) << "it had ended";
}

}  // namespace
}  // namespace qgpu::suspend::suspender_test
