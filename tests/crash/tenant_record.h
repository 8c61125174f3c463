#pragma once
// What a plain tenant tells about itself, in a file that it shares with the test. It keeps the
// figures itself, so that a standstill is measured where it hurts.

#include <atomic>
#include <cstdint>

namespace qgpu::crash {

struct TenantRecord {
  std::atomic<std::uint32_t> attached{0};
  std::atomic<std::uint32_t> end{0};  // written by the test: end with status 0
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::int64_t> longestGapNs{0};       // between the ends of two launches
  std::atomic<std::uint64_t> refusals{0};          // allocations over the quota, refused: right
  std::atomic<std::uint64_t> overQuota{0};         // accepted: wrong
  std::atomic<std::uint32_t> incarnation{0};       // of the newest gate page
  std::atomic<std::uint32_t> incarnationsBack{0};  // pages older than one that was seen: wrong
};

}  // namespace qgpu::crash
