#include "services/kubernetes/extender/pods_under_way.h"

#include <utility>

namespace qgpu {
namespace {

bool add(PodAsk& all, const PodAsk& ask) {
  if (all.demands.empty()) {
    all = ask;
    return true;
  }
  if (all.models != ask.models) return false;  // they are asked about at once
  all.demands.insert(all.demands.end(), ask.demands.begin(), ask.demands.end());
  return all.demands.size() <= PodAsk::kDemandsMax;
}

}  // namespace

PodsUnderWay::Place PodsUnderWay::add(NodeId node, const PodAsk& ask, std::uint64_t since) {
  ++changes_;
  return pods_.emplace(node, Pod{&ask, since});
}

void PodsUnderWay::remove(Place place) {
  ++changes_;
  pods_.erase(place);
}

bool PodsUnderWay::fitBeside(const ClusterLedger& ledger, NodeId node, const PodAsk& ask) const {
  const auto [from, to] = pods_.equal_range(node);
  if (from == to) return true;
  PodAsk all = ask;
  for (auto other = from; other != to; ++other) {
    if (!qgpu::add(all, *other->second.ask)) return false;
  }
  return PodFit(ledger, all).cards(node).has_value();
}

bool PodsUnderWay::fit(const ClusterLedger& ledger, NodeId node) const {
  PodAsk all;
  const auto [from, to] = pods_.equal_range(node);
  for (auto pod = from; pod != to; ++pod) {
    if (!isShown(ledger, node, pod->second) && !qgpu::add(all, *pod->second.ask)) return false;
  }
  return all.demands.empty() || PodFit(ledger, all).cards(node).has_value();
}

}  // namespace qgpu
