#include "tests/unit/services/kubernetes/webhook/allocated_bytes.h"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t allocated = 0;
}

// All forms of one object's `new` and `delete` stand here: a sanitizer brings its own for those
// that are missing, and calls it an error when memory of one goes back through the other.

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocated += size;
  return std::malloc(size);
}

void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace qgpu::testing {

std::size_t allocatedBytes() {
  return allocated;
}

}  // namespace qgpu::testing
