#pragma once
// How often a long story is told. With ThreadSanitizer a story of one thread is told a twentieth
// of the times: there is nothing in it that this looks for, and it takes as long as elsewhere.

#include <cstdint>

namespace qgpu::testing {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QGPU_LOOKS_FOR_RACES
#endif
#endif

constexpr std::uint64_t storySeeds(std::uint64_t whole) {
#if defined(QGPU_LOOKS_FOR_RACES) || defined(__SANITIZE_THREAD__)
  return whole / 20;
#else
  return whole;
#endif
}

}  // namespace qgpu::testing
