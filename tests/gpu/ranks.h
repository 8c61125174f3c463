#pragma once
// Which of many measurements a percentile is, the same in each place that tells one: the smallest
// that at least so many of them do not exceed, so that p99 of 300 leaves three above it.

#include <cstddef>
#include <vector>

namespace qgpu::gpu {

// Of values that are sorted, of which there is one at least; 500 is the median.
template <typename T>
T rank(const std::vector<T>& sorted, std::size_t permille) {
  const std::size_t nth = (sorted.size() * permille + 999) / 1'000;
  return sorted[nth == 0 ? 0 : nth - 1];
}

}  // namespace qgpu::gpu
