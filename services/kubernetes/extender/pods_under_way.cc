#include "services/kubernetes/extender/pods_under_way.h"

#include <iterator>

namespace qgpu {

PodsUnderWay::Place PodsUnderWay::add(NodeId node, const PodAsk& ask) {
  return pods_.emplace(node, &ask);
}

void PodsUnderWay::remove(Place place) {
  pods_.erase(place);
}

bool PodsUnderWay::fit(const ClusterLedger& ledger, NodeId node, const PodAsk* ask) const {
  const auto [from, to] = pods_.equal_range(node);
  if (from == to) return true;
  PodAsk all = ask != nullptr ? *ask : *from->second;
  for (auto other = ask != nullptr ? from : std::next(from); other != to; ++other) {
    if (other->second->models != all.models) return false;  // they are asked about at once
    for (const PodAsk::Demand& demand : other->second->demands) all.demands.push_back(demand);
    if (all.demands.size() > PodAsk::kDemandsMax) return false;
  }
  return PodFit(ledger, all).cards(node).has_value();
}

}  // namespace qgpu
