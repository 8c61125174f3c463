#pragma once
// How much of a card's memory the driver itself lets a cgroup have, where it can: a process beside
// the daemon takes orders for it, as each kind of cards carries them out (nvidia/memory_limits.h).
// Orders and answers are packets over a socket, so that nothing here waits for a driver.
//
// A limit outlives that process and the daemon: it ends when it is lifted, or with its cgroup.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/base/child_probe.h"

namespace qgpu {

struct LimitOrder {
  std::uint64_t number = 0;  // its answer has it
  std::string cgroup;        // the full path of its folder, in the hierarchy of version 2
  std::map<std::string, std::optional<Bytes>> cards;  // by UUID; none: its limit is lifted
  bool operator==(const LimitOrder&) const = default;
};

struct LimitAnswer {
  std::uint64_t number = 0;
  std::string why;  // it was not done, or not of every card; empty: it was
};

// The process that takes orders. Its end is told by the end of what can be read.
class MemoryLimiter {
 public:
  static constexpr std::size_t kPacketMax = 64 * 1024;  // bytes of an order, or an answer

  // What becomes of an order: why not, or empty.
  using CarryOut = std::function<std::string(const LimitOrder&)>;
  // Forks: to be called while the process has one thread. `carryOut` runs in the child, one order
  // after the other. Unavailable: no sockets, no process.
  static Result<MemoryLimiter> start(const CarryOut& carryOut);

  // False: it has too many of them before it, or is gone.
  bool order(const LimitOrder& order) const;
  int fd() const { return child_.fd(); }  // each read gives one answer; ours

 private:
  explicit MemoryLimiter(SideProcess child) : child_(std::move(child)) {}
  SideProcess child_;
};

// Orders and answers as they travel, a packet each. Nothing: it is none of ours.
std::string limitPacket(const LimitOrder& order);
std::optional<LimitOrder> parseLimitOrder(std::string_view packet);
std::optional<LimitAnswer> parseLimitAnswer(std::string_view packet);

}  // namespace qgpu
