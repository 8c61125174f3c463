#pragma once
// Judges each card of the simulated node: A1 to A12 by what its actor is told and orders. See
// card_book.h for the rules; here is which message belongs to which card, and A10 over lives.

#include <vector>

#include "tests/sim/checkers/card_book.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

class ArbiterCheck final : public Watch {
 public:
  explicit ArbiterCheck(Verdict& verdict) : verdict_(verdict) {}

  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onTurnEnd(ActorId self, Nanos now) override;
  void onGuest(const GuestNews& news, Nanos now) override;

 private:
  CardBook* bookOf(ActorId actor);
  void wakeful(Nanos now);
  void reportSent(const Carried& message, Nanos now);

  Verdict& verdict_;
  std::vector<CardBook> books_;
  std::vector<ActorId> actors_;
  ActorId attach_{};
  Nanos due_ = kNever;             // of the earliest card
  std::uint32_t incarnation_ = 0;  // in force
  std::uint32_t before_ = 0;       // the greatest of earlier lives
};

}  // namespace qgpu::sim
