#pragma once
// What this thread has taken from the heap by `new` so far, in bytes, given back or not: a measure
// of work that no busy machine changes. Only in a test that links allocated_bytes.cc.

#include <cstddef>

namespace qgpu::testing {

std::size_t allocatedBytes();

}  // namespace qgpu::testing
