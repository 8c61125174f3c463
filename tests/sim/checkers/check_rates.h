#pragma once
// Judges how often a card is told of one task. A page may hold nonsense, but nonsense must not
// become news at every look: then the port and its card would be busy with each other alone.
//
// Judged: C7 (a gate page harms nobody else: here, by the time of the card loop).

#include <cstdint>
#include <map>

#include "tests/sim/watch.h"

namespace qgpu::sim {

class RateCheck final : public Watch {
 public:
  // Looks come every 250 us at most, rings a thousand times a second, orders at each end of a
  // slice of 200 us or more: a third of this.
  static constexpr std::uint32_t kBusyMax = 600;
  static constexpr Nanos kWindow = millis(20);

  explicit RateCheck(Verdict& verdict) : verdict_(verdict) {}

  void onBoot(const Boot& boot, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;

 private:
  struct Told {
    Nanos since{0};
    std::uint32_t times = 0;
  };
  Verdict& verdict_;
  std::map<std::uint64_t, Told> told_;   // by task
};

}  // namespace qgpu::sim
