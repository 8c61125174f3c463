#pragma once
// The platform of gate port and pages in a daemon: the card loop and the kernel.

#include "runtime/loop.h"
#include "services/attach/pages/platform.h"
#include "services/attach/suspenders.h"

namespace qgpu {

class LoopPlatform final : public GatePlatform {
 public:
  LoopPlatform(Loop& loop, Suspenders& suspenders) : loop_(loop), suspenders_(suspenders) {}

  Nanos now() override { return loop_.now(); }
  Nanos stored(std::uint64_t task, const qgpu_gate_page& page) override;
  void wake(std::uint64_t task, qgpu_gate_page& page, int waiters) override;
  TimerKey at(Nanos when, std::function<void()> work) override;
  void cancel(TimerKey key) override { loop_.cancel(key); }
  void watchBell(GuestTask& task, std::function<void()> rang) override;
  void unwatchBell(GuestTask& task) override;
  bool lives(const GuestProcess& process) override;
  bool isStopped(const GuestProcess& process) override;
  bool stopThread(const GuestProcess& process, std::uint32_t tid) override;
  void takeOff(const GuestTask& task) override { suspenders_.hold(task); }
  void takeOffAgain(const GuestTask& task) override { suspenders_.again(task); }
  void putBack(const GuestTask& task) override { suspenders_.release(task); }

 private:
  Loop& loop_;
  Suspenders& suspenders_;
};

}  // namespace qgpu
