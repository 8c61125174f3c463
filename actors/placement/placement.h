#pragma once
// How well one task suits one node: filter, choice of cards and rank, as a pure function of the
// node's sums and of what is asked. scan() of the cluster's ledger and its index both decide by
// it, so they agree. A rank is one integer, lower is better, and equal ranks are told apart by
// the node's position: the order is total, and no tie is left to chance (P7).
//
// Binpack is fragment gradient descent in a hundred steps; equal steps are told apart by not
// opening an empty node, and then by the least that is left. Integers alone decide.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/ledger/fit.h"
#include "actors/model.h"
#include "actors/placement/fragments.h"
#include "runtime/units.h"

namespace qgpu {

const char* scoreName(Score score);

// An ask as ranks see it: equal shapes rank every node equally.
struct Shape {
  CardAsk card;
  std::uint32_t cards = 1;  // 0: CPU and host memory only
  std::int64_t cpuMilli = 0;
  Bytes hostMem{0};
  bool anyModel = true;
  std::vector<std::uint32_t> models;  // numbers of the models allowed, ascending
  Score nodeScore = Score::Binpack;   // never ClassDefault
  Score cardScore = Score::Binpack;

  auto operator<=>(const Shape&) const = default;
};

// A node as ranks see it.
struct NodeRoom {
  std::vector<CardRoom> cards;
  std::int64_t cpu = 0;  // 0: not counted
  std::int64_t cpuBound = 0;
  Bytes hostMem{0};  // 0: not counted
  Bytes hostMemBound{0};
  std::uint32_t tasks = 0;
  NodeLife life = NodeLife::Joining;
  bool mixed = false;
  bool cordoned = false;
  NodeFragments fragments;  // kept by Fragments::look()

  std::int64_t cpuFree() const { return cpu == 0 ? INT64_MAX : cpu - cpuBound; }
  Bytes hostMemFree() const {
    return hostMem.value == 0 ? Bytes(INT64_MAX) : hostMem - hostMemBound;
  }
};

// Tasks of one application on a node; spread keeps off them.
struct Replicas {
  std::uint32_t onNode = 0;
  std::vector<std::uint32_t> onCard;
};

// What only one decision knows. `card`: the one card that is wanted.
struct Particulars {
  const Replicas* replicas = nullptr;
  std::size_t card = SIZE_MAX;
  std::uint64_t draw = 0;  // of Score::Random
};

inline constexpr std::size_t kPickMax = 16;  // cards of one task
struct Pick {
  std::array<std::uint16_t, kPickMax> cards{};
  std::size_t count = 0;
};

// Ranks of nodes without room come after all others, the most hopeful first.
inline constexpr std::uint64_t kNoRoomRank = UINT64_MAX - 3;
inline constexpr std::uint64_t kCordonedRank = UINT64_MAX - 2;
inline constexpr std::uint64_t kConflictRank = UINT64_MAX - 1;
inline constexpr std::uint64_t kNeverRank = UINT64_MAX;
inline bool fitsAt(std::uint64_t rank) {
  return rank < kNoRoomRank;
}
// Whether the class would rather be elsewhere; this comes before everything else.
inline bool isAvoided(std::uint64_t rank) {
  return rank >> 63 != 0;
}

// Why the node as a whole is out, cards aside; Fits where it is not.
Reason judgeNode(const NodeRoom& node, const Shape& shape);
// fitOf(), and the model.
Reason judgeCard(const CardRoom& card, const Shape& shape);
// Whether it would fit were the node alive, empty and without marks; on this card, if one is given.
bool couldFit(const NodeRoom& node, const Shape& shape, std::size_t card = SIZE_MAX);
// The rank of the node at this position, and which cards the task would get there.
std::uint64_t rankNode(const NodeRoom& node, std::size_t position, const Shape& shape,
                       const Fragments& fragments, const Particulars& particulars, Pick& pick);

}  // namespace qgpu
