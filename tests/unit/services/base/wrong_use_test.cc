// What is said to somebody who mistyped something.

#include "services/base/wrong_use.h"

#include <gtest/gtest.h>

namespace qgpu::wrong_use_test {
namespace {

const std::vector<std::string> kKnown = {"status", "submit", "tasks", "top", "what-if", "-c"};

TEST(DidYouMean, NamesTheWordThatIsFewSlipsAway) {
  EXPECT_EQ(didYouMean("subimt", kKnown), ": did you mean submit?") << "two that changed places";
  EXPECT_EQ(didYouMean("sumbit", kKnown), ": did you mean submit?");
  EXPECT_EQ(didYouMean("submi", kKnown), ": did you mean submit?");
  EXPECT_EQ(didYouMean("task", kKnown), ": did you mean tasks?");
  EXPECT_EQ(didYouMean("statsu", kKnown), ": did you mean status?");
  EXPECT_EQ(didYouMean("sta", kKnown), ": did you mean status?") << "its beginning";
  EXPECT_EQ(didYouMean("whatif", kKnown), ": did you mean what-if?");
}

TEST(DidYouMean, SaysNothingWhereNothingIsNear) {
  for (const char* word : {"", "x", "frobnicate", "s", "drain", "--", "\xFF\xFF\xFF"}) {
    EXPECT_EQ(didYouMean(word, kKnown), "") << word;
  }
  EXPECT_EQ(didYouMean(std::string(1'000'000, 's'), kKnown), "");
  EXPECT_EQ(didYouMean("status", {}), "");
}

TEST(ShortNumbers, CutsWhatNoNumberOfOursHas) {
  EXPECT_EQ(shortNumbers("from 0 to 18446744073709551615"), "from 0 to 18446744073709551615");
  EXPECT_EQ(shortNumbers("a " + std::string(309, '9') + " b"),
            "a " + std::string(kDigitsShown, '9') + "... b");
  EXPECT_EQ(shortNumbers("1.5GiB"), "1.5GiB");
}

}  // namespace
}  // namespace qgpu::wrong_use_test
