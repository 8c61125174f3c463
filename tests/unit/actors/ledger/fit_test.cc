#include "actors/ledger/fit.h"

#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace qgpu::fit_test {
namespace {

using enum TaskClass;

CardRoom card() {
  CardRoom room;
  room.mem = gibibytes(16);
  room.tasksMax = 4;
  return room;
}

CardRoom with(void (*change)(CardRoom&)) {
  CardRoom room = card();
  change(room);
  return room;
}

CardAsk part(TaskClass taskClass, std::int64_t gib, std::int64_t percent) {
  return {taskClass, gibibytes(gib), Permille(percent * 10), false};
}
const CardAsk kWhole{Ordinary, Bytes(0), kWholeCard, true};

struct Row {
  const char* what;
  CardRoom room;
  CardAsk ask;
  Reason reason;
  std::int64_t missing;
};

TEST(Fit, JudgesOneCardByTheRulesOfTheContract) {
  const auto ordinary = [](CardRoom& c) { account(c, part(Ordinary, 10, 70), 1); };
  const auto offline = [](CardRoom& c) { account(c, part(Offline, 10, 70), 1); };
  const auto online = [](CardRoom& c) { account(c, part(Online, 10, 0), 1); };
  const auto held = [](CardRoom& c) { account(c, {Ordinary, c.mem, kWholeCard, true}, 1); };
  const auto full = [](CardRoom& c) { c.tasks = 4; };
  const auto fixed = [](CardRoom& c) { c.policy = Policy::FixedShare; };
  const auto ill = [](CardRoom& c) { c.healthy = false; };
  const auto cordoned = [](CardRoom& c) { c.mark = CardMark::Cordoned; };
  const auto draining = [](CardRoom& c) { c.mark = CardMark::Draining; };
  const auto starting = [](CardRoom& c) { c.mark = CardMark::Starting; };
  const auto unproven = [](CardRoom& c) { c.mark = CardMark::Unproven; };
  const std::int64_t gib = gibibytes(1).value;
  const std::vector<Row> rows = {
      {"an empty card", card(), part(Ordinary, 16, 99), Reason::Fits, 0},
      {"more than a card has", card(), part(Ordinary, 18, 10), Reason::CardTooSmall, 2 * gib},
      {"out of order", with(ill), part(Ordinary, 1, 10), Reason::CardUnhealthy, 0},
      {"cordoned", with(cordoned), part(Ordinary, 1, 10), Reason::CardCordoned, 0},
      {"draining", with(draining), kWhole, Reason::CardCordoned, 0},
      {"starting", with(starting), kWhole, Reason::ManagerStarting, 0},
      {"unproven", with(unproven), kWhole, Reason::ReportNeeded, 0},
      {"held whole", with(held), part(Ordinary, 1, 10), Reason::HeldWhole, 1},
      {"a whole one of a shared one", with(ordinary), kWhole, Reason::NotWholeFree, 1},
      {"a whole empty one", card(), kWhole, Reason::Fits, 0},
      {"online beside ordinary", with(ordinary), part(Online, 1, 0), Reason::WrongTenancy, 0},
      {"ordinary beside online", with(online), part(Ordinary, 1, 10), Reason::WrongTenancy, 0},
      {"offline beside online", with(online), part(Offline, 1, 100), Reason::Fits, 0},
      {"no share, fixed-share", with(fixed), part(Ordinary, 1, 0), Reason::ShareNeeded, 0},
      {"online needs none", with(fixed), part(Online, 1, 0), Reason::Fits, 0},
      {"the task too many", with(full), part(Ordinary, 1, 10), Reason::SlotsFull, 1},
      {"memory", with(ordinary), part(Ordinary, 7, 10), Reason::MemShort, gib},
      {"share", with(ordinary), part(Ordinary, 1, 31), Reason::CoreShort, 10},
      {"share to the last permille", with(ordinary), part(Ordinary, 6, 30), Reason::Fits, 0},
      {"greedy", with(offline), part(Offline, 1, 35), Reason::GreedyShort, 50},
      {"online counts no share", with(offline), part(Online, 6, 0), Reason::Fits, 0},
  };
  for (const Row& row : rows) {
    const Reason reason = fitOf(row.room, row.ask);
    EXPECT_STREQ(reasonName(reason), reasonName(row.reason)) << row.what;
    EXPECT_EQ(shortfall(row.room, row.ask, reason), row.missing) << row.what;
    EXPECT_FALSE(describe(row.room, row.ask, reason).empty()) << row.what;
  }
}

TEST(Fit, WritesSizesInWholeUnitsOrHalves) {
  EXPECT_EQ(sizeText(gibibytes(2)), "2 GiB");
  EXPECT_EQ(sizeText(mebibytes(1536)), "1.5 GiB");
  EXPECT_EQ(sizeText(mebibytes(512)), "512 MiB");
  EXPECT_EQ(sizeText(mebibytes(700)), "700 MiB");
  EXPECT_EQ(sizeText(mebibytes(15'109)), "15109 MiB");
}

TEST(Fit, NamesEachReasonOnce) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kReasons; ++i) names.insert(reasonName(static_cast<Reason>(i)));
  EXPECT_EQ(names.size(), kReasons);
  EXPECT_STREQ(reasonName(Reason::MemShort), "MemShort");
  EXPECT_STREQ(reasonName(Reason::StaleState), "StaleState");
}

TEST(Fit, CallsHopelessOnlyWhatWaitingCantHelp) {
  EXPECT_TRUE(isHopeless(Reason::CardTooSmall));
  EXPECT_TRUE(isHopeless(Reason::NotMixedNode));
  EXPECT_TRUE(isHopeless(Reason::ModelMismatch));
  EXPECT_FALSE(isHopeless(Reason::MemShort));
  EXPECT_FALSE(isHopeless(Reason::CardCordoned));
  EXPECT_FALSE(isHopeless(Reason::NodeLost));
}

TEST(Fit, P9_GivesBackExactlyWhatWasTaken) {
  CardRoom room = card();
  const CardRoom before = room;
  for (const CardAsk& ask : {part(Ordinary, 3, 20), part(Online, 2, 0), part(Offline, 1, 40),
                             CardAsk{Ordinary, gibibytes(16), kWholeCard, true}}) {
    account(room, ask, 1);
    EXPECT_NE(room, before);
    account(room, ask, -1);
    EXPECT_EQ(room, before);
  }
}

}  // namespace
}  // namespace qgpu::fit_test
