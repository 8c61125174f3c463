#pragma once
// A program whose disk is slow: each fsync and fdatasync of it waits, in the kernel, for a process
// beside it that answers after so many ms as the file says then (seccomp's user notification). It
// works on any program, whatever it is written in, and needs no module of the kernel.

#include <string>

namespace qgpu::chaos {

// Becomes the program. Returns only where that is refused: what is to be said of it.
std::string becomeSlowSyncing(const std::string& delayFile, char* const* argv);

}  // namespace qgpu::chaos
