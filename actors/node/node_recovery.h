#pragma once
// What the node finds at its start: the tasks of the store, taken as they are, since a restart
// stops nobody, and tasks that live while the store knows nothing of them. It keeps what of that
// the first commit is to write; after it everybody is told, and may be spoken to.
//
// Who calls: NodeActor, at its construction and for changes of the node's own row. Kept here: D5
// (tasks that live are taken into a new database), P1, P2 and P8 (a task that was ending is not
// taken where its room is another's), P9 (processes of a task that had ended are told to go).

#include <cstdint>
#include <set>
#include <vector>

#include "actors/node/task_life.h"

namespace qgpu {

class NodeRecovery final : public ChangeOwner {
 public:
  NodeRecovery(NodeContext& node, NodeNumbers& numbers, NodeCards& cards, Bindings& bindings,
               TaskLife& life)
      : node_(node), numbers_(numbers), cards_(cards), bindings_(bindings), life_(life) {}

  // --- at the construction, in this order ---
  // Tasks whose card is not there any more are given up.
  // Where the rows are a copy that was restored, a task that lives has the right to its room before
  // one that does not: the copy may have tasks that ended since.
  void load(const std::vector<StoredRow>& rows, const std::vector<std::uint64_t>& living = {});
  void takeOver(const std::vector<StoredRow>& survivors);
  void loadRest();
  // `living`: tasks that live by the run dir, in order.
  void findOutlived(const std::vector<std::uint64_t>& living);

  // --- ChangeOwner, of the kind Node: the first one starts the node ---
  Result<Need> check(NodeChange&) override { return Need::Commit; }
  void persist(const NodeChange& change, Turn& turn) override;
  void apply(const NodeChange& change, Turn& turn) override;

 private:
  void tell();

  NodeContext& node_;
  NodeNumbers& numbers_;
  NodeCards& cards_;
  Bindings& bindings_;
  TaskLife& life_;
  std::vector<StoredRow> rest_;              // of a copy, of tasks that do not live
  std::vector<std::uint64_t> lost_;          // rows that are erased
  std::vector<std::uint64_t> crowdedOut_;    // and these
  std::vector<std::uint64_t> takenOver_;     // rows that are written
  std::vector<std::uint64_t> notTakenOver_;  // told of
  std::set<std::uint64_t> outlived_;         // ended, and alive: killed
};

}  // namespace qgpu
