#pragma once
// A time of ours as KJ's, for its timers.

#include <kj/time.h>

#include "runtime/units.h"

namespace qgpu {

inline kj::Duration toKj(Nanos time) {
  return time.value * kj::NANOSECONDS;
}

}  // namespace qgpu
