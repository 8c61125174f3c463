#pragma once
// The state table of a task: which state may follow which. Pure; the task actor moves along it and
// an illegal move is a bug of ours, never something that a tenant or a client can cause.
//
//   Pending -> Bound -> Attached -> {Idle, Ready, Running, Suspending, Suspended} -> Exited | Lost
//
// The five states in braces follow the card's messages, which may be coalesced on their way, so
// each may follow each. A task whose last process left is Bound again: the next one may come.
// Exited and Lost lead to Pending, when the slot of the task is free for another.

#include "actors/model.h"
#include "runtime/check.h"

namespace qgpu {

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
