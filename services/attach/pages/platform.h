#pragma once
// What gate port and pages need of the world around them: a clock, timers, the doorbells that
// ring, and the kernel that wakes waiters and stops threads. The daemon has LoopPlatform, the
// simulator one of its own, so that both run the same port on the same pages.
//
// All of it belongs to the card loop's thread. Times are CLOCK_MONOTONIC in ns.

#include <cstdint>
#include <functional>

#include "runtime/units.h"
#include "services/wire/gate_abi.h"

namespace qgpu {

struct GuestProcess;
struct GuestTask;

class PagePlatform {
 public:
  virtual Nanos now() = 0;
  // Right after the gate word of a task's page was stored: the time of that store.
  virtual Nanos stored(std::uint64_t task, const qgpu_gate_page& page) = 0;
  // Up to `waiters` threads that wait on the gate word go on (FUTEX_WAKE).
  virtual void wake(std::uint64_t task, qgpu_gate_page& page, int waiters) = 0;
  // All threads that wait on the epoch of `paging` go on. A platform without memory that leaves a
  // card has nobody who waits.
  virtual void wakePaging(qgpu_gate_page&) {}

 protected:
  ~PagePlatform() = default;
};

class GatePlatform : public PagePlatform {
 public:
  using TimerKey = std::uint64_t;  // 0: none

  // `work` runs once, at or after `when`.
  virtual TimerKey at(Nanos when, std::function<void()> work) = 0;
  virtual void cancel(TimerKey key) = 0;
  // `rang` runs at each edge of the task's doorbell (never read, HAZARDS 1), until it is unwatched.
  virtual void watchBell(GuestTask& task, std::function<void()> rang) = 0;
  virtual void unwatchBell(GuestTask& task) = 0;
  // False: it is dead, so that its pid may be somebody else's.
  virtual bool lives(const GuestProcess& process) = 0;
  // True: nothing of it goes on until somebody lets it, see processStopped().
  virtual bool isStopped(const GuestProcess& process) = 0;
  // Sends its freeze signal to the thread `tid` (as the manager sees it) of a process that lives.
  // False: it was not sent; the thread is gone, or its user has no room for one more signal.
  virtual bool stopThread(const GuestProcess& process, std::uint32_t tid) = 0;
  // The task's channels, where it is held by `rm`: off the card, as gate.ask numbers it, and on
  // it again; or off once more, where a held task's work goes on. They return at once.
  virtual void takeOff(const GuestTask& task) = 0;
  virtual void takeOffAgain(const GuestTask& task) = 0;
  virtual void putBack(const GuestTask& task) = 0;

 protected:
  ~GatePlatform() = default;
};

}  // namespace qgpu
