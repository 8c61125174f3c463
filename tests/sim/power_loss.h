#pragma once
// The store under power cuts, many points in a few seconds: short histories of commits, snapshots
// and checkpoints on the disk in memory, the power cut at one I/O, with a seeded part of what was
// not synced lost, then what the next manager reads (D1, D3).

#include <cstdint>
#include <string>

namespace qgpu::sim {

struct PowerLossSummary {
  std::uint64_t points = 0;          // power cuts
  std::uint64_t inRecovery = 0;      // of these, while an earlier one was recovered from
  std::uint64_t batches = 0;         // acknowledged
  std::uint64_t unacknowledged = 0;  // recovered although nobody had been told
  std::string failure;               // empty: all that was acknowledged was there, every time
  std::uint64_t failedPoint = 0;
};

// Point n is the same in every call with this seed. Ends at the first failure.
PowerLossSummary cutPower(std::uint64_t seed, std::uint64_t points);

}  // namespace qgpu::sim
