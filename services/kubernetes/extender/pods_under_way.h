#pragma once
// Pods that are on their way to a node, so that their rooms are not in the ledger yet: binds whose
// tasks the scheduler may not have taken, and what is planned for groups. Whoever chooses a node
// asks who would fit beside them. Some the ledger may show already: a hint, and no promise.

#include <cstdint>
#include <map>

#include "actors/placement/pod_fit.h"

namespace qgpu {

class PodsUnderWay {
 public:
  struct Pod {
    const PodAsk* ask = nullptr;
    std::uint64_t since = 0;  // changes of the ledger; once its node changed it may be shown there
  };
  using Pods = std::multimap<NodeId, Pod>;
  using Place = Pods::iterator;
  static constexpr std::uint64_t kNotShown = UINT64_MAX;

  // `ask` lives until it is removed.
  Place add(NodeId node, const PodAsk& ask, std::uint64_t since);
  void remove(Place place);

  // Whether all that are on their way to that node fit there at once, and `ask` beside them; false
  // as well where they are too many, or want different models of cards.
  bool fitBeside(const ClusterLedger& ledger, NodeId node, const PodAsk& ask) const;
  // The same of those alone that the ledger can't show yet.
  bool fit(const ClusterLedger& ledger, NodeId node) const;

  const Pods& pods() const { return pods_; }
  static bool isShown(const ClusterLedger& ledger, NodeId node, const Pod& pod) {
    return ledger.changedAt(node) > pod.since;
  }
  std::uint64_t changes() const { return changes_; }

 private:
  Pods pods_;
  std::uint64_t changes_ = 0;
};

}  // namespace qgpu
