#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "actors/placement/index.h"
#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::placement_index_test {
namespace {

using namespace cluster;

// Where an ask would go, or why not, in one word each.
std::string outcome(const ClusterLedger& ledger, const Result<Spot>& spot) {
  if (!spot) return errorName(spot.error().code);
  std::string text = ledger.facts(spot->node).name;
  for (const std::size_t card : spot->placement.cards) text += "/" + std::to_string(card);
  return text;
}

// One life of a cluster: asks, ends, marks, lost nodes, new cards.
class Life {
 public:
  Life(std::uint64_t seed, std::size_t nodes) : dice_(seed), ledger_({}) {
    for (std::size_t i = 0; i < nodes; ++i) {
      ledger_.setLife(ledger_.setNode(anyNode(dice_, i)).first, NodeLife::Alive);
    }
  }

  void step() {
    const std::uint64_t what = dice_.below(100);
    const NodeId node{static_cast<std::uint32_t>(dice_.below(ledger_.nodes()))};
    if (what < 60) return place();
    if (what < 85) return end();
    if (what < 88) return ledger_.setCordoned(node, dice_.below(2) == 0);
    if (what < 91) return ledger_.setLife(node, static_cast<NodeLife>(dice_.below(4)));
    if (what < 94) return ledger_.setLife(node, NodeLife::Alive);
    if (what < 97 && !ledger_.facts(node).cards.empty()) {
      return ledger_.setMark(node, dice_.below(ledger_.facts(node).cards.size()),
                             static_cast<CardMark>(dice_.below(3)));
    }
    if (what == 97) return ledger_.setPriority(static_cast<Score>(dice_.below(3) + 1));
    if (what == 98) {
      ledger_.setNode(anyNode(dice_, dice_.below(ledger_.nodes() + 1)));
    }
  }

 private:
  void place() {
    const ClusterAsk ask = anyAsk(dice_);
    const std::string wanted = outcome(ledger_, ledger_.scan(ask));
    const Result<Spot> spot = ledger_.place(ask);
    ASSERT_EQ(outcome(ledger_, spot), wanted) << "after " << tasks_ << " tasks";
    if (spot) ledger_.bind(TaskId{++tasks_}, *spot, ask.application);
  }

  void end() {
    if (tasks_ != 0) ledger_.release(TaskId{dice_.below(tasks_) + 1});
  }

  Dice dice_;
  ClusterLedger ledger_;
  std::uint64_t tasks_ = 0;
};

TEST(PlacementIndex, P7_DecidesAsAScanDoes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Life life(seed, 3 + seed % 37);
    for (int i = 0; i < 600; ++i) {
      life.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
  }
}

TEST(PlacementIndex, RanksOnlyWhatChanged) {
  std::vector<ClusterNodeFacts> nodes;
  for (int i = 0; i < 100; ++i) nodes.push_back(node("n" + std::to_string(i), 2, 16));
  ClusterLedger ledger = cluster::of(nodes);
  // What is typical is given: each time something else is learnt, all nodes are ranked anew.
  ledger.setTypical({ClusterLedger::Typical{}});
  bound(ledger, 1, ask(TaskClass::Ordinary, 1, 10));
  const std::uint64_t before = ledger.evaluations();
  bound(ledger, 2, ask(TaskClass::Ordinary, 1, 10));
  EXPECT_LE(ledger.evaluations() - before, 2u) << "the changed node, and the cards of the best";
}

std::vector<NodeRoom> rooms(std::size_t count) {
  std::vector<NodeRoom> nodes(count);
  for (NodeRoom& node : nodes) {
    node.life = NodeLife::Alive;
    node.cards.resize(1);
    node.cards[0].mem = gibibytes(16);
    node.cards[0].tasksMax = 10;
    Fragments().look(node);
  }
  return nodes;
}

Shape shape(std::int64_t gib) {
  Shape shape;
  shape.card.mem = gibibytes(gib);
  shape.nodeScore = shape.cardScore = Score::Binpack;
  return shape;
}

TEST(PlacementIndex, KeepsABoundedNumberOfShapes) {
  std::vector<NodeRoom> nodes = rooms(4);
  PlacementIndex index;
  for (std::size_t i = 0; i < nodes.size(); ++i) index.changed(i);
  const Fragments none;
  for (std::int64_t n = 1; n <= 5000; ++n) {
    Shape wanted = shape(1);
    wanted.cpuMilli = n;
    EXPECT_EQ(index.best(wanted, nodes, none, {}).node, 0u);
  }
  EXPECT_EQ(index.shapes(), PlacementIndex::kShapesMax);
}

TEST(PlacementIndex, FindsTheLowestOfEqualsBesideThoseLeftOut) {
  std::vector<NodeRoom> nodes = rooms(9);
  PlacementIndex index;
  for (std::size_t i = 0; i < nodes.size(); ++i) index.changed(i);
  const Fragments none;
  EXPECT_EQ(index.best(shape(1), nodes, none, {}).node, 0u);
  EXPECT_EQ(index.best(shape(1), nodes, none, {0, 1, 3}).node, 2u);
  EXPECT_EQ(index.best(shape(1), nodes, none, {0, 1, 2, 3, 4, 5, 6, 7}).node, 8u);
  EXPECT_EQ(index.best(shape(1), nodes, none, {0, 1, 2, 3, 4, 5, 6, 7, 8}).rank, kNeverRank);
}

TEST(PlacementIndex, ForgetsNoChangeThoughItsLogIsShort) {
  std::vector<NodeRoom> nodes = rooms(40);
  PlacementIndex index;
  for (std::size_t i = 0; i < nodes.size(); ++i) index.changed(i);
  const Fragments none;
  EXPECT_EQ(index.best(shape(12), nodes, none, {}).node, 0u);
  nodes[0].cards[0].memBound = gibibytes(8);
  index.changed(0);
  nodes[30].cards[0].memBound = gibibytes(2);
  for (int i = 0; i < 40'000; ++i) index.changed(30);
  EXPECT_EQ(index.best(shape(12), nodes, none, {}).node, 30u);
}

}  // namespace
}  // namespace qgpu::placement_index_test
