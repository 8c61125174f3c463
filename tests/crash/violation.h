#pragma once
// What a crash test found wrong. It ends the run; the program prints it with seed and replay.

#include <stdexcept>

namespace qgpu::crash {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This machine does not allow what the test needs (mounts, ptrace); nothing was tested.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace qgpu::crash
