#pragma once
// Asks the kernel to run the calling thread soon after it is woken. Without it a busy CPU turns
// 100 us into 1 to 3 ms at p99 (HAZARDS 24). What was granted is shown in status.

namespace qgpu {

// Tries in this order and returns what it got: "fifo" (SCHED_FIFO), "slice" (a 100 us slice of the
// default scheduler), "nice" (a higher priority there), "none". Children do not inherit "fifo".
const char* askRealtime();

}  // namespace qgpu
