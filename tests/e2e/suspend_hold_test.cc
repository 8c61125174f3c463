// A real manager takes the work of real programs off an NVIDIA card in the middle of a kernel, and
// puts it back: under an online task, over kills and restarts of the manager, with a driver that
// refuses. The drivers are stand-ins; a kernel's time stands still there while its channel is off.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <signal.h>

#include "services/attach/pages/timeslices.h"
#include "services/cards/suspend/channel_suspender.h"
#include "services/nvidia_abi/rm_abi.h"
#include "tests/e2e/harness.h"
#include "tests/rm_stand_in/test_driver.h"

namespace qgpu::e2e::suspend_hold_test {
namespace {

using rm_stand_in::channelsOff;
using rm_stand_in::Commit;
using rm_stand_in::driver;
using rm_stand_in::drivers;

class SuspendHold : public ::testing::Test {
 protected:
  SuspendHold() {
    driver().commit = Commit::kNone;
    driver().refuseDisable = driver().refuseEnable = 0;
    manager_.emplace(std::vector<std::string>{"--cards=nvidia", "--mixed"}, drivers());
    EXPECT_EQ(manager_->cards()[0]["suspend"], "rm") << manager_->cards();
  }
  ~SuspendHold() override {
    batch_.reset();
    online_.reset();
    if (manager_->alive()) manager_->stop();
    EXPECT_EQ(channelsOff(), 0) << "something was left off the card";
  }

  // A program whose kernels take a quarter of a second each, or so long, until end().
  void startBatch(const std::string& name = "batch", const char* kernelNs = "250000000") {
    batch_ = work(
        name, "offline",
        {"burn", "--iterations", kernelNs, "--batch", "1", "--tell", "1", "--until", endFile()});
    EXPECT_TRUE(eventually([&] { return made() > 0; })) << batch_->output();
  }
  // One that always has something for the card.
  void startOnline() {
    online_ = work("serve", "online",
                   {"probe", "--iterations", "20000", "--every", "1", "--count", "1000000000",
                    "--until", restFile()});
  }
  std::unique_ptr<Child> work(const std::string& name, const std::string& taskClass,
                              const std::vector<std::string>& words) {
    std::vector<std::string> all = {"--name", name, "--class", taskClass, "--memory", "1"};
    if (taskClass != "online") all.insert(all.end(), {"--core", "40"});
    all.insert(all.end(), {"--", binary("qgpu-gpu-work")});
    all.insert(all.end(), words.begin(), words.end());
    return manager_->runTask(all, drivers());
  }
  std::string endFile() const { return dir_.path() + "/end"; }
  std::string restFile() const { return dir_.path() + "/rest"; }
  void rest() { std::ofstream(restFile()) << "now"; }
  void end() { std::ofstream(endFile()) << "now"; }
  std::uint64_t made() const {
    const std::string text = batch_->output();
    const std::size_t at = text.rfind("made ");
    return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 5, nullptr, 10);
  }
  std::string state(const std::string& name) {
    const Json task = manager_->task(name);
    return task.is_null() ? "" : task["state"];
  }
  // It wants the card and is off it; of a manager that never gave it a turn it is "ready". `since`:
  // the driver's count of disables from which on that was done.
  bool held(std::uint64_t since = 0) {
    return eventually([&] {
      const std::string now = state("batch");
      return (now == "suspended" || now == "ready") && channelsOff() > 0 &&
             driver().disables > since;
    });
  }
  bool goesOn() {
    const std::uint64_t before = made();
    return eventually([&] { return made() > before + 1; });
  }
  // One task after the other that the driver does not take off; `last` is called before the last.
  void refuseTasks(int count, const std::function<void()>& last) {
    for (int i = 0; i < count; i++) {
      startBatch("batch" + std::to_string(i));
      if (i + 1 == count) last();
      driver().refuseDisable = suspend::ChannelSuspender::kTriesMax;
      startOnline();
      EXPECT_TRUE(eventually([&] { return driver().refuseDisable == 0; }));
      finish();
      for (const std::string& file : {endFile(), restFile()}) std::filesystem::remove(file);
    }
  }
  void finish() {
    rest();
    end();
    if (online_) {
      EXPECT_EQ(online_->wait().value_or(-1), 0) << online_->output();
    }
    EXPECT_EQ(batch_->wait().value_or(-1), 0) << batch_->output();
  }

  TempFolder dir_;
  std::optional<Manager> manager_;
  std::unique_ptr<Child> batch_, online_;
};

TEST_F(SuspendHold, OnlineTakesTheCardInTheMiddleOfAKernelAndTheKernelGoesOnAfterwards) {
  startBatch();
  startOnline();
  ASSERT_TRUE(held()) << manager_->log();
  const std::uint64_t then = made();
  EXPECT_TRUE(eventually([&] { return manager_->task("serve")["launches"] > 50; }));
  EXPECT_LE(made(), then + 1) << "one may have ended before the hold and be told late";
  rest();
  EXPECT_TRUE(goesOn());
  EXPECT_EQ(channelsOff(), 0);
  finish();
}

// Should a hold be late, the card itself goes over to the online program soon.
TEST_F(SuspendHold, EachTasksWorkHasTheTimesliceOfItsClass) {
  startBatch();
  startOnline();
  ASSERT_TRUE(eventually([&] { return manager_->task("serve")["launches"] > 0; }));
  std::set<std::uint64_t> given;
  for (const auto& object : driver().objects) {
    const bool group = object.pid != 0 && object.objectClass == rm::kChannelGroup;
    if (group) given.insert(object.timesliceUs);
  }
  EXPECT_EQ(given.count(kOfflineTimesliceUs), 1u);
  EXPECT_EQ(given.count(kOnlineTimesliceUs), 1u);
  finish();
}

// What is in flight is longer than a busy machine may take from the kill to the next hold: else it
// ends by itself, and there is nothing to take off.
TEST_F(SuspendHold, C9_AManagerThatIsKilledAndComesBackRulesAgain) {
  startBatch("batch", "1000000000");
  startOnline();
  ASSERT_TRUE(held());
  manager_->kill();
  const std::uint64_t before = driver().disables;
  manager_->start();
  EXPECT_TRUE(held(before)) << manager_->tasks() << channelsOff();
  EXPECT_EQ(manager_->cards()[0]["suspend"], "rm");
  rest();
  EXPECT_TRUE(goesOn());
  finish();
}

TEST_F(SuspendHold, C9_AManagerThatDoesNotComeBackLeavesNobodyOffTheCard) {
  startBatch();
  startOnline();
  ASSERT_TRUE(held());
  manager_->kill();
  EXPECT_TRUE(goesOn());
  EXPECT_EQ(channelsOff(), 0);
  const std::uint64_t before = driver().disables;
  manager_->start();
  EXPECT_TRUE(held(before)) << "the next one holds it again" << manager_->tasks() << channelsOff();
  finish();
}

TEST_F(SuspendHold, AManagerThatEndsPutsBackWhatItTookOff) {
  startBatch();
  startOnline();
  ASSERT_TRUE(held());
  EXPECT_EQ(manager_->stop(), 0);
  EXPECT_EQ(channelsOff(), 0);
  manager_->start();
  finish();
}

TEST_F(SuspendHold, ATaskThatIsKilledWhileItIsOffLeavesTheCardToOthers) {
  startBatch();
  startOnline();
  ASSERT_TRUE(held());
  batch_->signalChild(SIGKILL);
  EXPECT_TRUE(eventually([&] { return manager_->task("batch").is_null(); }));
  rest();
  EXPECT_EQ(online_->wait().value_or(-1), 0);
  startBatch("next");
  end();
  EXPECT_EQ(batch_->wait().value_or(-1), 0) << batch_->output();
}

// A tenant may know how to make the driver refuse its channels, as often as it likes.
TEST_F(SuspendHold, C7_TasksThatTheDriverRefusesCostNoCardThatPassesATestOfItsOwn) {
  std::uint64_t disables = 0;
  refuseTasks(3, [&] { disables = driver().disables + suspend::ChannelSuspender::kTriesMax; });
  EXPECT_TRUE(eventually([&] { return driver().disables >= disables + 3; })) << "it is tested";
  startBatch();
  startOnline();
  EXPECT_TRUE(held(driver().disables));
  finish();
  EXPECT_EQ(manager_->cards()[0]["suspend"], "rm");
  const Json answer = manager_->ask("events");
  int doubted = 0;
  for (const Json& event : answer["events"]) {
    EXPECT_NE(event["kind"], "card-suspend-lost");
    doubted += event["kind"] == "suspend-doubted" ? 1 : 0;
  }
  EXPECT_EQ(doubted, 3);
}

TEST_F(SuspendHold, ATaskThatTheDriverDoesNotTakeOffIsHeldByItsGateAndPeopleHearOfIt) {
  startBatch();
  driver().refuseDisable = suspend::ChannelSuspender::kTriesMax;
  startOnline();
  const auto told = [&] {
    const Json answer = manager_->ask("events");
    for (const Json& event : answer["events"]) {
      if (event["kind"] == "suspend-doubted") {
        return event["text"].get<std::string>().find("refused to disable") != std::string::npos;
      }
    }
    return false;
  };
  EXPECT_TRUE(eventually(told)) << manager_->ask("events");
  // Its kernel runs to its end, and then it waits like everybody at a gate.
  EXPECT_TRUE(eventually([&] { return state("batch") == "ready"; })) << manager_->tasks();
  EXPECT_EQ(channelsOff(), 0);
  EXPECT_EQ(manager_->cards()[0]["suspend"], "rm") << "one task is not the card";
  // So it is in each later hold.
  rest();
  EXPECT_EQ(online_->wait().value_or(-1), 0) << online_->output();
  std::filesystem::remove(restFile());
  EXPECT_TRUE(goesOn());
  const std::uint64_t disables = driver().disables;
  startOnline();
  EXPECT_TRUE(eventually([&] {
    const std::string now = state("batch");
    return (now == "suspended" || now == "ready") && manager_->task("serve")["launches"] > 50;
  })) << manager_->tasks();
  EXPECT_EQ(driver().disables, disables);
  rest();
  EXPECT_TRUE(goesOn());
  finish();
}

// Its own test says that the card lets work go on: what an earlier one found is of no use then.
TEST_F(SuspendHold, WhatWasFoundOfACardThatFailsLaterIsForgotten) {
  refuseTasks(3, [] { driver().commit = Commit::kNever; });
  ASSERT_TRUE(eventually([&] { return manager_->cards()[0]["suspend"] == "gate"; }))
      << manager_->log();
  manager_->kill();
  manager_->start();
  EXPECT_EQ(manager_->cards()[0]["suspend"], "gate") << "it is tested anew: " << manager_->log();
}

}  // namespace
}  // namespace qgpu::e2e::suspend_hold_test
