#include "actors/arbiter/arbiter.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr Nanos kTimeMax = kNever / 2;  // later "now"s are read as this

using NoteKind = ArbiterNote::Kind;

}  // namespace

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
    task->longestSettle = std::max(task->longestSettle, last_ - holdAt_);
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
  }
  d = mixDigest(d, static_cast<std::uint64_t>(switchCost_.value));
  d = mixDigest(d, onlineActive_ ? since(lastOnline_) : 1);
  return mixDigest(d, since(deadline_));
}

}  // namespace qgpu
