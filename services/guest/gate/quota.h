#pragma once
// The memory quota of a task over all its processes: reserve() before an allocation, release() when
// the driver says that it is destroyed (HAZARDS 22). It keeps A14 without the manager: each process
// adds to its own slot and then looks at the sum (HAZARDS 6), so a killed process leaks nothing
// that zeroing its slot does not return.

#include "services/guest/gate/attach.h"

namespace qgpu::guest {

// False: over the quota, nothing was taken. The process must be attached.
bool reserve(std::uint64_t bytes);

// The same for the last try: without room the allocation fails, the manager is told of it, and the
// program's stderr once.
bool reserveOrFail(std::uint64_t bytes);

// Gives back what reserve() took in this process. `generation` is the session's at reserve();
// what a fork's parent took is not given back by the child.
void release(std::uint64_t bytes, std::uint32_t generation);

// What the task's processes hold together; what several of them share, once (loans.h).
std::uint64_t reservedBytes();

// What the task may still reserve.
std::uint64_t leftBytes();

// The smaller of a size that the driver reports of a card and the quota.
std::uint64_t limitToQuota(std::uint64_t bytes);

}  // namespace qgpu::guest
