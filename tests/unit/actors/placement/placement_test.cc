#include "actors/placement/placement.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::placement_test {
namespace {

using namespace cluster;
using enum TaskClass;

ClusterAsk scored(ClusterAsk ask, Score score) {
  ask.nodeScore = ask.cardScore = score;
  return ask;
}

ClusterAsk replica(ClusterAsk ask, std::string application) {
  ask.application = std::move(application);
  return ask;
}

ClusterAsk host(std::int64_t cpuMilli, std::int64_t gib) {
  ClusterAsk ask = cluster::ask(Ordinary, 0, 0, 0);
  ask.cpuMilli = cpuMilli;
  ask.hostMem = gibibytes(gib);
  return ask;
}

struct Row {
  const char* what;
  ClusterAsk ask;
  const char* answer;  // "fits", or the error's name
};

void expectAll(const ClusterLedger& ledger, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Result<Spot> spot = ledger.scan(row.ask);
    EXPECT_STREQ(spot ? "fits" : errorName(spot.error().code), row.answer)
        << row.what << (spot ? "" : ": " + spot.error().message);
  }
}

ClusterNodeFacts linked(const std::string& name, const std::vector<CardPlace>& places) {
  ClusterNodeFacts facts = node(name, static_cast<std::uint32_t>(places.size()), 16);
  for (std::size_t i = 0; i < places.size(); ++i) facts.cards[i].place = places[i];
  return facts;
}

TEST(Placement, CardsOfOneTaskAreNearEachOther) {
  ClusterLedger ledger = cluster::of({linked("a", {{1, 0}, {2, 0}, {1, 1}, {2, 1}})});
  EXPECT_EQ(bound(ledger, 1, ask(Ordinary, 0, 100, 2)), "a-0,a-2");
  EXPECT_EQ(bound(ledger, 2, ask(Ordinary, 0, 100, 2)), "a-1,a-3");
}

TEST(Placement, ANodeWhoseCardsAreNearIsPreferredAndNoneIsWaitedFor) {
  for (const Score score : {Score::Binpack, Score::Spread, Score::Fgd, Score::BestFit}) {
    ClusterLedger ledger = cluster::of(
        {linked("far", {{1, 0}, {2, 0}}), linked("near", {{1, 0}, {1, 0}, {2, 0}, {2, 0}})});
    const ClusterAsk two = scored(ask(Ordinary, 0, 100, 2), score);
    EXPECT_EQ(bound(ledger, 1, two), "near-0,near-1") << scoreName(score);
    EXPECT_EQ(bound(ledger, 2, two), "near-2,near-3") << scoreName(score);
    EXPECT_EQ(bound(ledger, 3, two), "far-0,far-1") << scoreName(score);
  }
}

// Numbers in brackets: the contradiction of the oldest texts that the row settles.
TEST(Placement, P8_TakesAndRefusesByTheRulesOfTheContract) {
  ClusterNodeFacts a = node("a", 2, 16);
  a.tasks.configured = 0;
  a.cpuMilli = 8000;
  a.hostMem = gibibytes(32);
  ClusterNodeFacts b = node("b", 4, 32, "V100");
  b.mixed = false;
  const ClusterLedger ledger = cluster::of({a, b});
  LedgerAsk odd{Ordinary, gibibytes(1) + mebibytes(5), Permille(100), 1, ""};
  ClusterAsk models = ask(Ordinary, 1, 10);
  models.models = {"A100"};
  ClusterAsk known = ask(Ordinary, 20, 10);
  known.models = {"A100", "V100"};
  ClusterAsk small = ask(Ordinary, 20, 10);
  small.models = {"T4"};
  ClusterAsk processors = ask(Ordinary, 1, 10);
  processors.cpuMilli = 9000;
  ClusterAsk cardAlone = ask(Ordinary, 1, 10);
  cardAlone.task.card = "a-0";
  ClusterAsk less = host(-1, 0);
  expectAll(ledger, {
                        {"memory goes by GiB, 5 of them", ask(Ordinary, 5, 10), "fits"},
                        {"5 MiB more", {odd, "", {}, 0, Bytes(0), "", {}, {}, ""}, "fits"},
                        {"at least 1 MiB", ask(Ordinary, 0, 10), "invalid-argument"},
                        {"99 percent", ask(Ordinary, 1, 99), "fits"},
                        {"N * 100 are whole cards", ask(Ordinary, 0, 400), "fits"},
                        {"between whole cards", ask(Ordinary, 1, 160), "invalid-argument"},
                        {"more cards than any node has", ask(Ordinary, 0, 500), "infeasible"},
                        {"online asks memory alone", ask(Online, 4, 0), "fits"},
                        {"online with a share", ask(Online, 4, 10), "invalid-argument"},
                        {"offline with a greedy share", ask(Offline, 4, 100), "fits"},
                        {"offline with more than a card", ask(Offline, 4, 110), "invalid-argument"},
                        {"offline on two cards", ask(Offline, 4, 50, 2), "invalid-argument"},
                        {"online on mixed nodes only", named(ask(Online, 4, 0), "b"), "infeasible"},
                        {"online larger than mixed nodes", ask(Online, 20, 0), "infeasible"},
                        {"ordinary anywhere", named(ask(Ordinary, 20, 10), "b"), "fits"},
                        {"no share under best-effort", ask(Ordinary, 1, 0), "fits"},
                        {"an unknown model", models, "infeasible"},
                        {"a model of two", known, "fits"},
                        {"too large for that model", small, "infeasible"},
                        {"processors where they count", named(processors, "a"), "infeasible"},
                        {"processors that nobody counts", named(processors, "b"), "fits"},
                        {"processors alone", named(host(8000, 32), "a"), "fits"},
                        {"more host memory than there is", named(host(0, 33), "a"), "infeasible"},
                        {"less than nothing", less, "invalid-argument"},
                        {"nothing at all", host(0, 0), "invalid-argument"},
                        {"an unknown node", named(ask(Ordinary, 1, 10), "c"), "not-found"},
                        {"a card of no node", cardAlone, "invalid-argument"},
                        {"a card by id", named(ask(Ordinary, 1, 10), "a", "a-1"), "fits"},
                        {"a card by index", named(ask(Ordinary, 1, 10), "b", "3"), "fits"},
                        {"an unknown card", named(ask(Ordinary, 1, 10), "a", "a-7"), "not-found"},
                    });
}

TEST(Placement, P8_TakesNobodyWhereItMayNot) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16)});
  const NodeId a{0};
  const ClusterAsk one = ask(Ordinary, 1, 10);
  ledger.setCordoned(a, true);
  expectAll(ledger, {{"a cordoned node", one, "cordoned"}});
  ledger.setCordoned(a, false);
  ledger.setMark(a, 0, CardMark::Draining);
  expectAll(ledger, {{"a draining card", one, "cordoned"}});
  ledger.setMark(a, 0, CardMark::Ready);
  for (const NodeLife life : {NodeLife::Joining, NodeLife::Suspect, NodeLife::Lost}) {
    ledger.setLife(a, life);
    expectAll(ledger, {{"a node that is not alive", one, "no-room"}});
  }
  ledger.setLife(a, NodeLife::Alive);
  expectAll(ledger, {{"and again", one, "fits"}});
}

TEST(Placement, P1_P2_CountsEachPoolAndTheTasksOfACard) {
  ClusterNodeFacts facts = node("a", 1, 15);
  facts.cards[0].mem = mebibytes(15'109);
  facts.tasks.configured = 0;
  ClusterLedger ledger = cluster::of({facts});
  for (std::uint64_t task = 1; task <= 4; ++task) bound(ledger, task, ask(Offline, 1, 25));
  expectAll(ledger, {{"sold as 16 GiB, so four tasks", ask(Online, 1, 0), "no-room"}});
  ledger.release(TaskId{4});
  expectAll(ledger, {{"greedy adds up to 100", ask(Offline, 1, 26), "no-room"},
                     {"online counts no share", ask(Online, 11, 0), "fits"},
                     {"memory counts for all", ask(Online, 12, 0), "no-room"},
                     {"one kind of tenancy", ask(Ordinary, 1, 10), "conflict"}});
}

TEST(Placement, P5_GivesSeveralCardsOfOneNodeOrNone) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Ordinary, 1, 10), "a", "0"));
  bound(ledger, 2, named(ask(Ordinary, 1, 10), "b", "0"));
  expectAll(ledger, {{"two free, on two nodes", ask(Ordinary, 0, 200), "no-room"}});
  ledger.release(TaskId{2});
  EXPECT_EQ(bound(ledger, 3, ask(Ordinary, 0, 200)), "b-0,b-1");
  EXPECT_EQ(ledger.room(NodeId{1}, 1).memBound, gibibytes(16)) << "whole cards take all";
}

TEST(Placement, OnlineTasksSpreadAndKeepOffOfflineOnes) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Offline, 1, 10), "a", "0"));
  EXPECT_EQ(bound(ledger, 2, ask(Online, 1, 0)), "b-0");
  EXPECT_EQ(bound(ledger, 3, ask(Online, 1, 0)), "a-1");
  EXPECT_EQ(bound(ledger, 4, ask(Online, 1, 0)), "b-1");
}

TEST(Placement, OfflineTasksPackAndKeepOffOnlineOnes) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Online, 1, 0), "a", "0"));
  const std::string first = bound(ledger, 2, ask(Offline, 1, 10));
  EXPECT_NE(first, "a-0");
  EXPECT_EQ(bound(ledger, 3, ask(Offline, 1, 10)), first);
}

// Whether a task of this class on this card would sit beside one of the other.
bool meets(const ClusterLedger& ledger, TaskClass taskClass, NodeId node, std::size_t card) {
  const CardRoom& room = ledger.room(node, card);
  return (taskClass == Online ? room.offline : room.online) != 0;
}

bool fitsAlone(const ClusterLedger& ledger, const ClusterAsk& what) {
  for (std::uint32_t n = 0; n < ledger.nodes(); ++n) {
    const ClusterNodeFacts& facts = ledger.facts(NodeId{n});
    for (std::size_t card = 0; card < facts.cards.size(); ++card) {
      if (meets(ledger, what.task.taskClass, NodeId{n}, card)) continue;
      if (ledger.fitsOn(NodeId{n}, named(what, facts.name, facts.cards[card].id))) return true;
    }
  }
  return false;
}

// Whatever stands where, and however it is scored.
TEST(Placement, EachClassMeetsTheOtherOnlyWhereNothingElseIsLeft) {
  std::size_t met = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({});
    for (std::size_t i = 0; i < 6; ++i) {
      ledger.setLife(ledger.setNode(anyNode(dice, i)).first, NodeLife::Alive);
    }
    for (std::uint64_t task = 1; task <= 60; ++task) {
      const ClusterAsk what = anyAsk(dice);
      const TaskClass taskClass = what.task.taskClass;
      const Result<Spot> spot = ledger.place(what);
      if (!spot || spot->placement.cards.empty()) continue;
      if (isHybrid(taskClass) && meets(ledger, taskClass, spot->node, spot->placement.cards[0])) {
        ++met;
        EXPECT_FALSE(fitsAlone(ledger, what)) << "seed " << seed << ", task " << task;
      }
      ledger.bind(TaskId{task}, *spot, what.application);
    }
  }
  EXPECT_GT(met, 50u) << "the clusters are full enough to say anything";
}

TEST(Placement, KeepsReplicasOfAnApplicationApartUnderSpread) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  const ClusterAsk one = replica(ask(Online, 1, 0), "web");
  bound(ledger, 1, named(ask(Online, 8, 0), "b", "0"));
  bound(ledger, 2, named(ask(Online, 8, 0), "b", "1"));
  EXPECT_EQ(bound(ledger, 3, one), "a-0");
  EXPECT_EQ(bound(ledger, 4, one), "b-0") << "fuller, and without a replica";
  EXPECT_EQ(bound(ledger, 5, one), "a-1") << "another card of the node";
  EXPECT_EQ(bound(ledger, 6, one), "b-1");
  ledger.release(TaskId{3});
  ledger.release(TaskId{5});
  EXPECT_EQ(bound(ledger, 7, one), "a-0");
}

TEST(Placement, SpreadTakesTheNodeAndTheCardWithMostLeft) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Ordinary, 8, 50), "a", "0"));
  bound(ledger, 2, named(ask(Ordinary, 4, 20), "b", "0"));
  EXPECT_EQ(bound(ledger, 3, scored(ask(Ordinary, 1, 10), Score::Spread)), "b-1");
}

TEST(Placement, BinpackOpensNoEmptyNodeAndFillsTheFullestThatFits) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16), node("c", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 4, 30), "b"));
  bound(ledger, 2, named(ask(Ordinary, 8, 60), "c"));
  EXPECT_EQ(bound(ledger, 3, ask(Ordinary, 4, 30)), "c-0");
  EXPECT_EQ(bound(ledger, 4, ask(Ordinary, 4, 30)), "b-0");
}

TEST(Placement, NodeAndCardAreScoredEachByItsOwn) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 2, 16)});
  bound(ledger, 1, named(ask(Ordinary, 4, 30), "b", "0"));
  ClusterAsk what = ask(Ordinary, 1, 10);
  what.nodeScore = Score::Binpack;
  what.cardScore = Score::Spread;
  EXPECT_EQ(bound(ledger, 2, what), "b-1");
  what.nodeScore = Score::Spread;
  what.cardScore = Score::Binpack;
  bound(ledger, 3, named(ask(Ordinary, 2, 10), "a", "1"));
  EXPECT_EQ(bound(ledger, 4, what), "a-1");
}

TEST(Placement, FgdLeavesWhatTypicalTasksCanUse) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  ClusterLedger::Typical half;
  half.card = {Ordinary, gibibytes(8), Permille(500), false};
  ledger.setTypical({half});
  bound(ledger, 1, named(ask(Ordinary, 6, 40), "a"));
  // On a, 60 percent are left: 20 more leave too little for a half. On b they leave enough.
  EXPECT_EQ(bound(ledger, 2, scored(ask(Ordinary, 3, 20), Score::Fgd)), "b-0");
  EXPECT_EQ(bound(ledger, 3, scored(ask(Ordinary, 1, 10), Score::Fgd)), "a-0");
  EXPECT_EQ(ledger.fragmentPermille(), 0);
  bound(ledger, 4, named(ask(Ordinary, 1, 10), "a"));
  EXPECT_EQ(ledger.fragmentPermille(), 400 / 2) << "40 percent of one of two cards";
}

TEST(Placement, PriorityRulesOrdinaryTasksThatAskForNothing) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 1, 10), "b"));
  EXPECT_EQ(bound(ledger, 2, ask(Ordinary, 1, 10)), "b-0");
  ledger.setPriority(Score::Spread);
  EXPECT_EQ(bound(ledger, 3, ask(Ordinary, 1, 10)), "a-0");
}

// Twice the same life, node for node: nothing but what happened decides.
TEST(Placement, P7_TheSameLedgerAndTheSameAskGiveTheSameAnswer) {
  std::vector<std::uint64_t> digests;
  for (int i = 0; i < 2; ++i) {
    Dice dice(7);
    ClusterLedger ledger({});
    for (std::size_t n = 0; n < 12; ++n) {
      ledger.setLife(ledger.setNode(anyNode(dice, n)).first, NodeLife::Alive);
    }
    for (std::uint64_t task = 1; task <= 300; ++task) {
      const ClusterAsk what = anyAsk(dice);
      const Result<Spot> spot = ledger.place(what);
      if (spot) ledger.bind(TaskId{task}, *spot, what.application);
      if (dice.below(3) == 0) ledger.release(TaskId{dice.below(task) + 1});
    }
    digests.push_back(ledger.digest());
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// The same cluster with every node alive, empty and without marks; policies may be changed too.
ClusterLedger emptied(const ClusterLedger& ledger) {
  ClusterLedger empty({});
  for (std::uint32_t n = 0; n < ledger.nodes(); ++n) {
    ClusterNodeFacts facts = ledger.facts(NodeId{n});
    for (ClusterCard& card : facts.cards) {
      card.healthy = true;
      card.mark = CardMark::Ready;
      card.policy = Policy::BestEffort;
    }
    empty.setLife(empty.setNode(facts).first, NodeLife::Alive);
  }
  return empty;
}

TEST(Placement, P7_P10_IsInfeasibleExactlyWhereAnEmptyClusterWouldNotDo) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({});
    for (std::size_t n = 0; n < 1 + seed % 9; ++n) {
      ledger.setNode(anyNode(dice, n));
      ledger.setLife(NodeId{static_cast<std::uint32_t>(n)}, static_cast<NodeLife>(dice.below(4)));
    }
    const ClusterLedger empty = emptied(ledger);
    for (std::uint64_t task = 1; task <= 80; ++task) {
      const ClusterAsk what = anyAsk(dice);
      const Result<Spot> spot = ledger.place(what);
      const Result<Spot> there = empty.scan(what);
      if (spot) {
        EXPECT_TRUE(there.ok()) << "seed " << seed << ": more room hurts";
        ledger.bind(TaskId{task}, *spot, what.application);
      } else {
        EXPECT_EQ(spot.error().code == ErrorCode::Infeasible, !there.ok())
            << "seed " << seed << ": " << spot.error().message;
      }
    }
  }
}

TEST(Placement, P10_AnEndOfATaskNeverTakesRoomFromAnother) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({});
    for (std::size_t n = 0; n < 4; ++n) {
      ledger.setLife(ledger.setNode(anyNode(dice, n)).first, NodeLife::Alive);
    }
    for (std::uint64_t task = 1; task <= 60; ++task) {
      const ClusterAsk what = anyAsk(dice);
      const Result<Spot> spot = ledger.place(what);
      if (spot) ledger.bind(TaskId{task}, *spot, what.application);
      const ClusterAsk probe = anyAsk(dice);
      const bool fitted = ledger.place(probe).ok();
      ledger.release(TaskId{dice.below(task) + 1});
      EXPECT_TRUE(!fitted || ledger.place(probe).ok()) << "seed " << seed << ", task " << task;
    }
  }
}

}  // namespace
}  // namespace qgpu::placement_test
