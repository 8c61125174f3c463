#include "runtime/backoff.h"

#include <gtest/gtest.h>
#include <set>

namespace qgpu::backoff_test {
namespace {

TEST(Backoff, GrowsToItsLimitAndHalfOfEachPauseIsChance) {
  std::set<std::int64_t> firsts;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Backoff backoff(millis(100), millis(350), seed);
    for (const std::int64_t most : {100, 200, 350, 350}) {
      const Nanos pause = backoff.next();
      EXPECT_GE(pause, millis(most) / 2) << "seed " << seed;
      EXPECT_LE(pause, millis(most)) << "seed " << seed;
      if (most == 100) firsts.insert(pause.value);
    }
    backoff.reset();
    EXPECT_LE(backoff.next(), millis(100)) << "seed " << seed;
  }
  EXPECT_GT(firsts.size(), 40U) << "those that lost one server do not come back as one";
}

}  // namespace
}  // namespace qgpu::backoff_test
