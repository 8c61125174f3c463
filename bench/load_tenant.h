#pragma once
// One simulated tenant: a process that attaches through the real socket and submits imaginary
// kernels of a given length and gap through the real gate. A kernel of a simulated card is a
// sleep, so that hundreds of tenants run on a small machine.

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/units.h"

namespace qgpu::bench {

struct TenantPlan {
  std::string socket;
  std::string token;
  Nanos kernel{0};
  Nanos gap{0};
  std::uint32_t burst = 0;  // kernels in a row, then a pause; 0: no pauses
  Nanos pause{0};
};

// Shared between the tenant and who measures it.
struct TenantRecord {
  std::atomic<std::uint32_t> attached{0};
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> bursts{0};  // begun
  std::atomic<std::int64_t> burstAt{0};  // CLOCK_MONOTONIC, read before the first submit
};

// Runs until killed or until its task is closed; returns an exit status.
int runTenant(const TenantPlan& plan, TenantRecord& record);

}  // namespace qgpu::bench
