#include "services/guest/quota.h"

#include "services/guest/loans.h"

namespace qgpu::guest {
namespace {

constexpr int kTries = 3;  // racers that all took back may succeed one after the other
constexpr std::uint64_t kAllSlots = ~0ull;

void raisePeak(std::uint64_t bytes) {
  auto peak = shared(session.slot->bytes_peak);
  std::uint64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < bytes && !peak.compare_exchange_weak(seen, bytes)) {
  }
}

}  // namespace

bool reserve(std::uint64_t bytes) {
  const std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  if (bytes > quota) return false;
  auto own = shared(session.slot->bytes);
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t mine = own.fetch_add(bytes) + bytes;
    if (reservedBytes() <= quota) {
      raisePeak(mine);
      return true;
    }
    own.fetch_sub(bytes);
  }
  return false;
}

bool reserveOrFail(std::uint64_t bytes) {
  if (reserve(bytes)) return true;
  shared(session.slot->refused).fetch_add(1, std::memory_order_relaxed);
  return false;
}

void release(std::uint64_t bytes, std::uint32_t generation) {
  if (session.state.load() != State::kAttached) return;
  if (session.generation.load() == generation) shared(session.slot->bytes).fetch_sub(bytes);
}

std::uint64_t reservedBytes() {
  return loans::total(*session.report, kAllSlots);
}

std::uint64_t leftBytes() {
  const std::uint64_t quota = loadRelaxed(session.gate->quota_bytes), held = reservedBytes();
  return held < quota ? quota - held : 0;
}

std::uint64_t limitToQuota(std::uint64_t bytes) {
  if (session.state.load() != State::kAttached) return bytes;
  std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  return bytes < quota ? bytes : quota;
}

}  // namespace qgpu::guest
