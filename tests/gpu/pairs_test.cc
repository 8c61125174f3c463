#include "tests/gpu/pairs.h"

#include <gtest/gtest.h>
#include <numeric>

#include "tests/gpu/ranks.h"

namespace qgpu::gpu {
namespace {

std::vector<int> countTo(int most) {
  std::vector<int> all(static_cast<std::size_t>(most));
  std::iota(all.begin(), all.end(), 1);
  return all;
}

TEST(Ranks, ThePercentileOfAHundredIsNotTheirMaximum) {
  EXPECT_EQ(rank(countTo(100), 990), 99);
  EXPECT_EQ(rank(countTo(300), 990), 297);
  EXPECT_EQ(rank(countTo(1'000), 999), 999);
}

TEST(Ranks, FewValuesHaveTheirGreatestAsHighPercentiles) {
  EXPECT_EQ(rank(countTo(8), 990), 8);
  EXPECT_EQ(rank(countTo(1), 0), 1);
  EXPECT_EQ(rank(countTo(1), 1'000), 1);
}

TEST(Ranks, TheMedianIsTheLowerOfTwo) {
  EXPECT_EQ(rank(countTo(12), 500), 6);
  EXPECT_EQ(rank(countTo(3), 500), 2);
}

TEST(Pairs, EachOfTheTwoIsAsOftenTheFirst) {
  std::vector<bool> order;
  const Pairs all = Pairs::run(4, [&](bool under) {
    order.push_back(under);
    return static_cast<double>(order.size());
  });
  EXPECT_EQ(order, (std::vector<bool>{false, true, true, false, false, true, true, false}));
  EXPECT_EQ(all.bare, (std::vector<double>{1, 4, 5, 8}));
  EXPECT_EQ(all.under, (std::vector<double>{2, 3, 6, 7}));
}

TEST(Pairs, AreMissedOnlyWhereMostOfThemAgree) {
  const auto judged = [](std::vector<double> differences) {
    Finding finding;
    judgePairs(finding, "added", std::move(differences), 20);
    EXPECT_EQ(finding.verdict == Verdict::kReported, !finding.why.empty());
    return finding.verdict;
  };
  EXPECT_EQ(judged({90, 10, 15, 12}), Verdict::kMet);
  EXPECT_EQ(judged({40, 21, 30, 25}), Verdict::kMissed);
  EXPECT_EQ(judged({40, 10, 30, 25}), Verdict::kReported);
}

}  // namespace
}  // namespace qgpu::gpu
