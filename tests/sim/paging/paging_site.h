#pragma once
// What the parts of a simulated card with pageable memory share: a clock, dice, the card's memory
// and the page of a task.

#include <cstdint>
#include <functional>
#include <string>

#include "actors/model.h"
#include "runtime/units.h"
#include "tests/sim/host.h"

namespace qgpu::sim {

// Memory of the card as its driver gives it.
struct CardMemory {
  Bytes size{0};
  Bytes used{0};
  bool take(Bytes bytes) {
    if (used + bytes > size) return false;
    used += bytes;
    return true;
  }
  void give(Bytes bytes) { used -= bytes; }
};

// What a task's processes read. A new manager writes another one.
struct PagingPage {
  bool gateOpen = false;
  std::uint64_t word = 0;  // services/wire/paging.h
  Bytes limit{0};
  Nanos heartbeat{0};
};

class PagingSite {
 public:
  virtual ~PagingSite() = default;
  virtual Nanos now() const = 0;
  virtual void after(Nanos delay, std::function<void()> work) = 0;
  virtual void violated(const char* invariant, const std::string& what) = 0;
  // To the trace and the hash.
  virtual void say(const char* what, TaskId task, std::uint32_t process, std::int64_t amount) = 0;
  virtual Dice& dice() = 0;
  virtual CardMemory& card() = 0;
  // The manager looks at the task's pages a moment later.
  virtual void ring(TaskId task) = 0;
  // Nothing fails any more.
  virtual bool calm() const = 0;
};

inline constexpr Nanos kOrphanGrace = seconds(2);

}  // namespace qgpu::sim
