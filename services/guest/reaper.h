#pragma once
// The thread that looks at launches in flight while there are any (HAZARDS 19): it flushes queues
// that the application left unflushed, puts a marker behind launches that have no event, retires
// what is finished, publishes `parked`, and frees queues that were released. It sleeps while
// nothing is in flight, and ends before the driver is torn down.

namespace qgpu::guest {

// Starts it if it does not run; without threads launches retire at synchronising calls only.
void startReaper();

// After a launch: it may be asleep, or never have run.
void wakeReaper();

}  // namespace qgpu::guest
