#pragma once
// Points in the product that only the simulator sees. QGPU_PLANTED(bug) is true when the simulator
// was asked to plant that bug, to prove that its checkers find it; QGPU_MARK(path) counts that a
// rare path ran, to prove that seeds reach it. In every other build they are `false` and nothing.
// Both lists are in tests/sim/planted.h.

#ifdef QGPU_SIMULATED
#include "tests/sim/planted.h"
#else
#define QGPU_PLANTED(bug) false
#define QGPU_MARK(path) static_cast<void>(0)
#endif
