#pragma once
// Which cards of one node a task of several whole cards gets: those that are near each other, as
// far as the machine tells. A pure core that the ledger of a node and the placement of a cluster
// share. NVLink comes before the memory of one processor (NUMA): it carries ten times as much as
// the way over PCIe.
//
// It is a preference: where no group of cards is large enough, the task gets cards of as few
// groups as may be, and never waits for nearer ones.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/units.h"

namespace qgpu {

// Where a card is in its machine.
struct CardPlace {
  std::uint32_t links = 0;  // group of cards that NVLink joins; 0: none is known
  std::int32_t numa = -1;   // node of the machine's memory that it is plugged in at; -1: not known

  bool operator==(const CardPlace&) const = default;
};

struct NearCard {
  std::size_t position = 0;  // on its node
  CardPlace place{};
  Bytes mem{0};
};

// Puts those that are chosen first. Of several groups that are large enough the smallest is taken,
// so that larger ones stay whole; of equal cards the one with the least memory, then the first.
// `count`: at most as many as there are cards.
void chooseNear(std::span<NearCard> cards, std::size_t count);

// How far apart they are: 4 for each further group of links, and 1 for each further node of
// memory, of which 3 count at most. 0: as near as may be. At most 63.
std::uint32_t apart(std::span<const NearCard> cards);

}  // namespace qgpu
