#include "services/guest/gate/gate.h"

namespace qgpu::guest {

std::atomic<std::uint32_t> windowWaiters{0};

namespace {

constexpr std::uint64_t kGateWaitNs = 100 * kNsPerMs;  // a wake that got lost costs this much
constexpr std::uint64_t kIdleRingEveryNs = kNsPerMs;   // under 1,000 rings a second (HAZARDS 1)
constexpr std::uint64_t kWindowStuckNs = 10 * kNsPerMs;
constexpr std::uint64_t kWindowTickMinNs = 100 * kNsPerUs;
constexpr std::uint64_t kWindowTickMaxNs = 500 * kNsPerUs;
constexpr int kWindowTries = 3;
constexpr std::uint64_t kNever = ~0ull;

std::atomic<std::uint64_t> notifiedFor{kNever};  // the gate word that was answered by a ring
std::atomic<std::uint64_t> idleRungNs{0};
std::atomic<bool> idleUntold{false};
std::uint32_t windowSeq = 0;  // futex: bumped at retirements while somebody waits at the window

bool passes(std::uint32_t gate) {
  return (gate & QGPU_GATE_OPEN) || session.online || session.orphan.load();
}

bool windowApplies(std::uint32_t gate) {
  return (gate & QGPU_GATE_CONTENDED) && !session.online && !session.orphan.load() &&
         loadRelaxed(session.gate->window_ns) != 0;
}

void takeBack() {
  shared(session.slot->admitted).fetch_sub(1);
}

void notifyIfAsked(std::uint32_t gate, std::uint64_t entryNs) {
  storeRelaxed(session.slot->last_submit_ns, entryNs);
  if (!(gate & QGPU_GATE_NOTIFY)) return;
  std::uint64_t seen = notifiedFor.load();
  if (seen != gate && notifiedFor.compare_exchange_strong(seen, gate)) ringDoorbell();
}

struct TaskSums {
  std::uint64_t windowNs = 0;
  std::uint64_t retired = 0;
};

// Over all processes of the task: the window is the task's, not the process's.
TaskSums sumSlots() {
  TaskSums sums;
  for (const qgpu_slot& slot : session.report->slot) {
    sums.windowNs += loadShared(slot.window_used_ns);
    sums.retired += loadRelaxed(slot.retired);
  }
  return sums;
}

// What an estimate occupies: the unknown fills the window by itself.
std::uint64_t windowCost(std::uint64_t estimateNs) {
  std::uint64_t window = loadRelaxed(session.gate->window_ns);
  return estimateNs > window ? window + 1 : estimateNs + 1;
}

// Adds first and looks at the sum afterwards, as the memory quota does, so that racing processes
// never overshoot together. Alone in the window anything fits.
bool takeWindow(std::uint64_t cost) {
  auto own = shared(session.slot->window_used_ns);
  for (int i = 0; i < kWindowTries; ++i) {
    own.fetch_add(cost);
    std::uint64_t sum = sumSlots().windowNs;
    if (sum <= loadRelaxed(session.gate->window_ns) || sum == cost) return true;
    own.fetch_sub(cost);
  }
  return false;
}

// A wait at the window that saw no retirement for max(10 ms, 4x what is in flight) is over: what
// is in flight may itself wait for the launch that is held here (HAZARDS 3).
class WindowPatience {
 public:
  bool over() {
    TaskSums sums = sumSlots();
    std::uint64_t now = nowNs();
    if (since_ == 0 || sums.retired != retired_) {
      since_ = now;
      retired_ = sums.retired;
    }
    std::uint64_t limit = 4 * sums.windowNs;
    return now - since_ > (limit < kWindowStuckNs ? kWindowStuckNs : limit);
  }

 private:
  std::uint64_t since_ = 0;
  std::uint64_t retired_ = 0;
};

void waitAtWindow() {
  std::uint64_t tick = loadRelaxed(session.gate->window_ns) / 8;
  if (tick < kWindowTickMinNs) tick = kWindowTickMinNs;
  if (tick > kWindowTickMaxNs) tick = kWindowTickMaxNs;
  windowWaiters.fetch_add(1);
  std::uint32_t seq = loadShared(windowSeq);
  if (session.pollRetirement) session.pollRetirement();
  futexWait(&windowSeq, seq, tick);
  windowWaiters.fetch_sub(1);
}

// One launch that could not pass at once: waits for gate and window, then passes. `waiting` was
// raised before, and the gate is loaded after that: the manager, which shuts the gate and then
// reads `waiting`, either meets this launch there or is rung here. `told`: it was rung for the shut
// gate since `waiting` was raised.
Pass waitAndAdmit(std::uint64_t estimateNs, bool told) {
  qgpu_slot& slot = *session.slot;
  WindowPatience patience;
  bool waitedAtGate = false;
  bool force = false;
  for (;;) {
    std::uint32_t gate = loadShared(session.gate->gate);
    if (loadRelaxed(session.gate->closed)) {
      if (waitedAtGate) futexWake(&session.gate->gate, 1);  // the others learn it at once as well
      return {};
    }
    if (!passes(gate)) {
      if (!waitedAtGate && session.nudgeReaper) session.nudgeReaper();
      waitedAtGate = true;
      if (!told) ringDoorbell();
      told = true;
      futexWait(&session.gate->gate, gate, kGateWaitNs);
      continue;
    }
    told = false;
    std::uint64_t cost = windowApplies(gate) ? windowCost(estimateNs) : 0;
    if (cost && force) {
      shared(slot.window_used_ns).fetch_add(cost);
    } else if (cost && !takeWindow(cost)) {
      force = patience.over();
      if (!force) waitAtWindow();
      continue;
    }
    shared(slot.admitted).fetch_add(1);
    std::uint32_t now = loadShared(session.gate->gate);
    if (passes(now)) {
      notifyIfAsked(now, nowNs());
      // The manager woke one waiter; each that passes wakes the next (HAZARDS 15).
      if (waitedAtGate) futexWake(&session.gate->gate, 1);
      return {true, cost};
    }
    takeBack();
    if (cost) shared(slot.window_used_ns).fetch_sub(cost);
    ringDoorbell();  // the manager may have met this launch in flight for a moment
    told = true;
  }
}

}  // namespace

Pass admitSlow(std::uint32_t gate, std::uint64_t estimateNs, MayBlock mayBlock) {
  const std::uint64_t entry = nowNs();
  qgpu_slot& slot = *session.slot;
  if (loadRelaxed(session.gate->closed)) {
    takeBack();
    return {};
  }
  if (mayBlock == MayBlock::kNo || (passes(gate) && !windowApplies(gate))) {
    notifyIfAsked(gate, entry);
    return {true, 0};
  }
  takeBack();
  storeRelaxed(slot.last_submit_ns, entry);
  shared(slot.waiting).fetch_add(1);
  const bool told = !passes(gate);
  if (told) ringDoorbell();
  Pass pass = waitAndAdmit(estimateNs, told);
  if (session.slot == &slot) shared(slot.waiting).fetch_sub(1);
  return pass;
}

void retireSlow(std::uint64_t retired, std::uint32_t gate, std::uint64_t now) {
  qgpu_slot& slot = *session.slot;
  if (session.online || loadShared(slot.admitted) != retired) return;
  if (!(gate & QGPU_GATE_OPEN)) {
    ringDoorbell();  // settled: the manager waits for exactly this
  } else if (gate & QGPU_GATE_CONTENDED) {
    std::uint64_t last = idleRungNs.load();
    bool mine = now - last >= kIdleRingEveryNs && idleRungNs.compare_exchange_strong(last, now);
    idleUntold.store(!mine);
    if (mine) ringDoorbell();
  }
}

void ringIfIdleIsUntold() {
  if (!idleUntold.load()) return;
  qgpu_slot& slot = *session.slot;
  if (loadShared(slot.admitted) != loadShared(slot.retired)) return;
  if (nowNs() - idleRungNs.load() < kIdleRingEveryNs || !idleUntold.exchange(false)) return;
  idleRungNs.store(nowNs());
  ringDoorbell();
}

void wakeWindowWaiters() {
  shared(windowSeq).fetch_add(1);
  futexWake(&windowSeq, INT32_MAX);
}

void forgetRings() {
  notifiedFor.store(kNever);
  idleRungNs.store(0);
  idleUntold.store(false);
}

void forgetGateInChild() {
  windowWaiters.store(0);
  forgetRings();
}

}  // namespace qgpu::guest
