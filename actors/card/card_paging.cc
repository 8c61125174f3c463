#include "actors/card/card_paging.h"

#include <algorithm>

#include "actors/base/codec.h"

namespace qgpu {
namespace {

constexpr std::uint64_t kEpochMask = 0x7fffffff;

PagingAnswer readAnswer(std::uint32_t word) {
  const bool known = word <= static_cast<std::uint32_t>(PagingAnswer::NoRoom);
  return known ? static_cast<PagingAnswer>(word) : PagingAnswer::None;
}

}  // namespace

bool CardPaging::isPageable(TaskId id) const {
  const auto found = tasks_.find(id);
  return found != tasks_.end() && found->second.pageable > Bytes(0);
}

void CardPaging::join(TaskId id, Bytes pageable, Nanos now) {
  if (!on()) return;
  tasks_[id].pageable = pageable;
  if (pageable > Bytes(0) && gatheredAt_ == kNever) gatheredAt_ = now + kGather;
}

void CardPaging::leave(TaskId id, Nanos now) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return;
  catchUp(now);
  if (core_ && found->second.joined) core_->leave(id, now, orders_);
  const Task task = std::move(found->second);
  tasks_.erase(found);
  if (!core_) return;
  tellOthers(now);
  endNeeds(task.processes, now);
}

void CardPaging::told(schema::Paged::Reader paged, Nanos now) {
  const TaskId id{paged.getTask()};
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return;
  catchUp(now);
  Task& task = found->second;
  task.told = true;
  task.firm = Bytes(bounded(paged.getFirmBytes()));
  task.held = Bytes(bounded(paged.getHeldBytes()));
  task.out = std::min(Bytes(bounded(paged.getOutBytes())), task.held);
  task.more = Bytes(bounded(paged.getMoreBytes()));
  const std::map<std::uint32_t, Process> before = std::exchange(task.processes, {});
  for (const auto each : paged.getProcesses()) {
    Process& process = task.processes[each.getProcess()];
    process.epoch = each.getEpoch();
    process.answer = readAnswer(each.getAnswer());
    process.out = Bytes(bounded(each.getOutBytes()));
    process.need = Bytes(bounded(each.getNeedBytes()));
    process.needSince = each.getNeedSinceNs();
  }
  if (!core_) return;
  // What stands in the page now: the rest of this turn may order another one.
  const bool stands = paged.getLimitOrder() == task.limitOrder;
  const Bytes limit = core_->limit(id);
  tellOthers(now);
  if (task.pageable == Bytes(0)) return needsOf(task, before, now);
  const bool cameBack =
      std::any_of(task.processes.begin(), task.processes.end(), [&](const auto& process) {
        return process.second.out > Bytes(0) && !before.contains(process.first);
      });
  const bool ends = task.joined && core_->state(id) == Residency::State::Ending;
  if (!task.joined || (cameBack && !ends)) return joinCore(id, task, now);
  core_->holds(id, task.held - task.out, task.out, task.more, now, orders_);
  tellProcesses(id, task, before, now);
  if (stands) core_->trimmed(id, limit, task.held - task.out, now, orders_);
}

// After their sums: what they answer is about these.
void CardPaging::tellProcesses(TaskId id, Task& task,
                               const std::map<std::uint32_t, Process>& before, Nanos now) {
  for (const auto& [number, process] : before) {
    if (!task.processes.contains(number)) core_->died(id, number, now, orders_);
  }
  for (const auto& [number, process] : task.processes) {
    if (!before.contains(number)) core_->attached(id, number, now, orders_);
    core_->answered(id, number, process.epoch, process.answer, now, orders_);
  }
}

// A need that goes on keeps its number and its age.
void CardPaging::needsOf(Task& task, const std::map<std::uint32_t, Process>& before, Nanos now) {
  std::map<std::uint32_t, Process> over = before;
  for (auto& [number, process] : task.processes) {
    const auto was = over.find(number);
    const bool known = was != over.end() && was->second.request != 0;
    const bool goesOn = known && was->second.needSince == process.needSince;
    if (process.need == Bytes(0)) continue;
    process.needFrom = goesOn ? was->second.needFrom
                              : std::clamp(Nanos(bounded(process.needSince)), now - kNeedLate, now);
    if (goesOn && was->second.need == process.need) {
      process.request = was->second.request;
      process.againAt = was->second.againAt;
      process.over = was->second.over;
      over.erase(was);
    }
  }
  endNeeds(over, now);
  for (auto& [number, process] : task.processes) {
    if (process.need == Bytes(0) || process.request != 0) continue;
    process.request = ++requests_;
    core_->need(process.request, process.need, process.needFrom, now, orders_);
  }
}

void CardPaging::endNeeds(const std::map<std::uint32_t, Process>& processes, Nanos now) {
  for (const auto& [number, process] : processes) {
    if (process.request != 0) core_->given(process.request, now, orders_);
  }
}

std::pair<TaskId, Bytes> CardPaging::waiting() const {
  std::pair<TaskId, Bytes> oldest{TaskId::kNone, Bytes(0)};
  Nanos from = kNever;
  for (const auto& [id, task] : tasks_) {
    for (const auto& [number, process] : task.processes) {
      if (process.request == 0 || process.over || process.needFrom >= from) continue;
      from = process.needFrom;
      oldest = {id, process.need};
    }
  }
  return oldest;
}

// Only what is told: strangers and contexts are no task's, and the driver refuses what they took.
void CardPaging::tellOthers(Nanos now) {
  Bytes bytes{0};
  for (const auto& [id, task] : tasks_) {
    bytes += task.firm;
    if (task.pageable > Bytes(0) && !task.joined) bytes += task.held - task.out;
  }
  core_->othersHold(bytes, now, orders_);
}

void CardPaging::joinCore(TaskId id, Task& task, Nanos now) {
  std::set<std::uint32_t> processes;
  for (const auto& [number, process] : task.processes) processes.insert(number);
  core_->join(id, task.pageable, task.held - task.out, task.out, processes, now, orders_);
  if (std::exchange(task.joined, true)) return;
  tellOthers(now);  // counted as another's until here
}

// No answer of before may look like one to a word of this manager: what processes may have seen is
// below the time, too, since words are fewer than milliseconds.
void CardPaging::begin(Nanos now) {
  gatheredAt_ = kNever;
  auto epoch = static_cast<std::uint32_t>(static_cast<std::uint64_t>(now / millis(1)) & kEpochMask);
  for (const auto& [id, task] : tasks_) {
    for (const auto& [number, process] : task.processes) {
      if (process.epoch <= kEpochMask) epoch = std::max(epoch, process.epoch);
    }
  }
  core_.emplace(*config_, now, epoch);
  core_->online(online_, now);
  tellOthers(now);
  for (auto& [id, task] : tasks_) {
    if (task.pageable > Bytes(0) && task.told) joinCore(id, task, now);
  }
  for (auto& [id, task] : tasks_) {
    if (task.pageable == Bytes(0)) needsOf(task, {}, now);
  }
}

void CardPaging::online(bool busy, Nanos now) {
  catchUp(now);
  online_ = busy;
  if (core_) core_->online(busy, now);
}

// What is due comes before what is told: a deadline that something else passes by is none any more.
void CardPaging::catchUp(Nanos now) {
  if (core_ && now >= core_->nextDeadline()) core_->expire(now, orders_);
}

void CardPaging::expire(Nanos now) {
  if (!core_ && now >= gatheredAt_) return begin(now);
  catchUp(now);
  askAgain(now);
}

void CardPaging::answered(std::uint64_t request, bool room, Nanos now) {
  for (auto& [id, task] : tasks_) {
    for (auto& [number, process] : task.processes) {
      if (process.request != request) continue;
      process.over = true;
      if (room) process.againAt = now + kAskAgain;
    }
  }
}

void CardPaging::askAgain(Nanos now) {
  for (auto& [id, task] : tasks_) {
    for (auto& [number, process] : task.processes) {
      if (now < process.againAt) continue;
      process.againAt = kNever;
      process.over = false;
      core_->given(process.request, now, orders_);
      process.request = ++requests_;
      core_->need(process.request, process.need, process.needFrom, now, orders_);
    }
  }
}

Nanos CardPaging::nextDeadline() const {
  if (!core_) return gatheredAt_;
  Nanos next = core_->nextDeadline();
  for (const auto& [id, task] : tasks_) {
    for (const auto& [number, process] : task.processes) next = std::min(next, process.againAt);
  }
  return next;
}

}  // namespace qgpu
