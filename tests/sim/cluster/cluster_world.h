#pragma once
// One seeded life of a cluster: one real scheduler or several, and real nodes with their members,
// each on its own machine, and a network between them. A node and a scheduler alone have a real
// store of their own; several schedulers share a modelled etcd, in which the real seat and the real
// store decide. It goes through three phases: safety
// (everything may fail), liveness (nothing fails any more: views must agree soon, what fits must be
// bound, and all must come to rest), and restart (what processes read from disk must be what the
// ones before them knew). The kin of world.h.

#include <memory>

#include "tests/sim/cluster/cluster_options.h"
#include "tests/sim/world.h"

namespace qgpu::sim {

class ClusterWorld {
 public:
  // From event `traceFrom` on, what happens is written to stdout.
  explicit ClusterWorld(const ClusterOptions& options, std::uint64_t traceFrom = UINT64_MAX);
  ClusterWorld(const ClusterWorld&) = delete;
  ClusterWorld& operator=(const ClusterWorld&) = delete;
  ~ClusterWorld();

  Outcome run();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace qgpu::sim
