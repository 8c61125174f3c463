// The suspender of suspend=rm against a driver that fails, forgets and is late, in any order that a
// seed decides.

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "services/cards/suspend/channel_suspender.h"
#include "tests/testing/story_seeds.h"

namespace qgpu::suspend::suspend_story_test {
namespace {

constexpr std::uint32_t kClient = 0xc1d00001;

// Of the groups of a story; a group is in one engine's runlist.
std::uint32_t engineOf(std::uint32_t group) {
  constexpr std::uint32_t kEngines[] = {1, 1, 9, 10, 0};
  return kEngines[(group - 1) % std::size(kEngines)];
}

// The card: which channels live, are disabled, and still run because nobody committed. Some drivers
// count how often a channel was disabled, and run it again after as many enables.
struct Hardware {
  bool counts = false;
  std::set<std::uint32_t> live, disabled, running;
  std::map<std::uint32_t, std::uint32_t> groupOf, times;

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
  // A call that was refused for another channel's sake: it counts, and stops nothing.
  void refuse(const Order& order, std::uint32_t name) {
    if (order.step == Step::kEnable) apply(order, name, SuspendMethod::kDisable);
    if (order.step == Step::kDisable) apply(order, name, SuspendMethod::kSchedulingPreempt);
  }
  void apply(const Order& order, std::uint32_t name, SuspendMethod method) {
    if (!live.contains(name)) return;
    switch (order.step) {
      case Step::kDisable:
        times[name] = counts && disabled.contains(name) ? times[name] + 1 : 1;
        disabled.insert(name);
        if (method == SuspendMethod::kDisable) running.erase(name);
        break;
      case Step::kEnable:
        if (disabled.contains(name) && --times[name] != 0) break;
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
  Story(std::uint32_t seed, SuspendMethod method)
      : random_(seed), method_(method), suspender_(method) {
    card_.counts = seed % 2 == 0;
  }

  void go() {
    for (int i = 0; i < 400 && !::testing::Test::HasFailure(); i++) {
      now_ += Nanos(draw(2'000'000));
      something();
      check();
    }
    // The driver is well again, and nobody wants a hold: nothing stays off the card.
    mayFail_ = false;
    suspender_.release(now_);
    for (int i = 0; i < 3'000 && !suspender_.free(); i++) {
      now_ += ChannelSuspender::kRetryMax;
      call();
      answer();
    }
    EXPECT_TRUE(suspender_.free());
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
        return suspender_.hold(now_);
      case 1:
        return suspender_.release(now_);
      case 2:
        return makeOne(++lastName_);
      case 3:
        return endOne(someLive(), draw(4) != 0);
      case 4:
        return scheduleSome();
      case 5:
        if (draw(20) == 0) suspender_.doubt("work went on");
        if (draw(4) == 0) undoOne(someLive());
        if (draw(2) == 0) suspender_.again();
        return;
      case 6:
      case 7:
      case 8:
        return call();
      default:
        return answer();
    }
  }

  // Some by a process of an earlier manager, which had disabled them; some of these once more,
  // since their process tells all of its own again.
  void makeOne(std::uint32_t name) {
    const std::uint32_t group = 1 + name % 5;
    const Channel channel{kClient, name, group, engineOf(group), 1 + name % kProcesses, 9};
    const bool touched = draw(8) == 0;
    card_.make(name, group);
    for (std::uint32_t i = touched ? draw(5) : 0; i > 0; i--) {
      card_.apply({Step::kDisable, {channel}}, name, method_);
    }
    suspender_.made(channel, touched);
    if (touched && draw(2) == 0) suspender_.made(channel, true);
  }
  // A guest that dies or lies does not say so.
  void endOne(std::uint32_t name, bool told) {
    if (name == 0) return;
    card_.end(name);
    if (told) suspender_.ended(kClient, name);
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
    suspender_.processGone(process);
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
      if (card_.counts || card_.groupOf[name] != group || left_.contains(name)) continue;
      card_.disabled.erase(name);
      card_.running.insert(name);
    }
    suspender_.scheduled(kClient, group);
  }

  void call() {
    auto order = suspender_.next(now_);
    if (!order) return;
    ASSERT_FALSE(asked_) << "two calls at once";
    ASSERT_FALSE(order->channels.empty());
    ASSERT_LE(order->channels.size(), ChannelSuspender::kNamedMax);
    if (order->step != Step::kEnable) {
      ASSERT_FALSE(suspender_.doubted());
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
      return suspender_.answered(draw(2) == 0 ? Answer::kFailed : Answer::kLater, {}, now_);
    }
    if (!gone.empty()) {
      for (const Channel& channel : order.channels) card_.refuse(order, channel.channel);
      return suspender_.answered(Answer::kGone, gone, now_);
    }
    for (const Channel& channel : order.channels) {
      apply(order, channel.channel);
      if (order.step == Step::kProve || order.step == Step::kDisable) {
        proven_.insert(channel.channel);
      }
    }
    suspender_.answered(Answer::kDone, {}, now_);
  }

  void apply(const Order& order, std::uint32_t name) {
    card_.apply(order, name, method_);
    if (order.step == Step::kDisable) undone_.erase(name);
  }

  void check() {
    if (suspender_.stopped()) {
      std::set<std::uint32_t> running, known = card_.live;
      std::set_difference(card_.running.begin(), card_.running.end(), undone_.begin(),
                          undone_.end(), std::inserter(running, running.end()));
      ASSERT_TRUE(running.empty()) << "told to be stopped, and runs: " << *running.begin() << " of "
                                   << suspender_.channels();
      for (const std::uint32_t name : undone_) known.erase(name);
      ASSERT_EQ(card_.disabled, known);
    }
    if (suspender_.computingOff()) {
      for (const std::uint32_t name : card_.running) {
        ASSERT_TRUE(engineOf(card_.groupOf[name]) > 8 || undone_.contains(name))
            << "told to compute nothing, and does";
      }
    }
    if (suspender_.free()) {
      for (const std::uint32_t name : card_.disabled) {
        ASSERT_TRUE(left_.contains(name)) << "told to be free, and is not";
      }
      for (const std::uint32_t name : left_) {
        ASSERT_TRUE(suspender_.doubted() || !card_.running.contains(name) || undone_.contains(name))
            << "of a dead process, and runs";
      }
    }
  }

  std::mt19937 random_;
  const SuspendMethod method_;
  ChannelSuspender suspender_;
  Hardware card_;
  static constexpr std::uint32_t kProcesses = 2;
  std::set<std::uint32_t> proven_, left_;  // left by a dead process
  std::set<std::uint32_t> undone_;         // on, and nobody was told
  std::optional<Order> asked_;
  std::uint32_t lastName_ = 1000;
  bool mayFail_ = true;
  Nanos now_{0};
};

TEST(ChannelSuspender, WhateverHappensStoppedMeansStoppedAndFreeMeansFree) {
  for (const SuspendMethod method : kSuspendMethods) {
    for (std::uint32_t seed = 1; seed <= testing::storySeeds(3'000) && !HasFailure(); seed++) {
      SCOPED_TRACE(std::string(nameOf(method)) + ", seed " + std::to_string(seed));
      Story(seed, method).go();
    }
  }
}

}  // namespace
}  // namespace qgpu::suspend::suspend_story_test
