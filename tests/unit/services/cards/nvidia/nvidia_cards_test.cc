// Cards by NVML, on the stand-in library: what is found, what is left alone, and how cards fall ill
// and go while they are watched.

#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <set>
#include <stdlib.h>
#include <string>
#include <unistd.h>

#include "services/cards/cards.h"
#include "services/cards/nvidia/health.h"
#include "services/cards/nvidia/probe.h"
#include "services/cards/nvidia/xid.h"
#include "tests/unit/services/cards/nvml_machine.h"

namespace qgpu {
namespace {

Result<CardsFound> find(const char* backend, const std::string& pciDevices = "/none") {
  CardsOptions options;
  options.backend = backend;
  options.pciDevices = pciDevices;
  options.health.interval = millis(5);
  return findCards(options);
}

TEST(NvidiaCards, ACardIsCalledByItsUuidAndKnownByWhatNvmlTells) {
  Machine machine;
  machine.write({t4(kFirst), t4(kSecond)});
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 2u);
  const Card& card = found->cards[1];
  EXPECT_EQ(card.id, kSecond);
  EXPECT_EQ(card.index, 1u);
  EXPECT_EQ(card.model, "Tesla T4");
  EXPECT_EQ(card.backend, "nvidia");
  EXPECT_EQ(card.platform, "NVIDIA CUDA");
  EXPECT_EQ(card.mem, Bytes(15843721216));
  EXPECT_EQ(card.driver, "580.142");
  EXPECT_EQ(card.minor, 1);
  EXPECT_EQ(card.suspend, schema::Suspend::GATE) << "nothing of a tenant's can be frozen";
}

TEST(NvidiaCards, TheDriversVersionSaysWhereMemoryCounts) {
  Machine machine;
  machine.write({t4(kFirst)});
  const auto known = find("nvidia");
  ASSERT_TRUE(known.ok()) << known.error().message;
  EXPECT_EQ(known->cards[0].memoryCounted, "where driver 580.142 is asked for it");
  EXPECT_EQ(known->cards[0].counting, schema::Counting::DRIVER);
  for (const std::string version : {"450.102.04", "615.71"}) {
    ::setenv("QGPU_STAND_IN_DRIVER", version.c_str(), 1);
    const auto other = find("nvidia");
    ::unsetenv("QGPU_STAND_IN_DRIVER");
    ASSERT_TRUE(other.ok()) << other.error().message;
    EXPECT_EQ(other->cards[0].counting, schema::Counting::DRIVER_UNKNOWN);
    EXPECT_EQ(other->cards[0].memoryCounted,
              "at CUDA's calls, without contexts and what pools keep: driver " + version +
                  " is not known to qgpu (515 to 595 are)");
  }
}

TEST(NvidiaCards, WhichAreNearEachOtherIsAskedOfNvmlAndOfTheKernel) {
  Machine machine;
  std::vector<std::string> cards = {"!links|0>2 2>0 1>s 3>s 4>s"};
  for (int i = 0; i < 6; ++i)
    cards.push_back(t4(kFirst.substr(0, kFirst.size() - 1) + char('1' + i)));
  machine.write(cards);
  machine.plugInCard(0, 0);
  machine.plugInCard(1, 1);
  machine.plugInCard(2, -1);
  const auto found = find("nvidia", machine.pciDevices());
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 6u);
  const CardPlace places[] = {{1, 0}, {2, 1}, {1, -1}, {2, -1}, {2, -1}, {0, -1}};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(found->cards[i].place.links, places[i].links) << i;
    EXPECT_EQ(found->cards[i].place.numa, places[i].numa) << i;
  }
}

// Else the last of those who share a card runs out of memory below its quota.
TEST(NvidiaCards, WhatTheDriverKeepsForItselfIsNobodys) {
  Machine machine;
  machine.write({"!reserved|471859200", t4(kFirst)});  // 450 MiB
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->cards.size(), 1u);
  EXPECT_EQ(found->cards[0].mem.value, 15843721216 - 471859200);
  for (const char* odd : {"?", "15843721216", "99999999999"}) {
    machine.write({std::string("!reserved|") + odd, t4(kFirst)});
    const auto all = find("nvidia");
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(all->cards.size(), 1u) << odd;
    EXPECT_EQ(all->cards[0].mem.value, 15843721216) << odd;
  }
}

TEST(NvidiaCards, AutoTakesThemBeforeOpencl) {
  Machine machine;
  machine.write({t4(kFirst)});
  const auto found = find("auto");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 1u);
  EXPECT_EQ(found->cards[0].id, kFirst);
}

TEST(NvidiaCards, WithoutALoadedDriverAutoLooksElsewhere) {
  Machine machine;
  const auto found = find("auto");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->cards[0].backend, "opencl");
  EXPECT_FALSE(found->health.has_value());
  EXPECT_EQ(find("nvidia").error().code, ErrorCode::NotFound);
}

TEST(NvidiaCards, ACardWhoseDriverIsNotLoadedIsNotHiddenBehindTheCpu) {
  Machine machine;
  machine.plugIn("0x10de", "0x0c0330");  // a port of such a card
  machine.plugIn("0x1a03", "0x030000");  // somebody else's display
  EXPECT_EQ(find("auto", machine.pciDevices())->cards[0].backend, "opencl");
  machine.plugIn("0x10de", "0x030200");
  const auto found = find("auto", machine.pciDevices());
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::Unavailable);
  for (const char* told : {"NVML error 9", "`modprobe nvidia`", "--cards=opencl"}) {
    EXPECT_NE(found.error().message.find(told), std::string::npos) << found.error().message;
  }
  EXPECT_EQ(find("opencl", machine.pciDevices())->cards[0].backend, "opencl");
}

TEST(NvidiaCards, ACardInMigModeIsSeenAndLeftAlone) {
  Machine machine;
  machine.write({t4(kFirst, "1|0|0|0"), t4(kSecond)});
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 1u);
  EXPECT_EQ(found->cards[0].id, kSecond);
  ASSERT_EQ(found->leftAlone.size(), 1u);
  EXPECT_NE(found->leftAlone[0].find(kFirst), std::string::npos);
  machine.write({t4(kFirst, "1|0|0|0")});
  const auto none = find("auto");
  ASSERT_FALSE(none.ok()) << "hidden behind the CPU";
  EXPECT_NE(none.error().message.find("MIG"), std::string::npos);
}

TEST(NvidiaCards, ALostCardIsNotTaken) {
  Machine machine;
  machine.write({t4(kFirst, "0|1|0|0"), t4(kSecond)});
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->cards.size(), 1u);
  EXPECT_EQ(found->cards[0].id, kSecond);
  ASSERT_EQ(found->leftAlone.size(), 1u) << "it vanished without a word";
  EXPECT_TRUE(found->leftAlone[0].starts_with("NVIDIA's card 0 does not answer: NVML error 15 "))
      << found->leftAlone[0];
  machine.write({t4(kFirst), kSecond + "|Tesla T4|0|0|0|0|0|0"});
  const auto without = find("nvidia");
  ASSERT_TRUE(without.ok()) << without.error().message;
  ASSERT_EQ(without->leftAlone.size(), 1u);
  EXPECT_NE(without->leftAlone[0].find(kSecond + " does not tell"), std::string::npos);
  machine.write({t4(kFirst, "0|1|0|0")});
  EXPECT_EQ(find("auto").error().code, ErrorCode::Unavailable) << "nor is the CPU";
}

TEST(NvidiaCards, ADriverThatRefusesIsToldByItsNumberAndNotTakenForNone) {
  Machine machine;
  for (const auto& [number, told] : std::map<std::string, std::string>{
           {"18", "NVML error 18 (Driver/library version mismatch); the driver was updated"},
           {"4", "NVML error 4 (Unknown Error); run this as root"},
           {"999", "NVML error 999 (Unknown Error); `nvidia-smi`"}}) {
    machine.write({"!init|" + number, t4(kFirst)});
    const auto found = find("auto");
    ASSERT_FALSE(found.ok()) << number << " is hidden behind the CPU";
    EXPECT_EQ(found.error().code, ErrorCode::Unavailable);
    EXPECT_NE(found.error().message.find(told), std::string::npos) << found.error().message;
  }
  machine.write({"!init|9", t4(kFirst)});
  EXPECT_EQ(find("nvidia").error().code, ErrorCode::NotFound);
}

TEST(NvidiaCards, ADriverThatNeverAnswersIsGivenUpAndNotTakenForNone) {
  Machine machine;
  machine.write({"!hang|1", t4(kFirst)});
  CardsOptions options;
  options.probeTimeout = millis(200);
  const auto found = findCards(options);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::Unavailable);
  EXPECT_EQ(found.error().message,
            "NVIDIA's driver did not answer in time; does `nvidia-smi -L` work?");
}

// --- health ---

using Kind = HealthReading::Kind;

std::string judged(HealthTracker& tracker, Kind kind, std::uint64_t number = 0,
                   Nanos now = Nanos(0)) {
  const auto change = tracker.take({kFirst, kind, number}, now);
  return change ? healthLine(*change).substr(kFirst.size() + 1) : "";
}

// By NVIDIA's catalog: what a program may bring about by itself, or by ending, costs no card.
constexpr struct {
  const char* kind;
  std::initializer_list<std::uint64_t> numbers;
} kXids[] = {
    {"program", {8,   11,  13,  25,  31,  32,  39,  40,  41,  43,  45,  47,  60,  65,  68,
                 69,  70,  71,  72,  73,  75,  76,  77,  80,  82,  83,  84,  85,  86,  88,
                 89,  94,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105, 108, 109, 126,
                 127, 128, 129, 130, 131, 132, 133, 134, 135, 137, 139, 142}},
    {"note", {14, 37, 44, 66, 67, 93, 106, 107, 121, 141, 154, 162, 163, 164, 165}},
    {"memory", {48, 63, 64, 92, 95, 140, 171, 172}},
    {"link", {74, 136, 144, 145, 146, 147, 148, 149, 150, 155}},
    {"driver", {38, 61, 62, 119, 120}},
    {"card", {0, 1, 46, 79, 110, 143, 158, 9'999}},
};

TEST(NvidiaHealth, AnXidsClassSaysWhetherTheCardIsIllOrAProgramFailedOrNothingFollows) {
  HealthTracker tracker;
  for (const auto& [kind, numbers] : kXids) {
    const std::string change = kind == std::string("program") || kind == std::string("note")
                                   ? std::string(kind)
                                   : std::string("ill");
    for (const std::uint64_t xid : numbers) {
      const std::string told = change + "\tXid " + std::to_string(xid) + " (" + kind + "): ";
      EXPECT_TRUE(judged(tracker, Kind::Xid, xid).starts_with(told)) << xid << xidText(xid);
      const std::string again = judged(tracker, Kind::Xid, xid);
      if (change == "program")
        EXPECT_TRUE(again.starts_with(told)) << xid;
      else
        EXPECT_EQ(again, "") << "told at once";
    }
  }
  EXPECT_EQ(xidText(79), "Xid 79 (card): it fell off the bus");
  EXPECT_EQ(xidText(9'999), "Xid 9999 (card): its driver's manual says what it means");
}

TEST(NvidiaHealth, ACardThatFallsIllOfTheSameAgainIsHeardAgainAndOnceAMinute) {
  HealthTracker tracker;
  for (const std::uint64_t xid : {48u, 154u}) {
    EXPECT_NE(judged(tracker, Kind::Xid, xid, seconds(1)), "");
    EXPECT_EQ(judged(tracker, Kind::Xid, xid, seconds(60)), "");
    EXPECT_NE(judged(tracker, Kind::Xid, xid, seconds(61)), "");
    EXPECT_EQ(judged(tracker, Kind::Xid, xid, seconds(120)), "") << "a minute since it was told";
  }
}

TEST(NvidiaHealth, AChangeComesBackFromItsLine) {
  for (const auto kind :
       {HealthChange::Kind::Ill, HealthChange::Kind::Answers, HealthChange::Kind::ProgramFault,
        HealthChange::Kind::Note, HealthChange::Kind::Blind, HealthChange::Kind::Sees}) {
    const HealthChange change{kFirst, kind, "for a\treason"};
    EXPECT_EQ(parseHealthLine(healthLine(change)), change);
  }
  for (const char* line : {"", "\t", "a\tb", "\till\tx", "a\tbored\tx"}) {
    EXPECT_FALSE(parseHealthLine(line).has_value()) << line;
  }
}

TEST(NvidiaHealth, ErrorsOfBeforeTheWatchAreNoNewsAndNewOnesAre) {
  HealthTracker tracker;
  EXPECT_EQ(judged(tracker, Kind::Errors, 7), "");
  EXPECT_EQ(judged(tracker, Kind::Errors, 7), "");
  EXPECT_EQ(judged(tracker, Kind::Errors, 9), "ill\t2 uncorrected memory errors");
  EXPECT_EQ(judged(tracker, Kind::Errors, 0), "") << "the driver was loaded anew";
}

TEST(NvidiaHealth, ALostCardIsToldOnceAndSoIsItsReturn) {
  HealthTracker tracker;
  EXPECT_EQ(judged(tracker, Kind::Present), "");
  EXPECT_NE(judged(tracker, Kind::Lost), "");
  EXPECT_EQ(judged(tracker, Kind::Lost), "");
  EXPECT_EQ(judged(tracker, Kind::Present), "answers\tit was lost, and is there again");
  EXPECT_EQ(judged(tracker, Kind::Present), "");
}

// The next line of the watching child; empty at its end.
std::string nextLine(const HealthWatch& watch) {
  std::string line;
  for (char c = 0; ::read(watch.fd(), &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

TEST(NvidiaHealth, TheWatchTellsOfAnXidOfErrorsOfRemovalAndReturn) {
  Machine machine;
  machine.write({t4(kFirst), t4(kSecond)});
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_TRUE(found->health.has_value());
  machine.write({t4(kFirst, "0|0|0|31"), t4(kSecond, "0|0|0|79")});
  EXPECT_EQ((std::set{nextLine(*found->health), nextLine(*found->health)}),
            (std::set{kFirst + "\tprogram\t" + xidText(31), kSecond + "\till\t" + xidText(79)}));
  machine.write({t4(kFirst, "0|0|3|31"), t4(kSecond, "0|0|0|79")});
  EXPECT_EQ(nextLine(*found->health), kFirst + "\till\t3 uncorrected memory errors");
  machine.write({t4(kSecond, "0|0|0|79")});
  const auto gone = parseHealthLine(nextLine(*found->health));
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->uuid, kFirst);
  EXPECT_EQ(gone->kind, HealthChange::Kind::Ill);
  machine.write({t4(kFirst, "0|0|3|31"), t4(kSecond, "0|0|0|79")});
  EXPECT_TRUE(nextLine(*found->health).starts_with(kFirst + "\tanswers\t"));
}

TEST(NvidiaHealth, TheXidOfACardThatFellOffTheBusIsHeardAndSoAreTheOthers) {
  Machine machine;
  machine.write({t4(kFirst), t4(kSecond)});
  const auto found = find("nvidia");
  ASSERT_TRUE(found.ok()) << found.error().message;
  machine.write({t4(kFirst, "0|0|0|13"), t4(kSecond)});
  EXPECT_EQ(nextLine(*found->health), kFirst + "\tprogram\t" + xidText(13)) << "it is watched";
  machine.write({t4(kFirst, "0|1|0|79"), t4(kSecond)});
  const std::set told{nextLine(*found->health), nextLine(*found->health)};
  EXPECT_TRUE(told.contains(kFirst + "\till\t" + xidText(79))) << *told.begin();
  machine.write({t4(kFirst, "0|1|0|79"), t4(kSecond, "0|0|0|31")});
  EXPECT_EQ(nextLine(*found->health), kSecond + "\tprogram\t" + xidText(31));
}

// One that is lost has NVML begun anew in each round, which may fail.
TEST(NvidiaHealth, AWellCardIsNotLostSinceAnotherIsAndNvmlCantBeAsked) {
  Machine machine;
  machine.write({t4(kFirst), t4(kSecond)});
  HealthTimes times;
  times.interval = times.again = millis(5);
  times.patience = millis(500);
  const auto watch = watchNvidiaCards({kFirst, kSecond}, times);
  ASSERT_TRUE(watch.ok()) << watch.error().message;
  machine.write({t4(kFirst, "0|1|0|0"), t4(kSecond)});
  EXPECT_TRUE(nextLine(*watch).starts_with(kFirst + "\till\t"));
  machine.write({"!init|999", t4(kFirst, "0|1|0|0"), t4(kSecond)});
  EXPECT_TRUE(nextLine(*watch).starts_with(std::string(kEveryCard) + "\tblind\t"));
  machine.write({t4(kFirst), t4(kSecond)});
  std::string line;
  do {
    line = nextLine(*watch);
    EXPECT_FALSE(line.starts_with(kSecond)) << line;
  } while (!line.empty() && !line.starts_with(kFirst + "\tanswers\t"));
  EXPECT_NE(line, "");
}

TEST(NvidiaHealth, AnNvmlThatSaysNothingOfAnyCardIsNoSignOfLife) {
  Machine machine;
  machine.write({"!count|999", t4(kFirst), t4(kSecond)});
  HealthTimes times;
  times.interval = times.again = millis(5);
  times.patience = millis(500);
  const auto watch = watchNvidiaCards({kFirst, kSecond}, times);
  ASSERT_TRUE(watch.ok()) << watch.error().message;
  EXPECT_EQ(nextLine(*watch), std::string(kEveryCard) + "\tblind\tNVML did not answer for 500 ms");
  machine.write({t4(kFirst), t4(kSecond)});
  EXPECT_EQ(nextLine(*watch), std::string(kEveryCard) + "\tsees\tNVML answers again");
}

TEST(NvidiaHealth, AQuestionAboutErrorsThatFailsIsNoAnswer) {
  Machine machine;
  const auto found = [&] {
    machine.write({t4(kFirst, "0|0|7|0"), t4(kSecond)});
    return find("nvidia");
  }();
  ASSERT_TRUE(found.ok()) << found.error().message;
  // Between two tidings of the second card there is a whole round of questions to the first.
  const auto round = [&](const std::string& errors) {
    const std::string first = t4(kFirst, "0|0|" + errors + "|0");
    machine.write({first, t4(kSecond, "0|1|0|0")});
    EXPECT_TRUE(nextLine(*found->health).starts_with(kSecond + "\till\t"));
    machine.write({first, t4(kSecond)});
    EXPECT_TRUE(nextLine(*found->health).starts_with(kSecond + "\tanswers\t"));
  };
  for (const char* errors : {"7", "?", "7", "?"}) round(errors);
  machine.write({t4(kFirst, "0|0|9|0"), t4(kSecond)});
  EXPECT_EQ(nextLine(*found->health), kFirst + "\till\t2 uncorrected memory errors");
}

TEST(NvidiaHealth, AWatchThatHangsOrDiesSaysSoIsStartedAnewAndHasForgottenNothing) {
  Machine machine;
  machine.write({t4(kFirst, "0|0|7|13")});
  HealthTimes times;
  times.interval = times.again = millis(5);
  times.patience = seconds(2);  // more than a busy machine takes for a round
  const auto watch = watchNvidiaCards({kFirst}, times);
  ASSERT_TRUE(watch.ok()) << watch.error().message;
  const std::string blind = std::string(kEveryCard) + "\tblind\t";
  const std::string sees = std::string(kEveryCard) + "\tsees\tNVML answers again";
  const auto until = [&](const std::string& wanted) {
    for (;;) {
      const std::string line = nextLine(*watch);
      if (line.empty() || line.starts_with(wanted)) return line;
      const bool known = line == sees || line == kFirst + "\tprogram\t" + xidText(13);
      EXPECT_TRUE(known) << line;
    }
  };
  EXPECT_NE(until(kFirst + "\tprogram\t"), "") << "its first round is over";
  machine.write({"!die|1", t4(kFirst, "0|0|7|13")});
  EXPECT_EQ(until(blind), blind + "the process that asks NVML died");
  machine.write({t4(kFirst, "0|0|7|13")});
  EXPECT_EQ(until(sees), sees);
  machine.write({"!hang|1", t4(kFirst, "0|0|7|13")});
  EXPECT_EQ(until(blind), blind + "NVML did not answer for 2000 ms");
  machine.write({t4(kFirst, "0|0|9|13")});
  EXPECT_EQ(until(kFirst + "\till\t"), kFirst + "\till\t2 uncorrected memory errors");
}

TEST(NvidiaHealth, TheWatchEndsWithItsOwner) {
  Machine machine;
  machine.write({t4(kFirst)});
  int end = -1;
  {
    auto watch = watchNvidiaCards({kFirst});
    ASSERT_TRUE(watch.ok());
    HealthWatch moved = std::move(*watch);
    end = ::fcntl(moved.fd(), F_DUPFD_CLOEXEC, 0);
  }
  char c = 0;
  EXPECT_EQ(::read(end, &c, 1), 0) << "nobody writes any more";
  ::close(end);
}

}  // namespace
}  // namespace qgpu
