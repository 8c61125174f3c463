#include "tests/sim/checkers/check_mail.h"

#include <algorithm>

namespace qgpu::sim {

void MailCheck::onBoot(const Boot& boot, Nanos) {
  boot_ = boot;
  running_ = true;
  std::vector<std::pair<ActorId, Loop>> all = {{boot.node, Loop::Main}, {boot.attach, Loop::Card}};
  for (const ActorId id : boot.clients) all.emplace_back(id, Loop::Main);
  for (const CardFact& card : boot.cards) all.emplace_back(card.actor, Loop::Card);
  for (const ActorId id : boot.tasks) all.emplace_back(id, Loop::Card);
  const auto [first, last] = std::minmax_element(all.begin(), all.end());
  firstId_ = static_cast<std::uint32_t>(first->first);
  count_ = static_cast<std::uint32_t>(last->first) - firstId_ + 2;
  loops_.assign(count_, Loop::None);
  for (const auto& [id, loop] : all) loops_[at(id)] = loop;
  mail_.assign(count_, {});
  sent_.assign(std::size_t{2} * count_ * count_, 0);
  delivered_ = sent_;
  owes_.assign(count_, 0);
}

void MailCheck::onEnd(Ending, Nanos) {
  running_ = false;
  std::fill(owes_.begin(), owes_.end(), std::uint8_t{0});
}

std::uint32_t MailCheck::at(ActorId id) const {
  const std::uint32_t place = static_cast<std::uint32_t>(id) - firstId_ + 1;
  return static_cast<std::uint32_t>(id) < firstId_ || place >= count_ ? 0 : place;
}

std::uint64_t& MailCheck::lastOf(std::vector<std::uint64_t>& table, const Carried& message) {
  const std::size_t pair = std::size_t{at(message.from)} * count_ + at(message.to);
  return table[2 * pair + static_cast<std::size_t>(message.lane)];
}

void MailCheck::onSent(const Carried& message, Nanos) {
  if (!running_ || message.timer) return;
  std::uint64_t& last = lastOf(sent_, message);
  if (message.serial <= last && at(message.from) != 0) {
    verdict_.violated("C6", "message " + std::to_string(message.serial) +
                                " entered the mailbox after message " + std::to_string(last));
  }
  last = message.serial;
  if (message.lane == Lane::Control) return;
  const auto loop = static_cast<std::size_t>(loops_[at(message.from)]);
  const std::uint32_t to = at(message.to);
  if (++mail_[to][loop] > boot_.mailboxMax && to != 0) {
    verdict_.violated("C5", "a mailbox holds " + std::to_string(mail_[to][loop]) +
                                " messages of at most " + std::to_string(boot_.mailboxMax));
  }
  if (message.from == boot_.node) owes_[to] = 0;
}

void MailCheck::onRefused(ActorId from, ActorId to, Nanos) {
  // The node's own changes go back to those who asked for them.
  if (running_ && from == boot_.node && to != boot_.node) owes_[at(to)] = 1;
}

void MailCheck::onTurn(const Carried& message, Nanos) {
  if (!running_) return verdict_.violated("C8", "an actor has a turn after the end");
  if (message.timer) return;
  std::uint64_t& last = lastOf(delivered_, message);
  if (message.serial <= last && at(message.from) != 0) {
    verdict_.violated("C6", "message " + std::to_string(message.serial) +
                                " has its turn after message " + std::to_string(last));
  }
  last = message.serial;
  if (message.lane == Lane::Control) return;
  --mail_[at(message.to)][static_cast<std::size_t>(loops_[at(message.from)])];
}

void MailCheck::onPhase(Phase phase, Nanos) {
  if (phase != Phase::Restart || !running_) return;
  for (std::uint32_t i = 1; i < count_; ++i) {
    if (owes_[i] != 0) {
      return verdict_.violated("C5", "what a full mailbox refused was not sent again");
    }
  }
}

// --- RateCheck ---

void RateCheck::onBoot(const Boot&, Nanos) {
  told_.clear();
}

void RateCheck::onSent(const Carried& message, Nanos now) {
  if (message.lane != Lane::Control || !message.message.isBusy()) return;
  const std::uint64_t task = message.message.getBusy().getTask();
  Told& told = told_[task];
  if (now - told.since >= kWindow) told = Told{now, 0};
  if (++told.times != kBusyMax) return;
  verdict_.violated("C7", "task " + std::to_string(task) + " is told busy " +
                              std::to_string(kBusyMax) + " times within " +
                              std::to_string(kWindow / millis(1)) + " ms");
}

}  // namespace qgpu::sim
