#pragma once
// Which offline tasks would have to go so that one task, which fits nowhere now, gets a card: the
// least set of them that frees one card. A pure core: it looks at a ledger and changes nothing.
//
// Online tasks share a card with offline ones and lack memory or a slot there, so some of these go.
// Ordinary tasks share with neither kind, so all of a card's offline tasks go, and online ones must
// not be there. Of several whole cards all but one are free already. Among all such sets the first
// in a total order is taken: the fewest tasks, the least greedy share, the least memory, the first
// node and card, and then the youngest tasks (P7).
//
// Kept here: online and ordinary tasks are never evicted; what is promised fits (P1, P2, P8).

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "actors/placement/cluster_ledger.h"
#include "runtime/units.h"

namespace qgpu {

struct Eviction {
  Spot spot;                    // what the task gets once they are gone
  std::size_t card = 0;         // the card that is freed, a position on its node
  std::vector<TaskId> victims;  // ascending, at least one
  Permille greedy{0};           // that they hold together
  Bytes mem{0};                 // of their card, that they hold together
};

// Whether an offline task may be evicted at all; asked of no other.
using MayEvict = std::function<bool(TaskId)>;

inline constexpr std::size_t kVictimsMax = 64;  // of one eviction

// `ask` has passed ClusterLedger::check(). Nothing where no set would do, for offline tasks, and
// for tasks without a card. Looks at every card with offline tasks.
std::optional<Eviction> leastEviction(const ClusterLedger& ledger, const ClusterAsk& ask,
                                      const MayEvict& mayEvict);

}  // namespace qgpu
