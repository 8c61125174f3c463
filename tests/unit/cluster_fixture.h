#pragma once
// Small clusters and asks in few words, for the tests of placement: a test says what it is about
// and no more. Nothing here decides anything.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "actors/cluster_ledger.h"

namespace qgpu::cluster {

// Cards are named after the node: a-0, a-1. Online and offline tasks are allowed.
inline ClusterNodeFacts node(const std::string& name, std::uint32_t cards, std::int64_t gib,
                             const std::string& model = "T4") {
  ClusterNodeFacts facts;
  facts.name = name;
  facts.mixed = true;
  facts.maxTasksPerCard = 100;
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

}  // namespace qgpu::cluster
