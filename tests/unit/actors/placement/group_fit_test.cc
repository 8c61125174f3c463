// Several tasks at once, all or none: what fits, what is counted, and that nothing is left.
#include "actors/placement/group_fit.h"

#include <set>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::group_fit_test {
namespace {

using namespace cluster;
using enum TaskClass;

constexpr std::uint64_t kFirst = 1'000;  // of the members

std::vector<GroupMember> members(const std::vector<ClusterAsk>& asks) {
  std::vector<GroupMember> all;
  for (const ClusterAsk& one : asks) all.push_back({TaskId{kFirst + all.size()}, one});
  return all;
}

GroupFit fit(ClusterLedger& ledger, const std::vector<ClusterAsk>& asks) {
  return fitTogether(ledger, members(asks),
                     [&](const GroupMember& member) { return ledger.place(member.ask); });
}

std::vector<ClusterAsk> times(std::size_t count, const ClusterAsk& one) {
  return std::vector<ClusterAsk>(count, one);
}

struct Case {
  const char* what;
  std::vector<ClusterNodeFacts> nodes;
  std::vector<ClusterAsk> asks;
  std::size_t fit;
};

TEST(GroupFit, P5_CountsWhoFitsAtOnce) {
  const std::vector<ClusterNodeFacts> two = {node("a", 2, 16), node("b", 2, 16)};
  const ClusterAsk whole = ask(Ordinary, 0, 100), half = ask(Ordinary, 8, 50);
  const Case cases[] = {
      {"one for each card", two, times(4, whole), 4},
      {"one more than there are cards", two, times(5, whole), 4},
      {"two share a card", two, times(8, half), 8},
      {"nine halves of four cards", two, times(9, half), 8},
      {"both cards of a node for each", two, times(2, ask(Ordinary, 0, 200)), 2},
      {"three pairs of cards on two nodes", two, times(3, ask(Ordinary, 0, 200)), 2},
      {"the small ones fit beside the large", two, {half, half, ask(Ordinary, 0, 200), whole}, 4},
      {"only one may go to node a", two, {named(ask(Ordinary, 0, 200), "a"), named(half, "a")}, 1},
      {"nobody", two, times(2, ask(Ordinary, 99, 50)), 0},
  };
  for (const Case& one : cases) {
    ClusterLedger ledger = of(one.nodes);
    const GroupFit result = fit(ledger, one.asks);
    EXPECT_EQ(result.fit, one.fit) << one.what;
    EXPECT_EQ(result.spots.size(), one.fit == one.asks.size() ? one.asks.size() : 0) << one.what;
  }
}

TEST(GroupFit, SpreadsAndPacksAsEachOneWouldAlone) {
  ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16)});
  ClusterAsk apart = ask(Ordinary, 4, 25);
  apart.nodeScore = Score::Spread;
  apart.application = "one";
  ClusterAsk packed = ask(Ordinary, 4, 25);
  packed.nodeScore = Score::Binpack;
  const auto nodesOf = [](const GroupFit& result) {
    std::set<NodeId> on;
    for (const Spot& spot : result.spots) on.insert(spot.node);
    return on.size();
  };
  EXPECT_EQ(nodesOf(fit(ledger, times(2, apart))), 2u);
  EXPECT_EQ(nodesOf(fit(ledger, times(2, packed))), 1u);
}

// A question on any cluster leaves all as it was, what it finds can be bound one after the other,
// and equal tasks fit together exactly as far as they fit one by one.
TEST(GroupFit, P7_AQuestionChangesNothingAndItsAnswerHolds) {
  std::size_t whole = 0, torn = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Dice dice(seed);
    std::vector<ClusterNodeFacts> nodes;
    const std::size_t nodesMax = 1 + dice.below(6);
    for (std::size_t i = 0; i < nodesMax; ++i) nodes.push_back(anyNode(dice, i));
    ClusterLedger ledger = of(nodes);
    const std::uint64_t tasks = dice.below(10);
    for (std::uint64_t task = 1; task <= tasks; ++task) {
      const ClusterAsk one = anyAsk(dice);
      if (!ledger.check(one)) continue;
      if (const Result<Spot> spot = ledger.place(one)) ledger.bind(TaskId{task}, *spot, "");
    }
    ClusterAsk one = anyAsk(dice);
    one.node.clear();
    one.task.card.clear();
    if (!ledger.check(one)) continue;
    const std::size_t count = 1 + dice.below(6);
    const std::uint64_t digest = ledger.digest(), changes = ledger.changes();
    const std::int64_t fragments = ledger.fragmentPermille();
    const GroupFit result = fit(ledger, times(count, one));
    ASSERT_EQ(ledger.digest(), digest) << seed;
    ASSERT_EQ(ledger.changes(), changes) << seed;
    ASSERT_EQ(ledger.fragmentPermille(), fragments) << seed;
    ASSERT_EQ(result.spots.empty(), result.fit < count) << seed;
    for (std::size_t i = 0; i < result.spots.size(); ++i) {
      ASSERT_TRUE(ledger.fitsOn(result.spots[i].node, one)) << seed;
      ledger.bind(TaskId{kFirst + i}, result.spots[i], one.application);
    }
    if (!result.spots.empty()) {
      ++whole;
      continue;
    }
    ++torn;
    std::size_t alone = 0;
    while (const Result<Spot> spot = ledger.place(one)) {
      ledger.bind(TaskId{kFirst + alone++}, *spot, one.application);
    }
    ASSERT_EQ(result.fit, alone) << seed;
  }
  EXPECT_GT(whole, 50u);
  EXPECT_GT(torn, 50u);
}

}  // namespace
}  // namespace qgpu::group_fit_test
