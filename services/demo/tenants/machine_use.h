#pragma once
// Who used this machine's CPUs between two moments: this process with what it started and reaped,
// others, or the host of a virtual machine (stolen). It tells a person whether a figure that was
// missed says something about qgpu or about the machine.

#include <cstdint>
#include <string>

namespace qgpu::demo {

struct MachineUse {
  std::int64_t othersPermille = 0;  // of all CPUs' time
  std::int64_t stolenPermille = 0;

  // Clock ticks since the machine's start, as /proc/stat and the kernel's account of this process
  // have them.
  struct Counters {
    std::int64_t all = 0;   // of all CPUs
    std::int64_t busy = 0;  // of these, neither idle nor stolen
    std::int64_t stolen = 0;
    std::int64_t own = 0;  // of busy: this process and its children that were waited for
  };
  static Counters count();
  static Counters parse(const std::string& procStat);  // without `own`
  static MachineUse between(const Counters& before, const Counters& after);
};

}  // namespace qgpu::demo
