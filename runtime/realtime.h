#pragma once
// Asks the kernel to run the calling thread soon after it is woken. Without it a busy CPU turns
// 100 us into 1 to 3 ms at p99 (HAZARDS 24). What was granted is shown in status.
//
// SCHED_FIFO is not asked for where the kernel limits no real-time thread: one that spins by a bug
// would have its CPU for ever there, and nobody could end it from that CPU.

namespace qgpu {

struct Realtime {
  const char* got = "none";  // "fifo" (SCHED_FIFO), "slice" (a 100 us slice of the default
                             // scheduler), "nice" (a higher priority there) or "none"
  const char* why = "";      // it is not "fifo"
};

inline constexpr const char* kRealtimeLimit = "/proc/sys/kernel/sched_rt_runtime_us";

// Tries in that order. Children do not inherit "fifo". `limit` is the kernel's file that says how
// many us of each period real-time threads may have; -1: all. Where it is not, there is a limit.
Realtime askRealtime(const char* limit = kRealtimeLimit);

}  // namespace qgpu
