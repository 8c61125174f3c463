// Several pods at once, all or none: what fits, beside what, and that the ledger is left alone.
#include "actors/placement/pod_trial.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::pod_trial_test {
namespace {

using namespace cluster;
using enum TaskClass;

PodAsk pod(const std::vector<ClusterAsk>& containers, std::string application = "") {
  PodAsk ask;
  for (const ClusterAsk& one : containers) {
    ask.demands.push_back({"c" + std::to_string(ask.demands.size()), one.task});
  }
  ask.application = std::move(application);
  return ask;
}

std::vector<PodTrial::Member> members(const std::vector<PodAsk>& pods) {
  std::vector<PodTrial::Member> all;
  for (const PodAsk& one : pods) all.push_back({&one, nullptr});
  return all;
}

PodTrial::Fit fit(const ClusterLedger& ledger, const std::vector<PodAsk>& pods) {
  return PodTrial(ledger).together(members(pods));
}

struct Case {
  const char* what;
  std::vector<PodAsk> pods;
  std::size_t fit;
};

TEST(PodTrial, P5_CountsWhichPodsFitAtOnce) {
  const PodAsk whole = pod({ask(Ordinary, 0, 100)});
  const PodAsk both = pod({ask(Ordinary, 0, 200)});
  const PodAsk half = pod({ask(Ordinary, 8, 50)});
  const PodAsk pair = pod({ask(Ordinary, 12, 80), ask(Ordinary, 12, 80)});
  const auto times = [](std::size_t count, const PodAsk& one) {
    return std::vector<PodAsk>(count, one);
  };
  const Case cases[] = {
      {"one for each card", times(4, whole), 4},
      {"one more than there are cards", times(5, whole), 4},
      {"two share a card", times(8, half), 8},
      {"nine halves of four cards", times(9, half), 8},
      {"both cards of a node for each", times(2, both), 2},
      {"three pairs of cards on two nodes", times(3, both), 2},
      {"the small ones fit beside the large", {half, half, both, whole}, 4},
      {"containers of one pod are on one node", times(2, pair), 2},
      {"a pair needs both cards of a node", {whole, pair, whole}, 3},
      {"nobody", times(2, pod({ask(Ordinary, 99, 50)})), 0},
  };
  for (const Case& one : cases) {
    const ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16)});
    const std::uint64_t before = ledger.digest();
    const PodTrial::Fit result = fit(ledger, one.pods);
    EXPECT_EQ(result.fit, one.fit) << one.what;
    EXPECT_EQ(result.nodes.size(), one.fit == one.pods.size() ? one.pods.size() : 0) << one.what;
    EXPECT_EQ(ledger.digest(), before) << one.what;
  }
}

TEST(PodTrial, AMemberGoesOnlyWhereItMay) {
  const ClusterLedger ledger = of({node("a", 1, 16), node("b", 1, 16), node("c", 1, 16)});
  const PodAsk whole = pod({ask(Ordinary, 0, 100)});
  const std::vector<NodeId> onlyA = {NodeId{0}}, aAndB = {NodeId{0}, NodeId{1}}, none;
  const auto result = PodTrial(ledger).together({{&whole, &aAndB}, {&whole, &onlyA}, {&whole}});
  EXPECT_EQ(result.fit, 2U) << "the first took what the second needs: other orders are not tried";
  const auto other = PodTrial(ledger).together({{&whole, &onlyA}, {&whole, &aAndB}, {&whole}});
  EXPECT_EQ(other.nodes, (std::vector<NodeId>{NodeId{0}, NodeId{1}, NodeId{2}}));
  EXPECT_EQ(PodTrial(ledger).together({{&whole, &none}}).fit, 0U);
}

TEST(PodTrial, WhatIsTakenFirstIsNobodyElses) {
  const ClusterLedger ledger = of({node("a", 1, 16), node("b", 1, 16)});
  const PodAsk whole = pod({ask(Ordinary, 0, 100)});
  PodTrial trial(ledger);
  EXPECT_TRUE(trial.take(NodeId{0}, whole));
  EXPECT_FALSE(trial.take(NodeId{0}, whole));
  EXPECT_EQ(trial.together({{&whole}}).nodes, std::vector<NodeId>{NodeId{1}});
}

TEST(PodTrial, ReplicasOfOneApplicationAreKeptApartUnderSpread) {
  const ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16), node("c", 2, 16)});
  const PodAsk online = pod({ask(Online, 4, 0)}, "one");
  const PodTrial::Fit result = fit(ledger, {online, online, online});
  ASSERT_EQ(result.nodes.size(), 3U);
  EXPECT_EQ(std::set<NodeId>(result.nodes.begin(), result.nodes.end()).size(), 3U);
}

// Whatever is promised can be bound, each where it was said.
TEST(PodTrial, P1_WhatFitsAtOnceIsThere) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    std::vector<ClusterNodeFacts> nodes;
    for (std::uint64_t i = 0; i < 2 + dice.below(4); ++i) {
      nodes.push_back(node(std::string(1, static_cast<char>('a' + i)),
                           static_cast<std::uint32_t>(1 + dice.below(4)),
                           static_cast<std::int64_t>(8 + 8 * dice.below(3))));
    }
    ClusterLedger ledger = of(nodes);
    std::vector<PodAsk> pods;
    for (std::uint64_t i = 0; i < 1 + dice.below(8); ++i) {
      std::vector<ClusterAsk> containers;
      for (std::uint64_t n = 0; n <= dice.below(3); ++n) {
        containers.push_back(
            dice.below(4) == 0
                ? ask(Ordinary, 0, static_cast<std::int64_t>(100 * (1 + dice.below(2))))
                : ask(Ordinary, static_cast<std::int64_t>(1 + dice.below(12)),
                      static_cast<std::int64_t>(10 + dice.below(60))));
      }
      pods.push_back(pod(containers));
    }
    const PodTrial::Fit result = fit(ledger, pods);
    std::map<NodeId, PodAsk> together;
    for (std::size_t i = 0; i < result.nodes.size(); ++i) {
      auto& all = together[result.nodes[i]].demands;
      all.insert(all.end(), pods[i].demands.begin(), pods[i].demands.end());
    }
    for (const auto& [where, all] : together) {
      EXPECT_TRUE(PodFit(ledger, all).cards(where).has_value()) << "seed " << seed;
    }
    EXPECT_EQ(result.nodes.size(), result.fit == pods.size() ? pods.size() : 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace qgpu::pod_trial_test
