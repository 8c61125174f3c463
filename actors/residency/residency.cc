#include "actors/residency/residency.h"

#include <algorithm>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::uint32_t kDoublings = 6;  // of a wait that grows with each failure

Nanos doubled(Nanos wait, std::uint32_t times) {
  return wait * (std::int64_t{1} << std::min(times, kDoublings));
}

// The part of `all` that `bytes` is, rounded up.
Permille partOf(Bytes all, Bytes bytes) {
  if (all <= Bytes(0)) return Permille(0);
  const std::int64_t part = mulDiv(std::min(bytes, all).value, 1000, all.value);
  const bool whole = mulDiv(all.value, part, 1000) >= std::min(bytes, all).value;
  return Permille(std::min<std::int64_t>(1000, part + (whole ? 0 : 1)));
}

Bytes ofPart(Bytes all, Permille part) {
  return Bytes(mulDiv(all.value, part.value, 1000));
}

// Of several who can give something: the smallest that suffices alone, or else the largest.
// `gives(task)` is 0 for who is not asked.
template <typename Tasks, typename Gives>
typename Tasks::iterator chosen(Tasks& tasks, Bytes missing, Gives gives) {
  auto best = tasks.end();
  Bytes bestGives{0};
  for (auto each = tasks.begin(); each != tasks.end(); ++each) {
    const Bytes more = gives(each->first, each->second);
    if (more <= Bytes(0)) continue;
    const bool better =
        bestGives >= missing ? more >= missing && more < bestGives : more > bestGives;
    if (best != tasks.end() && !better) continue;
    best = each;
    bestGives = more;
  }
  return best;
}

}  // namespace

// --- time ---

void Residency::tick(Nanos now) {
  const Nanos passed = std::max(now - last_, Nanos(0));
  last_ += passed;
  if (onlineBusy_) return;
  for (auto& [id, task] : tasks_) {
    if (task.state == State::In) task.stayed += passed;
  }
}

Nanos Residency::stayEnds(const Task& task) const {
  const Nanos atMost = task.since + config_.stayMax;
  if (onlineBusy_ && task.stayed < task.stayFor) return atMost;
  return std::min(atMost, last_ + std::max(task.stayFor - task.stayed, Nanos(0)));
}

bool Residency::stayIsOver(const Task& task) const {
  return stayEnds(task) <= last_;
}

void Residency::expire(Nanos now, ResidencyOrders& orders) {
  tick(now);
  for (auto& [id, task] : tasks_) {
    if (task.state == State::Draining && last_ >= task.since + config_.idleFor) {
      giveUp(id, task, orders);
    } else if (task.state == State::Leaving && last_ >= task.movedAt + config_.stuckFor) {
      QGPU_MARK(LeftInPart);
      leftInPart(task);
    }
  }
  review(orders);
}

Nanos Residency::nextDeadline() const {
  if (QGPU_PLANTED(DeadlineForgotten)) return kNever;
  Nanos next = kNever;
  const auto at = [&](Nanos when) {
    if (when > last_) next = std::min(next, when);
  };
  bool wanted = !waits_.empty();
  for (const auto& [request, need] : needs_) {
    if (need.answered) continue;
    wanted = true;
    at(need.asked + config_.endAfter);
    at(need.asked + config_.waitFor);
  }
  if (wanted) at(drainAt_);
  for (const auto& [id, task] : tasks_) {
    if (task.state == State::Draining) at(task.since + config_.idleFor);
    if (task.state == State::Leaving) at(task.movedAt + config_.stuckFor);
    if (task.state == State::Out && !task.queued) at(task.returnAt);
    if (!wanted) continue;
    at(task.askAt);
    if (task.state == State::In) at(stayEnds(task));
  }
  return next;
}

// --- who is here ---

Residency::Task* Residency::find(TaskId task) {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? nullptr : &found->second;
}

void Residency::enter(Task& task, State state) {
  task.state = state;
  task.since = task.movedAt = last_;
}

// Each process keeps out what it has out, and brings nothing more in.
void Residency::stayAsYouAre(TaskId id, Task& task, ResidencyOrders& orders) {
  enter(task, State::Leaving);
  tell(id, task, PagingWord::Phase::Out, Permille(0), orders);
  settle(id, task, orders);
}

void Residency::tell(TaskId id, Task& task, PagingWord::Phase phase, Permille out,
                     ResidencyOrders& orders) {
  task.word = {++epoch_, phase, out};
  task.awaited = task.processes;
  orders.push_back(
      {.kind = ResidencyOrder::Kind::Tell, .task = id, .word = task.word, .bytes = Bytes(0)});
}

void Residency::join(TaskId id, Bytes quota, Bytes in, Bytes out,
                     const std::set<std::uint32_t>& processes, Nanos now, ResidencyOrders& orders) {
  tick(now);
  Task& task = tasks_[id];
  task = {};
  task.quota = quota;
  task.processes = processes;
  task.in = in;
  task.out = out;
  task.stayFor = config_.stayMin;
  grantLimit(id, task, limitOf(task), orders);
  task.ceiling = std::max(quota, in + out);
  if (out > Bytes(0)) {
    stayAsYouAre(id, task, orders);
  } else {
    takeBack(id, task, orders);
  }
  task.mayMake = true;  // also those that are not known yet
  review(orders);
}

void Residency::leave(TaskId id, Nanos now, ResidencyOrders& orders) {
  tick(now);
  tasks_.erase(id);
  waits_.erase(std::remove(waits_.begin(), waits_.end(), id), waits_.end());
  review(orders);
}

void Residency::attached(TaskId id, std::uint32_t process, Nanos now, ResidencyOrders& orders) {
  tick(now);
  Task* task = find(id);
  if (!task || !task->processes.insert(process).second) return;
  // Where nobody is waited for there is nothing to say: it has no memory yet, and finds the word.
  if (!task->awaited.empty()) task->awaited.insert(process);
  if (task->state == State::In || task->state == State::Returning) task->mayMake = true;
  review(orders);
}

void Residency::died(TaskId id, std::uint32_t process, Nanos now, ResidencyOrders& orders) {
  tick(now);
  if (Task* task = find(id)) {
    task->processes.erase(process);
    const bool last = task->processes.empty();
    if (last) task->mayMake = false;
    if (task->awaited.erase(process) != 0) settle(id, *task, orders);
    if (last && task->limit > Bytes(0)) grantLimit(id, *task, limitOf(*task), orders);
  }
  review(orders);
}

// --- what is told of tasks ---

void Residency::answered(TaskId id, std::uint32_t process, std::uint32_t epoch, PagingAnswer answer,
                         Nanos now, ResidencyOrders& orders) {
  tick(now);
  Task* task = find(id);
  if (!task || task->word.epoch != epoch || task->awaited.count(process) == 0) return;
  if (task->state == State::Returning && answer == PagingAnswer::NoRoom) {
    ++task->cuts;
    stayAsYouAre(id, *task, orders);
  } else if ((task->state == State::Draining && answer == PagingAnswer::Idle) ||
             (task->state == State::Leaving && answer == PagingAnswer::Left) ||
             (task->state == State::Returning && answer == PagingAnswer::In)) {
    task->awaited.erase(process);
    if (QGPU_PLANTED(BackAtFirstAnswer) && task->state == State::Returning) task->awaited.clear();
    settle(id, *task, orders);
  }
  review(orders);
}

// Every process answered: the next step.
void Residency::settle(TaskId id, Task& task, ResidencyOrders& orders) {
  if (!task.awaited.empty()) return;
  switch (task.state) {
    case State::Draining: {
      task.vain = 0;
      const Bytes all = task.in + task.out;
      task.leaves = std::min(task.leaves, task.in);
      if (task.leaves == Bytes(0)) return takeBack(id, task, orders);
      // Nothing of it runs and nothing is allocated until it is in again: what it has is all.
      task.mayMake = false;
      grantLimit(id, task, all, orders);
      enter(task, State::Leaving);
      tell(id, task, PagingWord::Phase::Out, partOf(all, task.out + task.leaves), orders);
      return settle(id, task, orders);
    }
    case State::Leaving:
      task.mayMake = false;
      return leftInPart(task);
    case State::Returning:
      task.stayFor =
          std::max(config_.stayMin, (task.wayOut + (last_ - task.since)) * config_.worth);
      task.wayOut = Nanos(0);
      task.stayed = Nanos(0);
      enter(task, State::In);
      orders.push_back({.kind = ResidencyOrder::Kind::Back, .task = id, .word = {}, .bytes = {}});
      return;
    default:
      return;
  }
}

// What left is all that leaves for now. Each process rounds by itself.
void Residency::leftInPart(Task& task) {
  const auto rounding = Bytes(static_cast<std::int64_t>(task.processes.size()) + 1);
  const bool less = task.out + rounding < ofPart(task.in + task.out, task.word.out);
  if (less) task.askAt = last_ + doubled(config_.askEvery, task.vain++);
  task.awaited.clear();
  task.wayOut += last_ - task.since;
  enter(task, State::Out);
  task.returnAt = task.cuts == 0 ? last_ : last_ + doubled(config_.stayMin, task.cuts - 1);
}

void Residency::holds(TaskId id, Bytes in, Bytes out, Bytes more, Nanos now,
                      ResidencyOrders& orders) {
  tick(now);
  if (Task* task = find(id)) {
    if (in < task->in) task->movedAt = last_;
    task->in = in;
    task->out = out;
    task->more = more;
  }
  review(orders);
}

void Residency::trimmed(TaskId id, Bytes limit, Bytes in, Nanos now, ResidencyOrders& orders) {
  tick(now);
  Task* task = find(id);
  if (task && task->limit == limit) {
    if (task->ceiling > limit) QGPU_MARK(LimitTrimmed);
    task->ceiling = limit;
    task->in = in;
  }
  review(orders);
}

// --- all others ---

void Residency::othersHold(Bytes bytes, Nanos now, ResidencyOrders& orders) {
  tick(now);
  others_ = bytes;
  review(orders);
}

void Residency::need(std::uint64_t request, Bytes bytes, Nanos since, Nanos now,
                     ResidencyOrders& orders) {
  tick(now);
  needs_.try_emplace(request, Need{bytes, std::min(since, last_), false});
  review(orders);
}

void Residency::given(std::uint64_t request, Nanos now, ResidencyOrders& orders) {
  tick(now);
  needs_.erase(request);
  review(orders);
}

void Residency::online(bool busy, Nanos now) {
  tick(now);
  onlineBusy_ = busy;
}

// --- room ---

Bytes Residency::room() const {
  Bytes room = forPageable();
  for (const auto& [id, task] : tasks_) room -= task.kept();
  return room;
}

void Residency::review(ResidencyOrders& orders) {
  queueWaits(orders);
  if (!answerNeeds(orders)) grantWaits(orders);
}

// Whether somebody still waits.
bool Residency::answerNeeds(ResidencyOrders& orders) {
  Bytes missing{0}, overdue{0};
  bool waiting = false;
  const auto answer = [&orders](std::uint64_t request, Bytes bytes, bool room) {
    orders.push_back({.kind = ResidencyOrder::Kind::Answered,
                      .word = {},
                      .bytes = bytes,
                      .request = request,
                      .room = room});
  };
  for (auto each = needs_.begin(); each != needs_.end();) {
    Need& need = each->second;
    const Bytes left = room() - missing;
    if (need.answered || left >= need.bytes || QGPU_PLANTED(RoomPromisedTwice)) {
      if (!need.answered) answer(each->first, need.bytes, true);
      need.answered = true;
      ++each;
    } else if (last_ >= need.asked + config_.waitFor && !QGPU_PLANTED(NeedWaitsForever)) {
      QGPU_MARK(NeedRefused);
      answer(each->first, need.bytes, false);
      each = needs_.erase(each);
    } else if (missing + need.bytes > forPageable()) {
      waiting = true;  // nobody is asked for what the card can't have, whoever leaves
      ++each;
    } else {
      missing += need.bytes;
      if (last_ >= need.asked + config_.endAfter) overdue += need.bytes;
      ++each;
    }
  }
  if (missing == Bytes(0)) return waiting;
  const Bytes left = room();
  makeRoom(missing - left, TaskId::kNone, true, orders);
  if (overdue > Bytes(0)) endFor(overdue - left, orders);
  return true;
}

void Residency::queueWaits(ResidencyOrders& orders) {
  waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                              [this](TaskId id) {
                                Task& task = *find(id);
                                task.queued = wantedBy(task) > Bytes(0);
                                return !task.queued;
                              }),
               waits_.end());
  for (auto& [id, task] : tasks_) {
    if (task.queued || (task.state == State::Out && last_ < task.returnAt)) continue;
    if (wantedBy(task) > Bytes(0)) {
      task.queued = true;
      waits_.push_back(id);
    } else if (task.state == State::Out) {
      // It freed all that was out, or nothing could leave.
      grantLimit(id, task, limitOf(task), orders);
      takeBack(id, task, orders);
    }
  }
}

// What it has and no more. The next process of a task that has none asks for what it makes: until
// then nothing is kept for it.
Bytes Residency::limitOf(const Task& task) {
  return task.processes.empty() ? Bytes(0) : task.in + task.out;
}

void Residency::takeBack(TaskId id, Task& task, ResidencyOrders& orders) {
  task.mayMake = !task.processes.empty();
  enter(task, State::Returning);
  tell(id, task, PagingWord::Phase::In, Permille(0), orders);
  settle(id, task, orders);
}

// More room than what is kept for it, so that it can return and allocate what it waits for: a task
// that got only its return would be sent out again before its turn for more came.
Bytes Residency::wantedBy(const Task& task) const {
  const bool out = task.state == State::Out;
  if (!out && (task.state != State::In || task.processes.empty())) return Bytes(0);
  const Bytes has = task.in + task.out;
  const Bytes all = std::max(std::min(has + task.more, task.quota), has);
  return std::max((out && all > forPageable() ? has : all) - task.kept(), Bytes(0));
}

// What the card has for those whose memory is pageable.
Bytes Residency::forPageable() const {
  Bytes bytes = config_.memory - (QGPU_PLANTED(OthersForgotten) ? Bytes(0) : others_);
  for (const auto& [request, need] : needs_) {
    if (need.answered) bytes -= need.bytes;
  }
  return bytes;
}

void Residency::grantLimit(TaskId id, Task& task, Bytes limit, ResidencyOrders& orders) {
  task.limit = limit;
  task.ceiling = task.mayMake ? std::max(task.ceiling, limit) : limit;
  orders.push_back({.kind = ResidencyOrder::Kind::Limit, .task = id, .word = {}, .bytes = limit});
}

// In turn, each whole: who comes first waits for all of its room and nobody behind it takes part of
// it. What the card can't have, whoever leaves, is passed over until it can.
void Residency::grantWaits(ResidencyOrders& orders) {
  for (auto each = waits_.begin(); each != waits_.end();) {
    const TaskId id = *each;
    Task& task = *find(id);
    if (task.kept() + wantedBy(task) > forPageable()) {
      ++each;
      continue;
    }
    const Bytes wanted = wantedBy(task), free = room();
    if (free < wanted) {
      if (QGPU_PLANTED(RoomTakenPiecewise)) {
        task.taken += std::max(free, Bytes(0));
        ++each;
        continue;
      }
      return makeRoom(wanted - free, id, false, orders);
    }
    each = waits_.erase(each);
    task.queued = false;
    grantLimit(id, task, task.kept() + wanted, orders);
    if (task.state == State::Out) takeBack(id, task, orders);
  }
}

// What is on its way without another order.
Bytes Residency::coming() const {
  Bytes bytes{0};
  for (const auto& [id, task] : tasks_) {
    const Bytes all = task.in + task.out;
    switch (task.state) {
      case State::Draining:
        bytes += task.leaves;
        break;
      case State::Leaving:
        bytes += std::max(ofPart(all, task.word.out) - task.out, Bytes(0));
        break;
      case State::Ending:
        bytes += task.kept();
        break;
      case State::Out:
        break;
      default:  // its limit comes back, or the whole of it once the card shows that it is dead
        bytes += task.processes.empty() ? task.in : task.kept() - std::max(task.limit, task.in);
    }
  }
  return bytes;
}

// Takes back what limits grant above what is there. The room is there once that was said: until
// then a process may be about to allocate below the old limit.
Bytes Residency::trim(TaskId claimant, ResidencyOrders& orders) {
  Bytes bytes{0};
  for (auto& [id, task] : tasks_) {
    const Bytes has = std::min(task.in + task.out + task.more, task.quota);
    if (id == claimant || task.state != State::In || task.limit <= has) continue;
    bytes += task.limit - has;
    grantLimit(id, task, has, orders);
    if (QGPU_PLANTED(LimitBelievedAtOnce)) task.ceiling = has;
  }
  return bytes;
}

bool Residency::mayAsk(const Task& task, bool need) const {
  return task.state == State::In && !task.processes.empty() && last_ >= task.askAt &&
         (need || (last_ >= drainAt_ && stayIsOver(task)));
}

// The fewest tasks: first of those that are out in part already and lose nothing more by it.
void Residency::makeRoom(Bytes missing, TaskId claimant, bool need, ResidencyOrders& orders) {
  for (auto& [id, task] : tasks_) {
    if (need && missing > Bytes(0) && task.state == State::Draining) hurry(id, task, orders);
  }
  missing -= coming();
  if (missing > Bytes(0)) missing -= trim(claimant, orders);
  bool asked = false;
  while (missing > Bytes(0)) {
    auto each = chosen(tasks_, missing, [&](TaskId id, const Task& task) {
      const bool more = task.state == State::Out && last_ >= task.askAt;
      return id != claimant && more ? task.in : Bytes(0);
    });
    if (each == tasks_.end()) {
      each = chosen(tasks_, missing, [&](TaskId id, const Task& task) {
        return id != claimant && mayAsk(task, need) ? task.in : Bytes(0);
      });
    }
    if (each == tasks_.end()) break;
    asked = asked || each->second.state == State::In;
    const Bytes part = std::min(missing, each->second.in);
    missing -= part;
    ask(each->first, each->second, part, need, orders);
  }
  // One look may ask several, and then none for a while.
  if (asked) drainAt_ = last_ + config_.askEvery;
}

void Residency::ask(TaskId id, Task& task, Bytes bytes, bool need, ResidencyOrders& orders) {
  if (task.state == State::Out) {
    QGPU_MARK(MoreOutThanBefore);
    const Bytes all = task.in + task.out;
    enter(task, State::Leaving);
    tell(id, task, PagingWord::Phase::Out, partOf(all, task.out + bytes), orders);
  } else {
    if (need && !stayIsOver(task)) QGPU_MARK(StayCutShort);
    task.cuts = need && !stayIsOver(task) ? task.cuts + 1 : 0;
    task.leaves = bytes;
    task.hurried = false;
    enter(task, State::Draining);
    tell(id, task, PagingWord::Phase::Drain, Permille(0), orders);
    if (need) hurry(id, task, orders);
  }
  settle(id, task, orders);
}

// A need that comes upon a drain for a return gives it its time anew: that one may have waited.
void Residency::hurry(TaskId id, Task& task, ResidencyOrders& orders) {
  if (std::exchange(task.hurried, true)) return;
  task.since = last_;
  orders.push_back({.kind = ResidencyOrder::Kind::Hurry, .task = id, .word = {}, .bytes = {}});
}

void Residency::giveUp(TaskId id, Task& task, ResidencyOrders& orders) {
  QGPU_MARK(DrainGivenUp);
  task.askAt = last_ + doubled(config_.askEvery, task.vain++);
  takeBack(id, task, orders);
}

// Whether it may be ended for a need: who was asked a moment ago is waited for.
bool Residency::refusesRoom(const Task& task) const {
  const bool asked = task.state == State::Draining && last_ < task.since + config_.idleFor;
  return !asked && task.state != State::Leaving && task.state != State::Ending;
}

// First those that gave none, then those that are too slow.
void Residency::endFor(Bytes missing, ResidencyOrders& orders) {
  if (QGPU_PLANTED(NeedWaitsForever)) return;
  for (const auto& [id, task] : tasks_) {
    if (task.state == State::Ending) missing -= task.kept();
  }
  for (const bool givers : {false, true}) {
    while (missing > Bytes(0)) {
      const auto each = chosen(tasks_, missing, [&](TaskId, const Task& task) {
        const bool may = givers ? task.state == State::Leaving : refusesRoom(task);
        return may ? task.kept() : Bytes(0);
      });
      if (each == tasks_.end()) break;
      missing -= each->second.kept();
      end(each->first, each->second, orders);
    }
  }
}

void Residency::end(TaskId id, Task& task, ResidencyOrders& orders) {
  QGPU_MARK(EndedForNeed);
  task.awaited.clear();
  enter(task, State::Ending);
  orders.push_back({.kind = ResidencyOrder::Kind::End, .task = id, .word = {}, .bytes = {}});
}

// --- status ---

Residency::State Residency::state(TaskId task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? State::Ending : found->second.state;
}

Bytes Residency::limit(TaskId task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? Bytes(0) : found->second.limit;
}

}  // namespace qgpu
