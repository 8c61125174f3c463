#pragma once
// Waiting for what a daemon tells, instead of asking it over and over.

#include <simdjson.h>

#include "runtime/backoff.h"
#include "services/ctl/answers/client.h"

namespace qgpu::ctl {

// True where `asker` tells events from now on. Begun before a question that
// may be refused, no news falls between.
bool startWatch(Asker& asker, Nanos limit);

// The event that a line of a watch tells; none in the line that says that it began.
bool hasEvent(const Answer& line, simdjson::dom::element& event);

// For one who looks for a lost daemon, as many others may at the same moment.
Backoff newBackoff();
void rest(Backoff& backoff);

}  // namespace qgpu::ctl
