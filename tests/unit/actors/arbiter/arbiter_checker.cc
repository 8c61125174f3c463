#include "tests/unit/actors/arbiter/arbiter_checker.h"

#include <algorithm>

namespace qgpu {
namespace {

using Kind = ArbiterEvent::Kind;

bool isOnline(const ArbiterChecker::Seen& task) {
  return task.spec.taskClass == TaskClass::Online;
}

std::string name(TaskId id) {
  return std::to_string(static_cast<std::uint64_t>(id));
}

std::uint64_t fold(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 1099511628211ull + (hash >> 31);
}

std::uint64_t bits(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

}  // namespace

void apply(Arbiter& arbiter, const ArbiterEvent& event, Decisions& out) {
  switch (event.kind) {
    case Kind::Join:
      return arbiter.join(event.spec, event.now, out);
    case Kind::Leave:
      return arbiter.leave(event.task, event.now, out);
    case Kind::SetPolicy:
      return arbiter.setPolicy(event.policy, event.now, out);
    case Kind::Busy:
      return arbiter.busy(event.task, event.since, event.now, out);
    case Kind::Quiet:
      return arbiter.quiet(event.task, event.since, event.now, out);
    case Kind::Settled:
      return arbiter.settled(event.task, event.epoch, event.since, event.now, out);
    case Kind::Died:
      return arbiter.died(event.task, event.now, out);
    case Kind::Retired:
      return arbiter.retired(event.task, event.now, out);
    case Kind::Expire:
      return arbiter.expire(event.now, out);
    case Kind::Away:
      return arbiter.setAway(event.task, Arbiter::Away::Waits, event.now, out);
    case Kind::Back:
      return arbiter.setAway(event.task, Arbiter::Away::Back, event.now, out);
    case Kind::Drains:
      return arbiter.setAway(event.task, Arbiter::Away::Drains, event.now, out);
    case Kind::DrainsNow:
      return arbiter.setAway(event.task, Arbiter::Away::DrainsNow, event.now, out);
  }
}

std::string describe(const ArbiterEvent& event) {
  static constexpr const char* kNames[] = {"join",    "leave",  "policy",    "busy",   "quiet",
                                           "settled", "died",   "retired",   "expire", "away",
                                           "back",    "drains", "drains now"};
  std::string text = kNames[static_cast<int>(event.kind)];
  if (event.kind == Kind::Join) text += " " + name(event.spec.id);
  if (event.task != TaskId::kNone) text += " " + name(event.task);
  if (event.kind == Kind::Settled) text += " epoch " + std::to_string(event.epoch);
  if (event.kind == Kind::SetPolicy) text += " " + std::to_string(static_cast<int>(event.policy));
  return text + " @" + std::to_string(event.now.value / 1000) + "us";
}

std::string ArbiterChecker::run(Arbiter& arbiter, const ArbiterEvent& event, Decisions& out) {
  const Nanos due = arbiter.nextDeadline();
  const std::uint64_t before = event.now <= last_ ? arbiter.digest() : 0;
  out.clear();
  apply(arbiter, event, out);
  return judge(arbiter, event, out, due, before);
}

std::string ArbiterChecker::judge(const Arbiter& arbiter, const ArbiterEvent& event,
                                  const Decisions& out, Nanos due, std::uint64_t digestBefore) {
  failure_.clear();
  const Nanos now = std::max(event.now, last_);
  if (due < now) slack_ += now - std::max(due, last_);
  charge(event, now);
  const bool matters = takeIn(event, now);
  if (!matters && due > now) {
    if (!out.gates.empty() || !out.notes.empty()) fail("A10: a stale word brought orders");
    if (event.now <= last_ && arbiter.digest() != digestBefore) {
      fail("A10: a stale word changed the state");
    }
  }
  last_ = now;
  takeNotes(out, now);
  for (const GateDecision& order : out.gates) takeOrder(order, event, now);
  if (event.kind == Kind::Leave) {
    const auto gone = tasks_.find(static_cast<std::uint64_t>(event.task));
    if (gone != tasks_.end()) {
      if (gone->second.open && !isOnline(gone->second)) fail("A1: left with an open gate");
      for (auto& [id, task] : tasks_) {
        if (isOnline(gone->second)) break;
        ++task.goneRivals;
        task.goneWeights += weightOf(gone->second);
      }
      tasks_.erase(gone);
    }
  }
  const Policy inForce = arbiter.card(now).policy;
  if (inForce != policy_) {
    policy_ = inForce;
    for (auto& [id, task] : tasks_) {
      task.level = config_.sliceMax.value * 1000 + std::max<std::int64_t>(0, task.level);
      task.excess = 0;
      beginWait(task);
    }
  }
  checkGates(now);
  checkWork(now);
  checkShares();
  checkAccounts(arbiter, now);
  return failure_;
}

// Books the time since the last event: a slice is charged from its opening to its end.
void ArbiterChecker::charge(const ArbiterEvent& event, Nanos now) {
  for (auto& [id, task] : tasks_) {
    const bool own = task.spec.id == event.task;
    Nanos until = now;
    if (own && event.kind == Kind::Settled && (task.settling || task.late) &&
        event.epoch == task.holdEpoch) {
      until = std::clamp(event.since, last_, now);
    }
    Nanos from = last_;
    const bool parked = task.open && !task.charging && !isOnline(task);
    if (own && event.kind == Kind::Busy && parked && !task.wants) {
      from = std::clamp(event.since, last_, now);  // the new slice starts with its work
      addCharge(task, from - last_, false);
      task.charging = true;
      task.sliceAt = task.chargeFrom = from;
    }
    const Nanos resumed = std::clamp(task.chargeFrom, from, until);
    addCharge(task, resumed - from, false);
    addCharge(task, until - resumed, task.charging);
    addCharge(task, now - until, false);
    const bool eligible =
        task.wants && !task.open && !task.settling && !task.quarantined && !task.away;
    if (eligible && !onlineActive_) task.waited += now - last_;
  }
}

void ArbiterChecker::addCharge(Seen& task, Nanos span, bool charged) {
  const auto rise = [&](bool counts) {
    return span.value * ((counts ? 1000 : 0) - task.spec.share.value);
  };
  task.level = std::max<std::int64_t>(0, task.level + rise(charged));
  // A drain is charged, and no turn that it was given for its share.
  task.excess = std::max<std::int64_t>(0, task.excess + rise(charged && !task.draining));
  if (charged) task.charged += span;
}

bool ArbiterChecker::endHold(Seen& task, Nanos now) {
  const Nanos took = now - task.holdAt;
  longestSettle_ = std::max(longestSettle_, took);
  task.settling = task.late = task.quarantined = task.charging = task.draining = false;
  return true;
}

bool ArbiterChecker::takeIn(const ArbiterEvent& event, Nanos now) {
  if (event.kind == Kind::Expire || event.kind == Kind::SetPolicy) return true;
  if (event.kind == Kind::Join) {
    Seen seen;
    seen.spec = event.spec;
    return tasks_.emplace(static_cast<std::uint64_t>(event.spec.id), seen).second;
  }
  const auto it = tasks_.find(static_cast<std::uint64_t>(event.task));
  if (it == tasks_.end()) return false;
  Seen& task = it->second;
  const Nanos since = std::clamp(event.since, Nanos(0), now);
  switch (event.kind) {
    case Kind::Busy:
      slack_ += now - since;
      if (isOnline(task)) lastOnline_ = onlineActive_ ? std::max(lastOnline_, since) : since;
      if (isOnline(task)) onlineActive_ = true;
      task.wants = true;
      return true;
    case Kind::Quiet:
      slack_ += now - since;
      if (isOnline(task) && onlineActive_) lastOnline_ = std::max(lastOnline_, since);
      if (task.wants) task.quietAt = since;
      task.wants = false;
      return true;
    case Kind::Settled:
      if ((task.settling || task.late) && event.epoch == task.holdEpoch) {
        const Nanos at = std::clamp(event.since, last_, now);
        slack_ += now - at;
        // Only what settled in time tells how long a settling may take.
        if (task.settling && !task.draining)
          task.longestSettle = std::max(task.longestSettle, at - task.holdAt);
        return endHold(task, at);
      }
      return false;
    case Kind::Died:
    case Kind::Leave:
      if (isOnline(task) && task.wants) lastOnline_ = now;
      if (task.wants) task.quietAt = now;
      task.wants = false;
      if (task.settling || task.late) endHold(task, now);
      return true;
    case Kind::Retired: {
      const bool matters = task.quarantined;
      task.quarantined = false;
      return matters;
    }
    case Kind::Away:
    case Kind::Back:
    case Kind::Drains:
    case Kind::DrainsNow: {
      const bool away = event.kind != Kind::Back;
      const bool drains = away && event.kind != Kind::Away && config_.drainFor > Nanos(0);
      if (isOnline(task) || task.spec.exclusive || (task.away == away && !drains)) return false;
      task.away = away;
      if (!away) beginWait(task);
      task.urgent = event.kind == Kind::DrainsNow;
      const bool goesOn = task.settling && task.draining && now < task.stopAt;
      if (goesOn) task.hurried = task.hurried || task.urgent;
      task.drains = drains && !goesOn;
      return true;
    }
    default:
      return true;
  }
}

// Overruns come before any order of the same answer: the card goes on because of them.
void ArbiterChecker::takeNotes(const Decisions& out, Nanos now) {
  bool wantsOnline = false;
  for (const auto& [id, task] : tasks_) wantsOnline |= isOnline(task) && task.wants;
  if (!wantsOnline && now >= lastOnline_ + config_.onlineIdle) onlineActive_ = false;
  for (const ArbiterNote& note : out.notes) {
    if (note.kind != ArbiterNote::Kind::Overrun) continue;
    Seen& task = tasks_[static_cast<std::uint64_t>(note.task)];
    if (!task.settling) fail("A12: an overrun without a hold, or a second end of one");
    if (now < task.holdAt + settleBound(task)) fail("A11: overrun before the settle bound");
    task.settling = false;
    task.late = task.quarantined = task.overran = true;
    longestSettle_ = std::max(longestSettle_, now - task.holdAt);
  }
}

Nanos ArbiterChecker::settleBound(const Seen& task) const {
  const Nanos bound = std::max(config_.settleMax, task.longestSettle * config_.settleFactor);
  return std::min(bound, config_.settleMax * 10) + (task.draining ? config_.drainFor : Nanos(0));
}

void ArbiterChecker::takeOrder(const GateDecision& order, const ArbiterEvent& event, Nanos now) {
  const auto it = tasks_.find(static_cast<std::uint64_t>(order.task));
  if (it == tasks_.end()) return fail("A10: an order for a task that is not here");
  if (order.kind == GateDecision::Kind::Hasten) return takeHasten(it->second, order, now);
  if (order.epoch <= lastEpoch_) fail("A10: epoch " + std::to_string(order.epoch) + " again");
  lastEpoch_ = order.epoch;
  if (order.kind == GateDecision::Kind::Open) {
    takeOpen(it->second, order, now);
  } else {
    takeHold(it->second, order, event, now);
  }
}

void ArbiterChecker::takeOpen(Seen& task, const GateDecision& order, Nanos now) {
  const bool same = task.open && task.notify == order.notify && task.contended == order.contended;
  if (same) fail("A12: an order that changes nothing");
  if (!isOnline(task)) {
    if (onlineActive_) fail("A3: granted while online is active");
    if (task.quarantined) fail("A11: granted in quarantine");
    if (task.away) fail("M1: granted without its memory");
    if (task.settling) fail("A12: granted before its hold ended");
    for (const auto& [id, other] : tasks_) {
      if (other.spec.id == task.spec.id || isOnline(other)) continue;
      if (other.open) fail("A1: two gates open");
      if (other.settling) fail("A1: granted before the last holder settled");
    }
    task.late = false;  // what still runs is now its own slice
    if (order.notify) {
      task.charging = false;
    } else if (!task.charging || !task.open) {
      task.charging = true;
      task.sliceAt = now;
      task.chargeFrom = now + config_.resumeCost;
      beginWait(task);
    }
  }
  task.open = true;
  task.notify = order.notify;
  task.contended = order.contended;
}

void ArbiterChecker::takeHold(Seen& task, const GateDecision& order, const ArbiterEvent& event,
                              Nanos now) {
  if (isOnline(task)) return fail("A2: an online gate was shut");
  const bool drains = task.drains && task.away && task.wants && order.patience == config_.drainFor;
  if (!task.open && !drains) return fail("A12: held twice");
  const bool gone =
      event.task == task.spec.id && (event.kind == Kind::Died || event.kind == Kind::Leave);
  if (task.spec.exclusive && event.kind != Kind::Leave) fail("A2: an exclusive gate was shut");
  const bool leaves = (event.task == task.spec.id && task.away) || drainWaits();
  const bool borrower = policy_ == Policy::BurstShare && task.spec.share == Permille(0);
  const bool protectedSlice = task.wants && !task.notify && !onlineActive_ && !gone && !leaves &&
                              !borrower && policy_ != Policy::FixedShare;
  if (protectedSlice && now - task.sliceAt < config_.sliceMin && event.kind != Kind::SetPolicy) {
    fail("A12: held before the least slice");
  }
  task.open = task.notify = task.contended = false;
  task.holdEpoch = order.epoch;
  task.holdAt = now;
  task.chargeFrom = std::min(task.chargeFrom, now);
  task.stopAt = now + order.patience;
  task.charging = !gone;
  task.settling = !gone;
  task.draining = drains;
  if (drains) return takeDrain(task, now);
  if (order.patience > config_.patience) fail("A4: a hold is more patient than it may be");
  if (order.patience > Nanos(0) && onlineActive_) fail("A3: a patient hold beside active online");
}

void ArbiterChecker::takeDrain(Seen& task, Nanos now) {
  task.drains = false;
  task.hurried = task.urgent;
  task.chargeFrom = now;
  if (onlineActive_ && !task.urgent) fail("A3: a drain beside active online, for no need");
  if (task.quarantined || task.late) fail("A11: a drain in quarantine");
  for (const auto& [id, other] : tasks_) {
    if (other.spec.id == task.spec.id || isOnline(other)) continue;
    if (other.open || other.settling) fail("A1: a drain beside another holder");
  }
}

void ArbiterChecker::takeHasten(Seen& task, const GateDecision& order, Nanos now) {
  if (!task.settling || order.epoch != task.holdEpoch) fail("A10: no such hold to hasten");
  if (!onlineActive_) fail("A12: hastened and nobody is online");
  if (task.draining && task.hurried) fail("M6: the drain of a need was ended by online");
  if (now >= task.stopAt) fail("A12: hastened twice, or late");
  task.stopAt = now;
}

void ArbiterChecker::checkGates(Nanos now) {
  int holders = 0;
  for (const auto& [id, task] : tasks_) {
    if (isOnline(task)) {
      if (!task.open) fail("A2: an online gate is shut");
      if (task.wants && task.notify) fail("A3: a busy online gate still rings");
      if (!onlineActive_ && !task.notify) fail("A3: an idle online gate does not ring");
      continue;
    }
    if (task.open && task.away) fail("M1: a gate is open without its memory");
    if (task.open && onlineActive_) fail("A3: a gate is open beside active online");
    if (task.open || task.settling) ++holders;
    const bool forNeed = task.draining && task.hurried;
    if (task.settling && onlineActive_ && now < task.stopAt && !forNeed) {
      fail("A3: work runs on though online wants the card");
    }
    if (task.settling && now >= task.holdAt + settleBound(task)) {
      fail("A11: settling is waited for beyond its bound");
    }
  }
  if (holders > 1) fail("A1: two holders");
  const bool settles = std::any_of(tasks_.begin(), tasks_.end(),
                                   [](const auto& each) { return each.second.settling; });
  if (drainWaits() && !settles) fail("M6: a drain waits for nobody");
}

// Whether one is to begin as soon as nobody settles.
bool ArbiterChecker::drainWaits() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& each) {
    const Seen& task = each.second;
    return task.drains && task.wants && !task.quarantined && !task.late &&
           (task.urgent || !onlineActive_);
  });
}

bool ArbiterChecker::mayRun(const Seen& task) const {
  if (!task.wants || task.quarantined || task.away || isOnline(task)) return false;
  if (policy_ != Policy::FixedShare || task.spec.exclusive) return true;
  if (task.spec.share == Permille(0)) return false;
  const std::int64_t slice = config_.sliceMax.value;
  return task.level + slice * (1000 - task.spec.share.value) <= slice * 1000;
}

void ArbiterChecker::checkWork(Nanos now) {
  if (onlineActive_) return;
  const Seen* holder = nullptr;
  const Seen* waiting = nullptr;
  bool owner = false, anyOnline = false, anyWants = false;
  for (const auto& [id, task] : tasks_) {
    anyOnline |= isOnline(task);
    if (!isOnline(task) && (task.open || task.settling)) {
      holder = &task;
    } else if (mayRun(task)) {
      waiting = &task;
      owner |= task.spec.share > Permille(0);
    }
    anyWants |= !isOnline(task) && task.wants && !task.quarantined && !task.away && !task.open &&
                !task.settling;
  }
  if (waiting != nullptr && holder == nullptr) {
    fail("A7: the card idles though " + name(waiting->spec.id) + " wants it");
  }
  if (holder == nullptr || !holder->open) return;
  if (waiting != nullptr && !holder->wants) {
    if (holder->notify) fail("A7: a parked gate keeps " + name(waiting->spec.id) + " out");
    if (now >= holder->quietAt + config_.lingerMax) fail("A7: the linger is over");
  }
  if (owner && policy_ == Policy::BurstShare && holder->spec.share == Permille(0)) {
    fail("A6: a borrower keeps an owner out");
  }
  if (policy_ == Policy::FixedShare && holder->spec.share == Permille(0) && holder->notify &&
      !holder->spec.exclusive) {
    fail("A4: a task without share is open under fixed-share");
  }
  if ((anyWants || anyOnline) && !holder->contended && !holder->spec.exclusive) {
    fail("HAZARD 10: somebody wants the card and the holder's gate does not say so");
  }
}

std::int64_t ArbiterChecker::weightOf(const Seen& task) const {
  return policy_ == Policy::BestEffort ? 1000 : task.spec.share.value;
}

void ArbiterChecker::beginWait(Seen& task) {
  task.waited = Nanos(0);
  task.goneRivals = task.goneWeights = 0;
}

void ArbiterChecker::checkShares() {
  const Nanos settle = std::max(config_.settleMax, longestSettle_);
  std::int64_t weights = 0, count = 0;
  for (const auto& [id, task] : tasks_) {
    if (isOnline(task)) continue;
    ++count;
    weights += weightOf(task);
  }
  for (const auto& [id, task] : tasks_) {
    if (isOnline(task) || task.spec.exclusive) continue;
    if (policy_ == Policy::FixedShare) {
      const Nanos current = task.settling || task.late ? last_ - task.holdAt : Nanos(0);
      const Nanos bound = config_.sliceMax + std::max(longestSettle_, current) + slack_;
      if (task.excess > bound.value * 1000) {
        fail("A4: " + name(task.spec.id) + " is " + std::to_string(task.excess / 1000) +
             " ns above its share");
      }
      continue;
    }
    const std::int64_t weight = weightOf(task);
    if (weight == 0 || task.overran) continue;
    const Nanos turns = (config_.sliceMax + settle) * (count + task.goneRivals);
    const Nanos bound = turns * (weights + task.goneWeights) / weight + slack_;
    if (task.waited > bound) fail("A8: " + name(task.spec.id) + " starves");
  }
}

void ArbiterChecker::checkAccounts(const Arbiter& arbiter, Nanos now) {
  const Arbiter::CardView card = arbiter.card(now);
  if (card.used + card.idle + card.online != now - start_) fail("A9: labels do not add up");
  if (card.onlineActive != onlineActive_) fail("A3: online activity is told wrongly");
  for (const auto& [id, task] : tasks_) {
    const auto view = arbiter.task(task.spec.id, now);
    if (!view) {
      fail("A9: a task has no account");
      continue;
    }
    if (view->gateOpen != task.open || view->wants != task.wants) fail("A9: gate or wish differs");
    if (view->away != task.away) fail("M1: who is away is told wrongly");
    if (view->quarantined != task.quarantined) fail("A11: quarantine is told wrongly");
    if (isOnline(task)) continue;
    const Nanos charged = view->used + view->overrun;
    if (view->used < Nanos(0) || view->overrun < Nanos(0)) fail("A9: a negative account");
    if (charged > task.charged) fail("A9: charged twice");
    if (charged + slack_ < task.charged) fail("A9: a slice was not charged");
  }
}

const ArbiterChecker::Seen* ArbiterChecker::find(TaskId id) const {
  const auto it = tasks_.find(static_cast<std::uint64_t>(id));
  return it == tasks_.end() ? nullptr : &it->second;
}

// All that a later judgement depends on, relative to now.
std::uint64_t ArbiterChecker::digest() const {
  std::uint64_t hash = fold(0, bits(static_cast<int>(policy_)));
  hash = fold(hash, onlineActive_ ? bits((last_ - lastOnline_).value) : 1);
  hash = fold(hash, bits(slack_.value));
  hash = fold(hash, bits(longestSettle_.value));
  for (const auto& [id, task] : tasks_) {
    const bool flags[] = {task.wants,    task.open,        task.notify, task.contended,
                          task.settling, task.quarantined, task.late,   task.overran,
                          task.charging, task.away,        task.drains, task.urgent,
                          task.draining, task.hurried};
    hash = fold(hash, id);
    for (bool flag : flags) hash = fold(hash, flag ? 3 : 5);
    hash = fold(hash, task.settling ? bits((last_ - task.holdAt).value) : 0);
    hash = fold(hash, task.settling ? bits((last_ - task.stopAt).value) : 0);
    hash = fold(hash, task.open ? bits((last_ - task.sliceAt).value) : 0);
    hash = fold(hash, bits(std::max(task.chargeFrom - last_, Nanos(0)).value));
    hash = fold(hash, task.open && !task.wants ? bits((last_ - task.quietAt).value) : 0);
    hash = fold(hash, bits(task.longestSettle.value));
    hash = fold(hash, bits(task.waited.value));
    hash = fold(hash, bits(task.goneRivals) << 32 | bits(task.goneWeights));
    hash = fold(hash, policy_ == Policy::FixedShare ? bits(task.level) : 0);
    hash = fold(hash, policy_ == Policy::FixedShare ? bits(task.excess) : 0);
  }
  return hash;
}

std::uint64_t replay(const ArbiterConfig& config, Nanos start,
                     const std::vector<ArbiterEvent>& events) {
  Arbiter arbiter(config, start);
  Decisions out;
  std::uint64_t hash = 0;
  for (const ArbiterEvent& event : events) {
    out.clear();
    apply(arbiter, event, out);
    for (const GateDecision& order : out.gates) {
      hash = fold(hash, static_cast<std::uint64_t>(order.task));
      hash = fold(hash, order.epoch);
      hash = fold(hash, bits(order.patience.value));
      hash = fold(hash, (static_cast<std::uint64_t>(order.kind) << 2) + (order.notify ? 2 : 0) +
                            (order.contended ? 1 : 0));
    }
    for (const ArbiterNote& note : out.notes) {
      hash = fold(hash, static_cast<std::uint64_t>(note.kind));
      hash = fold(hash, bits(note.amount.value));
    }
  }
  return fold(hash, arbiter.digest());
}

}  // namespace qgpu
