// A worker that dies is a failure, whenever it dies, and so is what only the second run of a seed
// shows. The runner starts its own program as a worker: here that is this test, which says what
// QGPU_RUNNER_STORY wants of each seed.

#include "tests/sim/runner.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <string>

#include "tests/testing/run_tests.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::sim {
namespace {

// Whether this seed was run before, by whatever worker of the test.
bool ranBefore(std::uint64_t seed) {
  const std::string mark =
      std::string(std::getenv("QGPU_RUNNER_FOLDER")) + "/" + std::to_string(seed);
  const bool before = std::filesystem::exists(mark);
  std::ofstream(mark) << "ran";
  return before;
}

// Seed 2 is the one that the story is about.
int playWorker() {
  const std::string story = std::getenv("QGPU_RUNNER_STORY");
  for (std::uint64_t seed = 0; std::cin >> seed;) {
    const bool again = ranBefore(seed);
    const bool meant = seed == 2 && (again || story.find("again") == std::string::npos);
    if (meant && story.starts_with("dies")) std::abort();
    if (meant && story.starts_with("leaves")) return 0;
    const bool bad = meant && story.starts_with("bad");
    const int hash = meant && story.starts_with("differs") ? 8 : 7;
    std::cout << (bad ? "bad " : "good ") << seed << " " << hash << " 1 1 1"
              << (bad ? " 5 A3 0 0 wrong" : "") << std::endl;
  }
  return story == "ends badly" ? 99 : 0;
}

Summary runs(const std::string& story, bool twice = false) {
  const testing::TempFolder folder;
  ::setenv("QGPU_RUNNER_STORY", story.c_str(), 1);
  ::setenv("QGPU_RUNNER_FOLDER", folder.path().c_str(), 1);
  RunnerOptions options;
  options.jobs = 2;
  options.twice = twice;
  options.quiet = true;
  return runSeeds({{1, 2, 3, 4}}, options);
}

TEST(Runner, GoodSeedsAreGood) {
  EXPECT_TRUE(runs("good").bad.empty());
  EXPECT_TRUE(runs("good", true).bad.empty());
}

TEST(Runner, AWorkerThatDiesOrLeavesIsAFailureOfItsSeedAndTheOthersRunOn) {
  for (const char* story : {"dies", "leaves"}) {
    const Summary summary = runs(story);
    ASSERT_EQ(summary.bad.size(), 1u) << story;
    EXPECT_EQ(summary.bad[0].seed, 2u);
    EXPECT_EQ(summary.bad[0].failure.failing, Failing::Crash);
    EXPECT_EQ(summary.seeds, 4u);
  }
}

// As one does in which a sanitizer finds a leak.
TEST(Runner, AWorkerThatEndsBadlyAfterItsLastSeedIsAFailure) {
  const Summary summary = runs("ends badly");
  ASSERT_EQ(summary.bad.size(), 2u) << "both";
  EXPECT_EQ(summary.bad[0].failure.failing, Failing::Crash);
  EXPECT_NE(summary.bad[0].failure.what.find("exit status 99"), std::string::npos);
}

TEST(Runner, WhatTheSecondRunOfASeedShowsIsAFailure) {
  for (const char* story : {"bad again", "dies again", "leaves again", "differs again"}) {
    const Summary summary = runs(story, true);
    ASSERT_EQ(summary.bad.size(), 1u) << story;
    EXPECT_EQ(summary.bad[0].seed, 2u);
  }
  EXPECT_EQ(runs("bad", true).bad.size(), 1u) << "told once";
}

}  // namespace
}  // namespace qgpu::sim

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--worker") return qgpu::sim::playWorker();
  ::testing::InitGoogleTest(&argc, argv);
  return qgpu::testing::runTests();
}
