#pragma once
// Memory of NVIDIA cards against the quota, at the level of the interface: what a program asks for,
// by address or handle, reserved before the driver allocates and returned when it is free: with a
// stream-ordered free when the stream has come to it, with mapped memory when the last map is gone.
// Not counted here: contexts, modules and what a graph allocates; that is below this interface.
// Where the kernel driver's calls are understood (rm_ioctl.h) they count all of it, and of this
// only managed memory, and what is taken from pools of it.

#include "services/nvidia_abi/cuda_abi.h"

namespace qgpu::guest {

// The context was destroyed, and its allocations with it.
void releaseMemoryOf(cuda::Ctx context);

// After a fork. What the parent holds is not the child's to free: the generation tells.
void forgetMemoryInChild();

}  // namespace qgpu::guest
