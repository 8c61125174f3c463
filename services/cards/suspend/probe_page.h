#pragma once
// What qgpu-suspend-probe shows of its kernel, in a page that it shares with whoever watches it. A
// thread of it copies the kernel's count there, and on a busy machine it may be late: so it counts
// its rounds as well. A count is that of a moment only once two rounds have ended after it, since
// the one that was under way may have looked before.

#include <atomic>
#include <cstdint>

namespace qgpu::suspend {

struct ProbePage {
  std::atomic<std::uint64_t> count;   // of the kernel
  std::atomic<std::uint64_t> rounds;  // each copied the count once, before it was added here
};

}  // namespace qgpu::suspend
