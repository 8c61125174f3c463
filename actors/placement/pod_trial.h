#pragma once
// Which pods fit at once: a pure core beside group_fit.h, for pods, whose containers go together on
// one node. It tries on a copy of a ledger, which keeps what was taken there, so that what is about
// to be bound is taken first, and then is asked who goes beside it.
//
// Each pod goes to the node that would suit it best alone, beside those before it, the largest
// first. Pods that ask for the same and may go to the same nodes find their places wherever there
// are any. For different ones other orders are not tried, so a fit may be missed, and none is
// promised that is not there (P1, P2, P8). It costs a look at each node for each kind of pod, which
// is what pods ask and where they may go; beyond kLooksMax they are not tried.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/placement/pod_fit.h"

namespace qgpu {

class PodTrial {
 public:
  static constexpr std::size_t kLooksMax = 200'000;
  struct Member {
    const PodAsk* ask = nullptr;
    const std::vector<NodeId>* nodes = nullptr;  // that it may go to, ascending; null: all
  };
  struct Fit {
    std::vector<NodeId> nodes;  // of the members, in their order; empty where not all fit
    std::size_t fit = 0;        // members that fit at once
    bool tooManyKinds = false;  // of members: they were not tried
  };

  explicit PodTrial(const ClusterLedger& ledger) : ledger_(ledger.clone()) {}

  // Takes the room that the pod would get on that node; false where there is none.
  bool take(NodeId node, const PodAsk& ask);
  // Takes the rooms of those that fit, whether or not all do. At most one question a trial.
  Fit together(const std::vector<Member>& members);

 private:
  struct Kind;  // members that ask for the same and may go to the same nodes

  ClusterLedger ledger_;
  std::uint64_t taken_ = 0;  // tasks, each with a number that no other has
};

}  // namespace qgpu
