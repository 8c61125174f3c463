#pragma once
// The state table of a task: which state may follow which. Pure; the task actor moves along it and
// an illegal move is a bug of ours, never something that a tenant or a door can cause.
//
//   Pending -> Bound -> Attached -> {Idle, Ready, Running, Suspending, Suspended} -> Exited | Lost
//
// The five states in braces follow the card's words, which may be coalesced on their way, so each
// may follow each. A task whose last process left is Bound again: the next one may come. Exited
// and Lost lead to Pending, when the slot of the task is free for another.

#include <array>
#include <cstdint>

#include "runtime/check.h"

namespace qgpu {

enum class TaskPhase : std::uint8_t {
  Pending,     // a free slot
  Bound,       // holds its share and memory, no process is attached
  Attached,    // a process is there, the card has not spoken of it yet
  Idle,        // wants nothing
  Ready,       // wants the card and is held
  Running,     // its gate is open
  Suspending,  // held, not settled yet
  Suspended,   // held and settled with work of its own in flight
  Exited,      // its binding ended with no process attached
  Lost,        // its binding ended under its processes
};

inline constexpr std::size_t kTaskPhases = 10;

constexpr const char* phaseName(TaskPhase phase) {
  constexpr std::array<const char*, kTaskPhases> kNames = {
      "pending", "bound",      "attached",  "idle",   "ready",
      "running", "suspending", "suspended", "exited", "lost"};
  return kNames[static_cast<std::size_t>(phase)];
}

// Whether the card speaks of a task in this state.
constexpr bool isActive(TaskPhase phase) {
  return phase >= TaskPhase::Idle && phase <= TaskPhase::Suspended;
}

bool mayMove(TaskPhase from, TaskPhase to);

class TaskStates {
 public:
  TaskPhase phase() const { return phase_; }

  // Staying is not a move. An illegal move ends the process.
  void moveTo(TaskPhase to) {
    if (to == phase_) return;
    QGPU_CHECK(mayMove(phase_, to), "the state table of a task has no such move");
    phase_ = to;
  }

 private:
  TaskPhase phase_ = TaskPhase::Pending;
};

}  // namespace qgpu
