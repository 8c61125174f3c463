#include "actors/card/task_states.h"

#include <array>

namespace qgpu {
namespace {

constexpr std::uint16_t bit(TaskPhase phase) {
  return static_cast<std::uint16_t>(1u << static_cast<unsigned>(phase));
}

constexpr std::uint16_t kOver = bit(TaskPhase::Exited) | bit(TaskPhase::Lost);
constexpr std::uint16_t kActive = bit(TaskPhase::Idle) | bit(TaskPhase::Ready) |
                                  bit(TaskPhase::Running) | bit(TaskPhase::Suspending) |
                                  bit(TaskPhase::Suspended);
constexpr std::uint16_t kFromAttached = kActive | bit(TaskPhase::Bound) | kOver;

// By the state that is left: the set of states that may follow.
constexpr std::array<std::uint16_t, kTaskPhases> kNextPhases = {
    /* Pending    */ bit(TaskPhase::Bound),
    /* Bound      */ bit(TaskPhase::Attached) | kOver,
    /* Attached   */ kFromAttached,
    /* Idle       */ kFromAttached,
    /* Ready      */ kFromAttached,
    /* Running    */ kFromAttached,
    /* Suspending */ kFromAttached,
    /* Suspended  */ kFromAttached,
    /* Exited     */ bit(TaskPhase::Pending),
    /* Lost       */ bit(TaskPhase::Pending),
};

}  // namespace

bool mayMove(TaskPhase from, TaskPhase to) {
  return (kNextPhases[static_cast<std::size_t>(from)] & bit(to)) != 0;
}

}  // namespace qgpu
