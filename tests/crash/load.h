#pragma once
// A manager under load for a long time: many tenants that never stop, clients that bind and end,
// and a look at what grows. Its memory and its descriptors must not, and what an online tenant
// waits for must not drift.

#include <cstdint>
#include <string>

namespace qgpu::crash {

struct LoadOptions {
  double minutes = 30;
  std::int64_t cards = 8;
  std::int64_t perCard = 3;
  std::string samples;  // a file of JSON lines, one a sample; empty: none
  std::uint64_t seed = 1;
};

// Returns the verdict as one JSON line; throws a Violation.
std::string runLoad(const LoadOptions& options);

}  // namespace qgpu::crash
