#pragma once
// How much memory of the host this process may take for what leaves the card. Beyond the limit of
// its cgroup the kernel does not refuse memory but ends somebody, and what is pinned can't be
// swapped; so a margin stays, and what has no place on the host stays on the card.
//
// In libqgpu.so: no C++ runtime.

#include <cstdint>

namespace qgpu::guest {

// Bytes, by /proc/meminfo and by the memory controller of this process's cgroup and of all above
// it (v1 or v2), each less a 32nd of the whole. `root`: stands before each path, for tests. 0 where
// the machine does not tell what it has; a cgroup that can't be read limits nothing.
std::uint64_t hostRoom(const char* root = "");

// Memory of this process that no child of it has, all of it there. Null: there is no room.
void* takeHostMemory(std::uint64_t bytes);
void giveHostMemory(void* at, std::uint64_t bytes);

}  // namespace qgpu::guest
