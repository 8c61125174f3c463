#pragma once
// Where a task may go: the cluster's ledger, less the nodes that may not get this task now. Those
// are the node that has just refused it, and the nodes that hold an earlier epoch of it.
//
// A node that was lost comes back with tasks that were placed again meanwhile. They are ended
// there, and until that is known their room counts as taken, and nothing of the same task is
// ordered onto that node: it would refuse it, and each refusal uses an epoch up. Not durable: each
// hello tells it anew.
//
// Who calls: Sessions (what nodes hold), Tasks and Evictions (placing). Kept here: P1 and P3 (an
// earlier epoch holds its room until its node has ended it).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/scheduler/members.h"

namespace qgpu {

class Places {
 public:
  // Keeps decisions off some nodes while it lives.
  class ShutNodes {
   public:
    ShutNodes(ClusterLedger& ledger, const std::vector<NodeId>& nodes);
    ~ShutNodes();
    ShutNodes(const ShutNodes&) = delete;
    ShutNodes& operator=(const ShutNodes&) = delete;
    bool empty() const { return shut_.empty(); }

   private:
    ClusterLedger& ledger_;
    std::vector<NodeId> shut_;
  };

  Places(ClusterLedger& ledger, Members& members, FreedRoom& freed)
      : ledger_(ledger), members_(members), freed_(freed) {}

  // A place for the task now. Errors as ClusterLedger::place() has them; NoRoom where only nodes
  // would do that may not get it now. `avoided`: a node that has just refused it.
  Result<Spot> place(std::uint64_t task, const ClusterAsk& ask,
                     std::optional<MemberId> avoided = std::nullopt);
  // Those that may not get this task now.
  std::vector<NodeId> shutTo(std::uint64_t task, std::optional<MemberId> avoided) const;
  std::uint64_t decisions() const { return decisions_; }  // calls of place(), since the start

  // Nodes may hold tasks of which this store does not know, because it is an older copy or new.
  // Until they had the time to say so, place() refuses with NoRoom: what it took for free may be
  // taken, and what waits may run already (P1, P3).
  bool gathers() const { return gathers_; }
  void setGathers(bool gathers) { gathers_ = gathers; }

  // --- earlier epochs ---
  // The node holds this, and it was decided otherwise since.
  void noteOlder(MemberId member, const HeldTask& held);
  // The node has ended it, up to this epoch.
  void olderGone(MemberId member, std::uint64_t task, std::uint32_t epoch);
  // Its next hello names what is left.
  void forgetOlder(MemberId member);
  bool holdsOlder(MemberId member, std::uint64_t task) const;
  bool anyOlder() const { return !olderAt_.empty(); }

 private:
  // What a node holds of a task under an earlier epoch than the one in force.
  struct Older {
    std::uint32_t epoch = 0;
    std::optional<TaskId> room;  // in the ledger, until the node has ended it
  };

  ClusterLedger& ledger_;
  Members& members_;
  FreedRoom& freed_;
  std::map<MemberId, std::map<std::uint64_t, Older>> older_;  // by task
  std::map<std::uint64_t, std::set<MemberId>> olderAt_;       // the nodes, by task
  std::uint64_t lastOlder_ = 0;
  std::uint64_t decisions_ = 0;
  bool gathers_ = false;
};

}  // namespace qgpu
