#pragma once
// Where the best node for a shape is, without a look at every node: for each shape the rank of
// every node and a tournament tree over them. A change of a node goes to a log; a shape that is
// asked for again ranks anew only the nodes that changed since. Decisions equal those of a scan,
// the position of a node breaking ties in both.
//
// Memory is bounded: beyond kRanksMax ranks in all, the shape that was asked least lately goes.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/placement/placement.h"

namespace qgpu {

class PlacementIndex {
 public:
  static constexpr std::size_t kRanksMax = std::size_t{6} << 20;  // 12 bytes each
  static constexpr std::size_t kShapesMax = 4096;
  static constexpr std::size_t kShapesMin = 16;  // whatever the cluster's size

  struct Best {
    std::size_t node = 0;
    std::uint64_t rank = kNeverRank;
  };

  PlacementIndex() = default;
  // A copy starts empty: it would cost more to copy than to fill for the few asks of a trial.
  PlacementIndex(const PlacementIndex&) {}
  PlacementIndex& operator=(const PlacementIndex&) { return clear(), *this; }

  // The node at this position changed, or is new.
  void changed(std::size_t node);
  // Everything changed.
  void clear();

  // The best node for `shape`, those at `except` (ascending) left out.
  Best best(const Shape& shape, const std::vector<NodeRoom>& nodes, const Fragments& fragments,
            const std::vector<std::size_t>& except);
  // The ranks of all nodes; valid until the next call.
  const std::vector<std::uint64_t>& ranks(const Shape& shape, const std::vector<NodeRoom>& nodes,
                                          const Fragments& fragments);

  std::size_t shapes() const { return entries_.size(); }
  std::uint64_t ranked() const { return ranked_; }  // nodes, so far

 private:
  struct Entry {
    std::vector<std::uint64_t> ranks;
    std::vector<std::uint32_t> winners;  // [1, width): the better of positions 2n and 2n + 1
    std::uint64_t seen = 0;              // changes
    std::uint64_t usedAt = 0;
  };

  Entry& entryFor(const Shape& shape, std::size_t nodes);
  void refresh(Entry& entry, const Shape& shape, const std::vector<NodeRoom>& nodes,
               const Fragments& fragments);
  static void build(Entry& entry);
  static void update(Entry& entry, std::size_t node);
  static std::uint32_t winner(const Entry& entry, std::size_t at);
  static Best among(const Entry& entry, std::size_t from, std::size_t to);

  std::map<Shape, Entry> entries_;
  std::vector<std::uint64_t> changedAt_;  // of each node: the number of its last change
  std::vector<std::uint32_t> log_;        // the last changes: number logStart_ and on
  std::uint64_t logStart_ = 1;
  std::uint64_t uses_ = 0;
  std::uint64_t ranked_ = 0;
};

}  // namespace qgpu
