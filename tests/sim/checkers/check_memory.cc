#include "tests/sim/checkers/check_memory.h"

#include <algorithm>
#include <string>

namespace qgpu::sim {
namespace {

// A reservation shows in the page for a moment before it is taken back, and the bytes of the dead
// until their pidfd has told: reports above the truth count when they go on for so long.
constexpr Nanos kAboveMax = seconds(1);
constexpr std::uint32_t kReportsMin = 3;

}  // namespace

void MemoryCheck::onBoot(const Boot& boot, Nanos) {
  attach_ = boot.attach;
  life_ = boot.life;
  if (boot.databaseLost) ++losses_;  // its ids may be given out again
}

void MemoryCheck::onEnd(Ending ending, Nanos) {
  if (ending == Ending::PowerLoss) ++losses_;
}

void MemoryCheck::onSent(const Carried& message, Nanos now) {
  if (message.message.isUsed() && message.from == attach_) {
    const auto found = tasks_.find(message.message.getUsed().getTask());
    if (found != tasks_.end()) told(found->second, message.message.getUsed(), now);
  } else if (message.message.isTaskKnown() && message.to == attach_) {
    const auto known = message.message.getTaskKnown();
    tasks_[known.getTask()].quota = static_cast<std::int64_t>(known.getQuotaBytes());
  }
}

void MemoryCheck::onGuest(const GuestNews& news, Nanos) {
  using Kind = GuestNews::Kind;
  Task& task = tasks_[news.task];
  const auto [entry, isNew] = processes_.try_emplace(news.process);
  Process& process = entry->second;
  if (isNew && task.processes.empty()) task.losses = losses_;
  if (isNew) task.processes.push_back(news.process);
  std::int64_t change = 0;
  switch (news.kind) {
    case Kind::Attached:
      process.life = life_;
      return;
    case Kind::Lies:
      task.honest = false;
      return;
    case Kind::Silent:
      task.silent = true;
      return;
    case Kind::Died:
      process.lives = false;
      return;
    case Kind::Allocated:
      change = news.amount;
      break;
    case Kind::Freed:
      change = -news.amount;
      break;
    case Kind::BytesReturned:
      if (process.returned) verdict_.violated("A14", "the bytes of a dead process return twice");
      process.returned = true;
      change = -process.bytes;
      break;
    default:
      return;
  }
  process.bytes += change;
  task.bytes += change;
  if (!task.honest || task.losses != losses_) return;
  const std::string who = "task " + std::to_string(news.task);
  if (change > 0 && task.quota != 0 && task.bytes > task.quota) {
    verdict_.violated("A14", who + " has " + std::to_string(task.bytes) + " bytes of " +
                                 std::to_string(task.quota));
  }
  if (process.bytes < 0) verdict_.violated("A14", who + " gave back more than it had");
}

void MemoryCheck::told(Task& task, schema::Used::Reader used, Nanos now) {
  if (!task.honest || task.losses != losses_) return;
  const auto bytes =
      static_cast<std::int64_t>(std::min<std::uint64_t>(used.getMemBytes(), INT64_MAX));
  std::int64_t here = 0;  // of processes that live in this manager's page
  bool allHere = true;
  for (const std::uint32_t id : task.processes) {
    const Process& process = processes_.at(id);
    if (process.lives && process.life == life_) here += process.bytes;
    allHere = allHere && (!process.lives || process.life == life_);
  }
  const std::string who = "task " + std::to_string(used.getTask()) + " is told to use " +
                          std::to_string(bytes) + " bytes; ";
  if (allHere && bytes < std::min(here, task.quota)) {
    verdict_.violated("A14", who + std::to_string(here) + " are in use");
  }
  if (bytes <= task.bytes || task.silent) {
    task.aboveSince = kNever;
    task.above = 0;
    return;
  }
  if (task.above++ == 0) task.aboveSince = now;
  if (task.above < kReportsMin || now - task.aboveSince < kAboveMax) return;
  verdict_.violated("A14", who + std::to_string(task.bytes) + " did not return yet");
}

}  // namespace qgpu::sim
