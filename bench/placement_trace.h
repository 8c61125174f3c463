#pragma once
// A production cluster's nodes and pods (openb, see bench/results/placement.md) as asks of the
// ledger, and the workload that its paper draws from them. Where the trace is not at hand, a made
// up cluster of the same size and a similar mix measures speed alone.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/placement/cluster_ledger.h"

namespace qgpu::bench {

// A small seeded generator, the same on every machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

struct Pod {
  ClusterAsk ask;
  std::int64_t demand = 0;  // permille of cards
};

struct Trace {
  std::vector<ClusterNodeFacts> nodes;
  std::vector<Pod> pods;
  std::int64_t supply() const;  // permille of cards
};

// An empty `nodes` where the files are not there or not as expected.
Trace readTrace(const std::string& folder, const std::string& workload);
Trace makeTrace();

// The pods of the list and then more, drawn with replacement, until they ask for `permille` of the
// cluster; in an order that the seed decides.
std::vector<const Pod*> drawWorkload(const Trace& trace, std::int64_t permille, std::uint64_t seed);
// The kinds that make up 95 percent of the list.
std::vector<ClusterLedger::Typical> typicalOf(const Trace& trace);
// `times` copies of the cluster.
std::vector<ClusterNodeFacts> copies(const std::vector<ClusterNodeFacts>& nodes, int times);

}  // namespace qgpu::bench
