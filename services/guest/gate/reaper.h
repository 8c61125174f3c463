#pragma once
// The thread that looks at launches in flight while there are any (HAZARDS 19): it has each front
// end retire what is finished, publishes `parked`, sleeps while nothing is in flight, and ends
// before the driver is torn down. What a look means for a driver is the front end's own.

#include "services/guest/gate/gate.h"

namespace qgpu::guest {

// What one look at everything found.
struct Look {
  bool await = false;    // asked for: be told of the end of what is in flight, where that can be
  bool awaited = true;   // and that is so: nobody need look again before
  bool any = false;      // something is in flight
  bool attended = true;  // and some thread waits for all of that
  bool running = false;  // some oldest launch runs, or nothing is known of it
};

// The reaper's view of a front end. All are called without locks.
struct FrontEnd {
  bool (*inFlight)();
  void (*look)(Look& look);  // retires what is finished, and helps what would never finish
  void (*poll)();            // retires what is finished
  void (*forgetInChild)();   // after a fork
};

extern std::uint32_t reaperAsleep;  // futex

// Starts it if it does not run; without threads launches retire at synchronising calls only.
void startReaper(const FrontEnd& frontEnd);

// It looks at once, whatever it sleeps for. Async-signal-safe.
void nudgeReaper();

// After a launch: it may be asleep.
void wakeReaperSlow();
[[gnu::always_inline]] inline void wakeReaper() {
  if (loadShared(reaperAsleep)) [[unlikely]]
    wakeReaperSlow();
}

}  // namespace qgpu::guest
