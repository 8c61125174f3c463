#include "services/guest/gate/reaper.h"

#include <cstdlib>

namespace qgpu::guest {

std::uint32_t reaperAsleep = 0;

namespace {

constexpr int kFrontEnds = 2;  // OpenCL and CUDA
std::atomic<const FrontEnd*> frontEnds[kFrontEnds] = {};

std::atomic<bool> reaperRuns{false};
std::atomic<bool> stopping{false};
std::uint32_t reaperStopped = 0;  // futex
std::uint32_t nudges = 0;         // futex: counts them

template <typename F>
void forEachFrontEnd(F visit) {
  for (auto& place : frontEnds) {
    if (const FrontEnd* frontEnd = place.load()) visit(*frontEnd);
  }
}

bool anythingInFlight() {
  bool any = false;
  forEachFrontEnd([&](const FrontEnd& each) { any = any || each.inFlight(); });
  return any;
}

void pollAll() {
  forEachFrontEnd([](const FrontEnd& each) { each.poll(); });
}

bool driverIsFrozen() {
  std::uint32_t gate = loadShared(session.gate->gate);
  return (gate & QGPU_GATE_FROZEN) && !(gate & QGPU_GATE_OPEN) &&
         loadShared(session.slot->frozen) != 0;
}

constexpr std::uint64_t kFastTickNs = 350 * kNsPerUs;  // somebody cares when we are idle ...
constexpr std::uint64_t kSlowTickNs = 2 * kNsPerMs;    // ... and some thread waits for it ...
constexpr std::uint64_t kToldTickNs = 10 * kNsPerMs;   // ... or the driver will call back
constexpr std::uint64_t kAloneTickNs = 5 * kNsPerMs;   // nobody else wants the card
constexpr std::uint64_t kLingerNs = 5 * kNsPerMs;      // awake after the last launch
constexpr int kParkedLooks = 3;
constexpr std::uint64_t kFrozenWaitNs = 100 * kNsPerMs;  // a wake that got lost costs this much

bool alone() {
  const std::uint32_t gate = loadShared(session.gate->gate);
  return !session.online && (gate & kGateFastMask) == QGPU_GATE_OPEN;
}

std::uint64_t tickNs(const Look& look) {
  if (alone()) return kAloneTickNs;
  if (!look.any || !(look.attended || look.awaited)) return kFastTickNs;
  return look.awaited && !settling() ? kToldTickNs : kSlowTickNs;
}

void sleepUntilLaunch() {
  shared(reaperAsleep).store(1);
  while (!anythingInFlight() && loadShared(reaperAsleep) && !stopping.load()) {
    futexWait(&reaperAsleep, 1, kNsPerSecond);
  }
  shared(reaperAsleep).store(0);
}

// Frozen threads may hold the driver's locks, so that a query would wait for them: there is nothing
// to look at before they go on. Who is woken at the gate wakes the next (HAZARDS 15).
void waitForThaw() {
  const std::uint32_t gate = loadShared(session.gate->gate);
  if (gate & QGPU_GATE_OPEN) return;
  futexWait(&session.gate->gate, gate, kFrozenWaitNs);
  futexWake(&session.gate->gate, 1);
}

// One look at everything; `withoutRun` counts looks in a row that met no running launch. Where
// somebody cares about the end of what is in flight, it is asked to be told; but not at once again
// because it was told, which would be once for each launch of a program that waits for each.
Look lookAtAll(int& withoutRun, std::uint64_t& askedNs, bool nudged, std::uint64_t now) {
  Look look;
  look.await = settling() || (!alone() && (!nudged || now - askedNs >= kFastTickNs));
  if (look.await) askedNs = now;
  forEachFrontEnd([&](const FrontEnd& each) { each.look(look); });
  withoutRun = look.any && !look.running ? withoutRun + 1 : 0;
  storeRelaxed(session.slot->parked, withoutRun >= kParkedLooks ? 1u : 0u);
  return look;
}

void* reaperThread(void*) {
  std::uint64_t busyNs = nowNs();
  Look look;
  int withoutRun = 0;
  std::uint64_t askedNs = 0;  // when the driver was last asked to call back
  bool nudged = false;
  while (!stopping.load()) {
    if (driverIsFrozen()) {
      waitForThaw();
      busyNs = nowNs();
      continue;
    }
    const std::uint32_t before = loadShared(nudges);
    const std::uint64_t now = nowNs();
    look = lookAtAll(withoutRun, askedNs, nudged, now);
    nudged = false;
    if (look.any) busyNs = now;
    ringIfIdleIsUntold();
    if (now - busyNs > kLingerNs && !anythingInFlight()) {
      sleepUntilLaunch();
      busyNs = nowNs();
    } else {
      futexWait(&nudges, before, tickNs(look));
      nudged = loadShared(nudges) != before;
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

void forgetReaperInChild() {
  forEachFrontEnd([](const FrontEnd& each) { each.forgetInChild(); });
  reaperRuns.store(false);
  reaperAsleep = reaperStopped = 0;
  stopping.store(false);
  forgetGateInChild();
}

void add(const FrontEnd& frontEnd) {
  for (auto& place : frontEnds) {
    const FrontEnd* there = nullptr;
    if (place.compare_exchange_strong(there, &frontEnd) || there == &frontEnd) return;
  }
}

}  // namespace

void startReaper(const FrontEnd& frontEnd) {
  add(frontEnd);
  if (reaperRuns.exchange(true)) return;
  if (!atExitKnown) atexit(stopReaper);
  atExitKnown = true;
  session.pollRetirement = pollAll;
  session.nudgeReaper = nudgeReaper;
  onForkInChild(forgetReaperInChild);
  if (!startThread(reaperThread)) {
    say("cannot start a thread: launches retire at synchronising calls only");
  }
}

void nudgeReaper() {
  shared(nudges).fetch_add(1);
  futexWake(&nudges, 1);
}

void wakeReaperSlow() {
  if (shared(reaperAsleep).exchange(0)) futexWake(&reaperAsleep, 1);
}

}  // namespace qgpu::guest
