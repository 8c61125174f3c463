#pragma once
// One seeded life of a card whose offline tasks have pageable memory: the real decisions of the
// manager (actors/residency) and of the library (services/guest/paging), programs whose kernels
// touch all that they have, and tenants that need memory. Two phases: safety (everything may fail)
// and liveness (nothing fails any more, and each task must run again). The kin of world.h.
//
// The invariants are those of docs/internals/paging.md.

#include <memory>

#include "tests/sim/paging/paging_options.h"
#include "tests/sim/world.h"

namespace qgpu::sim {

class PagingWorld {
 public:
  // From event `traceFrom` on, what happens is written to stdout.
  explicit PagingWorld(const PagingOptions& options, std::uint64_t traceFrom = UINT64_MAX);
  PagingWorld(const PagingWorld&) = delete;
  PagingWorld& operator=(const PagingWorld&) = delete;
  ~PagingWorld();

  Outcome run();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace qgpu::sim
