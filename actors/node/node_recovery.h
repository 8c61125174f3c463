#pragma once
// What the node finds at its start: the tasks of the store, taken as they are, since a restart
// stops nobody, and tasks that live while the store knows nothing of them. It keeps what of that
// the first commit is to write, and everybody is told after it.
//
// Who calls: NodeActor, at its construction and with its first commit. Kept here: D5 (tasks that
// live are taken into a new database), P1, P2 and P8 (a task that was ending is not taken where its
// room is another's), P9 (processes of a task that had ended are told to go).

#include <cstdint>
#include <set>
#include <vector>

#include "actors/node/bindings.h"

namespace qgpu {

class NodeRecovery {
 public:
  NodeRecovery(NodeContext& node, NodeNumbers& numbers, Bindings& bindings)
      : node_(node), numbers_(numbers), bindings_(bindings) {}

  // --- at the construction, in this order ---
  // Tasks whose card is not there any more are given up.
  void load(const std::vector<StoredRow>& rows);
  void takeOver(const std::vector<StoredRow>& survivors);
  // `living`: tasks that live by the run dir, in order.
  void findOutlived(const std::vector<std::uint64_t>& living);

  // --- with the first commit, and after it; then nothing is left here ---
  void persist(Turn& turn) const;
  void tell();

 private:
  NodeContext& node_;
  NodeNumbers& numbers_;
  Bindings& bindings_;
  std::vector<std::uint64_t> lost_;          // rows that are erased
  std::vector<std::uint64_t> takenOver_;     // rows that are written
  std::vector<std::uint64_t> notTakenOver_;  // told of
  std::set<std::uint64_t> outlived_;         // ended, and alive: killed
};

}  // namespace qgpu
