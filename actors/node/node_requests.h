#pragma once
// What clients and the member actor ask of the node. Questions are answered by NodeReports;
// everything else becomes a change, which waits here for its turn. Peers are as the kernel told the
// clients; orders of a scheduler come through the member actor alone.
//
// Who calls: NodeActor. Kept here: C5 (changes that wait are bounded), C7 (what clients send is
// checked, and who may not change the node is told so).

#include <cstdint>
#include <deque>

#include "actors/node/node_change.h"
#include "actors/node/node_reports.h"

namespace qgpu {

class NodeRequests final : public ChangeOwner {
 public:
  static constexpr std::size_t kChangesMax = 256;    // that wait for their turn
  static constexpr std::size_t kOutboxMax = 16'384;  // beyond it no new change is taken

  NodeRequests(NodeContext& node, NodeReports& reports) : node_(node), reports_(reports) {}

  void onRequest(schema::Request::Reader request, Turn& turn);

  // --- ChangeOwner, of the kind Permit: it is audited, and nothing else ---
  Result<Need> check(NodeChange& change) override;
  void persist(const NodeChange&, Turn&) override {}
  void apply(const NodeChange& change, Turn& turn) override;

  // --- changes that wait ---
  bool anyChange() const { return !changes_.empty(); }
  NodeChange takeChange();
  // All that wait are told; the storage failed.
  void refuseChanges(const Error& error);

 private:
  void onChangeRequest(schema::Request::Reader request, NodeChange change);
  void onOrder(schema::Request::Reader request, NodeChange change);
  void enqueue(NodeChange change);
  void watch(const Asker& asker, bool on);

  NodeContext& node_;
  NodeReports& reports_;
  std::deque<NodeChange> changes_;
};

}  // namespace qgpu
