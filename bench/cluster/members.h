#pragma once
// Many nodes in one process, each with a connection of its own to the scheduler: plain nodes (see
// plain_node.h) behind real member actors and links, on a loop and thread of their own.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cluster/plain_node.h"
#include "runtime/loop.h"

namespace qgpu::bench {

class Members {
 public:
  static constexpr std::size_t kNodesMax = 20'000;  // three actors each

  // `count` nodes of this shape, named NAME-1 and on, that connect to one of `addresses`
  // ("HOST:PORT" or "unix:PATH") from now on and whenever they lost it.
  Members(std::size_t count, NodeShape shape, std::vector<std::string> addresses);
  ~Members();  // every connection ends
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  const NodeCounts& counts() const { return counts_; }
  std::size_t joined() const { return counts_.joined.load(); }

 private:
  void run(std::size_t count, const NodeShape& shape, const std::vector<std::string>& addresses);

  NodeCounts counts_;
  Loop loop_;
  std::thread thread_;  // last
};

}  // namespace qgpu::bench
