#pragma once
// Pods that are on their way to a node, so that their rooms are not in the ledger yet: binds whose
// tasks the scheduler may not have taken, and what is planned for groups. Whoever chooses a node
// asks who would fit beside them. Some the ledger may show already: a hint, and no promise.

#include <map>

#include "actors/placement/pod_fit.h"

namespace qgpu {

class PodsUnderWay {
 public:
  using Pods = std::multimap<NodeId, const PodAsk*>;
  using Place = Pods::iterator;

  // `ask` lives until it is removed.
  Place add(NodeId node, const PodAsk& ask);
  void remove(Place place);

  // Whether all that are on their way to that node fit there at once, and `ask` beside them; false
  // as well where they are too many, or want different models of cards.
  bool fit(const ClusterLedger& ledger, NodeId node, const PodAsk* ask = nullptr) const;

  const Pods& pods() const { return pods_; }

 private:
  Pods pods_;
};

}  // namespace qgpu
