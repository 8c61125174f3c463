// How a program ends of which tests were skipped. This one is started for tests of its own that are
// run no other way.

#include "tests/testing/run_tests.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/child_process.h"

namespace qgpu::testing {
namespace {

TEST(DISABLED_Ends, Skipped) {
  GTEST_SKIP() << "not to be had here";
}
TEST(DISABLED_Ends, SkippedToo) {
  GTEST_SKIP() << "nor this";
}
TEST(DISABLED_Ends, Passed) {}
TEST(DISABLED_Ends, Failed) {
  FAIL() << "as it should";
}

int endOf(const std::string& tests) {
  return run({binary("testing_test"), "--gtest_also_run_disabled_tests", "--gtest_filter=" + tests})
      .status;
}

TEST(RunTests, AProgramOfWhichAllChosenTestsWereSkippedIsSkipped) {
  EXPECT_EQ(endOf("DISABLED_Ends.Skipped*"), kSkipped);
  EXPECT_EQ(endOf("DISABLED_Ends.SkippedToo"), kSkipped);
}

TEST(RunTests, OneThatRanIsNot) {
  EXPECT_EQ(endOf("DISABLED_Ends.Skipped:DISABLED_Ends.Passed"), 0);
  EXPECT_EQ(endOf("DISABLED_Ends.Skipped:DISABLED_Ends.Failed"), 1);
  EXPECT_EQ(endOf("DISABLED_Ends.NoneOfThisName"), 0) << "nothing was to run";
}

// Programs of GoogleTest are those that are called so.
TEST(RunTests, CtestTakesThatStatusForSkippedInEachEntryOfSuchAProgram) {
  const Finished shown = run({"ctest", "--test-dir", QGPU_BUILD_ROOT, "--show-only=json-v1"});
  ASSERT_EQ(shown.status, 0) << shown.output;
  const auto all = nlohmann::json::parse(shown.output.substr(shown.output.find('{')));
  std::size_t looked = 0;
  for (const auto& entry : all["tests"]) {
    if (!entry.contains("command")) continue;  // its program was not built
    const std::string program = std::filesystem::path(entry["command"][0].get<std::string>());
    if (!program.ends_with("_test")) continue;
    const nlohmann::json skips = {{"name", "SKIP_RETURN_CODE"}, {"value", kSkipped}};
    EXPECT_EQ(std::ranges::count(entry["properties"], skips), 1) << entry["name"];
    ++looked;
  }
  EXPECT_GT(looked, 0u);
}

}  // namespace
}  // namespace qgpu::testing
