#pragma once
// The arithmetic of the demo's workload, exact on the host and on the device: every kernel applies
// v = v * kMultiplier + kIncrement to each item, `loops` times, modulo 2^32. Such steps compose, so
// the host knows what any number of them must give after a few multiplications and can check every
// item of every kernel: a step that was lost, repeated or spoilt by a neighbour shows.

#include <cstddef>
#include <cstdint>
#include <span>

namespace qgpu::demo {

inline constexpr std::uint32_t kMultiplier = 1664525;  // odd: no two values ever become one
inline constexpr std::uint32_t kIncrement = 1013904223;
inline constexpr std::uint32_t kItemStride = 2654435761;  // item i starts as seed + i * kItemStride

// v -> multiply * v + add, modulo 2^32. The default changes nothing.
struct Affine {
  std::uint32_t multiply = 1;
  std::uint32_t add = 0;

  constexpr std::uint32_t operator()(std::uint32_t v) const { return multiply * v + add; }
  constexpr bool operator==(const Affine&) const = default;
};

// First `first`, then `second`.
constexpr Affine compose(Affine first, Affine second) {
  return {second.multiply * first.multiply, second.multiply * first.add + second.add};
}

// One kernel of `loops` steps, in about 2 log2(loops) multiplications.
constexpr Affine steps(std::uint64_t loops) {
  Affine result;
  for (Affine power{kMultiplier, kIncrement}; loops != 0; loops >>= 1) {
    if ((loops & 1) != 0) result = compose(result, power);
    power = compose(power, power);
  }
  return result;
}

constexpr std::uint32_t firstValue(std::uint32_t seed, std::uint32_t item) {
  return seed + item * kItemStride;
}

// How many of `items`, which start at index `first` of the buffer, are not what `done` makes of
// their first values.
inline std::size_t wrongItems(std::span<const std::uint32_t> items, std::uint32_t first,
                              std::uint32_t seed, Affine done) {
  std::uint32_t expected = done(firstValue(seed, first));
  const std::uint32_t stride = done.multiply * kItemStride;
  std::size_t wrong = 0;
  for (const std::uint32_t item : items) {
    wrong += item != expected ? 1 : 0;
    expected += stride;
  }
  return wrong;
}

}  // namespace qgpu::demo
