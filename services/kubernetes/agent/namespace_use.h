#pragma once
// What each namespace has used of this node's cards, over all tasks of its pods, also those that
// have ended: what is charged, or held against a quota. Counted from looks at the tasks, so what a
// task used after the last look at it is not counted. Starts from nothing with the manager, as
// Prometheus expects of a counter. Pure; times are the caller's.
//
// Bounded: beyond kNamespacesMax what others use is counted together, without a name (C5).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/units.h"

namespace qgpu {

class NamespaceUse {
 public:
  static constexpr std::size_t kNamespacesMax = 1'024;

  // What a task has used since it was bound, as far as it was looked at.
  struct Seen {
    std::uint64_t usedNs = 0;  // of its cards
    std::uint64_t gpuNs = 0;   // of its kernels
    Nanos at{0};
  };

  // A look at a task: `now` becomes `before`, and `mem` is what it held from then until now.
  void count(std::string_view nameSpace, Seen& before, const Seen& now, Bytes mem);
  // As Prometheus text.
  std::string metrics() const;

 private:
  struct Sums {
    std::uint64_t usedNs = 0;
    std::uint64_t gpuNs = 0;
    std::uint64_t mibMs = 0;  // MiB held, times milliseconds
  };
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace qgpu
