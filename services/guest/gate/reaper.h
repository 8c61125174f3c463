#pragma once
// The thread that looks at launches in flight while there are any (HAZARDS 19): it has each front
// end retire what is finished, publishes `parked`, sleeps while nothing is in flight, and ends
// before the driver is torn down. What a look means for a driver is the front end's own.

#include "services/guest/gate/gate.h"

namespace qgpu::guest {

// What one look at all launches found. The reaper sets `await`; each front end sets the other
// fields for its own launches and leaves what another one found.
struct Look {
  // Asked of the front end: have the driver call back at the end of what is in flight, where it
  // can.
  bool await = false;
  // The driver will call back for all that is in flight: no look is needed until then.
  bool awaited = true;
  bool any = false;      // something is in flight
  bool attended = true;  // a thread of the program waits for all of it
  bool running = false;  // of some stream the oldest launch runs, or may run
};

// The reaper's view of a front end. All are called without locks.
struct FrontEnd {
  bool (*inFlight)();
  void (*look)(Look& look);  // retires what is finished, and helps what would never finish
  void (*poll)();            // retires what is finished
  void (*forgetInChild)();   // after a fork
};

extern std::uint32_t reaperAsleep;  // futex

// Starts the thread unless it runs. Where no thread can be made, launches retire at synchronising
// calls only.
void startReaper(const FrontEnd& frontEnd);

// Ends the thread's sleep, so that it looks at once. Async-signal-safe.
void nudgeReaper();

// Called after each launch: wakes the thread if it sleeps because nothing was in flight.
void wakeReaperSlow();
[[gnu::always_inline]] inline void wakeReaper() {
  if (loadShared(reaperAsleep)) [[unlikely]]
    wakeReaperSlow();
}

}  // namespace qgpu::guest
