#pragma once
// A driver for tests of suspend=rm that does as it is told: it blocks, refuses, and remembers what
// it was asked and what is off the card.

#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <vector>

#include "services/cards/suspend/suspender.h"

namespace qgpu::suspend {

inline constexpr std::uint32_t kClient = 0xc1d00001;
inline constexpr auto kLong =
    std::chrono::seconds(30);  // for what must come; no test waits so long

inline Channel channelOf(std::uint32_t name, std::uint32_t process = 7) {
  return {kClient, name, 1, 1, process, 9};
}

// What the driver and the listener saw, and a driver that does as it is told.
struct Scene {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::uint32_t> off;  // channels
  std::vector<Order> orders;
  std::vector<News> news;
  std::set<std::uint32_t> processes;
  bool blocks = false;                     // calls do not return ...
  bool blocksBack = false;                 // ... or only enables
  std::uint32_t blocked = 0;               // that wait now
  std::uint32_t refuses = 0;               // so many disables ...
  std::uint32_t busyFor = 0;               // ... and so many before those, which may pass
  std::uint32_t refusesBack = 0;           // so many enables
  bool checking = false, checked = false;  // the card: is, and may be over

  template <typename What>
  bool until(What what) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, what);
  }
  template <typename What>
  void change(What what) {
    const std::lock_guard lock(mutex);
    what();
    changed.notify_all();
  }
  std::size_t told(News::What what, std::uint64_t task) const {
    std::size_t count = 0;
    for (const News& each : news) count += each.what == what && each.task == task;
    return count;
  }
  bool stopped(std::uint64_t task, std::uint32_t hold) const {
    for (const News& each : news) {
      if (each.what == News::What::kStopped && each.task == task && each.hold == hold) return true;
    }
    return false;
  }
};

class ScriptedCalls final : public Calls {
 public:
  explicit ScriptedCalls(Scene& scene) : scene_(scene) {}
  void process(std::uint32_t id, int pidfd) override {
    scene_.change([&] {
      EXPECT_GE(::fcntl(pidfd, F_GETFD), 0);
      scene_.processes.insert(id);
    });
  }
  void forget(std::uint32_t id) override {
    scene_.change([&] { scene_.processes.erase(id); });
  }
  Outcome carryOut(const Order& order, SuspendMethod) override {
    if (order.step == Step::kProve) return {Answer::kDone, {}, ""};
    std::unique_lock lock(scene_.mutex);
    const bool back = order.step == Step::kEnable;
    const auto goes = [&] { return !scene_.blocks && !(back && scene_.blocksBack); };
    if (!goes()) {
      scene_.blocked++;
      scene_.changed.notify_all();
      scene_.changed.wait(lock, goes);
      scene_.blocked--;
    }
    scene_.orders.push_back(order);
    scene_.changed.notify_all();
    if (order.step == Step::kDisable && scene_.busyFor > 0) {
      scene_.busyFor--;
      return {Answer::kLater, {}, "not now"};
    }
    if (order.step == Step::kDisable && scene_.refuses > 0) {
      scene_.refuses--;
      return {Answer::kFailed, {}, "it does not like this"};
    }
    if (order.step == Step::kEnable && scene_.refusesBack > 0) {
      scene_.refusesBack--;
      return {Answer::kLater, {}, "not now"};
    }
    for (const Channel& each : order.channels) {
      if (order.step == Step::kDisable) scene_.off.insert(each.channel);
      if (order.step == Step::kEnable) scene_.off.erase(each.channel);
    }
    return {Answer::kDone, {}, ""};
  }

 private:
  Scene& scene_;
};

}  // namespace qgpu::suspend
