#pragma once
// The term with which schedulers begin on a store that is not the one that nodes knew: a copy, or a
// new one. Terms that were counted from an earlier such begin are others, since nobody restarts
// once in 8 s for ever; a later one is told by the nodes. In 500 years it reaches the bound of
// terms.
//
// Kept here: C1 (no two schedulers have the same term).

#include <cstdint>

namespace qgpu {

constexpr std::uint64_t termAt(std::uint64_t unixMs) {
  return unixMs / 8'000;
}

}  // namespace qgpu
