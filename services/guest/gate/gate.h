#pragma once
// The gate: admit() before a launch, retire() when it is finished. It keeps the guest's half of A1
// and A2: a launch raises `admitted` with a locked add and only then loads the gate word, so the
// manager, which exchanges the word and only then reads admitted - retired, never misses it
// (HAZARDS 5). The open path is one add, one load and a coarse clock; all else is out of line.
//
// The window bounds what is launched while the card is contended. What was in flight before is not
// in it: the first settling of a contended card takes as long as that runs.
//
// No lock of this library may be held while admit() is called: it may wait as long as the gate is
// shut. Work from inside a driver's callback is counted, never blocked (HAZARDS 3).

#include "services/guest/gate/attach.h"

namespace qgpu::guest {

inline constexpr std::uint32_t kGateFastMask =
    QGPU_GATE_OPEN | QGPU_GATE_NOTIFY | QGPU_GATE_CONTENDED;
inline constexpr std::uint64_t kStampEveryNs = 50 * kNsPerUs;
inline constexpr std::uint64_t kUnknownEstimate = ~0ull;  // fits into an empty window only

enum class MayBlock { kYes, kNo };

// The verdict on one launch; give it back to retire() exactly once if `admitted`.
struct Pass {
  bool admitted = false;       // false: the device is gone for this task, the launch must fail
  std::uint64_t windowNs = 0;  // what it occupies of the window
};

Pass admitSlow(std::uint32_t gate, std::uint64_t estimateNs, MayBlock mayBlock);
void retireSlow(std::uint64_t retired, std::uint32_t gate, std::uint64_t nowNs);
void wakeWindowWaiters();
extern std::atomic<std::uint32_t> windowWaiters;

// estimateNs: how long the work takes, or kUnknownEstimate. The process must be attached.
[[gnu::always_inline]] inline Pass admit(std::uint64_t estimateNs, MayBlock mayBlock) {
  qgpu_slot& slot = *session.slot;
  shared(slot.admitted).fetch_add(1, std::memory_order_seq_cst);
  std::uint32_t gate = loadShared(session.gate->gate);
  if ((gate & kGateFastMask) != QGPU_GATE_OPEN) [[unlikely]] {
    return admitSlow(gate, estimateNs, mayBlock);
  }
  // At most every 50 us, so that not every launch writes the time.
  std::uint64_t now = coarseNs();
  if (now - loadRelaxed(slot.last_submit_ns) >= kStampEveryNs) {
    storeRelaxed(slot.last_submit_ns, now);
  }
  return {true, 0};
}

// `count` launches were found finished at `nowNs`; `windowNs` is the sum of what their passes
// occupied. The time is handed in because who finds a batch finished has read the clock already.
inline void retire(std::uint64_t count, std::uint64_t windowNs, std::uint64_t nowNs) {
  qgpu_slot& slot = *session.slot;
  std::uint64_t retired = shared(slot.retired).fetch_add(count, std::memory_order_seq_cst) + count;
  storeRelaxed(slot.last_retire_ns, nowNs);
  if (windowNs) shared(slot.window_used_ns).fetch_sub(windowNs);
  std::uint32_t gate = loadShared(session.gate->gate);
  if ((gate & kGateFastMask) != QGPU_GATE_OPEN) [[unlikely]]
    retireSlow(retired, gate, nowNs);
  if (windowWaiters.load(std::memory_order_relaxed)) [[unlikely]]
    wakeWindowWaiters();
}

// The gate is shut, and what is in flight may end by itself: the manager waits for the last of it.
inline bool settling() {
  const std::uint32_t gate = loadShared(session.gate->gate);
  return !(gate & (QGPU_GATE_OPEN | QGPU_GATE_FROZEN)) && !session.online && !session.orphan.load();
}

// Rings for an idle edge that the rate limit held back. Called now and then by the reaper.
void ringIfIdleIsUntold();

// A new gate page may repeat the words of the old one, so what was rung for those counts no more.
void forgetRings();

// How a fork's child starts with gates of its own.
void forgetGateInChild();

}  // namespace qgpu::guest
