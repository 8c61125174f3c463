#pragma once
// Events of a daemon: waiting for what it tells, instead of asking it over and over; and what it
// remembers.

#include <cstdint>
#include <functional>

#include "runtime/backoff.h"
#include "services/ctl/answers/client.h"

namespace qgpu::ctl {

// True where `asker` tells events from now on. Begun before a question that may be refused, no news
// falls between.
bool startWatch(Asker& asker, Nanos limit);

// The event that a line of a watch tells; nothing in the line that says that it began.
Value eventOf(const Answer& line);

// Until an event is told that `wanted` says yes to, nothing comes for `limit`, or the watch is
// over.
void awaitEvent(Asker& watch, Nanos limit, const std::function<bool(Value)>& wanted);

// Each event that the daemon remembers after `since`, which becomes the number of the newest: it
// tells the oldest first and a part at a time. The last answer, or the first that is none.
Result<Answer> eachEvent(Asker& asker, std::uint64_t& since, Nanos limit,
                         const std::function<void(Value)>& take);

// For one who looks for a lost daemon, as many others may at the same moment.
Backoff newBackoff();
void rest(Backoff& backoff);

}  // namespace qgpu::ctl
