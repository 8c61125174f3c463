// Each invariant of a card: words that keep it pass, and words that break it are found.
#include <gtest/gtest.h>

#include "tests/sim/checkers/scripted_card.h"

namespace qgpu::sim::check_arbiter_test {
namespace {

constexpr auto kOnline = Class::Online;
constexpr auto kOrdinary = Class::Ordinary;

// Tasks 1 and 2 want the card, and 1 has it since 1 ms.
void twoBusy(ScriptedCard& card, std::uint32_t share = 500) {
  card.at(0).joins(1, kOrdinary, share);
  card.at(10).joins(2, kOrdinary, share);
  card.at(1'000).busy(1, {open(1)});
  card.at(1'010).busy(2, {open(1, true)});
}

TEST(CheckArbiter, A1_OneSliceAfterTheOther) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({hold(1)});
  card.at(11'100).settled(1, card.epoch(), {open(2, true)});
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A1_AGrantWhileTheLastHolderSettlesIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({hold(1), open(2, true)});
  EXPECT_EQ(card.broken(), "A1");
}

TEST(CheckArbiter, A2_AnOnlineGateThatIsHeldIsFound) {
  ScriptedCard card;
  card.joins(1, kOnline, 0, {idle(1)});
  EXPECT_EQ(card.broken(), "");
  card.at(100).tick({hold(1)});
  EXPECT_EQ(card.broken(), "A2");
}

TEST(CheckArbiter, A3_HoldsLeaveInTheTurnOfTheOnlineSubmit) {
  ScriptedCard card;
  twoBusy(card);
  card.at(1'020).joins(3, kOnline, 0, {idle(3)});
  card.at(1'500).busy(3, {hold(1), open(3)});
  card.at(1'600).settled(1, card.epoch() - 1);
  card.at(2'000).quiet(3);
  card.at(102'000).tick({idle(3), open(2, true)});
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A3_AHolderBesideActiveOnlineIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(1'020).joins(3, kOnline, 0, {idle(3)});
  card.at(1'500).busy(3, {open(3)});
  EXPECT_EQ(card.broken(), "A3");
}

TEST(CheckArbiter, A3_AGrantBeforeOnlineIsIdleIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(1'020).joins(3, kOnline, 0, {idle(3)});
  card.at(1'500).busy(3, {hold(1), open(3)});
  card.at(1'600).settled(1, card.epoch() - 1);
  card.at(2'000).quiet(3);
  card.at(52'000).tick({idle(3), open(2, true)});
  EXPECT_EQ(card.broken(), "A3");
}

TEST(CheckArbiter, A4_ATaskThatIsHeldAtItsCapKeepsItsShare) {
  ScriptedCard card(Policy::FixedShare);
  card.joins(1, kOrdinary, 500);
  card.at(1'000).busy(1, {open(1)});
  card.at(61'000).tick({hold(1)});  // 60 ms used of 60: the bucket holds 30
  card.at(61'100).settled(1, card.epoch());
  card.at(91'200).tick({open(1)});  // half of it drained
  card.at(91'300).guest(GuestNews::Kind::Waits, 1, 1);
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A4_ATaskThatGoesOnBeyondItsCapIsFound) {
  ScriptedCard card(Policy::FixedShare);
  card.joins(1, kOrdinary, 500);
  card.at(1'000).busy(1, {open(1)});
  card.at(65'000).tick();
  EXPECT_EQ(card.broken(), "A4");
}

TEST(CheckArbiter, A4_AShareAboveItsOwnIsFoundOverManySlices) {
  ScriptedCard card(Policy::FixedShare);
  card.joins(1, kOrdinary, 500);
  std::int64_t us = 1'000;
  for (int i = 0; i < 400; ++i) {  // 5.1 ms of 10, its linger with them
    card.at(us).busy(1, {open(1)});
    card.at(us + 4'600).quiet(1);
    card.at(us + 5'100).tick({idle(1)});
    us += 10'000;
    if (i == 200) {
      EXPECT_EQ(card.broken(), "");  // not yet more than a slice
    }
  }
  EXPECT_EQ(card.broken(), "A4");
}

TEST(CheckArbiter, A5_AndA8_ATaskThatNeverHasItsTurnIsFound) {
  for (const Policy policy : {Policy::BurstShare, Policy::BestEffort}) {
    ScriptedCard card(policy);
    twoBusy(card);
    std::int64_t us = 2'000;
    for (int i = 0; i < 3; ++i) card.at(us += 10'000).tick();
    EXPECT_EQ(card.broken(), "");
    for (int i = 0; i < 40; ++i) card.at(us += 10'000).tick();
    EXPECT_EQ(card.broken(), policy == Policy::BurstShare ? "A8 A5" : "A8");
  }
}

// Task 1 has the card through a stall of 300 ms and wants it again at once: the other has as much.
TEST(CheckArbiter, A8_WhoHadTheCardWhileItsLoopStoodStillWaitsForThatTime) {
  ScriptedCard card;
  twoBusy(card);
  card.at(31'010).fires();
  card.at(331'010).tick({hold(1)});
  card.at(331'020).quiet(1);
  card.at(331'030).settled(1, card.epoch(), {open(2)});
  card.at(332'000).busy(1, {open(2, true)});
  for (std::int64_t us = 362'000; us < 630'000; us += 30'000) card.at(us).tick();
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A6_ABorrowerThatKeepsAnOwnerOutIsFound) {
  ScriptedCard card(Policy::BurstShare);
  card.joins(1, kOrdinary, 0);
  card.joins(2, kOrdinary, 500);
  card.at(1'000).busy(1, {open(1)});
  card.at(2'000).busy(2, {open(1, true)});
  card.at(30'000).tick();
  EXPECT_EQ(card.broken(), "");
  card.at(33'000).tick();
  EXPECT_EQ(card.broken(), "A6");
}

TEST(CheckArbiter, A7_AnIdleCardThatIsWantedIsFound) {
  ScriptedCard card;
  card.joins(1, kOrdinary, 500);
  card.at(1'000).busy(1);
  EXPECT_EQ(card.broken(), "A7");
}

TEST(CheckArbiter, A7_AHolderThatWantsNothingGivesItBackAfterItsLinger) {
  ScriptedCard card;
  twoBusy(card);
  card.at(5'000).quiet(1);
  card.at(5'500).tick({hold(1)});
  card.at(5'510).settled(1, card.epoch(), {open(2)});
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A7_ALingerThatNobodyEndsIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(5'000).quiet(1);
  card.at(5'600).guest(GuestNews::Kind::Waits, 2, 1);
  EXPECT_EQ(card.broken(), "A7");
}

TEST(CheckArbiter, A9_LabelsAddUpAndAreWhatHappened) {
  ScriptedCard card;
  card.joins(1, kOrdinary, 500);
  card.at(1'000).busy(1, {open(1)});
  card.at(5'000).quiet(1);
  card.at(5'500).tick({idle(1)});
  card.at(9'000).leaves(1, {{TestOrder::Kind::Close, 1, false, false, 0}});
  card.at(10'000).reports(4'500, 5'500, 0, 1);
  EXPECT_EQ(card.broken(), "");
}

TEST(CheckArbiter, A9_TimeThatIsMissingOrCountedTwiceIsFound) {
  ScriptedCard card;
  card.at(10'000).reports(0, 10'000, 0);
  EXPECT_EQ(card.broken(), "");
  card.at(20'000).reports(0, 15'000, 0);
  EXPECT_EQ(card.broken(), "A9");
  ScriptedCard other;
  other.joins(1, kOrdinary, 500);
  other.at(1'000).busy(1, {open(1)});
  other.at(5'000).reports(2'000, 3'000, 0);  // adds up, and is not what happened
  EXPECT_NE(other.broken().find("A9"), std::string::npos);
}

TEST(CheckArbiter, A10_AnOldEpochThatBringsAnOrderIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({hold(1)});
  card.at(11'100).settled(1, card.epoch() - 1);
  EXPECT_EQ(card.broken(), "");
  card.at(11'200).settled(1, card.epoch() - 1, {open(2, true)});
  EXPECT_EQ(card.broken(), "A10 A1");
}

TEST(CheckArbiter, A10_AnEpochThatDoesNotGrowIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({{TestOrder::Kind::Hold, 1, false, false, card.epoch()}});
  EXPECT_EQ(card.broken(), "A10");
}

TEST(CheckArbiter, A11_ASettlingThatTakesTooLongIsOverForTheCardAndQuarantinesItsTask) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({hold(1)});
  card.at(111'000).tick({open(2, false)});
  EXPECT_EQ(card.broken(), "");
  card.at(120'000).quiet(2);
  card.at(120'500).tick({idle(2)});
  EXPECT_EQ(card.broken(), "");
  card.at(121'000).tick({hold(2)});
  card.at(121'010).settled(2, card.epoch(), {open(1)});
  EXPECT_EQ(card.broken(), "A11");
}

TEST(CheckArbiter, A11_ASettlingThatNobodyEndsIsFound) {
  ScriptedCard card;
  twoBusy(card);
  card.at(11'000).tick({hold(1)});
  card.at(112'000).guest(GuestNews::Kind::Waits, 2, 1);
  EXPECT_EQ(card.broken(), "A11");
}

TEST(CheckArbiter, A11_ADeadHolderThatKeepsTheCardIsFound) {
  ScriptedCard good;
  twoBusy(good);
  good.at(5'000).died(1, {hold(1), open(2)});
  EXPECT_EQ(good.broken(), "");
  ScriptedCard bad;
  twoBusy(bad);
  bad.at(5'000).died(1);
  EXPECT_NE(bad.broken().find("A11"), std::string::npos);
}

TEST(CheckArbiter, A12_HoldsThatComeTwiceOrTooSoonAreFound) {
  ScriptedCard twice;
  twoBusy(twice);
  twice.at(11'000).tick({hold(1), hold(1)});
  EXPECT_EQ(twice.broken(), "A12");
  ScriptedCard soon;
  twoBusy(soon);
  soon.at(2'000).tick({hold(1)});
  EXPECT_EQ(soon.broken(), "A12");
  ScriptedCard nothing;
  twoBusy(nothing);
  nothing.at(2'000).tick({open(1, true)});
  EXPECT_EQ(nothing.broken(), "A12");
}

class Recorder final : public Verdict {
 public:
  void violated(const char* invariant, const std::string&) override { broken += invariant; }
  std::string broken;
};

// A task joins a card that then says what the real one says, or something else.
std::string judgeJoin(std::uint32_t epoch) {
  Recorder recorder;
  ReplayCheck replay(recorder);
  Boot boot;
  boot.node = ScriptedCard::kNode;
  boot.attach = ScriptedCard::kAttach;
  boot.cards = {{ScriptedCard::kCard, gibibytes(16), false}};
  boot.sliceMin = millis(2);
  boot.sliceMax = millis(30);
  replay.onBoot(boot, seconds(1));
  capnp::MallocMessageBuilder joinedWords, orderWords;
  auto joined = joinedWords.initRoot<schema::Envelope>().initJoined();
  joined.setTask(1);
  joined.setClass(schema::TaskClass::ONLINE);
  joined.setActor(9);
  auto order = orderWords.initRoot<schema::Envelope>().initGateOrder();
  order.setTask(1);
  order.setEpoch(epoch);
  order.setOrder(schema::GateOrder::Order::OPEN);
  order.setNotify(true);
  const auto read = [](capnp::MallocMessageBuilder& words) {
    return words.getRoot<schema::Envelope>().asReader();
  };
  replay.onTurn({boot.node, ScriptedCard::kCard, Lane::Ordinary, false, 1, read(joinedWords)},
                seconds(1));
  replay.onSent({ScriptedCard::kCard, boot.attach, Lane::Control, false, 2, read(orderWords)},
                seconds(1));
  replay.onTurnEnd(ScriptedCard::kCard, seconds(1));
  return recorder.broken;
}

TEST(CheckArbiter, A13_ACardThatAnswersTheSameWordsOtherwiseIsFound) {
  EXPECT_EQ(judgeJoin(1), "");
  EXPECT_EQ(judgeJoin(2), "A13");
}

}  // namespace
}  // namespace qgpu::sim::check_arbiter_test
