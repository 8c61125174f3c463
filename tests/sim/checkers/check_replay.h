#pragma once
// A13: a card's decisions are a function of what it was told. A second card actor is given each
// message of the first, at the same time, and must answer with the same words. It is the product
// that is asked twice here, so this file is the only one of the checkers that knows it.

#include <memory>
#include <vector>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class ReplayCheck final : public Watch {
 public:
  explicit ReplayCheck(Verdict& verdict);
  ~ReplayCheck() override;

  void onBoot(const Boot& boot, Nanos now) override;
  void onEnd(Ending ending, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onTurnEnd(ActorId self, Nanos now) override;

 private:
  class Second;
  Second* of(ActorId actor);

  Verdict& verdict_;
  std::vector<std::unique_ptr<Second>> seconds_;
};

}  // namespace qgpu::sim
