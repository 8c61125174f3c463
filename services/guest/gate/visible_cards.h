#pragma once
// Which of NVIDIA's cards a container's program may choose from. Its environment was fixed before
// anybody knew its cards, and it has the device nodes of all; so they stand in a file beside its
// token (`environment`, NAME=VALUE lines), which is applied before main().
//
// A program that chose among cards itself by CUDA_VISIBLE_DEVICES, as launchers of several
// processes do for each of them, chooses among its own: a number counts in the file's list.
//
// Without a file, as for programs that `qgpuctl run` starts, nothing is changed.

#include <cstddef>

namespace qgpu::guest {

inline constexpr std::size_t kVisibleMax = 4096;  // bytes of a list of UUIDs, with its NUL

// What CUDA_VISIBLE_DEVICES becomes where it was `asked` (null: not set) and the task's cards are
// `own`, UUIDs joined by ','. As CUDA reads it: what follows a name of no card of ours is ignored;
// UUIDs may be cut short. False: it does not fit `size`.
bool chooseCards(const char* asked, const char* own, char* out, std::size_t size);

// Applies the file, if there is one.
void applyEnvironmentFile();

}  // namespace qgpu::guest
