#pragma once
// The platform of gate port and pages in a daemon (platform.h says what each method is to do): time
// and timers are the card loop's, pages and processes are reached by futexes, pidfds, signals and
// /proc, and cards that suspend by `rm` by their threads. The simulator has another platform in its
// place (tests/sim/guests/sim_attach.h).

#include "runtime/loop.h"
#include "services/attach/pages/platform.h"
#include "services/attach/suspenders.h"

namespace qgpu {

// Made by AttachPort, on the card loop; each method is called there.
class LoopPlatform final : public GatePlatform {
 public:
  // Both outlive it.
  LoopPlatform(Loop& loop, Suspenders& suspenders) : loop_(loop), suspenders_(suspenders) {}

  Nanos now() override { return loop_.now(); }
  Nanos stored(std::uint64_t task, const qgpu_gate_page& page) override;
  void wake(std::uint64_t task, qgpu_gate_page& page, int waiters) override;
  void wakePaging(qgpu_gate_page& page) override;
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
