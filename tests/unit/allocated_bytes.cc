#include "tests/unit/allocated_bytes.h"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t allocated = 0;
}

void* operator new(std::size_t size) {
  allocated += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace qgpu::testing {

std::size_t allocatedBytes() {
  return allocated;
}

}  // namespace qgpu::testing
