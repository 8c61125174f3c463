#include "tests/sim/checkers/check_arbiter.h"

#include <algorithm>

namespace qgpu::sim {
namespace {

// Timers fire between two turns, and a turn takes 2 us at the most.
constexpr Nanos kWakeSlack = micros(10);

}  // namespace

void ArbiterCheck::onBoot(const Boot& boot, Nanos now) {
  books_.clear();
  actors_.clear();
  attach_ = boot.attach;
  for (std::uint32_t i = 0; i < boot.cards.size(); ++i) {
    books_.emplace_back(boot, i, verdict_, now);
    actors_.push_back(boot.cards[i].actor);
  }
  // A new database begins anew; attaching guests then raise it (HAZARDS 23).
  before_ = boot.databaseLost ? 0 : std::max(before_, incarnation_);
  incarnation_ = 0;  // until one is chosen
  due_ = kNever;
}

void ArbiterCheck::onEnd(Ending, Nanos) {
  books_.clear();
  actors_.clear();
  due_ = kNever;
}

CardBook* ArbiterCheck::bookOf(ActorId actor) {
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    if (actors_[i] == actor) return &books_[i];
  }
  return nullptr;
}

void ArbiterCheck::onSent(const Carried& message, Nanos now) {
  if (CardBook* to = bookOf(message.to)) to->sent(message, now);
  switch (message.message.which()) {
    case schema::Envelope::GATE_ORDER:
    case schema::Envelope::CARD_REPORT:
      return reportSent(message, now);
    case schema::Envelope::INCARNATION_CHOSEN: {
      const std::uint32_t value = message.message.getIncarnationChosen().getValue();
      if (value <= before_) {
        verdict_.violated(
            "A10", "incarnation " + std::to_string(value) + " after " + std::to_string(before_));
      }
      if (value < incarnation_) {
        verdict_.violated("A10", "incarnation falls to " + std::to_string(value));
      }
      incarnation_ = value;
      return;
    }
    default:
      return;
  }
}

void ArbiterCheck::reportSent(const Carried& message, Nanos now) {
  CardBook* from = bookOf(message.from);
  if (from == nullptr) return;
  if (message.message.isGateOrder()) {
    from->ordered(message.message.getGateOrder(), now);
  } else {
    from->reported(message.message.getCardReport(), now);
  }
}

void ArbiterCheck::onTurn(const Carried& message, Nanos now) {
  wakeful(now);
  if (CardBook* self = bookOf(message.to)) self->begin(message, now);
}

void ArbiterCheck::onTurnEnd(ActorId self, Nanos now) {
  CardBook* book = bookOf(self);
  if (book == nullptr) return;
  book->end(now);
  due_ = kNever;
  for (const CardBook& each : books_) due_ = std::min(due_, each.due());
}

void ArbiterCheck::onGuest(const GuestNews&, Nanos now) {
  wakeful(now);
}

// A card that waits for time must be woken when it has come.
void ArbiterCheck::wakeful(Nanos now) {
  if (due_ == kNever || now <= due_ + kWakeSlack) return;
  due_ = kNever;
  for (CardBook& book : books_) {
    if (book.due() != kNever && now > book.due() + kWakeSlack) book.overdue(now);
    due_ = std::min(due_, book.due());
  }
}

}  // namespace qgpu::sim
