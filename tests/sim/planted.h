#pragma once
// The bugs that can be planted into the simulated product, and the marks of rare paths. A bug is a
// name here and an `if (QGPU_PLANTED(name))` at the place where someone could have written it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace qgpu::sim {

// Each with the invariant that it breaks: X(name, invariant).
#define QGPU_BUGS(X)        \
  X(SendBeforeCommit, "D2")

// Each with whether every 5,000 seeds must hit it: X(name, Must) or X(name, Rare).
#define QGPU_MARKS(X)      \
  X(CommitFailed, Must)

enum class Bug : std::uint8_t {
#define X(name, invariant) name,
  QGPU_BUGS(X)
#undef X
  kNone
};

enum class Mark : std::uint8_t {
#define X(name, kind) name,
  QGPU_MARKS(X)
#undef X
  kCount
};

// One simulated world at a time runs in a process; these belong to it.
inline Bug plantedBug = Bug::kNone;
inline std::array<std::uint64_t, static_cast<std::size_t>(Mark::kCount)> marksHit{};

}  // namespace qgpu::sim

#define QGPU_PLANTED(bug) (::qgpu::sim::plantedBug == ::qgpu::sim::Bug::bug)
#define QGPU_MARK(path) \
  (++::qgpu::sim::marksHit[static_cast<std::size_t>(::qgpu::sim::Mark::path)])
