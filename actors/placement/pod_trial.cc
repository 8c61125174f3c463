#include "actors/placement/pod_trial.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace qgpu {
namespace {

// How hard a pod is to place.
std::tuple<std::uint32_t, std::int64_t, std::int64_t> sizeOf(const PodAsk& ask) {
  std::uint32_t cards = 0;
  std::int64_t mem = 0;
  std::int64_t share = 0;
  for (const PodAsk::Demand& demand : ask.demands) {
    if (isWhole(demand.ask)) cards += normalAsk(demand.ask).cards;
    mem += demand.ask.mem.value;
    share += demand.ask.share.value;
  }
  return {cards, mem, share};
}

}  // namespace

struct PodTrial::Kind {
  Member like;
  std::vector<std::pair<std::uint64_t, NodeId>> ranks;  // of the nodes that it may go to

  bool holds(const Member& member) const {
    return asksTheSame(*like.ask, *member.ask) &&
           like.ask->application == member.ask->application &&
           (like.nodes == member.nodes ||
            (like.nodes != nullptr && member.nodes != nullptr && *like.nodes == *member.nodes));
  }
};

// As the scheduler is asked for it.
bool PodTrial::take(NodeId node, const PodAsk& ask) {
  const std::optional<PodCards> cards = PodFit(ledger_, ask).cards(node);
  if (!cards) return false;
  const ClusterNodeFacts& facts = ledger_.facts(node);
  for (const std::size_t i : askingOrder(*cards)) {
    ClusterAsk one;
    one.task = ask.demands[i].ask;
    one.models = ask.models;
    one.application = ask.application;
    one.node = facts.name;
    if ((*cards)[i].size() == 1) one.task.card = facts.cards[(*cards)[i].front()].id;
    const Result<Spot> spot = ledger_.place(one);
    if (!spot) return false;
    ledger_.bind(TaskId{kTrialTasks + taken_++}, *spot, ask.application);
  }
  return true;
}

PodTrial::Fit PodTrial::together(const std::vector<Member>& members) {
  std::vector<Kind> kinds;
  std::vector<std::size_t> kindOf(members.size());
  std::size_t looks = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const Kind& kind) { return kind.holds(members[i]); });
    kindOf[i] = static_cast<std::size_t>(known - kinds.begin());
    if (known != kinds.end()) continue;
    looks += members[i].nodes != nullptr ? members[i].nodes->size() : ledger_.nodes();
    if (looks > kLooksMax) return {{}, 0, true};
    Kind kind{members[i], {}};
    PodFit fit(ledger_, *members[i].ask);
    const auto look = [&](NodeId node) { kind.ranks.emplace_back(fit.rank(node), node); };
    if (members[i].nodes != nullptr) {
      for (const NodeId node : *members[i].nodes) look(node);
    } else {
      for (std::uint32_t node = 0; node < ledger_.nodes(); ++node) look(NodeId{node});
    }
    kinds.push_back(std::move(kind));
  }

  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sizeOf(*members[a].ask) > sizeOf(*members[b].ask);
  });
  Fit result;
  std::vector<NodeId> nodes(members.size());
  for (const std::size_t i : order) {
    const std::vector<std::pair<std::uint64_t, NodeId>>& ranks = kinds[kindOf[i]].ranks;
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (best == ranks.end() || !fitsAt(best->first)) continue;
    const NodeId node = nodes[i] = best->second;
    if (!take(node, *members[i].ask)) continue;
    ++result.fit;
    for (Kind& kind : kinds) {
      // They stand in the order of their nodes.
      const auto changed =
          std::lower_bound(kind.ranks.begin(), kind.ranks.end(), node,
                           [](const auto& rank, NodeId wanted) { return rank.second < wanted; });
      if (changed != kind.ranks.end() && changed->second == node) {
        changed->first = PodFit(ledger_, *kind.like.ask).rank(node);
      }
    }
  }
  if (result.fit == members.size()) result.nodes = std::move(nodes);
  return result;
}

}  // namespace qgpu
