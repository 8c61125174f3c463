#include "actors/member/known_tasks.h"

namespace qgpu {

KnownTask* KnownTasks::find(std::uint64_t task) {
  const auto found = known_.find(task);
  return found == known_.end() ? nullptr : &found->second;
}

bool KnownTasks::isAsked(std::uint64_t task) const {
  const auto known = known_.find(task);
  return known != known_.end() && known->second.step == KnownTask::Step::Asked;
}

void KnownTasks::ask(std::uint64_t task, std::uint32_t epoch) {
  KnownTask& known = known_[task];
  known.step = KnownTask::Step::Asked;
  known.epoch = epoch;
}

void KnownTasks::askedNoMore(std::uint64_t task, bool held) {
  KnownTask& known = known_.at(task);
  if (held)
    known.step = KnownTask::Step::Held;
  else if (known.over != 0)
    end(task, known.over, known.why);
  else
    known_.erase(task);
}

KnownTask& KnownTasks::hold(std::uint64_t task, std::uint32_t epoch, std::uint64_t nodeTask,
                            std::vector<std::string> cards) {
  KnownTask& known = known_[task];
  known.step = KnownTask::Step::Held;
  known.epoch = epoch;
  known.nodeTask = nodeTask;
  known.cards = std::move(cards);
  return known;
}

void KnownTasks::refuse(KnownTask& known, std::uint32_t epoch, Fault why) {
  if (epoch <= known.over) return;
  known.over = epoch;
  known.why = std::move(why);
}

void KnownTasks::end(std::uint64_t task, std::uint32_t epoch, Fault why) {
  KnownTask& known = known_[task];
  refuse(known, epoch, std::move(why));
  known.step = KnownTask::Step::Over;
  known.nodeTask = 0;
  known.token.clear();
  known.cards.clear();
  known.overStamp = ++lastOver_;
  over_.emplace_back(known.overStamp, task);
  while (over_.size() > kOverKept) {
    const auto [stamp, oldest] = over_.front();
    over_.pop_front();
    const auto found = known_.find(oldest);
    if (found == known_.end() || found->second.isHere()) continue;
    if (found->second.overStamp == stamp) known_.erase(found);
  }
}

}  // namespace qgpu
