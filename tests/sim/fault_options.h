#pragma once
// What the options of every kind of world have: a seed, the classes of faults that there are at all
// (each seed has some of them, so that rare ones are not drowned by common ones), and what counts.
// Fault is an enum of bits.

#include <cstdint>
#include <string>

namespace qgpu::sim {

template <typename Fault>
struct FaultOptions {
  std::uint64_t seed = 1;
  std::uint32_t faults = 0;
  std::string judge;  // first letters of the invariants that count; empty: all

  bool has(Fault fault) const { return (faults & static_cast<std::uint32_t>(fault)) != 0; }
  void remove(Fault fault) { faults &= ~static_cast<std::uint32_t>(fault); }
};

// A class of faults as people write it.
template <typename Fault>
struct NamedFault {
  Fault fault;
  const char* name;
};

}  // namespace qgpu::sim
