#include "services/guest/gate/quota.h"

#include "services/guest/gate/token.h"
#include "services/wire/loans.h"

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

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGiB = 1 << 30;

std::uint64_t pageableHeld() {
  std::uint64_t sum = 0;
  for (const qgpu_slot& slot : session.report->slot) sum += loadShared(slot.pageable_held);
  return sum;
}

std::uint64_t rest(std::uint64_t whole, std::uint64_t taken) {
  return taken < whole ? whole - taken : 0;
}

// The quota of memory that stays. A manager of before knows of no other, and what was made under
// another one is there all the same.
std::uint64_t firmQuota() {
  const std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  const std::uint64_t pageable = pageableQuota(), held = pageableHeld();
  return rest(quota, pageable < held ? held : pageable);
}

// A program that ignores what its API says would end without a word of why. Said once a process, a
// fork's child included: it has failed by itself.
void sayRefused(std::uint64_t bytes) {
  static std::atomic<std::uint32_t> saidIn{0};  // the generation, from 1
  const std::uint32_t generation = session.generation.load() + 1;
  if (saidIn.exchange(generation) == generation) return;
  const std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  const std::uint64_t held = reservedBytes() + pageableHeld();
  const std::uint64_t more = bytes < UINT64_MAX / 2 ? bytes : UINT64_MAX / 2;
  const std::uint64_t unit = tokenInFile() ? kGiB : kMiB;  // that it can be given in
  const auto enough = static_cast<unsigned long long>((held + more + unit - 1) / unit);
  const auto inMiB = [](std::uint64_t n) { return static_cast<unsigned long long>(n / kMiB); };
  say(tokenInFile() ? "%llu MiB refused: %llu of %llu MiB in use; ask for %llu GiB of qgpu-memory"
                    : "%llu MiB refused: %llu of %llu MiB in use; start with --memory %lluMiB",
      inMiB(more + kMiB - 1), inMiB(held), inMiB(quota), enough);
}

}  // namespace

bool reserve(std::uint64_t bytes) {
  const std::uint64_t quota = firmQuota();
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
  tellRefused(bytes);
  return false;
}

void release(std::uint64_t bytes, std::uint32_t generation) {
  if (session.state.load() != State::kAttached) return;
  if (session.generation.load() == generation) shared(session.slot->bytes).fetch_sub(bytes);
}

std::uint64_t reservedBytes() {
  return loans::total(*session.report, kAllSlots);
}

std::uint64_t pageableQuota() {
  const std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  const std::uint64_t pageable = loadRelaxed(session.gate->pageable_bytes);
  return pageable < quota ? pageable : quota;
}

Room roomForPageable(std::uint64_t bytes) {
  const std::uint64_t quota = pageableQuota(), held = pageableHeld();
  if (bytes > quota || held > quota - bytes) return Room::kNone;
  return held + bytes <= loadShared(session.gate->pageable_limit) ? Room::kTaken : Room::kLater;
}

// The bytes first and the limit after them: the manager, which lowers it and then reads the bytes,
// sees these, or this sees that.
Room reservePageable(std::uint64_t bytes) {
  Room room = roomForPageable(bytes);
  if (room == Room::kNone) return room;
  auto own = shared(session.slot->pageable_held);
  for (int i = 0; i < kTries; ++i) {
    own.fetch_add(bytes);
    room = roomForPageable(0);
    if (room == Room::kTaken) return room;
    own.fetch_sub(bytes);
  }
  return room;
}

void releasePageable(std::uint64_t bytes, std::uint32_t generation) {
  if (session.state.load() != State::kAttached || session.generation.load() != generation) return;
  shared(session.slot->pageable_held).fetch_sub(bytes);
}

void tellRefused(std::uint64_t bytes) {
  shared(session.slot->refused).fetch_add(1, std::memory_order_relaxed);
  sayRefused(bytes);
}

std::uint64_t leftFirmBytes() {
  return rest(firmQuota(), reservedBytes());
}

std::uint64_t leftBytes() {
  return leftFirmBytes() + rest(pageableQuota(), pageableHeld());
}

std::uint64_t limitToQuota(std::uint64_t bytes) {
  if (session.state.load() != State::kAttached) return bytes;
  std::uint64_t quota = loadRelaxed(session.gate->quota_bytes);
  return bytes < quota ? bytes : quota;
}

}  // namespace qgpu::guest
