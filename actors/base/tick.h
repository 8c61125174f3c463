#pragma once
// A message of an actor to itself, later; see schema::Tick. Each actor has its own kinds.

#include <cstdint>

#include "runtime/actor.h"

namespace qgpu {

inline void tickAfter(Turn& turn, Nanos delay, std::uint32_t kind, std::uint64_t value = 0) {
  turn.after(delay, [kind, value](schema::Envelope::Builder envelope) {
    auto tick = envelope.initTick();
    tick.setKind(kind);
    tick.setValue(value);
  });
}

}  // namespace qgpu
