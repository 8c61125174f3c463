#include "actors/placement/cluster_ledger.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::cluster_ledger_test {
namespace {

using namespace cluster;
using enum TaskClass;

TEST(ClusterLedger, P9_ReleasesOnceAndReturnsEverything) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 1, 16)});
  const std::uint64_t empty = ledger.digest();
  bound(ledger, 1, ask(Ordinary, 4, 30));
  bound(ledger, 2, ask(Ordinary, 0, 200));
  EXPECT_EQ(ledger.sums().tasks, 2);
  EXPECT_EQ(ledger.sums().ordinary, Permille(2300));
  EXPECT_TRUE(ledger.release(TaskId{1}));
  EXPECT_FALSE(ledger.release(TaskId{1}));
  EXPECT_TRUE(ledger.release(TaskId{2}));
  EXPECT_EQ(ledger.digest(), empty);
  EXPECT_EQ(ledger.sums().memBound, Bytes(0));
  EXPECT_EQ(ledger.sums().tasks, 0);
  EXPECT_TRUE(ledger.tasksOn(NodeId{0}).empty());
}

TEST(ClusterLedger, KeepsTasksWhereTheirCardsStillExist) {
  ClusterLedger ledger = cluster::of({node("a", 3, 16)});
  bound(ledger, 1, named(ask(Ordinary, 4, 30), "a", "a-0"));
  bound(ledger, 2, named(ask(Ordinary, 4, 30), "a", "a-2"));
  ClusterNodeFacts fewer = node("a", 3, 16);
  fewer.cards.erase(fewer.cards.begin());
  const auto [id, lost] = ledger.setNode(fewer);
  EXPECT_EQ(id, NodeId{0});
  EXPECT_EQ(lost, std::vector<TaskId>{TaskId{1}});
  EXPECT_EQ(ledger.spot(TaskId{1}), nullptr);
  EXPECT_EQ(ledger.tasksOn(id, 1), std::vector<TaskId>{TaskId{2}});
  EXPECT_EQ(ledger.room(id, 1).memBound, gibibytes(4));
  EXPECT_EQ(ledger.sums().cards, 2);
  EXPECT_EQ(ledger.life(id), NodeLife::Alive);
}

TEST(ClusterLedger, KnowsItsNodesByNameAndWhatTheyHold) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16)});
  EXPECT_EQ(ledger.nodes(), 2u);
  EXPECT_EQ(ledger.findNode("b"), NodeId{1});
  EXPECT_FALSE(ledger.findNode("c"));
  ClusterAsk host;
  host.task.cards = 0;
  host.cpuMilli = 2000;
  host.hostMem = gibibytes(4);
  host.node = "b";
  bound(ledger, 1, host);
  EXPECT_EQ(ledger.cpuBound(NodeId{1}), 2000);
  EXPECT_EQ(ledger.hostMemBound(NodeId{1}), gibibytes(4));
  ASSERT_NE(ledger.spot(TaskId{1}), nullptr);
  EXPECT_TRUE(ledger.spot(TaskId{1})->placement.cards.empty());
  EXPECT_EQ(ledger.tasks(), 1u);
}

TEST(ClusterLedger, ACopyChangesNothingOfTheOriginal) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  bound(ledger, 1, ask(Ordinary, 4, 30));
  const std::uint64_t before = ledger.digest();
  ClusterLedger copy = ledger.clone();
  EXPECT_EQ(copy.digest(), before);
  copy.release(TaskId{1});
  bound(copy, 2, ask(Ordinary, 0, 200));
  EXPECT_EQ(ledger.digest(), before);
  EXPECT_NE(ledger.spot(TaskId{1}), nullptr);
}

}  // namespace
}  // namespace qgpu::cluster_ledger_test
