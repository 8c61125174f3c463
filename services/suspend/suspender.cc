#include "services/suspend/suspender.h"

#include <algorithm>

namespace qgpu::suspend {

Suspender::Suspender(std::unique_ptr<Calls> calls, Rung rung, std::function<void(News)> tell,
                     std::function<void()> begin)
    : calls_(std::move(calls)),
      rung_(rung),
      tell_(std::move(tell)),
      thread_([this, begin = std::move(begin)] {
        if (begin) begin();
        loop_.run();
      }) {}

Suspender::~Suspender() {
  loop_.post([this] { end(); });
  thread_.join();
}

// --- what comes in ---

void Suspender::with(std::uint64_t task, std::function<void(Ladder&)> change) {
  loop_.post([this, task, change = std::move(change)] {
    change(find(task).ladder);
    advance();
  });
}

Suspender::Task& Suspender::find(std::uint64_t id) {
  Task& task = tasks_.try_emplace(id, rung_).first->second;
  if (!lost_.empty()) task.ladder.doubt(lost_);
  return task;
}

void Suspender::hold(std::uint64_t task, std::uint32_t number) {
  loop_.post([this, task, number] {
    Task& held = find(task);
    held.hold = number;
    held.toldStopped = false;
    held.ladder.hold(loop_.now());
    advance();
  });
}

void Suspender::release(std::uint64_t task) {
  with(task, [this](Ladder& ladder) { ladder.release(loop_.now()); });
}

void Suspender::removed(std::uint64_t task) {
  loop_.post([this, task] {
    Task& last = find(task);
    last.removed = true;
    last.ladder.release(loop_.now());
    advance();
  });
}

void Suspender::attached(std::uint64_t, std::uint32_t process, Fd pidfd) {
  // A copyable way for what is posted.
  auto owned = std::make_shared<Fd>(std::move(pidfd));
  loop_.post([this, process, owned] {
    calls_->process(process, owned->get());
    pidfds_[process] = std::move(*owned);
  });
}

void Suspender::gone(std::uint64_t task, std::uint32_t process) {
  loop_.post([this, task, process] {
    find(task).ladder.processGone(process);
    calls_->forget(process);
    pidfds_.erase(process);
    advance();
  });
}

void Suspender::made(std::uint64_t task, const Channel& channel, bool touched) {
  with(task, [channel, touched](Ladder& ladder) { ladder.made(channel, touched); });
}

void Suspender::ended(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  with(task, [client, name](Ladder& ladder) { ladder.ended(client, name); });
}

void Suspender::enabled(std::uint64_t task, std::uint32_t client, std::uint32_t name) {
  with(task, [client, name](Ladder& ladder) { ladder.scheduled(client, name); });
}

// --- what is done ---

// One call to the driver, and then what came in meanwhile.
void Suspender::advance() {
  for (auto& [id, task] : tasks_) tellOf(id, task);
  std::erase_if(tasks_,
                [](const auto& each) { return each.second.removed && each.second.ladder.free(); });
  if (ending_ && tasks_.empty()) return loop_.stop();
  if (posted_) return;
  if (!advanceOne(true) && !advanceOne(false)) return wakeForRetries();
  posted_ = true;
  loop_.post([this] {
    posted_ = false;
    advance();
  });
}

// The next task in turn, of those that are held or of the others, that needs a call now.
bool Suspender::advanceOne(bool held) {
  const auto first = tasks_.upper_bound(lastServed_);
  auto at = first;
  for (std::size_t i = 0; i < tasks_.size(); i++) {
    if (at == tasks_.end()) at = tasks_.begin();
    auto& [id, task] = *at++;
    const bool stays = task.ladder.held() && !task.ladder.doubted();
    if (stays != held) continue;
    const auto order = task.ladder.next(loop_.now());
    if (!order) continue;
    lastServed_ = id;
    carryOut(id, task, *order);
    return true;
  }
  return false;
}

void Suspender::carryOut(std::uint64_t id, Task& task, const Order& order) {
  const bool before = task.ladder.doubted();
  Outcome outcome = calls_->carryOut(order, rung_);
  task.ladder.answered(outcome.answer, outcome.gone, loop_.now());
  if (task.ladder.stopped()) refused_.clear();
  if (!before && task.ladder.doubted()) refused(id, task.ladder.why() + " (" + outcome.why + ")");
  tellOf(id, task);
}

void Suspender::refused(std::uint64_t id, const std::string& why) {
  tasks_.at(id).toldDoubt = true;
  tell_({News::What::kDoubted, id, 0, loop_.now(), why});
  refused_.insert(id);
  if (refused_.size() < kRefusedInARow || !lost_.empty()) return;
  lost_ = why;
  tell_({News::What::kCardLost, 0, 0, loop_.now(), why});
  for (auto& [other, task] : tasks_) task.ladder.doubt(lost_);
}

void Suspender::tellOf(std::uint64_t id, Task& task) {
  if (task.ladder.doubted() && !task.toldDoubt) {
    task.toldDoubt = true;
    tell_({News::What::kDoubted, id, task.hold, loop_.now(), task.ladder.why()});
  }
  if (!task.ladder.stopped() || task.toldStopped) return;
  task.toldStopped = true;
  tell_({News::What::kStopped, id, task.hold, loop_.now(), ""});
}

void Suspender::wakeForRetries() {
  Nanos next = kNever;
  for (const auto& [id, task] : tasks_) next = std::min(next, task.ladder.retryAt());
  loop_.cancel(retry_);
  retry_ = 0;
  if (next == kNever) return;
  retry_ = loop_.at(next, [this] {
    retry_ = 0;
    advance();
  });
}

void Suspender::end() {
  ending_ = true;
  for (auto& [id, task] : tasks_) {
    task.removed = true;
    task.ladder.release(loop_.now());
  }
  loop_.after(kPatience, [this] { loop_.stop(); });
  advance();
}

}  // namespace qgpu::suspend
