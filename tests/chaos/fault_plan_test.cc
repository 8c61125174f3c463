#include "tests/chaos/fault_plan.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

namespace qgpu::chaos {
namespace {

constexpr std::int64_t kLength = 30'000;

std::string all(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (const Planned& one : planStorm(random, kLength)) text += describe(one) + "\n";
  return text;
}

TEST(FaultPlan, ASeedIsAPlanAndAnotherSeedAnother) {
  EXPECT_EQ(all(1), all(1));
  EXPECT_NE(all(1), all(2));
}

TEST(FaultPlan, EveryKindComesFaultsOverlapAndAllEndWithTheStorm) {
  std::set<Fault> kinds;
  std::size_t faults = 0, overlapping = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    std::int64_t until = 0;
    for (const Planned& one : planStorm(random, kLength)) {
      kinds.insert(one.fault);
      ++faults;
      overlapping += one.fromMs < until ? 1 : 0;
      until = std::max(until, one.untilMs);
      EXPECT_LT(one.fromMs, one.untilMs);
      EXPECT_LE(one.untilMs, kLength);
      EXPECT_LT(one.target, kProcesses);
    }
  }
  EXPECT_EQ(kinds.size(), kFaults);
  EXPECT_GT(overlapping, faults / 2);
}

TEST(FaultPlan, OfOneProcessOneKillOrPauseAtATime) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::map<std::size_t, std::int64_t> until;
    for (const Planned& one : planStorm(random, kLength)) {
      if (one.fault != Fault::Kill && one.fault != Fault::Pause) continue;
      EXPECT_LE(until[one.target], one.fromMs) << seed;
      until[one.target] = one.untilMs;
    }
  }
}

}  // namespace
}  // namespace qgpu::chaos
