#include "actors/arbiter/arbiter.h"

#include <algorithm>

#include "actors/policies.h"
#include "runtime/check.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr Nanos kTimeMax = kNever / 2;  // later "now"s are read as this

using NoteKind = ArbiterNote::Kind;

constexpr std::int64_t kSwitchCostFactor = 100;  // slices this long keep switching under 1 %
constexpr std::int64_t kSettleBoundFactor =
    10;  // no settling is waited for beyond this x settleMax
constexpr std::int64_t kVirtualMax = INT64_MAX / 4;
// From an opened gate until a program that waits there works with all of the driver's threads, as
// the work that is missing from slices of 4, 8, 15 and 30 ms says: some 450 us on PoCL with two
// threads. bench_work_share shows what is lost of a share.
constexpr Nanos kResumeCost = micros(450);
// Of settleMax, so much may the tail of what a program launched take to end: frameworks keep some
// hundred launches in flight.
constexpr std::int64_t kDrainFactor = 8;

}  // namespace

ArbiterConfig whereHoldsStopWork(ArbiterConfig config) {
  config.patience = std::min(config.sliceMax / 2, config.settleMax / 4);
  config.resumeCost = std::min(kResumeCost, config.sliceMin / 4);
  config.drainFor = config.settleMax * kDrainFactor;
  return config;
}

Arbiter::Arbiter(ArbiterConfig config, Nanos now, std::uint32_t firstEpoch)
    : config_(config), last_(std::clamp(now, Nanos(0), kTimeMax)), nextEpoch_(firstEpoch) {
  QGPU_CHECK(config.sliceMin > Nanos(0) && config.sliceMin <= config.sliceMax,
             "the configuration is checked where it is read");
  QGPU_CHECK(config.patience <= config.settleMax, "nothing is late before it is stopped");
}

// --- who is here ---

void Arbiter::join(const ArbiterTask& spec, Nanos now, Decisions& out) {
  tick(now);
  if (spec.id == TaskId::kNone || find(spec.id) != nullptr) return;
  QGPU_CHECK(slots_.size() < kTasksMax, "admission bounds the tasks of a card");
  QGPU_CHECK(slots_.empty() || !spec.exclusive, "admission keeps whole cards to one task");
  QGPU_CHECK(holder_ == kNone || !tasks_[holder_].spec.exclusive, "nobody joins a whole card");
  std::uint32_t slot = static_cast<std::uint32_t>(tasks_.size());
  if (vacant_.empty()) {
    tasks_.emplace_back();
  } else {
    slot = vacant_.back();
    vacant_.pop_back();
  }
  slots_.emplace(static_cast<std::uint64_t>(spec.id), slot);
  Task& task = tasks_[slot];
  task = Task{};
  task.spec = spec;
  task.spec.share = std::clamp(spec.share, Permille(0), kWholeCard);
  task.present = true;
  task.meter = ShareMeter(task.spec.share, weightUnder(config_.policy, task), last_);
  task.meter.raiseVirtualTime(virtualNow_[tier(task)]);
  if (spec.taskClass == TaskClass::Online) {
    ++onlineTasks_;
    open(task, true, false, out);
  } else if (spec.exclusive) {
    phase_ = Phase::Parked;
    holder_ = slot;
    open(task, true, false, out);
  }
  decide(out);
}

void Arbiter::leave(TaskId id, Nanos now, Decisions& out) {
  tick(now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return;
  drop(slot, out);
  if (task->spec.taskClass == TaskClass::Online) --onlineTasks_;
  if (slot == holder_) {  // a whole card's gate stays open until its task goes
    shut(*task, Nanos(0), out);
    holder_ = kNone;
    phase_ = Phase::Free;
  }
  slots_.erase(static_cast<std::uint64_t>(id));
  askDrain(*task, false);
  task->present = false;
  vacant_.push_back(slot);
  decide(out);
}

void Arbiter::setPolicy(Policy policy, Nanos now, Decisions& out) {
  tick(now);
  pendingPolicy_ = policy;
  decide(out);
}

// --- what gates report ---

void Arbiter::busy(TaskId id, Nanos since, Nanos now, Decisions& out) {
  now = clamp(now);
  since = std::clamp(since, Nanos(0), now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return tick(now);
  // What the holder left idle ends when its work came, not when it was noticed.
  tick(slot == holder_ && !task->wants ? std::max(since, last_) : now);
  const bool woke = !task->wants;
  if (woke) {
    task->wants = true;
    const Nanos gap =
        task->quietSince == kNever ? kNever : std::max(since - task->quietSince, Nanos(0));
    if (gap != kNever) task->meter.noteGap(gap);
    // Who was only between two pieces of work when its slice ended waits for its turn.
    task->wokeIn = gap > config_.lingerMax ? sliceNumber_ : Task::kDidNotWake;
  }
  if (task->spec.taskClass == TaskClass::Online) {
    if (woke) ++onlineWanting_;
    onlineBusy(*task, since, out);
    if (woke) out.note(NoteKind::Running, id);
  } else if (slot == holder_) {
    lingerEnd_ = kNever;
    if (phase_ == Phase::Parked) {
      workFrom_ = last_;
      beginSlice(out);
    }
    if (phase_ == Phase::Settling) task->meter.beginHeld(last_);
    tick(now);
  } else if (woke) {
    task->meter.beginHeld(last_);
    const std::uint32_t index = tier(*task);
    advanceVirtual(index);
    task->meter.raiseVirtualTime(virtualNow_[index] - config_.sliceMax.value);
    if (!task->quarantined) enqueue(slot);
    out.note(NoteKind::Ready, id);
  }
  decide(out);
}

void Arbiter::quiet(TaskId id, Nanos since, Nanos now, Decisions& out) {
  now = clamp(now);
  since = std::clamp(since, Nanos(0), now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return tick(now);
  if (task->wants && slot == holder_ && phase_ == Phase::Running) {
    const Nanos gap = std::min(task->meter.usualGap(), config_.lingerMax);
    lingerEnd_ = since + std::min(config_.lingerMax, gap * 2);
  }
  const bool online = task->spec.taskClass == TaskClass::Online;
  if (online && task->wants) --onlineWanting_;
  if (online && onlineActive_ && !QGPU_PLANTED(OnlineIdleFromSubmit)) {
    lastOnline_ = std::max(lastOnline_, since);
  }
  tick(now);
  if (task->wants) {
    task->wants = false;
    task->quietSince = since;
    task->meter.endHeld(last_);
    advanceVirtual(tier(*task));
    queue_.erase(slot);
    const bool slicing = slot == holder_ && phase_ != Phase::Free;
    if (!slicing) out.note(NoteKind::Idle, id);
  }
  decide(out);
}

void Arbiter::settled(TaskId id, std::uint32_t epoch, Nanos at, Nanos now, Decisions& out) {
  now = clamp(now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return tick(now);
  if (slot == holder_ && phase_ == Phase::Settling && epoch == holdEpoch_) {
    tick(std::clamp(at, last_, now));
    if (!draining_) task->longestSettle = std::max(task->longestSettle, last_ - holdAt_);
    // Until its patience was over the hold cost nothing: the work went on.
    const Nanos stopping = std::max(last_ - std::max(stopAt_, holdAt_), Nanos(0));
    switchCost_ += (now - last_ + stopping - switchCost_) / 8;
    finish(out);
  } else if (task->late && epoch == task->lateEpoch) {
    QGPU_MARK(LateHoldSettled);
    tick(std::clamp(at, last_, now));
    endLate(slot);
    release(slot, out);
  }
  tick(now);
  decide(out);
}

void Arbiter::died(TaskId id, Nanos now, Decisions& out) {
  tick(now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return;
  if (slot == holder_) QGPU_MARK(HolderDied);
  drop(slot, out);
  if (QGPU_PLANTED(NoGrantAfterDeath)) return;
  decide(out);
}

void Arbiter::retired(TaskId id, Nanos now, Decisions& out) {
  tick(now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return;
  release(slot, out);
  decide(out);
}

void Arbiter::setAway(TaskId id, Away how, Nanos now, Decisions& out) {
  tick(now);
  std::uint32_t slot = kNone;
  Task* task = find(id, &slot);
  if (task == nullptr) return;
  if (task->spec.taskClass == TaskClass::Online || task->spec.exclusive) return;
  const bool away = how != Away::Back;
  const bool drains =
      (how == Away::Drains || how == Away::DrainsNow) && config_.drainFor > Nanos(0);
  if (task->away == away && !drains) return;
  const bool left = away && !task->away;
  task->away = away;
  task->urgent = how == Away::DrainsNow;
  const bool under = slot == holder_ && phase_ == Phase::Settling && draining_ && last_ < stopAt_;
  if (under) drainsUrgent_ = drainsUrgent_ || task->urgent;
  askDrain(*task, drains && !under);
  const std::uint32_t index = tier(*task);
  advanceVirtual(index);
  if (left) {
    queue_.erase(slot);
    const bool holds = slot == holder_ && phase_ != Phase::Settling;
    if (holds && drains && task->wants) {
      drain(slot, out);
    } else if (holds) {
      hold(config_.patience, out);
    }
  } else if (!away && task->wants && slot != holder_) {
    // What others had meanwhile is not owed to it.
    task->meter.raiseVirtualTime(virtualNow_[index] - config_.sliceMax.value);
    if (!task->quarantined) enqueue(slot);
  }
  decide(out);
}

void Arbiter::expire(Nanos now, Decisions& out) {
  tick(now);
  decide(out);
}

Nanos Arbiter::nextDeadline() const {
  return deadline_;
}

// --- time and labels ---

Nanos Arbiter::clamp(Nanos now) const {
  return std::clamp(now, last_, kTimeMax);
}

// The time since the last event in spans of one label each (A9). A timer that fires late does not
// lengthen what ended at its deadline.
template <typename Each>
void Arbiter::eachSpan(Nanos now, Each each) const {
  const Nanos onlineEnd = onlineActive_ ? onlineDeadline() : Nanos(0);
  const Nanos sliceEnd = phase_ == Phase::Running    ? lingerEnd_
                         : phase_ == Phase::Settling ? kNever
                                                     : Nanos(0);
  for (Nanos at = last_; at < now;) {
    const bool works = at >= workFrom_ && at < sliceEnd;
    const Label label = at < onlineEnd ? Label::Online : works ? Label::Used : Label::Idle;
    Nanos until = now;
    if (label == Label::Online) until = std::min(until, onlineEnd);
    if (label == Label::Used) until = std::min(until, sliceEnd);
    if (label == Label::Idle && at < workFrom_) until = std::min(until, workFrom_);
    each(at, until, label);
    at = until;
  }
}

void Arbiter::tick(Nanos now) {
  now = clamp(now);
  const bool slicing = phase_ == Phase::Running || phase_ == Phase::Settling;
  eachSpan(now, [&](Nanos from, Nanos until, Label label) {
    const Nanos span = until - from;
    if (label == Label::Online) {
      online_ += span;
      if (QGPU_PLANTED(TimeCountedTwice) && slicing) used_ += span;
      if (slicing) tasks_[holder_].meter.chargeDebt(span, until);
    } else if (label == Label::Used) {
      used_ += span;
      tasks_[holder_].meter.charge(span, until);
    } else {
      idle_ += span;
    }
  });
  last_ = now;
}

Nanos Arbiter::onlineDeadline() const {
  const Nanos idle = QGPU_PLANTED(OnlineIdleTooEarly) ? config_.onlineIdle / 2 : config_.onlineIdle;
  return onlineActive_ && onlineWanting_ == 0 ? lastOnline_ + idle : kNever;
}

// --- status ---

std::optional<Arbiter::TaskView> Arbiter::task(TaskId id, Nanos now) const {
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  if (it == slots_.end()) return std::nullopt;
  const Task& task = tasks_[it->second];
  TaskView view;
  view.task = task.spec;
  view.wants = task.wants;
  view.gateOpen = task.open;
  view.quarantined = task.quarantined;
  view.away = task.away;
  view.used = task.meter.used();
  view.held = task.meter.held(clamp(now));
  view.overrun = task.meter.overrun();
  view.turns = task.turns;
  const bool holds = it->second == holder_;
  const bool slicing = holds && (phase_ == Phase::Running || phase_ == Phase::Settling);
  eachSpan(clamp(now), [&](Nanos from, Nanos until, Label label) {
    if (slicing && label == Label::Used) view.used += until - from;
    if (slicing && label == Label::Online) view.overrun += until - from;
  });
  if (task.late) view.overrun += clamp(now) - task.lateSince;
  return view;
}

Arbiter::CardView Arbiter::card(Nanos now) const {
  CardView view;
  if (holder_ != kNone) view.holder = tasks_[holder_].spec.id;
  view.settling = phase_ == Phase::Settling;
  view.onlineActive = onlineActive_;
  view.used = used_;
  view.idle = idle_;
  view.online = online_;
  view.holds = holds_;
  view.overruns = overruns_;
  view.policy = config_.policy;
  eachSpan(clamp(now), [&](Nanos from, Nanos until, Label label) {
    Nanos& account = label == Label::Used     ? view.used
                     : label == Label::Online ? view.online
                                              : view.idle;
    account += until - from;
  });
  return view;
}

// Times count from the last event. Epochs and accounts are left out: they are named, and told, but
// decide nothing.
std::uint64_t Arbiter::digest() const {
  const auto since = [this](Nanos at) {
    return static_cast<std::uint64_t>(at == kNever ? INT64_MAX : (at - last_).value);
  };
  std::uint64_t sum = 0;  // over the tasks, in no order
  for (std::uint32_t slot = 0; slot < tasks_.size(); ++slot) {
    const Task& task = tasks_[slot];
    if (!task.present) continue;
    std::uint64_t d = mixDigest(1, static_cast<std::uint64_t>(task.spec.id));
    const bool flags[] = {task.wants,       task.open, task.notify,     task.contended,
                          task.quarantined, task.late, slot == holder_, wokeInSlice(task)};
    for (bool flag : flags) d = mixDigest(d, flag ? 1 : 2);
    d = mixDigest(d, static_cast<std::uint64_t>(task.spec.taskClass));
    d = mixDigest(d, task.spec.exclusive ? 1 : 2);
    if (task.away) d = mixDigest(d, task.drains ? (task.urgent ? 5 : 4) : 3);
    const RunQueue::Entry* waits = queue_.find(slot);
    d = mixDigest(d, waits == nullptr ? 1 : since(std::max(waits->readyAt, last_)));
    d = mixDigest(d, task.late ? since(task.lateSince) : 0);
    d = mixDigest(d, task.wants ? 0 : since(task.quietSince));
    d = mixDigest(d, static_cast<std::uint64_t>(task.longestSettle.value));
    sum += mixDigest(d, task.meter.digest(virtualNow_[tier(task)], last_));
  }
  std::uint64_t d = mixDigest(sum, static_cast<std::uint64_t>(phase_));
  d = mixDigest(d, static_cast<std::uint64_t>(config_.policy));
  d = mixDigest(d, pendingPolicy_ ? static_cast<std::uint64_t>(*pendingPolicy_) + 1 : 0);
  if (phase_ == Phase::Running) {
    for (Nanos at : {sliceStart_, sliceEnd_, lingerEnd_, capAt_}) d = mixDigest(d, since(at));
  }
  d = mixDigest(d, since(std::max(workFrom_, last_)));
  if (phase_ == Phase::Settling) {
    d = mixDigest(mixDigest(d, since(holdAt_)), since(settleDeadline_));
    d = mixDigest(d, since(stopAt_));
    if (draining_) d = mixDigest(d, drainsUrgent_ ? 2 : 1);
  }
  d = mixDigest(d, static_cast<std::uint64_t>(switchCost_.value));
  d = mixDigest(d, onlineActive_ ? since(lastOnline_) : 1);
  return mixDigest(d, since(deadline_));
}

// --- choosing ---

Arbiter::Task* Arbiter::find(TaskId id, std::uint32_t* slot) {
  const auto it = slots_.find(static_cast<std::uint64_t>(id));
  if (it == slots_.end()) return nullptr;
  if (slot != nullptr) *slot = it->second;
  return &tasks_[it->second];
}

std::uint32_t Arbiter::tierUnder(Policy policy, const Task& task) {
  return rulesOf(policy).ownersFirst && task.spec.share == Permille(0) ? 1 : 0;
}

Permille Arbiter::weightUnder(Policy policy, const Task& task) {
  if (!rulesOf(policy).weighs || task.spec.share == Permille(0)) return kWholeCard;
  return task.spec.share;
}

Nanos Arbiter::slice() const {
  const Nanos cost = switchCost_ + config_.resumeCost;
  return std::clamp(cost * kSwitchCostFactor, config_.sliceMin, config_.sliceMax);
}

// Where shares are caps: may the task stay open at all?
bool Arbiter::hasRoom(const Task& task) const {
  if (!rulesOf(config_.policy).caps || task.spec.exclusive) return true;
  return task.spec.share > Permille(0) &&
         task.meter.room(config_.sliceMax, last_) >= config_.sliceMin;
}

void Arbiter::enqueue(std::uint32_t slot) {
  const Task& task = tasks_[slot];
  if (task.away) return;
  RunQueue::Entry entry;
  entry.slot = slot;
  entry.tier = tier(task);
  entry.virtualTime = task.meter.virtualTime();
  entry.id = static_cast<std::uint64_t>(task.spec.id);
  if (rulesOf(config_.policy).caps) {
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
  if (const std::uint32_t slot = nextDrain(); slot != kNone) {
    if (phase_ == Phase::Running || phase_ == Phase::Parked) {
      hold(phase_ == Phase::Running ? config_.patience : Nanos(0), out);
    } else if (phase_ == Phase::Free) {
      drain(slot, out);
    }
  }
  if (onlineActive_ && !QGPU_PLANTED(GrantWhileOnline)) return refreshDeadline();
  if (phase_ == Phase::Running) reviewSlice(out);
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
void Arbiter::reviewSlice(Decisions& out) {
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
  if (!rulesOf(config_.policy).caps || task.spec.exclusive) return;
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
  draining_ = drainsUrgent_ = false;
}

// --- drains ---

void Arbiter::askDrain(Task& task, bool drains) {
  if (task.drains == drains) return;
  task.drains = drains;
  drains ? ++drains_ : --drains_;
}

// Whose drain may begin once the card is free. What runs on after an overrun ends by itself.
std::uint32_t Arbiter::nextDrain() const {
  std::uint32_t next = kNone;
  for (std::uint32_t slot = 0; drains_ != 0 && slot < tasks_.size(); ++slot) {
    const Task& task = tasks_[slot];
    if (!task.drains || !task.wants || task.quarantined || task.late || slot == holder_) continue;
    if (task.urgent) return slot;
    if (!onlineActive_ && next == kNone) next = slot;
  }
  return next;
}

// Its gate stays shut, or is shut, and what is in flight goes on. Of a card that is free, or of its
// holder.
void Arbiter::drain(std::uint32_t slot, Decisions& out) {
  Task& task = tasks_[slot];
  askDrain(task, false);
  if (slot != holder_) {
    holder_ = slot;
    ++task.turns;
    task.meter.endHeld(last_);
    out.note(NoteKind::Running, task.spec.id);
  }
  hold(config_.drainFor, out);
  settleDeadline_ = std::min(settleDeadline_, kNever - config_.drainFor) + config_.drainFor;
  draining_ = true;
  drainsUrgent_ = task.urgent;
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
  if (phase_ == Phase::Settling && last_ < stopAt_ && !drainsUrgent_) {
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
    if (rulesOf(next).caps && old != next) task.meter.limitLevel(config_.sliceMax, last_);
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
