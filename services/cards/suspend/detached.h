#pragma once
// A call whose end is for others to say (a close that waits for a tenant, the death of a process
// that is inside a driver) is made on a thread of its own, which nobody waits for: it takes with it
// all that it needs, and ends with the program at the latest.

#include <functional>

namespace qgpu::suspend {

// False: there is no thread to be had, and the call is not made.
bool runDetached(std::function<void()> call);

}  // namespace qgpu::suspend
