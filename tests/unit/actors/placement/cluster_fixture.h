#pragma once
// Small clusters and asks in few words, for the tests of placement: a test says what it is about
// and no more. Nothing here decides anything.

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "actors/placement/cluster_ledger.h"
#include "actors/placement/pod_fit.h"

namespace qgpu::cluster {

// Cards are named after the node: a-0, a-1. Online and offline tasks are allowed.
inline ClusterNodeFacts node(const std::string& name, std::uint32_t cards, std::int64_t gib,
                             const std::string& model = "T4") {
  ClusterNodeFacts facts;
  facts.name = name;
  facts.mixed = true;
  facts.tasks.configured = 100;
  for (std::uint32_t i = 0; i < cards; ++i) {
    ClusterCard card;
    card.id = name + "-" + std::to_string(i);
    card.index = i;
    card.model = model;
    card.mem = gibibytes(gib);
    facts.cards.push_back(card);
  }
  return facts;
}

inline ClusterLedger of(const std::vector<ClusterNodeFacts>& nodes,
                        ClusterLedger::Options options = {}) {
  ClusterLedger ledger(options);
  for (const ClusterNodeFacts& facts : nodes) {
    ledger.setLife(ledger.setNode(facts).first, NodeLife::Alive);
  }
  return ledger;
}

inline ClusterAsk ask(TaskClass taskClass, std::int64_t gib, std::int64_t percent,
                      std::uint32_t cards = 1) {
  ClusterAsk ask;
  ask.task = {taskClass, gibibytes(gib), Permille(percent * 10), cards, ""};
  return ask;
}

inline ClusterAsk named(ClusterAsk ask, std::string node, std::string card = "") {
  ask.node = std::move(node);
  ask.task.card = std::move(card);
  return ask;
}

// Places and binds; where it landed, as "a-0", or "a" for a task without cards.
inline std::string bound(ClusterLedger& ledger, std::uint64_t task, const ClusterAsk& ask) {
  const Result<Spot> spot = ledger.place(ask);
  EXPECT_TRUE(spot.ok()) << (spot ? "" : spot.error().message);
  if (!spot) return "";
  ledger.bind(TaskId{task}, *spot, ask.application);
  const ClusterNodeFacts& facts = ledger.facts(spot->node);
  std::string where;
  for (const std::size_t card : spot->placement.cards) {
    where += (where.empty() ? "" : ",") + facts.cards[card].id;
  }
  return where.empty() ? facts.name : where;
}

// Small seeded numbers, the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % bound;
  }

 private:
  std::uint64_t state_;
};

// Clusters and asks of all kinds: cards of several sizes, some nodes unmixed, some with processors.
inline ClusterNodeFacts anyNode(Dice& dice, std::size_t number) {
  const char* const models[] = {"T4", "A10", "V100"};
  const std::int64_t gib = std::int64_t{8} << dice.below(3);
  ClusterNodeFacts facts =
      node("n" + std::to_string(number), static_cast<std::uint32_t>(dice.below(5)), gib,
           models[dice.below(3)]);
  facts.mixed = dice.below(3) != 0;
  facts.tasks.configured = dice.below(2) == 0 ? 0 : static_cast<std::uint32_t>(dice.below(6) + 1);
  if (dice.below(2) == 0) facts.cpuMilli = static_cast<std::int64_t>(dice.below(20) + 4) * 1000;
  if (dice.below(2) == 0) facts.hostMem = gibibytes(static_cast<std::int64_t>(dice.below(60) + 4));
  for (ClusterCard& card : facts.cards) {
    if (dice.below(4) == 0) card.mem = gibibytes(24);
    if (dice.below(8) == 0) card.policy = Policy::FixedShare;
    if (dice.below(20) == 0) card.healthy = false;
  }
  return facts;
}

inline ClusterAsk anyAsk(Dice& dice) {
  const auto taskClass = static_cast<TaskClass>(dice.below(3));
  const std::uint64_t most = dice.below(4) == 0 ? 30 : 6;
  const auto gib = static_cast<std::int64_t>(dice.below(most)) + 1;
  const auto percent = static_cast<std::int64_t>(dice.below(6)) * 15;
  ClusterAsk what = ask(taskClass, gib, taskClass == TaskClass::Online ? 0 : percent);
  if (taskClass == TaskClass::Ordinary && dice.below(4) == 0) {
    what = ask(taskClass, 0, static_cast<std::int64_t>(dice.below(3) + 1) * 100);
  }
  if (dice.below(12) == 0) what = ask(TaskClass::Ordinary, 0, 0, 0);
  if (what.task.cards == 0 || dice.below(3) == 0) {
    what.cpuMilli = static_cast<std::int64_t>(dice.below(4) + 1) * 1000;
    what.hostMem = gibibytes(static_cast<std::int64_t>(dice.below(4)));
  }
  if (dice.below(6) == 0) what.models = {"T4", "A10"};
  if (dice.below(3) == 0) what.application = "app-" + std::to_string(dice.below(3));
  const Score scores[] = {Score::ClassDefault, Score::ClassDefault, Score::Binpack,
                          Score::Spread,       Score::Fgd,          Score::BestFit};
  what.nodeScore = scores[dice.below(6)];
  what.cardScore = scores[dice.below(6)];
  return what;
}

inline PodAsk anyPod(Dice& dice) {
  PodAsk asked;
  const auto taskClass = static_cast<TaskClass>(dice.below(3));
  const std::size_t count = dice.below(4) + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const auto percent = static_cast<std::int64_t>(dice.below(9) + 1) * 10;
    LedgerAsk task = ask(taskClass, static_cast<std::int64_t>(dice.below(12) + 1),
                         taskClass == TaskClass::Online ? 0 : percent)
                         .task;
    if (taskClass == TaskClass::Ordinary && dice.below(4) == 0) {
      task = ask(taskClass, 0, static_cast<std::int64_t>(dice.below(2) + 1) * 100).task;
    }
    asked.demands.push_back({"c" + std::to_string(i), task});
  }
  if (dice.below(3) == 0) asked.application = "app-" + std::to_string(dice.below(3));
  return asked;
}

}  // namespace qgpu::cluster
