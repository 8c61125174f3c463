#pragma once
// What the guard's refusals (services/guard) become for people: an event of the task, with the
// process and the card. A program that tries again and again is told of once in a while; the
// metric has the number.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "services/cards/cards.h"
#include "services/guard/guard.h"

namespace qgpu {

// AttachPort has one. Pure but for the cards' names.
class GuardNews {
 public:
  static constexpr Nanos kTellEach = seconds(10);  // of one task
  static constexpr std::size_t kTasksMost = 1'024;

  // `cards` by index; they outlive this.
  explicit GuardNews(const std::vector<Card>& cards) : cards_(cards) {}

  // Empty: of this task one was told just before.
  std::string textOf(const GuardRefusal& refusal, Nanos now);

 private:
  const std::vector<Card>& cards_;
  std::map<std::uint64_t, Nanos> toldAt_;  // by task
};

}  // namespace qgpu
