// How a real manager finds out whether work can be taken off its NVIDIA cards: on drivers that need
// this or that, on one that says done and lets work go on, over a restart, and as it is told; and
// whether a driver that is newer than qgpu is spoken to as the newest known one. The drivers are
// stand-ins.

#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <sys/stat.h>

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

// --- a driver that is newer than qgpu ---

constexpr std::int64_t kMiB = 1 << 20;

class NewerDriver : public ::testing::Test {
 protected:
  NewerDriver() { EXPECT_EQ(mkfifo(lines().c_str(), 0600), 0); }
  // `shift`: what its layout has elsewhere (tests/rm_stand_in/shifted.h).
  void start(const std::string& shift = "") {
    environment_ = drivers();
    environment_["QGPU_STAND_IN_DRIVER"] = "615.71.09";
    if (!shift.empty()) environment_["QGPU_STAND_IN_SHIFT"] = shift;
    manager_.emplace(std::vector<std::string>{"--cards=nvidia", "--suspend=gate"}, environment_);
  }
  std::string counted() { return onlyCard(*manager_)["memory_counted"]; }
  // What a task's use comes to, with 400 MiB and what CUDA takes beside.
  std::int64_t usedWhile(const std::function<void()>& with) {
    Environment more = environment_;
    more["CUDA"] = binary("cuda_program");
    more["PIPE"] = lines();
    auto tenant = manager_->runTask(
        {"--name", "tenant", "--memory", "1", "--", "sh", "-c", "exec $CUDA < $PIPE"}, more);
    std::ofstream to(lines());
    to << "init\nalloc plain 1 419430400" << std::endl;
    const auto used = [&] {
      const Json task = manager_->task("tenant");
      return task.is_null() ? -1 : task["mem_used_bytes"].get<std::int64_t>();
    };
    EXPECT_TRUE(eventually([&] { return used() >= 400 * kMiB; })) << tenant->output();
    const std::int64_t bytes = used();
    with();
    to.close();
    EXPECT_EQ(tenant->wait().value_or(-1), 0) << tenant->output();
    return bytes;
  }

  TempFolder dir_;
  std::string lines() const { return dir_.path() + "/lines"; }
  Environment environment_;
  std::optional<Manager> manager_;
};

TEST_F(NewerDriver, OneOfTheNewestKnownLayoutIsTriedOnceAndThenCountsToTheByte) {
  start();
  EXPECT_EQ(counted(),
            "where driver 615.71.09 is asked for it, in the layout of 595, which was tried on this "
            "card");
  std::uint64_t held = 0;
  const std::int64_t used = usedWhile([&] { held = rm_stand_in::heldBytes(driver()); });
  EXPECT_EQ(static_cast<std::uint64_t>(used), held);
  EXPECT_GT(used, 402 * kMiB) << "a context counts as well";
  EXPECT_EQ(manager_->log().find("it agreed before"), std::string::npos);
  manager_->kill();
  manager_->start();
  EXPECT_NE(counted().find("the layout of 595, which was tried"), std::string::npos) << counted();
  EXPECT_NE(manager_->log().find("it agreed before"), std::string::npos) << manager_->log();
}

TEST_F(NewerDriver, OneOfAnotherLayoutCountsAtCudasCallsAndPeopleAreToldWhy) {
  start("size");
  EXPECT_EQ(
      counted(),
      "at CUDA's calls, without contexts and what pools keep: driver 615.71.09 is not known "
      "to qgpu (515 to 595 are), and the layout of 595 is not its: no memory of a context is seen");
  constexpr std::int64_t kAsked = 4096;  // by the program, at its start
  EXPECT_EQ(usedWhile([] {}), 400 * kMiB + kAsked);
}

}  // namespace
}  // namespace qgpu::e2e::suspend_start_test
