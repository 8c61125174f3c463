#include "actors/ledger/ledger.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace qgpu::ledger_test {
namespace {

using enum TaskClass;

Ledger node(std::size_t cards, std::int64_t gib, bool mixed = true,
            Policy policy = Policy::BestEffort, std::uint32_t tasksMax = 100) {
  std::vector<LedgerCard> list;
  for (std::size_t i = 0; i < cards; ++i) {
    list.push_back({"sim-" + std::to_string(i), static_cast<std::uint32_t>(i), gibibytes(gib), {}});
  }
  return Ledger({mixed, {tasksMax}}, list, policy);
}

LedgerAsk ask(TaskClass taskClass, std::int64_t gib, std::int64_t percent, std::uint32_t cards = 1,
              std::string card = "") {
  return {taskClass, gibibytes(gib), Permille(percent * 10), cards, std::move(card)};
}

std::size_t bound(Ledger& ledger, std::uint64_t task, const LedgerAsk& what) {
  const Result<Placement> placement = ledger.place(what);
  EXPECT_TRUE(placement.ok()) << (placement ? "" : placement.error().message);
  if (!placement) return 999;
  ledger.bind(TaskId{task}, *placement);
  return placement->cards.front();
}

struct Rule {
  const char* what;
  LedgerAsk ask;
  bool accepted;
  ErrorCode code = ErrorCode::Internal;
};

LedgerAsk lends(std::int64_t gib, std::int64_t pageable) {
  LedgerAsk what = ask(Offline, gib, 10);
  what.pageable = gibibytes(pageable);
  return what;
}

TEST(Ledger, P1_OnlyWhatMayLeaveACardIsBoundBeyondIt) {
  Ledger ledger({true, {100}, Permille(500)}, {{"sim-0", 0, gibibytes(8), {}}}, Policy::BestEffort);
  bound(ledger, 1, lends(6, 6));
  EXPECT_EQ(ledger.place(ask(Online, 7, 0)).error().code, ErrorCode::NoRoom) << "13 of 12 in all";
  bound(ledger, 2, ask(Online, 3, 0));
  EXPECT_EQ(ledger.place(lends(4, 4)).error().code, ErrorCode::NoRoom) << "13 of 12 in all";
  bound(ledger, 3, lends(3, 1));
  EXPECT_EQ(ledger.use(0).memFree(), Bytes(0));
  EXPECT_TRUE(ledger.release(TaskId{1}));
  EXPECT_EQ(ledger.use(0).memFree(), gibibytes(3)) << "of 8, 5 stay";
  EXPECT_EQ(ledger.place(ask(Online, 4, 0)).error().code, ErrorCode::NoRoom);
  EXPECT_TRUE(ledger.place(lends(6, 3)).ok());
  EXPECT_EQ(ledger.place(lends(6, 2)).error().code, ErrorCode::NoRoom);
  EXPECT_EQ(ledger.place(lends(9, 9)).error().code, ErrorCode::Infeasible) << "never in at once";
}

TEST(Ledger, P1_WithoutOvercommitAllMemoryCounts) {
  Ledger ledger = node(1, 8);
  bound(ledger, 1, lends(6, 6));
  EXPECT_EQ(ledger.place(lends(3, 3)).error().code, ErrorCode::NoRoom);
  EXPECT_EQ(ledger.use(0).memFree(), gibibytes(2));
}

TEST(Ledger, OnlyOfflineTasksLendMemoryAndNoMoreThanTheyHave) {
  const Ledger ledger = node(1, 8);
  const auto code = [&](LedgerAsk what, Bytes pageable) {
    what.pageable = pageable;
    const auto placed = ledger.place(what);
    return placed ? ErrorCode::Internal : placed.error().code;
  };
  EXPECT_EQ(code(ask(Online, 2, 0), gibibytes(1)), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(ask(Ordinary, 2, 10), gibibytes(1)), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(ask(Ordinary, 2, 100), gibibytes(1)), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(ask(Offline, 2, 10), gibibytes(3)), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(ask(Offline, 2, 10), Bytes(5)), ErrorCode::InvalidArgument);
  EXPECT_EQ(code(ask(Offline, 2, 10), gibibytes(2)), ErrorCode::Internal) << "it is placed";
}

// On two empty cards of 8 GiB, online and offline allowed.
TEST(Ledger, AcceptsAndRefusesByTheRulesOfTheContract) {
  using enum ErrorCode;
  const std::vector<Rule> rules = {
      {"an ordinary task", ask(Ordinary, 2, 30), true},
      {"one GiB", ask(Ordinary, 1, 30), true},
      {"no memory", ask(Ordinary, 0, 30), false, InvalidArgument},
      {"half a GiB more", {Ordinary, mebibytes(1536), Permille(300), 1, ""}, true},
      {"the least memory that there is", {Ordinary, mebibytes(1), Permille(300), 1, ""}, true},
      {"part of a MiB",
       {Ordinary, mebibytes(1) + Bytes(1), Permille(300), 1, ""},
       false,
       InvalidArgument},
      {"all memory of a card", ask(Ordinary, 8, 30), true},
      {"more memory than a card has", ask(Ordinary, 9, 30), false, Infeasible},
      {"1 percent", ask(Ordinary, 1, 1), true},
      {"99 percent", ask(Ordinary, 1, 99), true},
      {"half a percent", {Ordinary, gibibytes(1), Permille(5), 1, ""}, false, InvalidArgument},
      {"no share, best-effort", ask(Ordinary, 1, 0), true},
      {"a whole card", ask(Ordinary, 1, 100), true},
      {"two whole cards by share", ask(Ordinary, 0, 200), true},
      {"two whole cards by count", ask(Ordinary, 0, 100, 2), true},
      {"two whole cards by both", ask(Ordinary, 0, 200, 2), true},
      {"three whole cards", ask(Ordinary, 0, 300), false, Infeasible},
      {"a share between 1 and 2 cards", ask(Ordinary, 1, 150), false, InvalidArgument},
      {"two cards and part of a share", ask(Ordinary, 1, 30, 2), false, InvalidArgument},
      {"no cards", ask(Ordinary, 1, 30, 0), false, InvalidArgument},
      {"more cards than one task may have", ask(Ordinary, 0, 1700), false, InvalidArgument},
      {"two cards, one named", ask(Ordinary, 0, 200, 1, "sim-0"), false, InvalidArgument},
      {"a share below zero",
       {Ordinary, gibibytes(1), Permille(-10), 1, ""},
       false,
       InvalidArgument},
      {"an online task", ask(Online, 2, 0), true},
      {"an online task with a share", ask(Online, 2, 10), false, InvalidArgument},
      {"an online task on two cards", ask(Online, 2, 0, 2), false, InvalidArgument},
      {"an offline task", ask(Offline, 2, 50), true},
      {"an offline task with 100 percent", ask(Offline, 2, 100), true},
      {"an offline task with 110 percent", ask(Offline, 2, 110), false, InvalidArgument},
      {"an offline task on two cards", ask(Offline, 2, 50, 2), false, InvalidArgument},
      {"a card by id", ask(Ordinary, 1, 10, 1, "sim-1"), true},
      {"a card by index", ask(Ordinary, 1, 10, 1, "1"), true},
      {"an unknown card", ask(Ordinary, 1, 10, 1, "sim-2"), false, NotFound},
      {"memory beyond counting",
       {Ordinary, Bytes(INT64_MAX), Permille(10), 1, ""},
       false,
       InvalidArgument},
      {"a share beyond counting",
       {Ordinary, gibibytes(1), Permille(UINT32_MAX), 1, ""},
       false,
       InvalidArgument},
  };
  const Ledger ledger = node(2, 8);
  for (const Rule& rule : rules) {
    const Result<Placement> placement = ledger.place(rule.ask);
    EXPECT_EQ(placement.ok(), rule.accepted) << rule.what;
    if (!placement && !rule.accepted) {
      const Error& error = placement.error();
      EXPECT_EQ(error.code, rule.code) << rule.what << ": " << error.message;
      EXPECT_FALSE(error.message.empty());
    }
  }
}

TEST(Ledger, P1_BindsNoMoreMemoryThanACardHas) {
  Ledger ledger = node(1, 8);
  bound(ledger, 1, ask(Ordinary, 5, 10));
  const auto refused = ledger.place(ask(Ordinary, 4, 10));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::NoRoom);
  EXPECT_NE(refused.error().message.find("sim-0: 3 GiB free of 8 GiB"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("ask for at most 3 GiB"), std::string::npos);
  bound(ledger, 2, ask(Ordinary, 3, 10));
  EXPECT_EQ(ledger.use(0).memBound, gibibytes(8));
}

TEST(Ledger, P2_KeepsTheSharesOfEachPoolWithinAWholeCard) {
  Ledger ordinary = node(1, 32);
  bound(ordinary, 1, ask(Ordinary, 1, 60));
  const auto refused = ordinary.place(ask(Ordinary, 1, 41));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::NoRoom);
  EXPECT_NE(refused.error().message.find("at most 40 percent"), std::string::npos);
  bound(ordinary, 2, ask(Ordinary, 1, 40));

  Ledger hybrid = node(1, 32);
  bound(hybrid, 1, ask(Offline, 1, 100));
  EXPECT_FALSE(hybrid.place(ask(Offline, 1, 1)).ok());
  EXPECT_TRUE(hybrid.place(ask(Online, 1, 0)).ok()) << "online counts nothing";
}

TEST(Ledger, P1_P2_AdmitsWhatWasBoundBeforeOnlyWhereItFits) {
  Ledger ledger = node(2, 8);
  bound(ledger, 1, ask(Ordinary, 4, 50, 1, "sim-0"));
  const auto was = [](TaskClass taskClass, std::int64_t gib, std::int64_t percent, bool whole,
                      std::vector<std::size_t> cards) {
    Placement placement{taskClass, whole, Permille(percent * 10), {}, std::move(cards)};
    placement.mem.assign(placement.cards.size(), gibibytes(gib));
    return placement;
  };
  EXPECT_TRUE(ledger.admits(was(Ordinary, 4, 50, false, {0})));
  EXPECT_FALSE(ledger.admits(was(Ordinary, 5, 50, false, {0}))) << "memory";
  EXPECT_FALSE(ledger.admits(was(Ordinary, 4, 51, false, {0}))) << "share";
  EXPECT_FALSE(ledger.admits(was(Offline, 1, 10, false, {0}))) << "tenancy";
  EXPECT_FALSE(ledger.admits(was(Ordinary, 8, 100, true, {0, 1}))) << "one of them is not free";
  EXPECT_TRUE(ledger.admits(was(Ordinary, 8, 100, true, {1})));
  bound(ledger, 2, ask(Ordinary, 0, 100, 1, "sim-1"));
  EXPECT_FALSE(ledger.admits(was(Ordinary, 1, 0, false, {1}))) << "held whole";
}

TEST(Ledger, P5_GivesSeveralCardsAllOrNone) {
  Ledger ledger = node(3, 8);
  bound(ledger, 1, ask(Ordinary, 1, 10));
  const auto three = ledger.place(ask(Ordinary, 0, 300));
  ASSERT_FALSE(three.ok());
  EXPECT_EQ(three.error().code, ErrorCode::NoRoom);
  const auto two = ledger.place(ask(Ordinary, 0, 200));
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->cards, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(two->mem, (std::vector<Bytes>{gibibytes(8), gibibytes(8)})) << "whole cards take all";
  ledger.bind(TaskId{2}, *two);
  EXPECT_FALSE(ledger.place(ask(Ordinary, 1, 10, 1, "sim-2")).ok());
}

TEST(Ledger, GivesCardsThatAreNearEachOther) {
  std::vector<LedgerCard> cards;
  for (const std::uint32_t links : {1U, 2U, 2U, 1U}) {
    const auto index = static_cast<std::uint32_t>(cards.size());
    cards.push_back({"sim-" + std::to_string(index), index, gibibytes(8), {links, -1}});
  }
  const Ledger ledger({true, {4}}, cards, Policy::BestEffort);
  const auto two = ledger.place(ask(Ordinary, 0, 200));
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->cards, (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(ledger.place(ask(Ordinary, 0, 300))->cards, (std::vector<std::size_t>{0, 1, 3}));
}

TEST(Ledger, P8_HoldsOneKindOfTenancyOnACard) {
  Ledger ledger = node(1, 32);
  bound(ledger, 1, ask(Ordinary, 1, 10));
  for (const TaskClass other : {Online, Offline}) {
    const auto refused = ledger.place(ask(other, 1, other == Offline ? 10 : 0));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  }
  ledger.release(TaskId{1});
  bound(ledger, 2, ask(Online, 1, 0));
  EXPECT_EQ(ledger.tenancy(0), Tenancy::Hybrid);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 10)).error().code, ErrorCode::Conflict);
  EXPECT_TRUE(ledger.place(ask(Offline, 1, 10)).ok());
}

TEST(Ledger, P8_KeepsOnlineAndOfflineTasksOffNodesThatAreNotMixed) {
  const Ledger ledger = node(1, 32, false);
  EXPECT_EQ(ledger.place(ask(Online, 1, 0)).error().code, ErrorCode::Infeasible);
  EXPECT_EQ(ledger.place(ask(Offline, 1, 10)).error().code, ErrorCode::Infeasible);
  EXPECT_TRUE(ledger.place(ask(Ordinary, 1, 10)).ok());
}

TEST(Ledger, P8_LimitsTheTasksOfACard) {
  Ledger ledger = node(1, 32, true, Policy::BestEffort, 2);
  bound(ledger, 1, ask(Ordinary, 1, 10));
  bound(ledger, 2, ask(Ordinary, 1, 10));
  const auto refused = ledger.place(ask(Ordinary, 1, 10));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::NoRoom);
  EXPECT_NE(refused.error().message.find("--max-tasks-per-card"), std::string::npos);
}

TEST(Ledger, P8_RefusesCordonedAndDrainingCards) {
  Ledger ledger = node(2, 8);
  ledger.mark(0, CardMark::Cordoned);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 10, 1, "sim-0")).error().code, ErrorCode::Cordoned);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 10))->cards.front(), 1u);
  ledger.mark(1, CardMark::Draining);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 10)).error().code, ErrorCode::Cordoned);
  ledger.mark(0, CardMark::Ready);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 10))->cards.front(), 0u);
}

TEST(Ledger, FixedShareTakesNoTaskWithoutAShare) {
  Ledger ledger = node(1, 32, true, Policy::FixedShare);
  EXPECT_EQ(ledger.place(ask(Ordinary, 1, 0)).error().code, ErrorCode::Conflict);
  EXPECT_EQ(ledger.place(ask(Offline, 1, 0)).error().code, ErrorCode::Conflict);
  EXPECT_TRUE(ledger.place(ask(Online, 1, 0)).ok());
  EXPECT_TRUE(ledger.place(ask(Ordinary, 1, 10)).ok());
  ledger.choosePolicy(0, Policy::BurstShare);
  bound(ledger, 1, ask(Ordinary, 1, 0));
  EXPECT_EQ(ledger.mayChoosePolicy(0, Policy::FixedShare).error().code, ErrorCode::Conflict);
  EXPECT_TRUE(ledger.mayChoosePolicy(0, Policy::BestEffort).ok());
  ledger.release(TaskId{1});
  EXPECT_TRUE(ledger.mayChoosePolicy(0, Policy::FixedShare).ok());
}

TEST(Ledger, PacksOrdinaryTasksOnTheFullestCardThatFits) {
  Ledger ledger = node(3, 8);
  bound(ledger, 1, ask(Ordinary, 2, 10, 1, "sim-1"));
  EXPECT_EQ(bound(ledger, 2, ask(Ordinary, 2, 10)), 1u);
  EXPECT_EQ(bound(ledger, 3, ask(Ordinary, 6, 10)), 0u) << "sim-1 has 4 GiB left";
  EXPECT_EQ(bound(ledger, 4, ask(Ordinary, 2, 10)), 0u);
}

TEST(Ledger, SpreadsOnlineTasksAwayFromOfflineOnes) {
  Ledger ledger = node(3, 8);
  bound(ledger, 1, ask(Offline, 1, 10, 1, "sim-0"));
  EXPECT_EQ(bound(ledger, 2, ask(Online, 1, 0)), 1u);
  EXPECT_EQ(bound(ledger, 3, ask(Online, 1, 0)), 2u);
  EXPECT_EQ(bound(ledger, 4, ask(Online, 1, 0)), 1u);
  EXPECT_EQ(bound(ledger, 5, ask(Offline, 1, 10)), 0u) << "away from online tasks";
  EXPECT_EQ(bound(ledger, 6, ask(Offline, 1, 10)), 0u) << "and packed";
}

TEST(Ledger, P9_ReleasesOnceAndReturnsEverything) {
  Ledger ledger = node(2, 8);
  const std::uint64_t empty = ledger.digest();
  bound(ledger, 1, ask(Ordinary, 2, 10));
  bound(ledger, 2, ask(Ordinary, 0, 100));
  EXPECT_NE(ledger.digest(), empty);
  EXPECT_TRUE(ledger.release(TaskId{1}));
  EXPECT_FALSE(ledger.release(TaskId{1}));
  EXPECT_TRUE(ledger.release(TaskId{2}));
  EXPECT_EQ(ledger.digest(), empty);
  EXPECT_EQ(ledger.use(0).memBound, Bytes(0));
  EXPECT_EQ(ledger.tenancy(0), Tenancy::Free);
}

TEST(Ledger, P10_MoreRoomNeverHurts) {
  for (std::int64_t gib = 1; gib <= 8; ++gib) {
    for (const TaskClass other : {Online, Offline, Ordinary}) {
      Ledger full = node(2, 8, true, Policy::BestEffort, 3);
      bound(full, 1, ask(other, 3, other == Online ? 0 : 60));
      bound(full, 2, ask(other, 4, other == Online ? 0 : 30));
      const bool fitted = full.place(ask(Offline, gib, 20)).ok();
      full.release(TaskId{2});
      EXPECT_TRUE(!fitted || full.place(ask(Offline, gib, 20)).ok()) << gib;
    }
  }
}

TEST(Ledger, TakesCardsForTheSizeThatTheyAreSoldIn) {
  EXPECT_EQ(nominalGib(mebibytes(15'109)), 16);
  EXPECT_EQ(nominalGib(mebibytes(22'731)), 24);
  EXPECT_EQ(nominalGib(mebibytes(40'536)), 40);
  EXPECT_EQ(nominalGib(mebibytes(81'251)), 80);
  EXPECT_EQ(nominalGib(mebibytes(143'771)), 141);
  EXPECT_EQ(nominalGib(gibibytes(32)), 32);
  EXPECT_EQ(nominalGib(gibibytes(5)), 5);
  EXPECT_EQ(nominalGib(gibibytes(600)), 600) << "larger than any that is sold today";
  EXPECT_EQ(nominalGib(mebibytes(300)), 1);
  EXPECT_EQ(node(1, 32, true, Policy::BestEffort, 0).tasksMax(0), 8u);
  EXPECT_EQ(node(1, 2, true, Policy::BestEffort, 0).tasksMax(0), 1u);
}

TEST(Ledger, SharesASmallCardBySeveralWhereThatIsWished) {
  const TaskLimit alone{0, kLeastTasksAlone};
  EXPECT_EQ(tasksMaxOf(mebibytes(300), alone), 4u);
  EXPECT_EQ(tasksMaxOf(gibibytes(8), alone), 4u);
  EXPECT_EQ(tasksMaxOf(gibibytes(16), alone), 4u);
  EXPECT_EQ(tasksMaxOf(gibibytes(24), alone), 6u);
  EXPECT_EQ(tasksMaxOf(gibibytes(8), TaskLimit{2, kLeastTasksAlone}), 2u) << "as was configured";
  EXPECT_EQ(tasksMaxOf(gibibytes(8), TaskLimit{0, 0}), 2u) << "a node that says nothing of it";
  EXPECT_EQ(tasksMaxOf(gibibytes(2), TaskLimit{0, 0}), 1u);
  Ledger small({false, alone}, {{"sim-0", 0, gibibytes(2)}}, Policy::BestEffort);
  for (std::uint64_t task = 1; task <= 4; ++task) {
    bound(small, task, {Ordinary, mebibytes(512), Permille(100), 1, ""});
  }
  EXPECT_EQ(small.use(0).memBound, gibibytes(2));
}

TEST(Ledger, SaysWhoHoldsWhatAndOnWhichCard) {
  Ledger ledger = node(3, 8);
  bound(ledger, 7, ask(Ordinary, 2, 10, 1, "sim-2"));
  bound(ledger, 3, ask(Ordinary, 3, 20, 1, "sim-2"));
  bound(ledger, 5, ask(Ordinary, 0, 200));
  EXPECT_EQ(ledger.cards(), 3u);
  EXPECT_EQ(ledger.tasks(), 3u);
  EXPECT_EQ(ledger.tasksOn(2), (std::vector<TaskId>{TaskId{3}, TaskId{7}}));
  EXPECT_EQ(ledger.tasksOn(0), (std::vector<TaskId>{TaskId{5}}));
  EXPECT_EQ(ledger.tasksOn(1), (std::vector<TaskId>{TaskId{5}}));
  ASSERT_NE(ledger.placement(TaskId{3}), nullptr);
  EXPECT_EQ(ledger.placement(TaskId{3})->share, Permille(200));
  EXPECT_EQ(ledger.placement(TaskId{4}), nullptr);
  ledger.release(TaskId{5});
  EXPECT_TRUE(ledger.tasksOn(0).empty());
  EXPECT_EQ(ledger.placement(TaskId{5}), nullptr);
}

TEST(Ledger, FindsACardByItsIdItsIndexAndItsShortName) {
  const Ledger ledger({},
                      {{"GPU-5f0c", 0, gibibytes(8)},
                       {"opencl-portable-computing-language-0", 1, gibibytes(8)},
                       {"sim-2", 2, gibibytes(8)}},
                      Policy::BestEffort);
  for (const char* first : {"GPU-5f0c", "0", "gpu-0"}) EXPECT_EQ(*ledger.findCard(first), 0u);
  for (const char* second : {"opencl-portable-computing-language-0", "1", "ocl-1"}) {
    EXPECT_EQ(*ledger.findCard(second), 1u);
  }
  EXPECT_EQ(*ledger.findCard("sim-2"), 2u);
  for (const char* none : {"gpu-1", "ocl-0", "gpu-", "GPU-0", ""}) {
    EXPECT_FALSE(ledger.findCard(none).ok()) << none;
  }
}

TEST(Ledger, NamesTheCardsThatExistWhereAnUnknownOneIsAsked) {
  EXPECT_EQ(*node(2, 8).findCard("sim-1"), 1u);
  EXPECT_NE(node(0, 8).findCard("sim-0").error().message.find("cards: none"), std::string::npos);
  const std::string two = node(2, 8).findCard("x").error().message;
  EXPECT_NE(two.find("sim-0, sim-1"), std::string::npos) << two;
  const std::string many = node(20, 8).findCard("x").error().message;
  EXPECT_NE(many.find("sim-7"), std::string::npos) << many;
  EXPECT_EQ(many.find("sim-8"), std::string::npos) << "a few are enough: " << many;
}

TEST(Ledger, AdvisesOnlyWhatMayBeAskedFor) {
  Ledger ledger({true, {100}}, {{"odd", 0, mebibytes(8'704) + Bytes(4'096)}}, Policy::BestEffort);
  bound(ledger, 1, ask(Ordinary, 8, 95));
  const std::string memory = ledger.place(ask(Ordinary, 1, 1)).error().message;
  EXPECT_NE(memory.find("odd: 512 MiB free of 8704 MiB"), std::string::npos) << memory;
  EXPECT_NE(memory.find("ask for at most 512 MiB"), std::string::npos) << memory;
  bound(ledger, 2, {Ordinary, mebibytes(512), Permille(10), 1, ""});
  const std::string full = ledger.place(ask(Ordinary, 1, 1)).error().message;
  EXPECT_EQ(full.find("ask for at most"), std::string::npos) << "4 KiB are no whole MiB: " << full;
}

TEST(Ledger, ListsAFewCardsOfManyInARefusal) {
  Ledger ledger = node(20, 8);
  const auto refused = ledger.place(ask(Ordinary, 9, 10));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("and 12 more"), std::string::npos);
  EXPECT_LT(refused.error().message.size(), 1024u);
}

}  // namespace
}  // namespace qgpu::ledger_test
