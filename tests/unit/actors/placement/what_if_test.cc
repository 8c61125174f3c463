// Questions that are tried on a copy: where tasks would land, what a drain would do, what helps.
#include "actors/placement/what_if.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::what_if_test {
namespace {

using namespace cluster;
using enum TaskClass;

const Permits kAll = {[](TaskId) { return true; }, [](TaskId) { return true; },
                      [](NodeId, std::size_t) { return true; }};

void finish(WhatIf& trial) {
  while (!trial.step(3)) {
  }
}

TEST(WhatIf, P7_TasksLandWhereTheLedgerWouldPlaceThemOneAfterTheOther) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 32), node("c", 4, 8)});
  bound(ledger, 1, ask(Ordinary, 4, 30));
  const std::uint64_t before = ledger.digest();
  WhatIf trial = WhatIf::place(ledger, ask(Ordinary, 4, 40), 9);
  finish(trial);
  EXPECT_EQ(ledger.digest(), before);
  ASSERT_EQ(trial.landed().size(), 9u);
  for (std::uint64_t n = 0; n < 9; ++n) {
    const Result<Spot> spot = ledger.place(ask(Ordinary, 4, 40));
    ASSERT_TRUE(spot.ok());
    EXPECT_EQ(spot->node, trial.landed()[n].spot.node);
    EXPECT_EQ(spot->placement.cards, trial.landed()[n].spot.placement.cards);
    ledger.bind(TaskId{10 + n}, *spot, "");
  }
}

TEST(WhatIf, SaysHowManyWouldWaitAndWhyAndHowFullTheClusterIsThen) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  WhatIf trial = WhatIf::place(ledger, ask(Ordinary, 8, 50), 20);
  finish(trial);
  EXPECT_EQ(trial.landed().size(), 4u);
  ASSERT_EQ(trial.stay().size(), 1u);
  EXPECT_EQ(trial.stay()[0].count, 16u);
  EXPECT_NE(trial.stay()[0].why.find("no card has room"), std::string::npos);
  EXPECT_EQ(trial.before().allocated, 0);
  EXPECT_EQ(trial.after().allocated, 1000);
}

TEST(WhatIf, GoesOnInBoundedSteps) {
  ClusterLedger ledger = cluster::of({node("a", 8, 16)});
  WhatIf trial = WhatIf::place(ledger, ask(Ordinary, 8, 50), 10);
  EXPECT_FALSE(trial.step(4));
  EXPECT_EQ(trial.landed().size(), 4u);
  EXPECT_FALSE(trial.step(4));
  EXPECT_TRUE(trial.step(4));
  EXPECT_EQ(trial.landed().size(), 10u);
}

TEST(WhatIf, FragmentsAreWhatTypicalTasksCannotUse) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  ledger.setTypical({{{Ordinary, gibibytes(8), Permille(500), false}, 1, 0, Bytes(0), {}, 1}});
  WhatIf trial = WhatIf::place(ledger, ask(Ordinary, 4, 60), 2);
  finish(trial);
  EXPECT_EQ(trial.before().fragments, 0);
  EXPECT_EQ(trial.after().fragments, 400);
}

TEST(WhatIf, ADrainMovesWhatGoesElsewhereAndTellsWhatStaysAndWhy) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 8, 30), "a"));
  bound(ledger, 2, named(ask(Ordinary, 8, 30), "a"));
  bound(ledger, 3, named(ask(Ordinary, 8, 30), "b"));
  const std::uint64_t before = ledger.digest();
  std::vector<WhatIf::Mover> movers{{TaskId{1}, ask(Ordinary, 8, 30), "may run nowhere else"},
                                    {TaskId{2}, ask(Ordinary, 8, 30), ""}};
  WhatIf trial = WhatIf::drain(ledger, NodeId{0}, std::nullopt, std::move(movers));
  finish(trial);
  EXPECT_EQ(ledger.digest(), before);
  ASSERT_EQ(trial.landed().size(), 1u);
  EXPECT_EQ(trial.landed()[0].task, TaskId{2});
  EXPECT_EQ(trial.landed()[0].spot.node, NodeId{1});
  ASSERT_EQ(trial.stay().size(), 1u);
  EXPECT_EQ(trial.stay()[0].task, TaskId{1});
  EXPECT_EQ(trial.stay()[0].why, "may run nowhere else");
  EXPECT_EQ(trial.ledger().tasks(), ledger.tasks());
}

TEST(WhatIf, DrainingACardMayMoveItsTasksToTheOtherCardsOfItsNode) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  bound(ledger, 1, named(ask(Ordinary, 8, 30), "a", "0"));
  WhatIf trial = WhatIf::drain(ledger, NodeId{0}, 0, {{TaskId{1}, ask(Ordinary, 8, 30), ""}});
  finish(trial);
  ASSERT_EQ(trial.landed().size(), 1u);
  EXPECT_EQ(trial.landed()[0].spot.placement.cards, std::vector<std::size_t>{1});
  EXPECT_EQ(trial.before().allocated, trial.after().allocated);
}

TEST(WhatIf, WhatADrainLeavesBehindIsNotToldToUncordonWhatIsDrained) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 16), node("c", 1, 8)});
  bound(ledger, 1, named(ask(Ordinary, 12, 30), "a", "0"));
  bound(ledger, 2, named(ask(Ordinary, 12, 30), "a", "1"));
  bound(ledger, 3, named(ask(Ordinary, 12, 30), "b"));
  const auto why = [&](std::optional<std::size_t> card) {
    WhatIf trial = WhatIf::drain(ledger, NodeId{0}, card, {{TaskId{1}, ask(Ordinary, 12, 30), ""}});
    finish(trial);
    return trial.stay().size() == 1 ? trial.stay()[0].why : "it moves";
  };
  for (const std::optional<std::size_t> card : {std::optional<std::size_t>(), std::optional(0ul)}) {
    EXPECT_EQ(why(card).find("uncordon"), std::string::npos) << why(card);
    EXPECT_NE(why(card).find("no card has room"), std::string::npos) << why(card);
  }
  ledger.release(TaskId{3});
  ledger.setCordoned(NodeId{1}, true);
  EXPECT_NE(why(std::nullopt).find("uncordon one"), std::string::npos) << "another node helps";
  ledger.setNode(node("b", 1, 8));
  EXPECT_EQ(why(std::nullopt),
            "no other card of the cluster would do for it, even if it were empty");
}

TEST(WhatIf, AnEvictionShowsWhereTheVictimsWouldGo) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Offline, 12, 10), "a"));
  bound(ledger, 2, named(ask(Offline, 12, 20), "b"));
  const ClusterAsk online = ask(Online, 8, 0);
  const auto eviction = leastEviction(ledger, online, kAll.mayEvict);
  ASSERT_TRUE(eviction);
  WhatIf trial =
      WhatIf::evict(ledger, TaskId{3}, online, *eviction, {{TaskId{1}, ask(Offline, 12, 10), ""}});
  finish(trial);
  ASSERT_EQ(trial.landed().size(), 1u);
  EXPECT_EQ(trial.landed()[0].evicts, std::vector<TaskId>{TaskId{1}});
  ASSERT_EQ(trial.stay().size(), 1u);
  EXPECT_EQ(trial.stay()[0].task, TaskId{1});
  EXPECT_EQ(trial.ledger().room(NodeId{0}, 0).online, 1u);
}

TEST(WhatIf, ACopyOfOneNodeHoldsWhatTheNodeHolds) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Offline, 12, 10), "b", "1"));
  ledger.setMark(NodeId{1}, 0, CardMark::Cordoned);
  const ClusterLedger copy = copyOfNode(ledger, NodeId{1});
  EXPECT_EQ(copy.nodes(), 1u);
  EXPECT_EQ(copy.room(NodeId{0}, 1).memBound, gibibytes(12));
  EXPECT_EQ(copy.room(NodeId{0}, 0).mark, CardMark::Cordoned);
  EXPECT_EQ(copy.life(NodeId{0}), NodeLife::Alive);
}

// --- remedies, each with what follows where it is not to be had ---

TEST(Remedy, ACordonedCardOrNodeIsTheFirstThatIsProposed) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 16)});
  ledger.setMark(NodeId{0}, 1, CardMark::Cordoned);
  bound(ledger, 1, named(ask(Ordinary, 12, 30), "a", "0"));
  bound(ledger, 2, named(ask(Offline, 12, 30), "b"));
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 8, 30), kAll), "uncordon a/1: it fits there then");
  ledger.setMark(NodeId{0}, 1, CardMark::Ready);
  ledger.setCordoned(NodeId{0}, true);
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 8, 30), kAll), "uncordon a: it fits there then");
}

TEST(Remedy, ThenTheLeastSetOfOfflineTasks) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 12, 30), "a"));
  bound(ledger, 2, named(ask(Offline, 4, 30), "b"));
  bound(ledger, 3, named(ask(Offline, 4, 30), "b"));
  const std::string remedy = remedyOf(ledger, ask(Ordinary, 8, 30), kAll);
  EXPECT_EQ(remedy.find("evict offline tasks 2, 3 (8 GiB) from b/0"), 0u) << remedy;
}

TEST(Remedy, ThenTheEndOfOneTaskOnTheNearestNode) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 8, 30), "a"));
  bound(ledger, 2, named(ask(Ordinary, 8, 20), "a"));
  bound(ledger, 3, named(ask(Ordinary, 16, 30), "b"));
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 8, 30), kAll),
            "end task 2 (ordinary, 8 GiB) on a: it fits there then");
}

TEST(Remedy, ThenTheMostThatFits) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  bound(ledger, 1, named(ask(Ordinary, 5, 30), "a", "0"));
  bound(ledger, 2, named(ask(Ordinary, 4, 60), "a", "1"));
  Permits none = kAll;
  none.mayEnd = [](TaskId) { return false; };
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 14, 20), none),
            "ask for at most 12 GiB: a/1 has room for that");
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 4, 90), none),
            "ask for at most 70 percent: a/0 has room for that");
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 0, 200), none), "");
  ledger.release(TaskId{1});
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 0, 200), none),
            "ask for at most 1 whole card(s): a/0 has room for that");
}

TEST(Remedy, ThenANodeThatIsNotHeardOf) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 32)});
  ledger.setLife(NodeId{1}, NodeLife::Suspect);
  ledger.setMark(NodeId{0}, 0, CardMark::Cordoned);
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 24, 20), kAll),
            "node b is not heard of: it fits there once that is back");
}

TEST(Remedy, WhatIsNotToBeHadIsNotProposed) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16)});
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 0, 200), kAll),
            "ask for at most 1 whole card(s): a/0 has room for that");
  bound(ledger, 1, ask(Online, 16, 0));
  Permits none = kAll;
  none.mayEnd = [](TaskId) { return false; };
  EXPECT_EQ(remedyOf(ledger, ask(Ordinary, 8, 30), none), "");
  ledger.setMark(NodeId{0}, 0, CardMark::Cordoned);
  EXPECT_EQ(remedyOf(ledger, ask(Online, 1, 0), none), "");
}

}  // namespace
}  // namespace qgpu::what_if_test
