#pragma once
// The life of one process's tie to the manager: it attaches at the first device call (never in a
// constructor, HAZARDS 18), keeps the tie with a thread of its own, and ties itself again when the
// manager went away and came back. It keeps C9: once attached, nothing that the manager does or
// stops doing makes the tenant fail or hang longer than the orphan grace.
//
// The pages are mapped once and keep their addresses: a new manager's gate page is mapped over the
// old one, so launches, waiters and signal handlers never hold a stale pointer. A library that is
// loaded into other people's programs has no main() to own its state, so there is one Session per
// process, constant-initialised.

#include "services/guest/gate/sys.h"
#include "services/wire/gate_abi.h"

namespace qgpu::guest {

enum class State : std::uint32_t {
  kUnattached,  // the next device call attaches
  kAttached,
  kFailed,  // refused, or no manager within the grace: no device for this process
};

struct Session {
  std::atomic<State> state{State::kUnattached};
  std::atomic<std::uint32_t> orphan{0};  // the manager is lost: holds end (HAZARDS 20)
  std::atomic<int> doorbell{-1};
  std::atomic<std::uint32_t> generation{0};  // counts forks: what the parent counted is not ours
  std::atomic<std::uint64_t> attachedNs{
      0};  // the last attach; a page without a heartbeat is as old
  bool online = false;
  // The driver runs kernels on whatever thread flushes or waits (PoCL's "basic"): only the
  // application's own threads may do that, and each launch has an event to be known by.
  bool callerRuns = false;
  const qgpu_gate_page* gate = nullptr;  // read-only map
  qgpu_report_page* report = nullptr;
  qgpu_slot* slot = nullptr;
  qgpu_welcome welcome{};              // of the first attach
  void (*pollRetirement)() = nullptr;  // set by the front end; used by waits at the window
  void (*nudgeReaper)() = nullptr;     // set by the reaper: it looks at once
};
extern Session session;

// What ROCm's OpenCL calls its platform, as the welcome of a task on a card of AMD's says.
inline constexpr const char* kRocmPlatform = "AMD Accelerated Parallel Processing";

// True when the environment asks for qgpu at all, or did at the first attach.
bool tokenGiven();

// Attaches if this process is not yet; blocks until attached, refused, or the grace is over.
// Returns whether the process is attached. Says one line on stderr when it gives up.
bool ensureAttached();

// The slot of a process of the task, by its number where it attached; QGPU_SLOTS: it is none of the
// task's. This process must be attached.
std::uint32_t slotOf(std::uint32_t pid);

// Whether the gate page's heartbeat is older than the orphan grace. Async-signal-safe.
bool managerLost();

// Rings the manager. Async-signal-safe.
void ringDoorbell();

// Registers what a fork's child must do besides becoming unattached (fork_handlers.h).
void onForkInChild(void (*handler)());

}  // namespace qgpu::guest
