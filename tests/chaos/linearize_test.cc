#include "tests/chaos/linearize.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace qgpu::chaos {
namespace {

constexpr Effect kSet{1, 1, kNo, kNo}, kClear{0, 0, kNo, kNo}, kIsSet{kNo, 1, kNo, kNo},
    kIsClear{0, kNo, kNo, kNo};

// Tries every order.
bool anyOrder(std::vector<Step> left, std::int8_t state) {
  Time firstAnswer = kOpen;
  for (const Step& step : left) firstAnswer = std::min(firstAnswer, step.at.completed);
  if (firstAnswer == kOpen) return true;  // what is left may never happen
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::int8_t to = left[i].effect[static_cast<std::size_t>(state)];
    if (left[i].at.invoked > firstAnswer || to == kNo) continue;
    std::vector<Step> rest = left;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    if (anyOrder(std::move(rest), to)) return true;
  }
  return false;
}

TEST(Linearize, SaysWhatTryingEveryOrderSays) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::uint64_t below) { return static_cast<Time>(random() % below); };
  const Effect effects[] = {kSet, kClear, kIsSet, kIsClear};
  int possible = 0;
  constexpr int kCases = 3'000;
  for (int i = 0; i < kCases; ++i) {
    std::vector<Step> steps(static_cast<std::size_t>(3 + draw(5)));
    for (Step& step : steps) {
      step.effect = effects[draw(4)];
      step.at.invoked = draw(12);
      step.at.completed = step.at.invoked + 1 + draw(5);
      const bool writes = step.effect == kSet || step.effect == kClear;
      if (writes && draw(4) == 0) step.at.completed = kOpen;
    }
    std::uint64_t work = 0;
    const bool expected = anyOrder(steps, 0);
    possible += expected ? 1 : 0;
    ASSERT_EQ(!firstImpossible(steps, 0, work).has_value(), expected) << "case " << i;
  }
  EXPECT_GT(possible, kCases / 10);
  EXPECT_LT(possible, kCases * 9 / 10);
}

TEST(Linearize, OfWaysThatDifferInWhatTheySpentTheCheapestIsKept) {
  std::vector<Step> steps;
  for (Time i = 0; i < 1'000; ++i) {
    steps.push_back({{10 * i, kOpen}, i % 2 == 0 ? kSet : kClear});
    steps.push_back({{10 * i + 1, 10 * i + 2}, kSet});
    steps.push_back({{10 * i + 1, 10 * i + 3}, kIsSet});
  }
  std::uint64_t work = 0;
  EXPECT_FALSE(firstImpossible(steps, 0, work).has_value());
  EXPECT_LT(work, 40'000U);
}

}  // namespace
}  // namespace qgpu::chaos
