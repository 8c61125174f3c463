#include "services/cards/suspend/holds.h"

#include <algorithm>
#include <utility>

namespace qgpu::suspend {

// --- what comes in ---

Holds::Task& Holds::find(std::uint64_t id) {
  Task& task = tasks_.try_emplace(id, method_).first->second;
  if (!lost_.empty()) task.suspender.doubt(lost_);
  return task;
}

void Holds::hold(std::uint64_t id, std::uint32_t number, Nanos now) {
  Task& task = find(id);
  task.hold = number;
  task.toldStopped = false;
  task.suspender.hold(now);
}

void Holds::release(std::uint64_t task, Nanos now) {
  find(task).suspender.release(now);
}

void Holds::removed(std::uint64_t id, Nanos now) {
  Task& task = find(id);
  task.removed = true;
  task.suspender.release(now);
}

void Holds::removeAll(Nanos now) {
  for (const auto& [id, task] : tasks_) removed(id, now);
}

// A name that a dead process had is another's only after that one's end, if it is told late.
void Holds::made(std::uint64_t task, const Channel& channel, bool touched) {
  const bool reaped = std::erase(reaped_, std::pair(channel.client, channel.channel)) != 0;
  find(task).suspender.made(channel, touched || reaped);
}

void Holds::ended(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  find(task).suspender.ended(client, name);
}

void Holds::enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  find(task).suspender.scheduled(client, name);
}

void Holds::gone(std::uint64_t task, std::uint32_t process) {
  find(task).suspender.processGone(process);
}

void Holds::again(std::uint64_t task) {
  find(task).suspender.again();
}

void Holds::doubt(std::uint64_t task, const std::string& why) {
  find(task).suspender.doubt(why);
}

// --- what is done ---

std::optional<Order> Holds::next(Nanos now) {
  if (asked_) return std::nullopt;
  for (int i = 1; i <= kKinds; i++) {
    const auto kind = static_cast<Kind>((static_cast<int>(lastKind_) + i) % kKinds);
    if (auto order = nextOf(kind, now)) {
      lastKind_ = kind;
      return order;
    }
  }
  return std::nullopt;
}

Holds::Kind Holds::kindOf(const Task& task) {
  if (!task.suspender.held() || task.suspender.doubted()) return Kind::kBack;
  return task.toldStopped || task.suspender.computingOff() ? Kind::kRest : Kind::kHold;
}

// What is named by a process that lives is not the dead one's any more: names are given anew only
// after an end.
std::optional<Order> Holds::orderOf(std::uint64_t id, Task& task, Nanos now) {
  auto order = task.suspender.next(now);
  while (order && order->channels.front().dead) {
    const Channel& left = order->channels.front();
    const bool anothers = std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& each) {
      return each.first != id && each.second.suspender.has(left.client, left.channel);
    });
    if (!anothers) break;
    task.suspender.answered(Answer::kGone, order->channels, now);
    order = task.suspender.next(now);
  }
  dying_.reset();
  if (order && order->channels.front().dead) dying_ = order->channels.front();
  return order;
}

std::optional<Order> Holds::nextOf(Kind kind, Nanos now) {
  auto at = tasks_.upper_bound(lastServed_);
  for (std::size_t i = 0; i < tasks_.size(); i++) {
    if (at == tasks_.end()) at = tasks_.begin();
    auto& [id, task] = *at++;
    if (kindOf(task) != kind) continue;
    auto order = orderOf(id, task, now);
    if (!order) continue;
    asked_ = lastServed_ = id;
    return order;
  }
  return std::nullopt;
}

void Holds::answered(const Outcome& outcome, Nanos now) {
  if (!asked_) return;
  const std::uint64_t id = *std::exchange(asked_, std::nullopt);
  ChannelSuspender& suspender = tasks_.at(id).suspender;
  const bool before = suspender.doubted();
  if (dying_ && outcome.answer == Answer::kDone) {
    reaped_.emplace_back(dying_->client, dying_->channel);
    if (reaped_.size() > kReapedMax) reaped_.pop_front();
  }
  suspender.answered(outcome.answer, outcome.gone, now);
  if (suspender.stopped()) refused_.clear();
  if (before || !suspender.doubted()) return;
  const std::string why = suspender.why() + " (" + outcome.why + ")";
  tasks_.at(id).toldDoubt = true;
  news_.push_back({News::What::kDoubted, id, 0, now, why});
  if (outcome.answer == Answer::kFailed) refused(id, now, why);
}

void Holds::refused(std::uint64_t id, Nanos now, const std::string& why) {
  refused_.insert(id);
  if (refused_.size() < kRefusedInARow || checking_ || now < nextCheck_ || !lost_.empty()) return;
  refusal_ = why;
  checking_ = true;
  news_.push_back({News::What::kCardDoubted, 0, 0, now, why});
}

void Holds::checked(const Verdict& verdict, Nanos now) {
  checking_ = false;
  nextCheck_ = now + kCheckEvery;
  if (verdict.says == Verdict::Says::kWorks) refused_.clear();
  if (verdict.says != Verdict::Says::kFails || !lost_.empty()) return;
  lost_ = verdict.why.empty() ? refusal_ : verdict.why;
  news_.push_back({News::What::kCardLost, 0, 0, now, lost_});
  for (auto& [id, task] : tasks_) task.suspender.doubt(lost_);
}

std::vector<News> Holds::news(Nanos now) {
  for (auto& [id, task] : tasks_) {
    if (task.suspender.doubted() && !std::exchange(task.toldDoubt, true)) {
      news_.push_back({News::What::kDoubted, id, task.hold, now, task.suspender.why()});
    }
    if (!task.suspender.stopped() || std::exchange(task.toldStopped, true)) continue;
    news_.push_back({News::What::kStopped, id, task.hold, now, ""});
  }
  std::erase_if(tasks_, [this](const auto& each) {
    return each.second.removed && each.second.suspender.free() && asked_ != each.first;
  });
  return std::exchange(news_, {});
}

Nanos Holds::retryAt() const {
  Nanos next = kNever;
  for (const auto& [id, task] : tasks_) next = std::min(next, task.suspender.retryAt());
  return next;
}

}  // namespace qgpu::suspend
