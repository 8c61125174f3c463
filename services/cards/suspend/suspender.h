#pragma once
// Keeps the held tasks of one card off its hardware. Calls to the driver block, so they are made on
// a thread of its own, which has the decisions (Holds). What is wanted, and what a task's processes
// did, comes in by calls that return at once and are heeded in order; what became of it is told, on
// that thread. Before it ends it puts back what it took off, as long as the driver does so in
// kPatience.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "runtime/fd.h"
#include "runtime/loop.h"
#include "services/cards/suspend/card_check.h"
#include "services/cards/suspend/holds.h"

namespace qgpu::suspend {

class Suspender {
 public:
  static constexpr Nanos kPatience = seconds(2);

  // `tell` runs on the thread of this, and is not called any more once this is gone. `begin` runs
  // there first. Without a `check`, a card in doubt is lost.
  Suspender(std::unique_ptr<Calls> calls, SuspendMethod method, std::function<void(News)> tell,
            std::function<void()> begin = {}, std::unique_ptr<CardCheck> check = nullptr);
  Suspender(const Suspender&) = delete;
  Suspender& operator=(const Suspender&) = delete;
  // Waits for its end; begins it, where nobody did.
  ~Suspender();
  // Begins the end, and returns at once: several of them can end in the same time.
  void end();

  // See Holds.
  void hold(std::uint64_t task, std::uint32_t number);
  void release(std::uint64_t task);
  void removed(std::uint64_t task);
  void again(std::uint64_t task);
  void made(std::uint64_t task, const Channel& channel, bool touched);
  void ended(std::uint64_t task, std::uint32_t client, std::uint32_t name);
  void enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name);
  void doubt(std::uint64_t task, std::string why);

  // `process` names one of the task's as long as it lives, no other task has it too; its pidfd.
  void attached(std::uint32_t process, Fd pidfd);
  void gone(std::uint64_t task, std::uint32_t process);

 private:
  template <typename Change>
  void with(Change change);
  void advance();
  void tellAll();
  void check();
  void wakeAt(Nanos when);
  void onEnd();

  // Of the thread.
  std::unique_ptr<Calls> calls_;
  Holds holds_;
  const std::function<void(News)> tell_;
  std::map<std::uint32_t, Fd> pidfds_;
  Loop::TimerKey retry_ = 0;
  bool posted_ = false;  // advance() is to run again
  bool ending_ = false;

  Loop loop_;
  std::unique_ptr<CardCheck> check_;  // of the thread; on the loop, so it ends before that
  std::thread thread_;
};

}  // namespace qgpu::suspend
