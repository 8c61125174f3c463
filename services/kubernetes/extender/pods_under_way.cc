#include "services/kubernetes/extender/pods_under_way.h"

namespace qgpu {

PodsUnderWay::Place PodsUnderWay::add(NodeId node, const PodAsk& ask) {
  ++changes_;
  return pods_.emplace(node, &ask);
}

void PodsUnderWay::remove(Place place) {
  ++changes_;
  pods_.erase(place);
}

bool PodsUnderWay::fit(const ClusterLedger& ledger, NodeId node, const PodAsk* ask) const {
  const auto [from, to] = pods_.equal_range(node);
  if (from == to) return true;
  PodAsk all;
  if (ask != nullptr) all = *ask;
  for (auto other = from; other != to; ++other) {
    for (const PodAsk::Demand& demand : other->second->demands) all.demands.push_back(demand);
    if (all.demands.size() > PodAsk::kDemandsMax) return false;
  }
  return PodFit(ledger, all).cards(node).has_value();
}

}  // namespace qgpu
