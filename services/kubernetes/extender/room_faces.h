#pragma once
// Which nodes of a cluster look the same. In a large cluster most are empty or full in the same
// way, and then what a pod hears of one of them it hears of all, so that a kind of pod which nobody
// asked for before costs a judgement of each face and not of each node.
//
// Two nodes have one face exactly where all that refusals look at is equal: cards, processors and
// memory, life and marks; names, positions and whose tasks they hold are no part of it. Memory is
// bounded by the cluster: a face goes with its last node.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/placement/cluster_ledger.h"

namespace qgpu {

class RoomFaces {
 public:
  struct Face {
    std::uint32_t place = 0;   // below places(); given again when its face has gone
    std::uint64_t number = 0;  // from 1, never given again
  };

  // The ledger outlives it.
  explicit RoomFaces(const ClusterLedger& ledger) : ledger_(ledger) {}
  RoomFaces(const RoomFaces&) = delete;
  RoomFaces& operator=(const RoomFaces&) = delete;

  // Looks at the nodes that changed since; what it gives is of that moment.
  void refresh();
  Face of(NodeId node) const { return nodes_[static_cast<std::size_t>(node)].look->second.face; }
  std::size_t places() const { return places_; }

 private:
  struct Shared {
    Face face;
    std::size_t nodes = 0;
  };
  struct Hash {
    std::size_t operator()(const NodeRoom& room) const;
  };
  struct Alike {
    bool operator()(const NodeRoom& one, const NodeRoom& other) const;
  };
  using Looks = std::unordered_map<NodeRoom, Shared, Hash, Alike>;
  struct Known {
    std::uint64_t changedAt = 0;  // of the ledger; 0: never looked at
    Looks::value_type* look = nullptr;
  };

  Looks::value_type* lookOf(const NodeRoom& room);
  void leave(Looks::value_type& look);

  const ClusterLedger& ledger_;
  Looks looks_;
  std::vector<Known> nodes_;  // by position
  std::vector<std::uint32_t> free_;
  std::uint32_t places_ = 0;
  std::uint64_t numbers_ = 0;
};

}  // namespace qgpu
