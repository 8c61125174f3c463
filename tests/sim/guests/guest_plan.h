#pragma once
// What one simulated process does with its card, and what is wrong with it: drawn once from the
// seed, and then followed. Times in ns.

#include <cstdint>

#include "tests/sim/host.h"
#include "tests/sim/options.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

enum class Vice : std::uint8_t {
  None,
  Ignores,  // launches through a shut gate, and counts what it launches
  Hides,    // ... and counts nothing of it
  Dies,     // SIGKILL, mostly with a kernel in flight
  Lies,     // scribbles in its report page
  Silent,   // neither submits nor retires nor rings
  Storms,   // rings without need
};

struct Plan {
  // A thread launches up to `depth` kernels without waiting for one; after `burst` it waits for all
  // of them and rests for a gap.
  std::uint32_t threads = 1;
  std::uint32_t depth = 1;
  std::uint32_t burst = 1;
  Nanos kernelMin{0}, kernelMax{0};
  Nanos gapMin{0}, gapMax{0};           // between bursts
  Nanos hostMax{0};                     // between launches of one burst
  std::uint64_t launches = UINT64_MAX;  // of the process; then it ends
  Nanos start{0};                       // from the binding to its first device call
  Nanos life = kNever;                  // from its attach to its end
  std::uint32_t drivers = 0;            // threads that can be frozen; 0: not identified
  bool profiling = false;               // counts GPU time
  bool waitsForHost = false;            // kernels that wait for an event that a later launch sets
  std::uint32_t channels = 1;           // that its kernels go by, each thread's by one of them
  Nanos contextEvery = kNever;          // how long contexts beside live, and until the next
  std::uint32_t racesPercent = 0;       // of its locked steps are interrupted half-way
  std::uint32_t allocations = 0;        // that it begins with
  Nanos memoryEvery = kNever;           // between two changes of its memory
  bool deafToTerm = false;              // SIGTERM does not end it
  bool triesOn = false;                 // after a launch failed
  Vice vice = Vice::None;
  Nanos viceAt{0};         // from its attach
  Nanos viceFor = kNever;  // silence, storms
  bool hangs = false;      // silent with a kernel that does not end
};

// A process of a task of this class.
Plan drawPlan(Class taskClass, const Options& options, Dice& dice);

}  // namespace qgpu::sim
