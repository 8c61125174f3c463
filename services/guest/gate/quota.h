#pragma once
// The memory quota of a task over all its processes: reserve() before an allocation, release() when
// the driver says that it is destroyed (HAZARDS 22). It keeps A14 without the manager: each process
// adds to its own slot and then looks at the sum (HAZARDS 6), so a killed process leaks nothing
// that zeroing its slot does not return.

#include "services/guest/gate/attach.h"

namespace qgpu::guest {

// Of memory that stays on the card. False: over the quota, nothing was taken. The process must be
// attached.
bool reserve(std::uint64_t bytes);

// The same for the last try: without room the allocation fails, the manager is told of it, and the
// program's stderr once.
bool reserveOrFail(std::uint64_t bytes);

// Gives back what reserve() took in this process. `generation` is the session's at reserve();
// what a fork's parent took is not given back by the child.
void release(std::uint64_t bytes, std::uint32_t generation);

// What the task's processes hold together; what several of them share, once (loans.h). Of memory
// that stays on the card.
std::uint64_t reservedBytes();

// --- memory that may leave the card, which has a part of the quota for itself ---

// That part; 0: no memory of this task leaves.
std::uint64_t pageableQuota();

enum class Room {
  kTaken,
  kLater,  // there is none below the limit of now, which may grow
  kNone,   // nor in the quota
};
Room reservePageable(std::uint64_t bytes);
Room roomForPageable(std::uint64_t bytes);  // without taking it
void releasePageable(std::uint64_t bytes, std::uint32_t generation);
// An allocation found no room in the quota: tells the manager, and the program's stderr once.
void tellRefused(std::uint64_t bytes);

// What the task may still have; and of that, what stays on the card.
std::uint64_t leftBytes();
std::uint64_t leftFirmBytes();

// The smaller of a size that the driver reports of a card and the quota.
std::uint64_t limitToQuota(std::uint64_t bytes);

}  // namespace qgpu::guest
