#pragma once
// Where tasks go that start together or not at all: a pure core. Each is placed as it would be
// alone, beside those before it, the largest first; the ledger is afterwards as it was. Tasks that
// ask for the same find their places wherever there are any. For different ones other orders are
// not tried, so a fit may be missed, and none is ever promised that is not there (P1, P2, P8).

#include <cstddef>
#include <functional>
#include <vector>

#include "actors/placement/cluster_ledger.h"

namespace qgpu {

struct GroupMember {
  TaskId task{};  // holds nothing in the ledger
  ClusterAsk ask;
};

struct GroupFit {
  std::vector<Spot> spots;  // of the members, in their order; empty where not all fit
  std::size_t fit = 0;      // members that fit at once
};

// As ClusterLedger::place(), which may know more about a task, such as nodes that it is kept off.
using PlaceMember = std::function<Result<Spot>(const GroupMember& member)>;

GroupFit fitTogether(ClusterLedger& ledger, const std::vector<GroupMember>& members,
                     const PlaceMember& place);

}  // namespace qgpu
