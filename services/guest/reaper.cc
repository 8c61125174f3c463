#include "services/guest/reaper.h"

#include <cstdlib>

#include "services/guest/estimates.h"
#include "services/guest/launch_queues.h"
#include "services/guest/retirement.h"

namespace qgpu::guest {
namespace {

std::atomic<bool> reaperRuns{false};
std::uint32_t reaperAsleep = 0;  // futex
std::atomic<bool> stopping{false};
std::uint32_t reaperStopped = 0;  // futex

// A queue whose launches nobody flushed would stay in flight for ever.
// Returns the handle, retained, if the queue is to be flushed.
cl_command_queue toFlush(Queue& q) {
  cl_command_queue handle = q.unflushed && q.first < q.next ? q.handle : nullptr;
  q.unflushed = false;
  if (handle) driver->clRetainCommandQueue(handle);
  return handle;
}

void flush(Queue& q) {
  q.lock.lock();
  cl_command_queue handle = toFlush(q);
  q.lock.unlock();
  if (!handle) return;
  driver->clFlush(handle);
  driver->clReleaseCommandQueue(handle);
}

// Puts a marker behind launches that have no event and that nobody waits for.
void cover(Queue& q) {
  q.lock.lock();
  std::uint64_t last = q.next - 1;
  bool needed = q.handle && q.first < q.next && !q.at(last).event && q.syncing == 0;
  cl_command_queue handle = needed ? q.handle : nullptr;
  if (needed) {
    q.at(last).sealed = true;
    driver->clRetainCommandQueue(handle);
  }
  q.lock.unlock();
  if (!needed) return;
  cl_event marker = nullptr;
  if (driver->clEnqueueMarkerWithWaitList(handle, 0, nullptr, &marker) != CL_SUCCESS) {
    marker = nullptr;
  }
  driver->clFlush(handle);
  q.lock.lock();
  if (marker && last >= q.first) {
    q.at(last).event = marker;
    marker = nullptr;
  }
  q.lock.unlock();
  if (marker) driver->clReleaseEvent(marker);
  driver->clReleaseCommandQueue(handle);
}

struct Progress {
  bool any = false;      // something is in flight
  bool running = false;  // and some oldest launch runs
};

void lookAtOldest(Queue& q, Progress& progress) {
  q.lock.lock();
  if (q.first < q.next) {
    progress.any = true;
    // Without an event of its own nothing is known of it, which counts as running: a marker that is
    // not finished does not tell whether the work before it runs.
    const Launch& oldest = q.at(q.first);
    const bool known = oldest.event && !oldest.sealed;
    if (!known || statusOf(oldest.event) <= CL_RUNNING) progress.running = true;
  }
  q.lock.unlock();
}

bool driverIsFrozen() {
  std::uint32_t gate = loadShared(session.gate->gate);
  return (gate & QGPU_GATE_FROZEN) && !(gate & QGPU_GATE_OPEN) &&
         loadShared(session.slot->frozen) != 0;
}

constexpr std::uint64_t kFastTickNs = 350 * kNsPerUs;  // somebody cares when we are idle
constexpr std::uint64_t kSlowTickNs = 2 * kNsPerMs;    // nobody else wants the card
constexpr std::uint64_t kLazyTickNs = 5 * kNsPerMs;    // and some thread waits for all there is
constexpr std::uint64_t kLingerNs = 5 * kNsPerMs;      // awake after the last launch
constexpr int kParkedLooks = 3;

std::uint64_t tickNs(bool attended) {
  std::uint32_t gate = loadShared(session.gate->gate);
  bool alone = !session.online && (gate & kGateFastMask) == QGPU_GATE_OPEN;
  if (alone) return attended ? kLazyTickNs : kSlowTickNs;
  return attended ? kSlowTickNs : kFastTickNs;
}

void sleepUntilLaunch() {
  shared(reaperAsleep).store(1);
  while (inFlight.load() == 0 && loadShared(reaperAsleep) && !stopping.load()) {
    futexWait(&reaperAsleep, 1, kNsPerSecond);
  }
  shared(reaperAsleep).store(0);
}

struct Look {
  bool any = false;      // something is in flight
  bool attended = true;  // and some thread waits for all of that
  int withoutRun = 0;    // looks in a row that met no running launch
};

// One look at everything.
void reap(Look& look) {
  look.any = false;
  look.attended = true;
  takeLateLaunches();
  Progress progress;
  forEachQueue([&](Queue& q) {
    q.lock.lock();
    bool any = q.first < q.next;
    bool attended = q.syncing != 0;
    if (!any) {
      q.lock.unlock();
      return;
    }
    look.any = true;
    look.attended = look.attended && attended;
    collect(q, 0);
    if (!attended && !session.callerRuns) {
      flush(q);
      cover(q);
    }
    lookAtOldest(q, progress);
  });
  look.withoutRun = progress.any && !progress.running ? look.withoutRun + 1 : 0;
  storeRelaxed(session.slot->parked, look.withoutRun >= kParkedLooks ? 1u : 0u);
  freeReleasedQueues();
}

void* reaperThread(void*) {
  std::uint64_t busyNs = nowNs();
  Look look;
  while (!stopping.load()) {
    // A frozen driver thread may hold the driver's locks: a query would wait for the thaw.
    bool frozen = driverIsFrozen();
    if (!frozen) reap(look);
    std::uint64_t now = nowNs();
    if (frozen || look.any) busyNs = now;
    ringIfIdleIsUntold();
    if (now - busyNs > kLingerNs && inFlight.load() == 0) {
      sleepUntilLaunch();
      busyNs = nowNs();
    } else {
      sleepNs(tickNs(look.any && look.attended));
    }
  }
  shared(reaperStopped).store(1);
  futexWake(&reaperStopped, 1);
  return nullptr;
}

// The driver is about to be torn down: no query may run into that.
void stopReaper() {
  if (!reaperRuns.load()) return;
  stopping.store(true);
  shared(reaperAsleep).store(0);
  futexWake(&reaperAsleep, 1);
  if (!loadShared(reaperStopped)) futexWait(&reaperStopped, 0, 50 * kNsPerMs);
}
bool atExitKnown = false;

void forgetQueuesInChild() {
  forgetLaunchQueuesInChild();
  forgetLateLaunchesInChild();
  reaperRuns.store(false);
  reaperAsleep = reaperStopped = 0;
  stopping.store(false);
  forgetGateInChild();
}

}  // namespace

void startReaper() {
  if (reaperRuns.exchange(true)) return;
  if (!atExitKnown) atexit(stopReaper);
  atExitKnown = true;
  session.pollRetirement = pollQueues;
  onForkInChild(forgetQueuesInChild);
  if (!startThread(reaperThread)) {
    say("cannot start a thread: launches retire at synchronising calls only");
  }
}

void wakeReaper() {
  if (!reaperRuns.load(std::memory_order_relaxed)) startReaper();
  if (loadShared(reaperAsleep) && shared(reaperAsleep).exchange(0)) futexWake(&reaperAsleep, 1);
}

}  // namespace qgpu::guest
