// Kernels, their retirement, and driver threads that are frozen, as opencl/retirement.cc and
// gate/{reaper,freeze}.cc of services/guest have them.
#include <algorithm>
#include <set>
#include <utility>

#include "tests/sim/guests/guest_program.h"

namespace qgpu::sim {
namespace {

constexpr std::uint32_t kFastMask = QGPU_GATE_OPEN | QGPU_GATE_NOTIFY | QGPU_GATE_CONTENDED;
constexpr Nanos kFastTick = micros(350);  // of the reaper, where somebody else wants the card
constexpr Nanos kSlowTick = millis(2);
constexpr Nanos kIdleRingEvery = millis(1);
constexpr Nanos kFrozenWait = millis(100);
constexpr std::int64_t kContextMost = 24;  // channels

}  // namespace

// --- the driver: one kernel after the other ---

// Brings the kernel that is next to the head: a channel runs its own in order, whatever others do.
// False: none can go on now. One that waits for the host is next only where nothing else is.
bool Program::choose() {
  std::uint32_t next = queued_;
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < queued_; i++) {
    if (isOff(kernel(i)) || !seen.insert(kernel(i).channel).second) continue;
    if (next == queued_ || kernel(next).blocked) next = i;
    if (!kernel(next).blocked) break;
  }
  if (next == queued_) return false;
  for (; next != 0; next--) std::swap(kernel(next), kernel(next - 1));
  return true;
}

bool Program::isLeftOff() const {
  if ((gateWord() & QGPU_GATE_OPEN) == 0) return false;
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < queued_; i++) {
    const Kernel& each = kernels_[(first_ + i) % kKernelsMax];
    if (seen.insert(each.channel).second && !each.blocked && isOff(each)) return true;
  }
  return false;
}

void Program::runNext() {
  if (running_ || queued_ == 0 || allFrozen() || !choose()) return;
  Kernel& head = kernel(0);
  if (head.blocked) {
    later(dice_.between(millis(1), millis(6)), Do::Parked);
    return;
  }
  running_ = true;
  ranFrom_ = now();
  tell(head.started ? GuestNews::Kind::Thawed : GuestNews::Kind::Started);
  head.started = true;
  if (!(active_ && plan_.vice == Vice::Silent && plan_.hangs)) {
    kernelTimer_ = later(head.left, Do::KernelEnd);
  }
}

void Program::kernelEnd() {
  const Kernel done = kernel(0);
  kernelTimer_ = 0;
  running_ = false;
  first_++;
  queued_--;
  home_.kernels_++;
  if (done.counted) {
    finished_++;
    finishedCost_ += done.cost;
    finishedNs_ += done.length.value;
  }
  estimate_ = done.length;
  tell(GuestNews::Kind::Retired);
  Thread& thread = threads_[done.thread];
  thread.inFlight--;
  const bool burstOver = thread.left == 0 || launchesLeft_ == 0;
  if (thread.at == At::Sync && (!burstOver || thread.inFlight == 0)) {
    thread.at = At::Rest;
    thread.timer = later(dice_.between(micros(1), micros(30)), Do::Synced, done.thread);
  } else {
    reapSoon();
  }
  runNext();
}

bool Program::allFrozen() const {
  if (plan_.drivers == 0) return false;
  return std::all_of(drivers_.begin(), drivers_.begin() + plan_.drivers,
                     [](const Driver& driver) { return driver.is == Freezing::Frozen; });
}

void Program::stopKernel() {
  if (!std::exchange(running_, false)) return;
  home_.host_.cancel(Scope::World, std::exchange(kernelTimer_, 0));
  Kernel& head = kernel(0);
  head.left = std::max(Nanos(0), head.left - (now() - ranFrom_));
}

void Program::unblock(std::uint32_t thread) {
  bool any = false;
  for (std::uint32_t i = 0; i < queued_; i++) {
    Kernel& waiting = kernel(i);
    any = any || (waiting.blocked && waiting.thread == thread);
    if (waiting.thread == thread) waiting.blocked = false;
  }
  if (!any) return;
  later(dice_.between(micros(350), millis(2)), Do::Parked);
  runNext();
}

// --- channels ---

// What the driver put back by itself may run.
bool Program::stands() const {
  if (!undone_.empty()) return false;
  for (std::uint32_t i = 0; i < queued_; i++) {
    if (!isOff(kernels_[(first_ + i) % kKernelsMax])) return false;
  }
  return queued_ != 0;
}

void Program::setChannel(std::uint32_t name, bool off) {
  undone_.erase(name);
  if (!hasChannel(name)) return;
  int& times = channels_.at(name);
  const bool was = times != 0;
  times = off ? times + 1 : std::max(times - 1, 0);
  if (was == (times != 0)) return;
  if (off && running_ && kernel(0).channel == name) stopKernel();
  runNext();
  if (off && stands()) tell(GuestNews::Kind::Frozen);
}

void Program::undoChannel(std::uint32_t name) {
  if (!hasChannel(name) || channels_.at(name) == 0) return;
  tell(GuestNews::Kind::Undone);
  channels_.at(name) = 1;
  setChannel(name, false);
  undone_.insert(name);
}

suspend::Channel Program::channelOf(std::uint32_t name) const {
  const std::uint32_t engine = name > plan_.channels && name % 2 == 0 ? 9 : 1;  // copies, too
  return {clientOf(pid_), name, kGroup, engine, pid_, 1};
}

std::vector<suspend::Channel> Program::channels() const {
  std::vector<suspend::Channel> list;
  for (const auto& [name, times] : channels_) list.push_back(channelOf(name));
  return list;
}

// Of one whose manager is lost.
void Program::putChannelsOn() {
  bool any = false;
  for (auto& [name, times] : channels_) any = std::exchange(times, 0) != 0 || any;
  undone_.clear();
  if (any) runNext();
}

// A context that it makes at once, and whose channels end one after the other.
void Program::context() {
  const bool makes = context_.empty();
  if (makes && home_.resting_) return;
  const std::int64_t count = makes ? dice_.between(1, kContextMost) : 1;
  for (std::int64_t i = 0; i < count; i++) makes ? makeChannel() : endChannel();
  const bool ending = !makes && !context_.empty();
  later(ending ? dice_.magnitude(micros(5), micros(500)) : plan_.contextEvery, Do::Context);
}

void Program::makeChannel() {
  channels_[++lastChannel_] = 0;
  context_.push_back(lastChannel_);
  if (connected_) home_.attach_->channelMade(channelOf(lastChannel_));
}

void Program::endChannel() {
  const std::uint32_t ended = context_.back();
  context_.pop_back();
  channels_.erase(ended);
  undone_.erase(ended);
  if (connected_) home_.attach_->channelEnded(pid_, ended);
}

// --- freezing ---

void Program::signalled(std::uint32_t tid) {
  const std::uint32_t i = tid - pid_ - 1;
  if (over() || i >= plan_.drivers) return;
  Driver& driver = drivers_[i];
  if (driver.is != Freezing::Runs) {
    driver.again = true;  // it is masked in the handler
    return;
  }
  driver.is = Freezing::Signalled;
  const Nanos latency = dice_.percent(98) ? dice_.magnitude(micros(5), micros(300))
                                          : dice_.magnitude(micros(300), millis(5));
  driver.timer = later(latency, Do::Freeze, i);
}

bool Program::mustStop(std::uint32_t gate) const {
  return (gate & QGPU_GATE_FROZEN) != 0 && (gate & QGPU_GATE_OPEN) == 0 && !orphan_ &&
         !managerLost();
}

// In the signal's handler.
void Program::freeze(std::uint32_t i) {
  Driver& driver = drivers_[i];
  driver.is = Freezing::Runs;
  if (state_ != State::Attached || !obeys() || !mustStop(gateWord())) return;
  driver.is = Freezing::Frozen;
  const std::uint32_t stopped = add(slot().frozen, 1) + 1;
  store(slot().frozen_ns, ns(now()));
  if (allFrozen()) {
    stopKernel();
    if (queued_ != 0) tell(GuestNews::Kind::Frozen);
  }
  if (stopped == load(slot().driver_threads)) ring();
  frozenLooks(i);
}

void Program::frozenLooks(std::uint32_t i) {
  Driver& driver = drivers_[i];
  gate_->forget(*this, kFirstDriver + i);
  if (mustStop(gateWord())) {
    gate_->waiters.push_back({this, kFirstDriver + i});
    driver.timer = later(kFrozenWait, Do::Frozen, i);
    return;
  }
  subtract(slot().frozen, 1);
  driver.is = Freezing::Runs;
  gate_->wake(1);
  runNext();
  if (std::exchange(driver.again, false)) signalled(pid_ + 1 + i);
}

// --- retirement ---

// The reaper's next look.
void Program::reapSoon() {
  if (reapComes_ || finished_ == 0) return;
  reapComes_ = true;
  const bool alone = !online_ && (gateWord() & kFastMask) == QGPU_GATE_OPEN;
  later(dice_.between(micros(1), alone ? kSlowTick : kFastTick), Do::Reap);
}

void Program::reap() {
  if (finished_ == 0) return;
  qgpu_slot& s = slot();
  add(s.launches, finished_);
  if (plan_.profiling) add(s.gpu_ns, finishedNs_);
  finishedNs_ = 0;
  retire(std::exchange(finished_, 0), std::exchange(finishedCost_, 0));
}

void Program::retire(std::uint64_t count, std::uint64_t cost) {
  qgpu_slot& s = slot();
  const std::uint64_t retired = add(s.retired, count) + count;
  store(s.last_retire_ns, ns(now()));
  if (cost != 0) subtract(s.window_used_ns, cost);
  const std::uint32_t gate = gateWord();
  if ((gate & kFastMask) != QGPU_GATE_OPEN && !online_ && load(s.admitted) == retired) {
    if ((gate & QGPU_GATE_OPEN) == 0) {
      ring();  // settled: the manager waits for exactly this
    } else if ((gate & QGPU_GATE_CONTENDED) != 0) {
      idleUntold_ = now() - idleRungAt_ < kIdleRingEvery;
      if (idleUntold_) {
        later(kIdleRingEvery + dice_.between(Nanos(0), kFastTick), Do::TellIdle);
      } else {
        idleRungAt_ = now();
        ring();
      }
    }
  }
  for (std::uint32_t i = 0; i < plan_.threads; i++) {
    Thread& thread = threads_[i];
    if (thread.at != At::Window) continue;
    home_.host_.cancel(Scope::World, thread.timer);
    thread.timer = later(dice_.between(micros(1), micros(60)), Do::Wait, i);
    thread.at = At::Launching;
  }
}

void Program::tellIdle() {
  if (!idleUntold_ || load(slot().admitted) != load(slot().retired)) return;
  idleUntold_ = false;
  idleRungAt_ = now();
  ring();
}

}  // namespace qgpu::sim
