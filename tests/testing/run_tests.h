#pragma once
// How a program of GoogleTest ends. One whose tests were all skipped says so by its exit status, so
// that what this machine could not try is not told as passed: ctest says "Skipped" (qgpu_entry() in
// CMakeLists.txt), and scripts see it. test_main.cc is the main() of all that have none of their
// own.

namespace qgpu::testing {

inline constexpr int kSkipped = 77;

// RUN_ALL_TESTS(), or kSkipped where tests were chosen and each of them was skipped.
int runTests();

}  // namespace qgpu::testing
