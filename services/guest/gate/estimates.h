#pragma once
// How long a piece of work takes, learnt from its retirements: one moving average per (kernel,
// global work size). The launch window is bounded in estimated time (HAZARDS 10), so an estimate
// must exist before the launch; what was never seen is kUnknownEstimate and runs alone.
//
// A fixed table without locks: a lost or mixed-up entry costs one bad estimate, nothing else.

#include <cstddef>
#include <cstdint>

namespace qgpu::guest {

// The key of a kernel at a work size; never 0. Key 0 stands for work that is not learnt.
std::uint64_t estimateKey(const void* kernel, unsigned dimensions, const std::size_t* global);

// Nanoseconds, or kUnknownEstimate.
std::uint64_t estimateOf(std::uint64_t key);
void learn(std::uint64_t key, const void* kernel, std::uint64_t ns);

// Transfers aren't learnt: their time follows from their size at this pace, plus a fixed part.
inline constexpr std::uint64_t kTransferBytesPerUs = 4'000;
inline constexpr std::uint64_t kTransferFixedNs = 5'000;
inline constexpr std::uint64_t transferNs(std::uint64_t bytes) {
  return kTransferFixedNs + bytes / kTransferBytesPerUs * 1'000;
}

// A new kernel may have the address of a released one: forgets what was learnt at that address.
void forgetKernel(const void* kernel);
void forgetAllKernels();

}  // namespace qgpu::guest
