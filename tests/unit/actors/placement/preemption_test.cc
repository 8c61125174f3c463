// Whom one task may evict: the least set of offline tasks, compared with all sets there are.
#include "actors/placement/preemption.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::preemption_test {
namespace {

using namespace cluster;
using enum TaskClass;

const MayEvict kAll = [](TaskId) { return true; };

std::vector<std::uint64_t> victims(const ClusterLedger& ledger, const ClusterAsk& ask,
                                   const MayEvict& mayEvict = kAll) {
  std::vector<std::uint64_t> ids;
  if (const std::optional<Eviction> least = leastEviction(ledger, ask, mayEvict)) {
    for (const TaskId task : least->victims) ids.push_back(static_cast<std::uint64_t>(task));
  }
  return ids;
}
using Ids = std::vector<std::uint64_t>;

TEST(Preemption, TakesTheFewestThenTheLeastShareThenTheLeastMemory) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16)});
  bound(ledger, 1, ask(Offline, 4, 10));
  bound(ledger, 2, ask(Offline, 4, 5));
  bound(ledger, 3, ask(Offline, 3, 5));
  bound(ledger, 4, ask(Offline, 5, 40));
  EXPECT_EQ(victims(ledger, ask(Online, 3, 0)), (Ids{3}));
  EXPECT_EQ(victims(ledger, ask(Online, 4, 0)), (Ids{2}));
  EXPECT_EQ(victims(ledger, ask(Online, 5, 0)), (Ids{4}));
  EXPECT_EQ(victims(ledger, ask(Online, 8, 0)), (Ids{1, 2}));
  EXPECT_EQ(victims(ledger, ask(Online, 16, 0)), (Ids{1, 2, 3, 4}));
}

TEST(Preemption, OfEqualSetsTheFirstCardAndThenTheYoungestTasksAreTaken) {
  ClusterLedger ledger = cluster::of({node("a", 2, 8)});
  bound(ledger, 1, named(ask(Offline, 8, 10), "a", "1"));
  bound(ledger, 2, named(ask(Offline, 4, 10), "a", "0"));
  bound(ledger, 3, named(ask(Offline, 4, 10), "a", "0"));
  EXPECT_EQ(victims(ledger, ask(Online, 4, 0)), (Ids{3}));
  EXPECT_EQ(leastEviction(ledger, ask(Online, 4, 0), kAll)->card, 0u);
}

TEST(Preemption, AnOrdinaryTaskNeedsACardWithoutAnyOnlineOrOfflineTask) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16)});
  bound(ledger, 1, named(ask(Offline, 2, 10), "a", "0"));
  bound(ledger, 2, named(ask(Online, 2, 0), "a", "0"));
  bound(ledger, 3, named(ask(Offline, 2, 10), "a", "1"));
  bound(ledger, 4, named(ask(Offline, 2, 10), "a", "1"));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 4, 30)), (Ids{3, 4}));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 0, 100)), (Ids{3, 4}));
  bound(ledger, 5, named(ask(Online, 2, 0), "a", "1"));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 4, 30)), Ids{});
}

TEST(Preemption, FreesOneCardAndNoMore) {
  ClusterLedger ledger = cluster::of({node("a", 2, 16), node("b", 3, 16)});
  bound(ledger, 1, named(ask(Offline, 2, 10), "a", "0"));
  bound(ledger, 2, named(ask(Offline, 2, 10), "a", "1"));
  bound(ledger, 3, named(ask(Ordinary, 2, 10), "b", "0"));
  bound(ledger, 4, named(ask(Offline, 2, 30), "b", "2"));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 0, 200)), (Ids{4}));
  EXPECT_EQ(leastEviction(ledger, ask(Ordinary, 0, 200), kAll)->spot.placement.cards,
            (std::vector<std::size_t>{1, 2}));
  bound(ledger, 5, named(ask(Ordinary, 2, 10), "b", "1"));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 0, 200)), Ids{});
}

TEST(Preemption, OfflineTasksEvictNobody) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16)});
  bound(ledger, 1, ask(Offline, 16, 100));
  EXPECT_EQ(victims(ledger, ask(Offline, 4, 10)), Ids{});
}

TEST(Preemption, WhomNobodyMayEvictStays) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16)});
  bound(ledger, 1, ask(Offline, 8, 10));
  bound(ledger, 2, ask(Offline, 8, 50));
  const MayEvict notTheFirst = [](TaskId task) { return task != TaskId{1}; };
  EXPECT_EQ(victims(ledger, ask(Online, 8, 0), notTheFirst), (Ids{2}));
  EXPECT_EQ(victims(ledger, ask(Ordinary, 8, 10), notTheFirst), Ids{});
}

TEST(Preemption, P8_CardsAndNodesThatTakeNoTasksAreLeftOut) {
  ClusterLedger ledger = cluster::of({node("a", 1, 16), node("b", 1, 16), node("c", 1, 16)});
  for (const std::uint64_t task : {1u, 2u, 3u}) bound(ledger, task, ask(Offline, 16, 10));
  const ClusterAsk online = ask(Online, 8, 0);
  EXPECT_EQ(victims(ledger, online).size(), 1u);
  const NodeId first = ledger.spot(TaskId{1})->node;
  const NodeId second = ledger.spot(TaskId{2})->node;
  const NodeId third = ledger.spot(TaskId{3})->node;
  ledger.setCordoned(first, true);
  ledger.setMark(second, 0, CardMark::Cordoned);
  EXPECT_EQ(victims(ledger, online), (Ids{3}));
  ledger.setLife(third, NodeLife::Suspect);
  EXPECT_EQ(victims(ledger, online), Ids{});
}

TEST(Preemption, HostResourcesAndSlotsAreFreedToo) {
  ClusterNodeFacts facts = node("a", 1, 16);
  facts.cpuMilli = 4000;
  facts.tasks.configured = 3;
  ClusterLedger ledger = cluster::of({facts});
  ClusterAsk offline = ask(Offline, 1, 10);
  offline.cpuMilli = 1000;
  bound(ledger, 1, offline);
  offline.cpuMilli = 2000;
  offline.task.share = Permille(500);
  bound(ledger, 2, offline);
  ClusterAsk online = ask(Online, 1, 0);
  online.cpuMilli = 3000;
  EXPECT_EQ(victims(ledger, online), (Ids{2}));
  bound(ledger, 3, ask(Offline, 1, 10));
  EXPECT_EQ(victims(ledger, ask(Online, 1, 0)), (Ids{3}));
}

// --- against all sets ---

using Key = std::tuple<std::size_t, std::int64_t, std::int64_t, std::uint32_t, std::size_t,
                       std::vector<std::int64_t>>;  // the last: numbers, negative, ascending

// Every set of offline tasks of one card, tried on a copy.
std::optional<Key> bruteForce(const ClusterLedger& ledger, const ClusterAsk& ask) {
  std::optional<Key> best;
  for (std::uint32_t n = 0; n < ledger.nodes(); ++n) {
    const NodeId node{n};
    const ClusterNodeFacts& facts = ledger.facts(node);
    if (!ask.node.empty() && ask.node != facts.name) continue;
    for (std::size_t card = 0; card < facts.cards.size(); ++card) {
      if (!ask.task.card.empty() && ask.task.card != facts.cards[card].id) continue;
      std::vector<TaskId> offline;
      for (const TaskId task : ledger.tasksOn(node, card)) {
        if (ledger.spot(task)->placement.taskClass == Offline) offline.push_back(task);
      }
      for (std::size_t set = 1; set < (std::size_t{1} << offline.size()); ++set) {
        ClusterLedger copy = ledger.clone();
        Key key{0, 0, 0, n, card, {}};
        for (std::size_t i = 0; i < offline.size(); ++i) {
          if ((set >> i & 1) == 0) continue;
          const Placement& held = ledger.spot(offline[i])->placement;
          ++std::get<0>(key);
          std::get<1>(key) += held.share.value;
          std::get<2>(key) += held.mem.front().value;
          std::get<5>(key).push_back(-static_cast<std::int64_t>(offline[i]));
          copy.release(offline[i]);
        }
        std::sort(std::get<5>(key).begin(), std::get<5>(key).end());
        const bool several = normalAsk(ask.task).cards > 1;
        const ClusterAsk here = named(ask, facts.name, several ? "" : facts.cards[card].id);
        if (copy.fitsOn(node, here) && (!best || key < *best)) best = key;
      }
    }
  }
  return best;
}

class Cluster {
 public:
  explicit Cluster(std::uint32_t seed) : random_(seed), ledger_({}) {
    for (std::int64_t n = draw(1, 3); n > 0; --n) addNode();
    for (std::uint64_t task = 1; task <= 16; ++task) {
      ClusterAsk ask = anyAsk(draw(0, 9) < 6 ? Offline : draw(0, 1) == 0 ? Online : Ordinary);
      if (const Result<Spot> spot = ledger_.place(ask)) ledger_.bind(TaskId{task}, *spot, "");
    }
    if (draw(0, 3) == 0) ledger_.setCordoned(NodeId{0}, true);
    if (draw(0, 3) == 0) ledger_.setMark(NodeId{0}, 0, CardMark::Cordoned);
    if (draw(0, 5) == 0) ledger_.setLife(NodeId{0}, NodeLife::Suspect);
  }

  ClusterAsk anyAsk(TaskClass taskClass) {
    ClusterAsk ask = cluster::ask(taskClass, draw(1, 8), taskClass == Online ? 0 : draw(1, 6) * 10);
    if (taskClass == Ordinary && draw(0, 4) == 0) ask.task.share = Permille(draw(1, 2) * 1000);
    const bool several = ask.task.share > kWholeCard;
    if (!several && draw(0, 4) == 0) ask.cpuMilli = draw(1, 4) * 1000;
    if (draw(0, 6) == 0) ask.models = {"T4"};
    return ask;
  }
  std::int64_t draw(std::int64_t from, std::int64_t to) {
    return from + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(to - from + 1));
  }
  ClusterLedger& ledger() { return ledger_; }

 private:
  void addNode() {
    const std::string name(1, static_cast<char>('a' + ledger_.nodes()));
    ClusterNodeFacts facts = node(name, static_cast<std::uint32_t>(draw(1, 2)), draw(1, 2) * 8,
                                  draw(0, 3) == 0 ? "A10" : "T4");
    facts.tasks.configured = static_cast<std::uint32_t>(draw(2, 6));
    facts.mixed = draw(0, 5) != 0;
    if (draw(0, 1) == 0) facts.cpuMilli = draw(4, 8) * 1000;
    ledger_.setLife(ledger_.setNode(facts).first, NodeLife::Alive);
  }

  std::mt19937 random_;
  ClusterLedger ledger_;
};

TEST(Preemption, TheSetIsTheLeastOfAllThatWouldDoInRandomClusters) {
  std::size_t found = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    Cluster cluster(seed);
    const ClusterAsk ask = cluster.anyAsk(seed % 2 == 0 ? Online : Ordinary);
    if (cluster.ledger().scan(ask)) continue;
    const std::optional<Key> least = bruteForce(cluster.ledger(), ask);
    const std::optional<Eviction> chosen = leastEviction(cluster.ledger(), ask, kAll);
    ASSERT_EQ(chosen.has_value(), least.has_value()) << "seed " << seed;
    if (!chosen) continue;
    ++found;
    std::vector<std::int64_t> numbers;
    for (const TaskId task : chosen->victims) numbers.push_back(-static_cast<std::int64_t>(task));
    std::sort(numbers.begin(), numbers.end());
    const Key key{chosen->victims.size(), chosen->greedy.value,
                  chosen->mem.value,      static_cast<std::uint32_t>(chosen->spot.node),
                  chosen->card,           numbers};
    EXPECT_EQ(key, *least) << "seed " << seed;
  }
  EXPECT_GT(found, 60u);
}

TEST(Preemption, P1_P2_WhatIsPromisedFitsOnceTheVictimsAreGoneInRandomClusters) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    Cluster cluster(seed);
    const ClusterAsk ask = cluster.anyAsk(seed % 2 == 0 ? Online : Ordinary);
    const std::uint64_t before = cluster.ledger().digest();
    const std::optional<Eviction> chosen = leastEviction(cluster.ledger(), ask, kAll);
    EXPECT_EQ(cluster.ledger().digest(), before);
    if (!chosen) continue;
    ClusterLedger copy = cluster.ledger().clone();
    for (const TaskId victim : chosen->victims) {
      EXPECT_EQ(copy.spot(victim)->placement.taskClass, Offline);
      copy.release(victim);
    }
    copy.bind(TaskId{99}, chosen->spot, "");
    for (const std::size_t card : chosen->spot.placement.cards) {
      const CardRoom& room = copy.room(chosen->spot.node, card);
      EXPECT_LE(room.memBound, room.mem) << "seed " << seed;
      EXPECT_LE(room.ordinary, kWholeCard);
      EXPECT_LE(room.tasks, room.tasksMax);
      EXPECT_TRUE(ask.task.taskClass == Online || room.online + room.offline == 0);
    }
  }
}

}  // namespace
}  // namespace qgpu::preemption_test
