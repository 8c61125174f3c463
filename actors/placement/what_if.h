#pragma once
// What would happen if: tasks that are placed one after the other on a copy of a ledger, as they
// would be in earnest. A pure core. The copy is made once, and what follows is bounded work for
// each step(), so that an actor can go on with other things in between.
//
// Kept here: P7 (the answer is what place() would decide), and that the ledger itself never
// changes.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/placement/cluster_ledger.h"
#include "actors/placement/preemption.h"

namespace qgpu {

// A copy of one node alone, at position 0, with all that it holds. Whether a task fits a node
// depends on that node only, so small questions are proven on this.
ClusterLedger copyOfNode(const ClusterLedger& ledger, NodeId node);

class WhatIf {
 public:
  static constexpr std::uint32_t kCountMax = 10'000;

  // A task that would have to find another place.
  struct Mover {
    TaskId task{};
    ClusterAsk ask;
    std::string stays;  // not empty: it may go nowhere else, and why
  };
  struct Landing {
    TaskId task{};  // 0: imagined
    Spot spot;
    std::vector<TaskId> evicts;
  };
  struct Staying {
    TaskId task{};            // 0: imagined
    std::uint32_t count = 1;  // tasks that it stands for
    std::string why;
  };
  // Permille of all cards' share: held by somebody, and free but of no use to typical tasks.
  struct Levels {
    std::int64_t allocated = 0;
    std::int64_t fragments = 0;
  };

  // Where `count` tasks that ask for this would land. 1 <= count <= kCountMax.
  static WhatIf place(const ClusterLedger& ledger, const ClusterAsk& ask, std::uint32_t count);
  // What draining a node, or one card of it, would do to the tasks that are on it now, in the
  // order in which they are to move.
  static WhatIf drain(const ClusterLedger& ledger, NodeId node, std::optional<std::size_t> card,
                      std::vector<Mover> movers);
  // What an eviction would do: `task` gets the room, and the victims look for other places.
  static WhatIf evict(const ClusterLedger& ledger, TaskId task, const ClusterAsk& ask,
                      const Eviction& eviction, std::vector<Mover> victims);

  // Tries up to `tasks` more. True once all are tried; what is below holds from then on.
  bool step(std::size_t tasks);

  const std::vector<Landing>& landed() const { return landed_; }
  const std::vector<Staying>& stay() const { return stay_; }
  const Levels& before() const { return before_; }
  const Levels& after() const { return after_; }
  const ClusterLedger& ledger() const { return trial_; }

 private:
  explicit WhatIf(const ClusterLedger& ledger);
  bool placeOne();
  bool moveOne();
  std::string whyStays(const ClusterAsk& ask, const Error& error) const;

  ClusterLedger trial_;
  Levels before_;
  Levels after_;
  ClusterAsk ask_;  // of imagined tasks
  std::uint32_t count_ = 0;
  std::uint32_t placed_ = 0;
  std::vector<Mover> movers_;
  std::optional<std::pair<NodeId, std::optional<std::size_t>>> drained_;
  std::size_t next_ = 0;
  std::vector<Landing> landed_;
  std::vector<Staying> stay_;
};

// What an operator may be told to do. Room is also held, and cards are also closed, for a task
// that is on its way; nobody is to end or to uncordon these.
struct Permits {
  MayEvict mayEvict;                                     // of offline tasks
  MayEvict mayEnd;                                       // of any
  std::function<bool(NodeId, std::size_t)> mayUncordon;  // of cards
};

// What would help a task that fits nowhere, for a person: the first in this order that is proven
// on a copy. A cordoned card or node is taken back into use; the least set of offline tasks is
// evicted; one task ends; less is asked; a node that is not heard of comes back. Empty: none was
// found. `ask` has passed ClusterLedger::check() and fits nowhere. It is tried on at most
// kRemedyCopies nodes.
inline constexpr std::size_t kRemedyCopies = 256;
std::string remedyOf(const ClusterLedger& ledger, const ClusterAsk& ask, const Permits& permits);

}  // namespace qgpu
