#pragma once
// What a cluster's ledger is made of; private to actors/cluster_ledger*.cc. Each change of a node
// ends in touch(), which keeps the fragments, the sums and the index beside the rooms.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/placement/cluster_ledger.h"
#include "actors/placement/index.h"
#include "actors/placement/placement.h"
#include "runtime/check.h"

namespace qgpu {

struct ClusterLedger::Parts {
  struct Node {
    ClusterNodeFacts facts;
    std::vector<TaskId> tasks;         // ascending
    std::vector<std::vector<OfflineHeld>> offline;   // by card, each ascending
  };
  struct Held {
    Spot spot;
    std::string application;
  };
  struct Learnt {
    CardAsk card;
    std::uint32_t cards = 0;
    std::int64_t cpuMilli = 0;
    Bytes hostMem{0};
    auto operator<=>(const Learnt&) const = default;
  };

  Options options;
  std::vector<Node> nodes;
  std::vector<NodeRoom> rooms;         // of the nodes
  std::map<std::string, NodeId> byName;
  std::map<TaskId, Held> tasks;
  std::map<std::string, std::map<NodeId, Replicas>> applications;
  std::map<std::string, std::uint32_t> models;
  Fragments fragments;
  std::int64_t fragmentSum = 0;
  bool typicalGiven = false;
  std::map<Learnt, std::int64_t> learnt;
  std::int64_t binds = 0;
  std::int64_t learnAt = 1;            // binds; doubled each time, so that few looks are anew
  ClusterSums sums;
  std::uint64_t draws = 0;
  std::uint64_t evaluations = 0;  // by rank(); the index counts its own
  std::uint64_t changes = 0;      // of rooms
  std::vector<std::uint64_t> changedAt;  // of each node: its last one
  std::uint64_t learnings = 0;
  PlacementIndex index;

  Node& at(NodeId node) {
    QGPU_CHECK(raw(node) < nodes.size(), "positions come from setNode() or findNode()");
    return nodes[raw(node)];
  }
  const Node& at(NodeId node) const {
    QGPU_CHECK(raw(node) < nodes.size(), "positions come from setNode() or findNode()");
    return nodes[raw(node)];
  }
  NodeRoom& room(NodeId node) { return at(node), rooms[raw(node)]; }
  const NodeRoom& room(NodeId node) const { return at(node), rooms[raw(node)]; }
  static std::uint32_t raw(NodeId node) { return static_cast<std::uint32_t>(node); }

  // An ask that has passed check(), in the terms of this ledger.
  Shape shapeOf(const ClusterAsk& ask) const;
  std::uint32_t modelOf(const std::string& name);
  const Replicas* replicasOf(const ClusterAsk& ask, const Shape& shape, NodeId node) const;
  // SIZE_MAX where the node has no such card, by id or index.
  static std::size_t cardOf(const Node& node, const std::string& text);
  std::uint64_t rank(NodeId node, const ClusterAsk& ask, const Shape& shape, std::size_t card,
                     Pick& pick);
  Spot spotOf(NodeId node, const Shape& shape, const Pick& pick) const;
  Result<Spot> scan(const ClusterAsk& ask, const Shape& shape);
  Result<Spot> search(const ClusterAsk& ask, const Shape& shape);
  Result<Spot> placeOn(NodeId node, const ClusterAsk& ask, const Shape& shape);
  Error refuse(const ClusterAsk& ask, const Shape& shape, std::uint64_t rank) const;
  Error refuseModels(const ClusterAsk& ask, const Shape& shape, const std::string& what) const;

  void take(const Spot& spot, std::int64_t sign);
  void listOffline(TaskId task, const Spot& spot);
  void unlistOffline(TaskId task, const Spot& spot);
  void hold(TaskId task, Held held);
  Held drop(TaskId task);
  void learn(const Spot& spot);
  std::vector<TypicalShape> learntTypical() const;
  void lookAnew();
  void touch(NodeId node);
  // What explanations count while they go from node to node.
  struct Tally {
    std::array<std::size_t, kReasons> counts{};  // cards
    std::vector<Reason> reasons;                 // of the cards of one node
  };
  // Without its text, which costs more than all the rest and is said of few nodes.
  NodeVerdict nearest(NodeId node, const ClusterAsk& ask, const Shape& shape, Tally& tally) const;
  std::string textOf(const NodeVerdict& verdict, const Shape& shape) const;
  std::int64_t distanceOf(const NodeVerdict& verdict) const;
};

}  // namespace qgpu
