// The gate and the window, as services/guest/gate/gate.cc has them.
#include <algorithm>

#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

constexpr std::uint32_t kFastMask = QGPU_GATE_OPEN | QGPU_GATE_NOTIFY | QGPU_GATE_CONTENDED;
constexpr Nanos kStampEvery = micros(50);
constexpr Nanos kCoarse = millis(4);      // CLOCK_MONOTONIC_COARSE of a 250 Hz kernel
constexpr Nanos kGateWait = millis(100);  // a wake that got lost costs this much
constexpr Nanos kWindowStuck = millis(10);
constexpr Nanos kWindowTick = micros(250);
constexpr int kTries = 3;

}  // namespace

std::uint32_t Program::gateWord() const {
  return load(gatePage().gate);
}

bool Program::passes(std::uint32_t gate) const {
  return (gate & QGPU_GATE_OPEN) != 0 || online_ || orphan_ || !obeys();
}

bool Program::windowApplies(std::uint32_t gate) const {
  return (gate & QGPU_GATE_CONTENDED) != 0 && !online_ && !orphan_ && obeys() &&
         load(gatePage().window_ns) != 0;
}

std::uint32_t Program::waiting() const {
  std::uint32_t count = 0;
  for (const Thread& thread : threads_) count += thread.waits ? 1 : 0;
  return count;
}

// A launch: the add first, then the load; who is interrupted between them finds another gate.
void Program::launch(std::uint32_t i) {
  if (exiting_ || launchesLeft_ == 0) {
    threads_[i].at = At::Over;
    if (launchesLeft_ == 0 && queued_ == 0) exitSoon(micros(10), millis(5));
    return;
  }
  if (home_.resting_) {
    unblock(i);
    threads_[i].at = At::Over;
    return;
  }
  threads_[i].at = At::Launching;
  threads_[i].counted = !hides();
  if (threads_[i].counted) add(slot().admitted, 1);
  if (races()) {
    threads_[i].timer = later(dice_.magnitude(Nanos(50), micros(50)), Do::Admit, i);
  } else {
    admit(i);
  }
}

void Program::admit(std::uint32_t i) {
  Thread& thread = threads_[i];
  qgpu_slot& s = slot();
  const std::uint32_t gate = gateWord();
  if (!thread.counted) return pass(i, 0);
  if ((gate & kFastMask) == QGPU_GATE_OPEN) {
    const std::uint64_t coarse = ns(now()) / ns(kCoarse) * ns(kCoarse);
    if (coarse - load(s.last_submit_ns) >= ns(kStampEvery)) store(s.last_submit_ns, coarse);
    return pass(i, 0);
  }
  if (load(gatePage().closed) != 0) {
    subtract(s.admitted, 1);
    return failLaunch(i);
  }
  if (passes(gate) && !windowApplies(gate)) {
    notifyIfAsked(gate, now());
    return pass(i, 0);
  }
  subtract(s.admitted, 1);
  store(s.last_submit_ns, ns(now()));
  add(s.waiting, 1);
  thread.waits = true;
  thread.waitedAtGate = false;
  thread.force = false;
  thread.patienceFrom = Nanos(0);
  thread.told = !passes(gate);
  if (thread.told) ring();
  tell(GuestNews::Kind::Waits);
  wait(i);
}

// One look of a launch that could not pass at once.
void Program::wait(std::uint32_t i) {
  Thread& thread = threads_[i];
  if (thread.at == At::Gate) gate_->forget(*this, i);  // its wait ended by itself
  thread.at = At::Launching;
  const std::uint32_t gate = gateWord();
  if (load(gatePage().closed) != 0) {
    stopWaiting(thread);
    return failLaunch(i);
  }
  if (!passes(gate)) return waitAtGate(i);
  thread.told = false;
  thread.cost = windowApplies(gate) ? windowCost() : 0;
  if (thread.cost != 0 && thread.force) {
    add(slot().window_used_ns, thread.cost);
  } else if (thread.cost != 0 && !takeWindow(thread.cost)) {
    thread.force = patienceOver(thread);
    return thread.force ? wait(i) : waitAtWindow(i);
  }
  add(slot().admitted, 1);
  thread.counted = true;
  if (races()) {
    thread.timer = later(dice_.magnitude(Nanos(50), micros(50)), Do::AdmitAgain, i);
  } else {
    admitAgain(i);
  }
}

void Program::waitAtGate(std::uint32_t i) {
  Thread& thread = threads_[i];
  thread.waitedAtGate = true;
  if (!thread.told) ring();
  thread.told = true;
  thread.at = At::Gate;
  gate_->waiters.push_back({this, i});
  thread.timer = later(kGateWait, Do::Wait, i);
}

void Program::admitAgain(std::uint32_t i) {
  Thread& thread = threads_[i];
  const std::uint32_t gate = gateWord();
  if (passes(gate)) {
    notifyIfAsked(gate, now());
    if (thread.waitedAtGate) gate_->wake(1);
    stopWaiting(thread);
    return pass(i, thread.cost);
  }
  subtract(slot().admitted, 1);
  if (thread.cost != 0) subtract(slot().window_used_ns, thread.cost);
  ring();  // the manager may have met this launch in flight for a moment
  thread.told = true;
  wait(i);
}

void Program::notifyIfAsked(std::uint32_t gate, Nanos entry) {
  store(slot().last_submit_ns, ns(entry));
  if ((gate & QGPU_GATE_NOTIFY) == 0 || notifiedFor_ == gate) return;
  notifiedFor_ = gate;
  ring();
}

void Program::stopWaiting(Thread& thread) {
  thread.waits = false;
  subtract(slot().waiting, 1);
}

// --- the window ---

std::uint64_t Program::windowSum() const {
  std::uint64_t sum = 0;
  for (const qgpu_slot& s : report_->page().slot) sum += load(s.window_used_ns);
  return sum;
}

// The unknown fills the window by itself.
std::uint64_t Program::windowCost() const {
  const std::uint64_t window = load(gatePage().window_ns);
  if (!estimate_ || ns(*estimate_) > window) return window + 1;
  return ns(*estimate_) + 1;
}

bool Program::takeWindow(std::uint64_t cost) {
  for (int i = 0; i < kTries; i++) {
    add(slot().window_used_ns, cost);
    const std::uint64_t sum = windowSum();
    if (sum <= load(gatePage().window_ns) || sum == cost) return true;
    subtract(slot().window_used_ns, cost);
  }
  return false;
}

bool Program::patienceOver(Thread& thread) {
  std::uint64_t retired = 0;
  for (const qgpu_slot& s : report_->page().slot) retired += load(s.retired);
  if (thread.patienceFrom == Nanos(0) || retired != thread.patienceRetired) {
    thread.patienceFrom = now();
    thread.patienceRetired = retired;
  }
  const std::uint64_t limit = std::max(4 * windowSum(), ns(kWindowStuck));
  return ns(now() - thread.patienceFrom) > limit;
}

// The library looks every 250 us; who has waited for long looks less often here, for speed.
void Program::waitAtWindow(std::uint32_t i) {
  Thread& thread = threads_[i];
  thread.at = At::Window;
  const Nanos waited = now() - thread.patienceFrom;
  thread.timer = later(std::max(kWindowTick, waited / 8), Do::Wait, i);
  if (finished_ != 0) reap();
}

// --- past the gate ---

void Program::pass(std::uint32_t i, std::uint64_t cost) {
  Thread& thread = threads_[i];
  QGPU_CHECK(queued_ < kKernelsMax, "plans keep fewer kernels in flight");
  if (launchesLeft_ != UINT64_MAX) launchesLeft_--;
  Kernel& fresh = kernel(queued_++);
  fresh = Kernel{};
  fresh.length = dice_.magnitude(plan_.kernelMin, plan_.kernelMax);
  fresh.left = fresh.length;
  fresh.cost = cost;
  fresh.thread = i;
  fresh.channel = 1 + i % plan_.channels;
  fresh.counted = thread.counted;
  fresh.blocked = plan_.waitsForHost && plan_.depth > 1 && dice_.percent(20);
  if (!fresh.blocked) unblock(i);
  thread.inFlight++;
  if (thread.left != UINT32_MAX) thread.left--;
  tell(GuestNews::Kind::Submitted);
  if (allFrozen() || stands()) tell(GuestNews::Kind::Frozen);  // what is late to go on
  runNext();
  goOn(i);
}

// What the thread does after a launch, and after a wait for its kernels.
void Program::goOn(std::uint32_t i) {
  Thread& thread = threads_[i];
  const bool burstOver = thread.left == 0 || launchesLeft_ == 0;
  if (burstOver) unblock(i);
  if (thread.inFlight >= plan_.depth || (burstOver && thread.inFlight != 0)) {
    thread.at = At::Sync;
    if (thread.inFlight >= plan_.depth) unblock(i);
    return;
  }
  thread.at = At::Rest;
  const Nanos delay = burstOver ? dice_.magnitude(plan_.gapMin, plan_.gapMax)
                                : Nanos(dice_.between(0, plan_.hostMax.value));
  if (burstOver) thread.left = plan_.burst;
  thread.timer = later(delay, Do::Launch, i);
}

void Program::failLaunch(std::uint32_t i) {
  tell(GuestNews::Kind::Failed);
  unblock(i);
  threads_[i].at = At::Rest;
  if (plan_.triesOn) {
    threads_[i].timer = later(dice_.magnitude(millis(5), millis(100)), Do::Launch, i);
  } else {
    threads_[i].at = At::Over;
    exitSoon(millis(1), millis(100));
  }
}

}  // namespace qgpu::sim
