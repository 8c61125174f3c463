#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::placement_explain_test {
namespace {

using namespace cluster;
using enum TaskClass;

std::size_t count(const ClusterVerdict& verdict, Reason reason) {
  return verdict.counts[static_cast<std::size_t>(reason)];
}

TEST(PlacementExplain, ListsTheNearestCardOfEachNodeAndWhatItLacks) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 16), node("c", 1, 8)});
  bound(ledger, 1, named(ask(Ordinary, 10, 10), "a", "0"));
  bound(ledger, 2, named(ask(Ordinary, 8, 10), "a", "1"));
  bound(ledger, 3, named(ask(Ordinary, 7, 10), "b"));
  const ClusterVerdict verdict = ledger.explain(ask(Ordinary, 10, 10));
  EXPECT_FALSE(verdict.fits);
  EXPECT_EQ(verdict.considered, 4u);
  EXPECT_EQ(count(verdict, Reason::MemShort), 3u);
  EXPECT_EQ(count(verdict, Reason::CardTooSmall), 1u);
  ASSERT_EQ(verdict.nodes.size(), 3u);
  EXPECT_EQ(verdict.nodes[0].node, NodeId{1}) << "lacks least";
  EXPECT_EQ(verdict.nodes[0].missing, gibibytes(1).value);
  EXPECT_EQ(verdict.nodes[0].text, "b-0: lacks 1 GiB: 9 GiB free of 16 GiB");
  EXPECT_EQ(verdict.nodes[1].card, 1u) << "the nearest of two";
  EXPECT_EQ(verdict.nodes[2].reason, Reason::CardTooSmall);
}

TEST(PlacementExplain, SaysWhatIsWrongWithAWholeNode) {
  ClusterNodeFacts plain = node("a", 2, 16);
  plain.mixed = false;
  ClusterNodeFacts busy = node("b", 2, 16);
  busy.cpuMilli = 1000;
  ClusterLedger ledger = cluster::of({plain, busy, node("c", 2, 16), node("d", 2, 16)});
  ledger.setCordoned(NodeId{2}, true);
  ledger.setLife(NodeId{3}, NodeLife::Lost);
  ClusterAsk what = ask(Online, 1, 0);
  what.cpuMilli = 2000;
  const ClusterVerdict verdict = ledger.explain(what);
  EXPECT_EQ(count(verdict, Reason::NotMixedNode), 2u);
  EXPECT_EQ(count(verdict, Reason::CpuShort), 2u);
  EXPECT_EQ(count(verdict, Reason::NodeCordoned), 2u);
  EXPECT_EQ(count(verdict, Reason::NodeLost), 2u);
  EXPECT_EQ(verdict.nodes[0].reason, Reason::CpuShort);
  EXPECT_EQ(verdict.nodes[0].missing, 1000);
  EXPECT_FALSE(verdict.nodes[1].card) << "the whole node is out";
}

TEST(PlacementExplain, CountsTheCardsThatAreTooFew) {
  ClusterLedger ledger = cluster::of({node("a", 3, 16)});
  bound(ledger, 1, named(ask(Ordinary, 1, 10), "a", "0"));
  const ClusterVerdict verdict = ledger.explain(ask(Ordinary, 0, 300));
  EXPECT_EQ(count(verdict, Reason::NotEnoughCards), 2u);
  EXPECT_EQ(count(verdict, Reason::NotWholeFree), 1u);
}

TEST(PlacementExplain, NamesWhereItFits) {
  ClusterLedger ledger = cluster::of({node("a", 1, 8), node("b", 1, 16)});
  const ClusterVerdict verdict = ledger.explain(ask(Ordinary, 12, 10));
  EXPECT_TRUE(verdict.fits);
  EXPECT_EQ(verdict.nodes[0].node, NodeId{1});
  EXPECT_EQ(verdict.nodes[0].reason, Reason::Fits);
}

TEST(PlacementExplain, KeepsToTheNodeAndCardThatWereNamed) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 16)});
  bound(ledger, 1, named(ask(Ordinary, 12, 10), "a", "1"));
  const ClusterVerdict verdict = ledger.explain(named(ask(Ordinary, 8, 10), "a", "1"));
  EXPECT_FALSE(verdict.fits);
  EXPECT_EQ(count(verdict, Reason::OtherNode), 2u);
  EXPECT_EQ(verdict.nodes[0].card, 1u);
  const Result<Spot> spot = ledger.place(named(ask(Ordinary, 8, 10), "a", "1"));
  ASSERT_FALSE(spot);
  EXPECT_NE(spot.error().message.find("a-1: lacks 4 GiB"), std::string::npos)
      << spot.error().message;
  EXPECT_EQ(ledger.nearest(named(ask(Ordinary, 8, 10), "a", "1"))->text, verdict.nodes[0].text);
  EXPECT_FALSE(ledger.nearest(named(ask(Ordinary, 8, 10), "c")));
}

TEST(PlacementExplain, AModelThatNoNodeHasIsNamedAndSoAreThoseThatThereAre) {
  ClusterNodeFacts old = node("a", 1, 16);
  old.cards[0].model = "T4";
  ClusterNodeFacts fresh = node("b", 1, 24);
  fresh.cards[0].model = "A10";
  ClusterLedger ledger = cluster::of({old, fresh});
  ClusterAsk wanted = ask(Ordinary, 8, 10);
  wanted.models = {"A100", "H100"};
  const Result<Spot> unknown = ledger.place(wanted);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::Infeasible);
  EXPECT_EQ(unknown.error().message,
            "no node has a card of model A100 or H100; the models that there are: A10, T4");
  wanted.models = {"T4"};
  wanted.task.mem = gibibytes(20);
  EXPECT_EQ(ledger.place(wanted).error().message,
            "not even an empty cluster would do for 20 GiB and 10 percent on a card of model T4; "
            "ask for less, or allow other models");
  EXPECT_EQ(ledger.scan(wanted).error().message, ledger.place(wanted).error().message);
}

TEST(PlacementExplain, ClusterWithoutNodesAsksForOneNotForLess) {
  ClusterLedger ledger({});
  const Result<Spot> spot = ledger.place(ask(Ordinary, 2, 20));
  ASSERT_FALSE(spot);
  EXPECT_EQ(spot.error().code, ErrorCode::Infeasible);
  EXPECT_EQ(spot.error().message,
            "no node has joined this cluster yet: start qgpu-manager --scheduler on one");
  EXPECT_EQ(ledger.scan(ask(Ordinary, 2, 20)).error().message, spot.error().message);
}

TEST(PlacementExplain, AgreesWithPlacementAboutEachNode) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({});
    for (std::size_t n = 0; n < 6; ++n) {
      ledger.setNode(anyNode(dice, n));
      const auto life = dice.below(4) == 0 ? NodeLife::Lost : NodeLife::Alive;
      ledger.setLife(NodeId{static_cast<std::uint32_t>(n)}, life);
    }
    for (std::uint64_t task = 1; task <= 60; ++task) {
      const ClusterAsk what = anyAsk(dice);
      const Result<Spot> spot = ledger.place(what);
      const ClusterVerdict verdict = ledger.explain(what);
      EXPECT_EQ(verdict.fits, spot.ok()) << "seed " << seed << ", task " << task;
      for (const NodeVerdict& line : verdict.nodes) {
        EXPECT_EQ(line.reason == Reason::Fits, ledger.fitsOn(line.node, what)) << line.text;
        EXPECT_FALSE(line.text.empty());
      }
      const std::optional<NodeVerdict> nearest = ledger.nearest(what);
      ASSERT_TRUE(nearest);
      EXPECT_EQ(nearest->reason, verdict.nodes.front().reason) << "seed " << seed;
      EXPECT_EQ(nearest->text, verdict.nodes.front().text) << "seed " << seed;
      if (spot) ledger.bind(TaskId{task}, *spot, what.application);
    }
  }
}

}  // namespace
}  // namespace qgpu::placement_explain_test
