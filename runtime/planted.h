#pragma once
// Points in the product that only the simulator sees. QGPU_PLANTED(bug) is true when the simulator
// was asked to plant that bug, to prove that its checkers find it; QGPU_MARK(path) counts that a
// rare path ran, to prove that seeds reach it. The simulator's build names the header with its own
// definitions and both lists (tests/sim/planted.h); in every other they are `false` and nothing.

#ifdef QGPU_PLANTED_IN
#include QGPU_PLANTED_IN
#else
#define QGPU_PLANTED(bug) false
#define QGPU_MARK(path) static_cast<void>(0)
#endif
