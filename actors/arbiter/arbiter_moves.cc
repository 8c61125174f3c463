// The moves of the arbiter: what follows from its state, once an event has been taken in.
#include <algorithm>

#include "actors/arbiter/arbiter.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::int64_t kSwitchCostFactor = 100;  // slices this long keep switching under 1 %
constexpr std::int64_t kSettleBoundFactor =
    10;  // no settling is waited for beyond this x settleMax
constexpr std::int64_t kVirtualMax = INT64_MAX / 4;

using NoteKind = ArbiterNote::Kind;

}  // namespace

// --- choosing ---

Arbiter::Task* Arbiter::find(TaskId id, std::uint32_t* slot) {
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  if (it == slots_.end()) return nullptr;
  if (slot != nullptr) *slot = it->second;
  return &tasks_[it->second];
}

// Under burst-share a task without a share lives on what the others leave.
std::uint32_t Arbiter::tierUnder(Policy policy, const Task& task) {
  return policy == Policy::BurstShare && task.spec.share == Permille(0) ? 1 : 0;
}

Permille Arbiter::weightUnder(Policy policy, const Task& task) {
  if (policy == Policy::BestEffort || task.spec.share == Permille(0)) return kWholeCard;
  return task.spec.share;
}

Nanos Arbiter::slice() const {
  const Nanos cost = switchCost_ + config_.resumeCost;
  return std::clamp(cost * kSwitchCostFactor, config_.sliceMin, config_.sliceMax);
}

// Fixed-share: may the task stay open at all?
bool Arbiter::hasRoom(const Task& task) const {
  if (config_.policy != Policy::FixedShare || task.spec.exclusive) return true;
  return task.spec.share > Permille(0) &&
         task.meter.room(config_.sliceMax, last_) >= config_.sliceMin;
}

void Arbiter::enqueue(std::uint32_t slot) {
  const Task& task = tasks_[slot];
  RunQueue::Entry entry;
  entry.slot = slot;
  entry.tier = tier(task);
  entry.virtualTime = task.meter.virtualTime();
  entry.id = static_cast<std::uint64_t>(task.spec.id);
  if (config_.policy == Policy::FixedShare) {
    // A full slice would leave a small share no time to wait before its credit is forgotten.
    const Nanos need = std::clamp(config_.sliceMax / 2, config_.sliceMin, slice());
    entry.readyAt = task.meter.readyAt(config_.sliceMax, need, last_);
  }
  queue_.insert(entry, last_);
}

// Virtual time of a tier follows its least wanting task and never runs back.
void Arbiter::advanceVirtual(std::uint32_t tierIndex) {
  std::int64_t least = INT64_MAX;
  const bool slicing = phase_ == Phase::Running || phase_ == Phase::Settling;
  if (slicing && tier(tasks_[holder_]) == tierIndex) {
    least = tasks_[holder_].meter.virtualTime();
  }
  const RunQueue::Entry* next = contender();
  if (next != nullptr && next->tier == tierIndex) least = std::min(least, next->virtualTime);
  if (least == INT64_MAX || least <= virtualNow_[tierIndex]) return;
  virtualNow_[tierIndex] = least;
  if (least > kVirtualMax) {
    pendingPolicy_ = pendingPolicy_.value_or(config_.policy);  // counts all virtual time anew
  }
}

// --- moves of the non-online side ---

// What follows from the state as it is at last_; every event ends here.
void Arbiter::decide(Decisions& out) {
  if (onlineDeadline() <= last_) endOnline(out);
  if (phase_ == Phase::Settling && last_ >= settleDeadline_) overrun(out);
  if (pendingPolicy_ && (phase_ == Phase::Free || phase_ == Phase::Parked)) applyPolicy();
  if (onlineActive_ && !QGPU_PLANTED(GrantWhileOnline)) return refreshDeadline();
  if (phase_ == Phase::Running) judge(out);
  if (phase_ == Phase::Parked) {
    Task& holder = tasks_[holder_];
    if (contender() != nullptr || !hasRoom(holder)) {
      hold(Nanos(0), out);
    } else if (!holder.notify) {
      open(holder, true, holder.contended, out);
    }
  }
  if (phase_ == Phase::Free) grant(out);
  if (phase_ == Phase::Running || phase_ == Phase::Parked) {
    Task& holder = tasks_[holder_];
    if (contended() && !holder.contended) open(holder, holder.notify, true, out);
  }
  refreshDeadline();
}

// The running slice: does it end, pass on, or go on?
void Arbiter::judge(Decisions& out) {
  Task& holder = tasks_[holder_];
  if (lingerEnd_ <= last_) return park(out);
  const bool over = last_ >= sliceEnd_;
  if (over && pendingPolicy_) applyPolicy();
  if (last_ >= capAt_) return hold(config_.patience, out);
  const RunQueue::Entry* other = contender();
  if (other != nullptr && yields(holder, *other)) {
    // Who woke waits for short work alone, and who owns the card for none.
    const bool woke = wokeInSlice(tasks_[other->slot]);
    const Nanos patience = std::min(config_.patience, woke ? config_.sliceMin : config_.patience);
    return hold(other->tier == tier(holder) ? patience : Nanos(0), out);
  }
  if (!over) return;
  // A slice that nobody contests just goes on, and gives way as soon as somebody may.
  if (other != nullptr) measureSlice();
  if (holder.contended && !contended()) open(holder, holder.notify, false, out);
}

bool Arbiter::yields(const Task& holder, const RunQueue::Entry& other) const {
  if (other.tier != tier(holder)) return other.tier < tier(holder);
  const std::int64_t own = holder.meter.virtualTime();
  if (last_ >= sliceEnd_) return other.virtualTime <= own;
  return wokeInSlice(tasks_[other.slot]) && last_ >= sliceStart_ + config_.sliceMin &&
         other.virtualTime < own;
}

void Arbiter::grant(Decisions& out) {
  const RunQueue::Entry* next = contender();
  // Who still runs beyond its last slice is charged for it before it is chosen.
  while (next != nullptr && tasks_[next->slot].late && tasks_[next->slot].lateSince < last_) {
    chargeLate(next->slot);
    next = contender();
  }
  if (next == nullptr) return;
  advanceVirtual(next->tier);
  holder_ = next->slot;
  queue_.erase(holder_);
  tasks_[holder_].late = false;
  tasks_[holder_].meter.endHeld(last_);
  workFrom_ = last_ + config_.resumeCost;
  beginSlice(out);
}

void Arbiter::beginSlice(Decisions& out) {
  Task& task = tasks_[holder_];
  phase_ = Phase::Running;
  lingerEnd_ = kNever;
  measureSlice();
  ++task.turns;
  // Online that was active to its end leaves a whole card's gate as it was, without a ring.
  if (!task.open || task.notify) open(task, false, contended(), out);
  out.note(NoteKind::Running, task.spec.id);
}

void Arbiter::measureSlice() {
  const Task& task = tasks_[holder_];
  ++sliceNumber_;
  sliceStart_ = last_;
  sliceEnd_ = last_ + slice();
  capAt_ = kNever;
  if (config_.policy != Policy::FixedShare || task.spec.exclusive) return;
  const Nanos room = task.meter.room(config_.sliceMax, last_);
  if (task.spec.share == Permille(0))
    capAt_ = last_;
  else if (room != kNever)
    capAt_ = last_ + room;
}

// The holder wants nothing and its linger is over; whether its gate stays open is decided next.
void Arbiter::park(Decisions& out) {
  advanceVirtual(tier(tasks_[holder_]));
  phase_ = Phase::Parked;
  lingerEnd_ = kNever;
  out.note(NoteKind::Idle, tasks_[holder_].spec.id);
  if (pendingPolicy_) applyPolicy();
}

void Arbiter::hold(Nanos patience, Decisions& out) {
  Task& task = tasks_[holder_];
  shut(task, patience, out);
  const Nanos ran = phase_ == Phase::Running ? last_ - sliceStart_ : Nanos(0);
  out.note(NoteKind::Suspending, task.spec.id, ran);
  if (task.wants) task.meter.beginHeld(last_);
  phase_ = Phase::Settling;
  lingerEnd_ = kNever;
  holdAt_ = last_;
  workFrom_ = std::min(workFrom_, last_);
  stopAt_ = last_ + patience;
  holdEpoch_ = out.gates.back().epoch;
  const Nanos bound = std::max(config_.settleMax, task.longestSettle * config_.settleFactor);
  settleDeadline_ = last_ + std::min(bound, config_.settleMax * kSettleBoundFactor);
  if (QGPU_PLANTED(SettleTimerSkipped)) settleDeadline_ = kNever;
}

// The slice is over and nothing of the holder runs any more.
void Arbiter::finish(Decisions& out) {
  const std::uint32_t slot = holder_;
  const Task& task = tasks_[slot];
  advanceVirtual(tier(task));
  phase_ = Phase::Free;
  holder_ = kNone;
  lingerEnd_ = kNever;
  if (pendingPolicy_) applyPolicy();
  if (task.wants) enqueue(slot);
  out.note(task.wants ? NoteKind::Suspended : NoteKind::Idle, task.spec.id, last_ - holdAt_);
}

// It costs itself, not the card (HAZARDS 4): the card goes on and its debt grows until it settles.
void Arbiter::overrun(Decisions& out) {
  Task& task = tasks_[holder_];
  task.quarantined = true;
  task.late = true;
  task.lateEpoch = holdEpoch_;
  task.lateSince = last_;
  ++overruns_;
  QGPU_MARK(Overrun);
  out.note(NoteKind::Overrun, task.spec.id, last_ - holdAt_);
  advanceVirtual(tier(task));
  phase_ = Phase::Free;
  if (QGPU_PLANTED(QuarantineGranted) && task.wants) enqueue(holder_);
  holder_ = kNone;
  if (pendingPolicy_) applyPolicy();
}

// The task has no process any more: it holds nothing, wants nothing and owes nothing further.
void Arbiter::drop(std::uint32_t slot, Decisions& out) {
  Task& task = tasks_[slot];
  const bool online = task.spec.taskClass == TaskClass::Online;
  endLate(slot);
  if (task.wants) {
    if (online) --onlineWanting_;
    if (online) lastOnline_ = last_;
    advanceVirtual(tier(task));
    queue_.erase(slot);
    task.wants = false;
    task.quietSince = last_;
    task.meter.endHeld(last_);
    if (slot != holder_) out.note(NoteKind::Idle, task.spec.id);
  }
  release(slot, out);
  if (slot != holder_) return;
  if (task.spec.exclusive) {
    if (phase_ == Phase::Running) park(out);
    return;
  }
  if (task.open) {  // nothing is left to settle: this hold ends with the death
    holdAt_ = last_;
    shut(task, Nanos(0), out);
  }
  finish(out);
}

// Charges what still runs of an overrun, up to now. It goes on until the late hold settles or the
// task has a slice again.
void Arbiter::chargeLate(std::uint32_t slot) {
  Task& task = tasks_[slot];
  if (!task.late || task.lateSince >= last_) return;
  if (!QGPU_PLANTED(DebtForgotten)) task.meter.chargeDebt(last_ - task.lateSince, last_);
  task.lateSince = last_;
  if (!queue_.contains(slot)) return;
  queue_.erase(slot);
  enqueue(slot);
}

void Arbiter::endLate(std::uint32_t slot) {
  chargeLate(slot);
  tasks_[slot].late = false;
}

void Arbiter::release(std::uint32_t slot, Decisions& out) {
  Task& task = tasks_[slot];
  if (!task.quarantined) return;
  QGPU_MARK(QuarantineOver);
  chargeLate(slot);
  task.quarantined = false;
  out.note(NoteKind::QuarantineOver, task.spec.id);
  if (task.wants) enqueue(slot);
}

// --- online, orders, the rest ---

void Arbiter::onlineBusy(Task& task, Nanos since, Decisions& out) {
  lastOnline_ = std::max(lastOnline_, since);
  const bool first = !onlineActive_;
  onlineActive_ = true;
  if (phase_ == Phase::Running) QGPU_MARK(OnlineHoldsRunning);
  if (phase_ == Phase::Parked) QGPU_MARK(OnlineHoldsParked);
  if (phase_ == Phase::Settling) QGPU_MARK(OnlineWhileSettling);
  const bool parked = phase_ == Phase::Parked && !QGPU_PLANTED(ParkedHolderNotHeld);
  if (phase_ == Phase::Settling && last_ < stopAt_) {
    QGPU_MARK(OnlineHastens);
    stopAt_ = last_;
    out.gates.push_back({GateDecision::Kind::Hasten, tasks_[holder_].spec.id, holdEpoch_});
  }
  if (phase_ == Phase::Running || parked) hold(Nanos(0), out);
  if (task.notify) open(task, false, false, out);
  if (first) out.note(NoteKind::OnlineActive, task.spec.id);
}

// The gates of online tasks ring again before anybody else is let in.
void Arbiter::endOnline(Decisions& out) {
  onlineActive_ = false;
  for (Task& task : tasks_) {
    const bool online = task.present && task.spec.taskClass == TaskClass::Online;
    if (online && !task.notify) open(task, true, false, out);
  }
  out.note(NoteKind::OnlineIdle, TaskId::kNone);
}

void Arbiter::open(Task& task, bool notify, bool contended, Decisions& out) {
  task.open = true;
  task.notify = notify;
  task.contended = contended;
  GateDecision order{GateDecision::Kind::Open, task.spec.id, takeEpoch()};
  order.notify = notify;
  order.contended = contended;
  out.gates.push_back(order);
}

void Arbiter::shut(Task& task, Nanos patience, Decisions& out) {
  task.open = false;
  ++holds_;
  GateDecision order{GateDecision::Kind::Hold, task.spec.id, takeEpoch()};
  order.patience = patience;
  out.gates.push_back(order);
}

// Who is ahead of its share stays ahead by as much card time, counted with the new weights.
void Arbiter::applyPolicy() {
  // What is late ran under the old policy up to here: charged later, all of it would count as a
  // debt of the new one.
  for (std::uint32_t slot = 0; slot < tasks_.size(); ++slot) {
    if (tasks_[slot].present) chargeLate(slot);
  }
  advanceVirtual(0);  // a holder that nobody contests may have run for long since the last time
  advanceVirtual(1);
  const Policy old = config_.policy;
  const Policy next = *pendingPolicy_;
  if (phase_ == Phase::Running) QGPU_MARK(PolicyDuringSlice);
  pendingPolicy_.reset();
  config_.policy = next;
  for (Task& task : tasks_) {
    if (!task.present) continue;
    task.meter.reweigh(virtualNow_[tierUnder(old, task)], weightUnder(next, task));
    task.meter.raiseVirtualTime(-config_.sliceMax.value);
    if (next == Policy::FixedShare && old != next) task.meter.limitLevel(config_.sliceMax, last_);
  }
  virtualNow_[0] = virtualNow_[1] = 0;
  for (const RunQueue::Entry& entry : queue_.takeAll()) enqueue(entry.slot);
  if (phase_ == Phase::Running) measureSlice();
}

void Arbiter::refreshDeadline() {
  deadline_ = onlineDeadline();
  if (phase_ == Phase::Settling) deadline_ = std::min(deadline_, settleDeadline_);
  if (onlineActive_) return;
  const RunQueue::Entry* other = contender();
  if (phase_ == Phase::Free || phase_ == Phase::Parked) {
    deadline_ = std::min(deadline_, queue_.nextReady());
  } else if (phase_ == Phase::Running) {
    deadline_ = std::min({deadline_, lingerEnd_, capAt_});
    const bool lowers = tasks_[holder_].contended && !contended();
    if (other != nullptr || pendingPolicy_ || lowers) deadline_ = std::min(deadline_, sliceEnd_);
    deadline_ = std::min(deadline_, std::max(queue_.nextReady(), sliceEnd_));
    const Nanos least = sliceStart_ + config_.sliceMin;
    const bool woke = other != nullptr && wokeInSlice(tasks_[other->slot]);
    if (woke && last_ < least) deadline_ = std::min(deadline_, least);
  }
}

std::uint32_t Arbiter::takeEpoch() {
  const std::uint32_t epoch = nextEpoch_;
  if (!QGPU_PLANTED(EpochNotGrowing) || epoch % 8 != 0) ++nextEpoch_;
  if (nextEpoch_ == 0) nextEpoch_ = 1;
  return epoch;
}

}  // namespace qgpu
