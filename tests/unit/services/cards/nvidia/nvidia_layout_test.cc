// A driver that is newer than all that qgpu knows: on stand-ins of it, what is believed of its
// layout and what is not, in which time, and what of that is kept.

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "services/cards/nvidia/layout_trial.h"
#include "services/nvidia_abi/rm_abi.h"
#include "tests/rm_stand_in/test_driver.h"
#include "tests/testing/child_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::nvidia_layout_test {
namespace {

using rm_stand_in::driver;

class NvidiaLayouts : public ::testing::Test {
 protected:
  NvidiaLayouts() {
    driver();
    config_.probe = testing::binary("qgpu-suspend-probe");
    config_.layouts = folder_.path() + "/layouts";
    config_.version = "0.1.0";
    is("615.71.09");
  }
  ~NvidiaLayouts() override {
    for (const char* name :
         {"QGPU_STAND_IN_DRIVER", "QGPU_STAND_IN_SHIFT", "QGPU_STAND_IN_CARDS"}) {
      ::unsetenv(name);
    }
    EXPECT_EQ(rm_stand_in::heldBytes(driver()), 0u) << "no trial leaves anything on the card";
  }

  void is(const std::string& version) {
    driver_ = version;
    ::setenv("QGPU_STAND_IN_DRIVER", version.c_str(), 1);
  }
  void cardsAre(const std::string& lines) {
    std::ofstream(folder_.path() + "/cards") << lines;
    ::setenv("QGPU_STAND_IN_CARDS", (folder_.path() + "/cards").c_str(), 1);
  }
  void probeIs(const std::string& script) {
    config_.probe = folder_.path() + "/probe";
    std::ofstream(config_.probe) << "#!/bin/sh\n" << script;
    EXPECT_EQ(::chmod(config_.probe.c_str(), 0700), 0);
  }
  Card tried() {
    std::vector<Card> cards(1);
    cards[0].id = "GPU-00000000-0000-0000-0000-000000000000";
    cards[0].backend = "nvidia";
    cards[0].driver = driver_;
    cards[0].memoryCounted = "at CUDA's calls" + more_;
    tryNvidiaLayouts(cards, config_, log_);
    return cards[0];
  }
  // Why not; empty: it is believed.
  std::string doubt() {
    const Card card = tried();
    const std::string start =
        "at CUDA's calls, and the layout of " + std::to_string(rm::kNewestKnown) + " is not its: ";
    if (card.layoutSeen != 0) return "";
    EXPECT_EQ(card.layoutVersion(), driver_);
    EXPECT_TRUE(card.memoryCounted.starts_with(start)) << card.memoryCounted;
    return card.memoryCounted.substr(std::min(start.size(), card.memoryCounted.size()));
  }

  testing::TempFolder folder_;
  SuspendTrial config_;
  std::string driver_;
  std::string more_;  // that is said of the card's memory
  std::string said_;
  Log log_{LogLevel::Info, [this](LogLevel, const std::string& line) { said_ += line + "\n"; }};
};

TEST_F(NvidiaLayouts, ANewerDriverOfTheNewestKnownLayoutIsBelievedAfterATrial) {
  const Card card = tried();
  EXPECT_EQ(card.layoutSeen, rm::kNewestKnown) << card.memoryCounted;
  EXPECT_EQ(card.counting, schema::Counting::DRIVER);
  EXPECT_EQ(card.layoutVersion(), "595.0");
  EXPECT_EQ(card.memoryCounted,
            "where driver 615.71.09 is asked for it, in the layout of 595, which was tried on this "
            "card");
  EXPECT_EQ(card.driver, "615.71.09");
  more_ = "; pods are limited";
  EXPECT_TRUE(tried().memoryCounted.ends_with("tried on this card; pods are limited"));
}

TEST_F(NvidiaLayouts, AKnownDriverAndAnOlderUnknownOneAreNotTried) {
  for (const char* version : {"580.142", "595.45.04", "585.10", "450.102.04", "", "abc"}) {
    is(version);
    const Card card = tried();
    EXPECT_EQ(card.layoutSeen, 0u) << version;
    EXPECT_EQ(card.memoryCounted, "at CUDA's calls") << version;
  }
  EXPECT_EQ(said_, "");
  EXPECT_NE(::access(config_.layouts.c_str(), F_OK), 0);
}

TEST_F(NvidiaLayouts, WhateverLiesElsewhereIsSeenAndNotBelieved) {
  const std::pair<const char*, const char*> all[] = {
      {"call", "call 0x2b has 56 bytes, which the layout does not know"},
      {"status", "the status of call 0x2b is not at 40"},
      {"size", "no memory of a context is seen"}};
  for (const auto& [shift, why] : all) {
    ::setenv("QGPU_STAND_IN_SHIFT", shift, 1);
    EXPECT_EQ(doubt(), why);
  }
}

TEST_F(NvidiaLayouts, WhatNvmlDoesNotTellOfIsNotBelieved) {
  cardsAre("GPU-00000000-0000-0000-0000-000000000000|small|100000000|0|0|0|0|0\n");
  const std::string why = doubt();
  EXPECT_NE(why.find("NVML says"), std::string::npos) << why;
  cardsAre("GPU-11111111-0000-0000-0000-000000000000|other|17179869184|0|0|0|0|0\n");
  EXPECT_EQ(doubt(), "NVML does not say what is used of the card");
}

TEST_F(NvidiaLayouts, TheKernelsOwnVersionMustBeTheOneThatNvmlTold) {
  driver_ = "620.10";
  EXPECT_EQ(doubt(), "the driver does not tell its version where it is looked for");
}

TEST_F(NvidiaLayouts, ATrialThatHangsDiesOrSaysNothingIsARefusalInTime) {
  const std::string card = "GPU-00000000-0000-0000-0000-000000000000|any|17179869184|0|0|0|0|0\n";
  cardsAre(card + "!die|1\n");
  EXPECT_NE(doubt().find("crashed when asked"), std::string::npos);
  config_.patience = millis(200);
  cardsAre(card + "!hang|1\n");
  EXPECT_NE(doubt().find("did not answer in time"), std::string::npos);
  config_.patience = seconds(20);
  probeIs("exit 0\n");
  EXPECT_NE(doubt().find("said nothing"), std::string::npos);
  probeIs("echo agrees; echo agrees\n");
  EXPECT_NE(doubt(), "") << "no word of the program's";
}

TEST_F(NvidiaLayouts, WhatAgreedIsKeptForTheCardItsDriverAndQgpu) {
  EXPECT_EQ(doubt(), "");
  const std::string real = config_.probe;
  probeIs("echo not asked again\n");
  EXPECT_EQ(doubt(), "");
  is("616.10.02");
  EXPECT_EQ(doubt(), "not asked again") << "another driver";
  is("615.71.09");
  config_.version = "0.2.0";
  EXPECT_EQ(doubt(), "not asked again") << "another qgpu";
  config_.version = "0.1.0";
  EXPECT_EQ(doubt(), "") << "a refusal forgets nothing";
  ASSERT_EQ(::chmod(config_.layouts.c_str(), 0666), 0);
  EXPECT_EQ(doubt(), "not asked again") << "others could have written it";
  config_.probe = real;
  EXPECT_EQ(doubt(), "") << "a refusal is not kept";
  std::ofstream(config_.layouts) << "nonsense";
  EXPECT_EQ(doubt(), "");
  EXPECT_NE(said_.find("layouts-tried-anew"), std::string::npos) << said_;
}

TEST_F(NvidiaLayouts, WorkIsTakenOffACardOfALayoutThatAgreed) {
  std::vector<Card> cards(1);
  cards[0].id = "GPU-00000000-0000-0000-0000-000000000000";
  cards[0].backend = "nvidia";
  cards[0].driver = driver_;
  cards[0].minor = 0;
  config_.kept = folder_.path() + "/suspends";
  driver().commit = rm_stand_in::Commit::kNone;
  ASSERT_TRUE(chooseSuspends(cards, config_, log_).ok());
  EXPECT_EQ(cards[0].suspend, schema::Suspend::RM) << cards[0].suspendWhy;
  ::setenv("QGPU_STAND_IN_SHIFT", "size", 1);
  ::unlink(config_.layouts.c_str());
  ::unlink(config_.kept.c_str());
  cards[0].layoutSeen = 0;
  ASSERT_TRUE(chooseSuspends(cards, config_, log_).ok());
  EXPECT_EQ(cards[0].suspendWhy, "the interface of driver 615.71.09 is not known");
}

}  // namespace
}  // namespace qgpu::nvidia_layout_test
