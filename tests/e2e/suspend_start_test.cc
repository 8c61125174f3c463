// How a real manager finds out whether work can be taken off its NVIDIA cards: on drivers that need
// this or that, on one that says done and lets work go on, over a restart, and as it is told. The
// drivers are stand-ins.

#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/e2e/harness.h"
#include "tests/rm_stand_in/test_driver.h"

namespace qgpu::e2e::suspend_start_test {
namespace {

using rm_stand_in::Commit;
using rm_stand_in::driver;
using rm_stand_in::drivers;

Json onlyCard(Manager& manager) {
  const Json cards = manager.cards();
  EXPECT_EQ(cards.size(), 1u) << cards;
  return cards.empty() ? Json() : cards[0];
}

TEST(SuspendAtStart, ACardWhoseWorkStopsSuspendsByRmWhateverItsDriverNeedsForIt) {
  for (const Commit needs : {Commit::kNone, Commit::kRestart}) {
    driver().commit = needs;
    Manager manager({"--cards=nvidia"}, drivers());
    const Json card = onlyCard(manager);
    EXPECT_EQ(card["suspend"], "rm") << card;
    EXPECT_FALSE(card.contains("suspend_why")) << card;
    EXPECT_EQ(card["memory_counted"], "where driver 580.142 is asked for it");
    EXPECT_EQ(manager.stop(), 0);
  }
}

TEST(SuspendAtStart, ACardWhoseWorkGoesOnSuspendsByGateAndPeopleAreToldWhy) {
  driver().commit = Commit::kNever;
  Manager manager({"--cards=nvidia"}, drivers());
  const Json card = onlyCard(manager);
  EXPECT_EQ(card["suspend"], "gate") << card;
  EXPECT_EQ(card["suspend_why"], "the kernel went on while it was off");
  const Finished shown = run({binary("qgpuctl"), "--socket", manager.socket(), "cards"});
  EXPECT_NE(shown.output.find("gpu-0: gate: the kernel went on while it was off\n"),
            std::string::npos)
      << shown.output;
}

TEST(SuspendAtStart, ARestartStartsNoProbeAgain) {
  driver().commit = Commit::kNone;
  Manager manager({"--cards=nvidia"}, drivers());
  EXPECT_EQ(onlyCard(manager)["suspend"], "rm");
  const std::uint64_t before = driver().disables.load();
  EXPECT_GT(before, 0u);
  manager.kill();
  manager.start();
  EXPECT_EQ(onlyCard(manager)["suspend"], "rm");
  EXPECT_EQ(driver().disables.load(), before);
}

TEST(SuspendAtStart, NoProbeIsStartedWhereGateIsAskedFor) {
  const std::uint64_t before = driver().disables.load();
  Manager manager({"--cards=nvidia", "--suspend=gate"}, drivers());
  const Json card = onlyCard(manager);
  EXPECT_EQ(card["suspend"], "gate");
  EXPECT_EQ(card["suspend_why"], "asked for by --suspend=gate");
  EXPECT_EQ(driver().disables.load(), before);
}

TEST(SuspendAtStart, RmByNameIsRefusedWithTheReasonWhereNoCardTakesIt) {
  driver().commit = Commit::kNever;
  const TempFolder dir;
  const auto start = [&](const std::string& cards) {
    return run({binary("qgpu-manager"), cards, "--suspend=rm", "--http=127.0.0.1:0",
                "--run-dir=" + dir.path() + "/run", "--dbfile=" + dir.path() + "/meta.db"},
               drivers());
  };
  const Finished refused = start("--cards=nvidia");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.output.find("the kernel went on while it was off"), std::string::npos)
      << refused.output;
  const Finished none = start("--cards=sim:1x16");
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.output.find("there is none of NVIDIA's"), std::string::npos) << none.output;
}

}  // namespace
}  // namespace qgpu::e2e::suspend_start_test
