// How NVIDIA's cards get their suspend: what the self-test finds on stand-ins of the drivers, what
// of it is kept over a restart, what is not believed, and who is not asked at all.

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "runtime/whole_file.h"
#include "services/cards/nvidia/suspend_answers.h"
#include "services/cards/nvidia/suspend_trial.h"
#include "tests/rm_stand_in/test_driver.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::nvidia_suspend_test {
namespace {

using rm_stand_in::Commit;
using rm_stand_in::driver;
using schema::Suspend;

// --- answers as a text ---

const std::vector<SuspendAnswer> kSome = {
    {"GPU-1", "580.142", suspend::SuspendMethod::kDisableRestart, ""},
    {"GPU-2", "580.142", std::nullopt, "the kernel went on while it was off"},
    {"GPU-3", "", std::nullopt, "no version"}};

TEST(SuspendAnswers, WhatIsWrittenIsRead) {
  for (const suspend::SuspendMethod method : suspend::kSuspendMethods) {
    const std::vector<SuspendAnswer> one = {{"GPU-1", "580.142", method, ""}};
    EXPECT_EQ(*parseSuspendAnswers(writeSuspendAnswers(one, "1"), "1"), one);
  }
  EXPECT_EQ(*parseSuspendAnswers(writeSuspendAnswers(kSome, "0.1.0"), "0.1.0"), kSome);
  const std::vector<SuspendAnswer> wild = {
      {"GPU-1", "580.142", std::nullopt, "a\tb\nc\x01" + std::string(1000, 'x')}};
  const auto tamed = parseSuspendAnswers(writeSuspendAnswers(wild, "1"), "1");
  ASSERT_TRUE(tamed.ok());
  EXPECT_TRUE((*tamed)[0].why.starts_with("a b c xxx"));
  EXPECT_EQ((*tamed)[0].why.size(), kCardTextMax);
}

TEST(SuspendAnswers, C7_WhatIsNoneIsRefused) {
  const std::string good = writeSuspendAnswers(kSome, "1");
  const auto code = [](const std::string& text) {
    return parseSuspendAnswers(text, "1").error().code;
  };
  for (std::size_t end = 0; end < good.size(); ++end) {
    const auto cut = parseSuspendAnswers(good.substr(0, end), "1");
    EXPECT_TRUE(!cut || good[end - 1] == '\n') << "whole lines, of which none is invented";
  }
  const std::string head = "qgpu-suspends 1 1\n";
  for (const std::string& text :
       {std::string(), std::string("nonsense\n"), std::string("qgpu-suspends 2 1\n"),
        head + "GPU-1\t580.142\tdisable\t", head + "\t580.142\tdisable\t\n",
        head + "GPU-1\t580.142\tlift\t\n", head + "GPU-1\t580.142\t-\t\n",
        head + "GPU-1\t580.142\tdisable\tand yet\n", head + "GPU-1\t580.142\n"}) {
    EXPECT_EQ(code(text), ErrorCode::Corrupt) << text;
  }
  std::string many = head;
  for (std::size_t i = 0; i <= kCardsMax; ++i) many += "GPU-1\t1\tdisable\t\n";
  EXPECT_EQ(code(many), ErrorCode::Corrupt);
  EXPECT_EQ(parseSuspendAnswers(good, "2").error().code, ErrorCode::Unsupported);
}

TEST(SuspendAnswers, AFileThatOthersCouldHaveWrittenIsNotBelieved) {
  testing::TempFolder folder;
  const std::string path = folder.path() + "/suspends";
  const auto code = [&] { return readKept(path).error().code; };
  EXPECT_EQ(code(), ErrorCode::NotFound);
  ASSERT_TRUE(writeAnew(path, "first", 0600).ok());
  ASSERT_TRUE(writeAnew(path, "second", 0600).ok());
  EXPECT_EQ(*readKept(path), "second");
  for (const mode_t mode : {0620u, 0602u, 0666u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(code(), ErrorCode::Denied);
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const std::string link = folder.path() + "/link";
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(readKept(link).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(readKept(folder.path()).error().code, ErrorCode::Denied) << "no file";
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 1, 1), 0);
    EXPECT_EQ(code(), ErrorCode::Denied);
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  std::ofstream(path) << std::string(65 * 1024, 'x');
  EXPECT_EQ(code(), ErrorCode::Corrupt);
  EXPECT_EQ(writeAnew("/nonexistent/suspends", "x", 0600).error().code, ErrorCode::Unavailable);
}

TEST(NvidiaSuspends, RmTakesTheRightToADescriptorOfATenant) {
  const std::string able = "Name:\tx\nCapEff:\t0000000000080000\nCapBnd:\t0\n";
  const std::string unable = "Name:\tx\nCapEff:\t000001fffff7ffff\nCapBnd:\t0\n";
  for (const char* yama : {"", "0\n", "1\n", "2\n"}) {
    EXPECT_EQ(whyNoDescriptors(able, yama), "") << yama;
    EXPECT_NE(whyNoDescriptors(unable, yama).find("CAP_SYS_PTRACE"), std::string::npos)
        << "tenants of other users can't be held, Yama: " << yama;
  }
  EXPECT_NE(whyNoDescriptors(able, "3\n").find("ptrace_scope"), std::string::npos);
  EXPECT_NE(whyNoDescriptors("", "1"), "");
}

// --- on the stand-ins ---

class NvidiaSuspendsOnStandIn : public ::testing::Test {
 protected:
  NvidiaSuspendsOnStandIn() {
    driver().commit = Commit::kNone;
    driver().refuseDisable = driver().refuseEnable = 0;
    config_.probe = testing::binary("qgpu-suspend-probe");
    config_.kept = folder_.path() + "/suspends";
    config_.version = "0.1.0";
  }

  static Card card(const std::string& version = "580.142") {
    Card card;
    card.id = "GPU-00000000-0000-0000-0000-000000000000";
    card.backend = "nvidia";
    card.driver = version;
    card.minor = 0;
    return card;
  }
  Card chosen(const std::string& version = "580.142") {
    std::vector<Card> cards = {card(version)};
    status_ = chooseSuspends(cards, config_, log_);
    return cards[0];
  }
  // How often a probe was taken off while `what` went on.
  template <typename F>
  std::uint64_t disables(F&& what) {
    const std::uint64_t before = driver().disables.load();
    what();
    return driver().disables.load() - before;
  }

  testing::TempFolder folder_;
  SuspendTrial config_;
  std::string said_;
  Log log_{LogLevel::Info, [this](LogLevel, const std::string& line) { said_ += line + "\n"; }};
  Status status_ = ok();
};

TEST_F(NvidiaSuspendsOnStandIn, ACardWhoseWorkStopsSuspendsByRmWithTheMethodThatDoesIt) {
  for (const auto& [needs, method] :
       {std::pair{Commit::kNone, suspend::SuspendMethod::kDisable},
        std::pair{Commit::kRestart, suspend::SuspendMethod::kDisableRestart}}) {
    driver().commit = needs;
    ::unlink(config_.kept.c_str());
    const Card card = chosen();
    EXPECT_TRUE(status_.ok());
    EXPECT_EQ(card.suspend, Suspend::RM) << card.suspendWhy;
    ASSERT_TRUE(card.method.has_value());
    EXPECT_EQ(*card.method, method);
    EXPECT_EQ(card.suspendWhy, "");
  }
  EXPECT_NE(said_.find("by=rm how=\"disable, restart\""), std::string::npos) << said_;
}

TEST_F(NvidiaSuspendsOnStandIn, ACardWhoseWorkGoesOnSuspendsByGateAndSaysWhy) {
  driver().commit = Commit::kNever;
  const Card card = chosen();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(card.suspend, Suspend::GATE);
  EXPECT_FALSE(card.method.has_value());
  EXPECT_EQ(card.suspendWhy, "the kernel went on while it was off");
}

TEST_F(NvidiaSuspendsOnStandIn, WhatIsKnownOfACardAndItsDriverIsNotAskedAgain) {
  EXPECT_GT(disables([&] { chosen(); }), 0u);
  EXPECT_EQ(disables([&] { EXPECT_EQ(chosen().suspend, Suspend::RM); }), 0u);
  EXPECT_GT(disables([&] { chosen("575.64.05"); }), 0u) << "another driver";
  EXPECT_EQ(disables([&] { chosen("575.64.05"); }), 0u);
  config_.version = "0.2.0";
  EXPECT_GT(disables([&] { chosen("575.64.05"); }), 0u) << "another version of qgpu";
  EXPECT_NE(said_.find("suspends-tested-anew"), std::string::npos) << said_;
  ASSERT_EQ(::chmod(config_.kept.c_str(), 0666), 0);
  EXPECT_GT(disables([&] { chosen("575.64.05"); }), 0u) << "others could have written it";
  std::ofstream(config_.kept) << "nonsense";
  EXPECT_GT(disables([&] { chosen("575.64.05"); }), 0u);
  EXPECT_EQ(disables([&] { chosen("575.64.05"); }), 0u);
}

TEST_F(NvidiaSuspendsOnStandIn, ARefusalIsKeptButAskedAgainWhereRmIsNamed) {
  driver().commit = Commit::kNever;
  chosen();
  driver().commit = Commit::kNone;
  EXPECT_EQ(disables([&] { EXPECT_EQ(chosen().suspend, Suspend::GATE); }), 0u);
  config_.choice = SuspendChoice::Rm;
  EXPECT_EQ(chosen().suspend, Suspend::RM);
  EXPECT_EQ(disables([&] { EXPECT_EQ(chosen().suspend, Suspend::RM); }), 0u);
}

TEST_F(NvidiaSuspendsOnStandIn, ACardOnWhichNoProgramRunsYetIsTestedAgain) {
  const std::string real = std::exchange(config_.probe, folder_.path() + "/probe");
  std::ofstream(config_.probe) << "#!/bin/sh\necho failed cuInit 0\n";
  ASSERT_EQ(::chmod(config_.probe.c_str(), 0700), 0);
  EXPECT_EQ(chosen().suspendWhy, "the probe failed cuInit 0");
  config_.probe = real;
  EXPECT_EQ(chosen().suspend, Suspend::RM) << said_;
}

TEST_F(NvidiaSuspendsOnStandIn, ADoubtOfABusyMachineIsNotKept) {
  const std::uint64_t before = driver().disables.load();
  std::thread busy([&] {
    while (driver().disables.load() == before) std::this_thread::yield();
    driver().queryNs = 3'600'000'000'000;
  });
  config_.patience = seconds(1);
  const Card doubted = chosen();
  busy.join();
  driver().queryNs = 0;
  EXPECT_EQ(doubted.suspend, Suspend::GATE);
  EXPECT_NE(doubted.suspendWhy.find("the machine is too busy"), std::string::npos)
      << doubted.suspendWhy;
  EXPECT_EQ(chosen().suspend, Suspend::RM) << said_;
}

TEST_F(NvidiaSuspendsOnStandIn, RmByNameIsRefusedWithTheReasonWhereNoCardTakesIt) {
  config_.choice = SuspendChoice::Rm;
  driver().commit = Commit::kNever;
  chosen();
  ASSERT_FALSE(status_.ok());
  EXPECT_EQ(status_.error().code, ErrorCode::Unsupported);
  EXPECT_NE(status_.error().message.find(card().id + ": the kernel went on while it was off"),
            std::string::npos)
      << status_.error().message;
  std::vector<Card> others(2);
  EXPECT_FALSE(chooseSuspends(others, config_, log_).ok());
  config_.choice = SuspendChoice::Auto;
  EXPECT_TRUE(chooseSuspends(others, config_, log_).ok());
  EXPECT_EQ(others[0].suspendWhy, "") << "not NVIDIA's";
}

TEST_F(NvidiaSuspendsOnStandIn, NoProbeIsStartedWhereGateIsAskedForOrTheManagerHasNoUseForIt) {
  const auto why = [&] {
    std::string said;
    EXPECT_EQ(disables([&] { said = chosen().suspendWhy; }), 0u);
    EXPECT_TRUE(status_.ok());
    return said;
  };
  config_.choice = SuspendChoice::Gate;
  EXPECT_EQ(why(), "asked for by --suspend=gate");
  config_.choice = SuspendChoice::Freeze;
  EXPECT_EQ(why(), "no thread of a program runs its kernels");
  EXPECT_NE(::access(config_.kept.c_str(), F_OK), 0) << "nothing was found that could be kept";
}

TEST_F(NvidiaSuspendsOnStandIn, AnUnknownDriverAndAProbeThatHangsCostTheCardRmAndNothingElse) {
  EXPECT_EQ(chosen("470.256.02").suspendWhy, "the interface of driver 470.256.02 is not known");
  config_.probe = folder_.path() + "/probe";
  std::ofstream(config_.probe) << "#!/bin/sh\nexec sleep 1000\n";
  ASSERT_EQ(::chmod(config_.probe.c_str(), 0700), 0);
  config_.patience = millis(50);
  const Card hung = chosen();
  EXPECT_EQ(hung.suspend, Suspend::GATE);
  EXPECT_NE(hung.suspendWhy.find("ended or hangs"), std::string::npos) << hung.suspendWhy;
  EXPECT_TRUE(status_.ok());
}

TEST_F(NvidiaSuspendsOnStandIn, ATestThatRanOutOfTimeSaysNothingOfItsDriver) {
  const std::string real = std::exchange(config_.probe, folder_.path() + "/probe");
  std::ofstream(config_.probe) << "#!/bin/sh\nexec sleep 1000\n";
  ASSERT_EQ(::chmod(config_.probe.c_str(), 0700), 0);
  config_.patience = seconds(1000);
  const Nanos enough = std::exchange(config_.timeout, millis(200));
  const Card late = chosen();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(late.suspend, Suspend::GATE);
  EXPECT_NE(late.suspendWhy.find("did not answer in time"), std::string::npos) << late.suspendWhy;
  config_.probe = real;
  config_.timeout = enough;
  EXPECT_EQ(chosen().suspend, Suspend::RM) << said_;
}

}  // namespace
}  // namespace qgpu::nvidia_suspend_test
