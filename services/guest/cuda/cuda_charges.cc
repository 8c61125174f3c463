#include "services/guest/cuda/cuda_charges.h"

#include "services/guest/rm/rm_ioctl.h"

namespace qgpu::guest {
namespace charges {

using namespace cuda;  // the names of the interface

Mutex mutex;

namespace {

constexpr std::size_t kBuckets = 1024;
Charge* charges[kBuckets] = {};

std::size_t bucketOf(Kind kind, std::uint64_t name) {
  return ((name >> 8 ^ name >> 20 ^ name) + static_cast<std::uint64_t>(kind)) % kBuckets;
}

}  // namespace

Charge** find(Kind kind, std::uint64_t name) {
  Charge** link = &charges[bucketOf(kind, name)];
  while (*link && !((*link)->kind == kind && (*link)->name == name)) link = &(*link)->next;
  return link;
}

Charge* unlink(Charge** link) {
  Charge* found = *link;
  if (found) *link = found->next;
  return found;
}
void put(Charge* charge) {
  Charge*& bucket = charges[bucketOf(charge->kind, charge->name)];
  charge->next = bucket;
  bucket = charge;
}

Ctx currentContext() {
  Ctx context = nullptr;
  if (cudaDriver.cuCtxGetCurrent) cudaDriver.cuCtxGetCurrent(&context);
  return context;
}

bool reserveOrCollect(std::uint64_t bytes) {
  if (bytes == 0 || reserve(bytes)) return true;
  pollStreams();
  return reserveOrFail(bytes);
}

std::uint64_t costOf(std::uint64_t bytes) {
  return !driverIsHip() && countedByDriver() ? 0 : bytes;
}

Wanted wanted(std::uint64_t bytes) {
  return {bytes, costOf(bytes)};
}

bool Need::mayHave() {
  constexpr std::uint64_t kAgainNs = 5 * kNsPerMs;
  const std::uint64_t patience = loadRelaxed(session.gate->need_wait_ns);
  const bool isOver = loadRelaxed(session.gate->closed) || session.orphan.load();
  // What counts at its call is taken from the quota already.
  const bool overQuota = wanted_.cost == 0 && leftFirmBytes() < wanted_.bytes;
  if (patience == 0 || isOver || overQuota) return false;
  const std::uint64_t now = nowNs();
  if (end_ == 0) {
    end_ = now + patience;
    qgpu_slot& slot = *session.slot;
    if (shared(slot.need_bytes).fetch_add(wanted_.bytes) == 0)
      shared(slot.need_since_ns).store(now);
    ringDoorbell();
  }
  if (now >= end_) return false;
  // What it waits for is told as a need; in the slot's bytes it would count as taken as well.
  const std::uint32_t generation = session.generation.load();
  release(wanted_.cost, generation);
  sleepNs(kAgainNs);
  lost_ = wanted_.cost != 0 && !reserve(wanted_.cost);
  return !lost_;
}

Need::~Need() {
  if (end_ == 0) return;
  qgpu_slot& slot = *session.slot;
  // What others of the process still wait for is younger.
  const std::uint64_t before = shared(slot.need_bytes).fetch_sub(wanted_.bytes);
  if (before != wanted_.bytes) shared(slot.need_since_ns).store(nowNs());
  ringDoorbell();
}

Charge* take(Kind kind, std::uint64_t name) {
  Lock lock(mutex);
  return unlink(find(kind, name));
}

Result freed(Charge* charge, Result rc) {
  if (!charge) return rc;
  if (rc != kSuccess) {
    Lock lock(mutex);
    put(charge);
    return rc;
  }
  release(charge->bytes, charge->generation);
  free(charge);
  return rc;
}

}  // namespace charges

void releaseMemoryOf(cuda::Ctx context) {
  Lock lock(charges::mutex);
  for (charges::Charge*& bucket : charges::charges) {
    for (charges::Charge** link = &bucket; *link;) {
      charges::Charge* charge = *link;
      if (!context || charge->context != context) {
        link = &charge->next;
        continue;
      }
      *link = charge->next;
      release(charge->bytes, charge->generation);
      free(charge);
    }
  }
}

void forgetMemoryInChild() {
  charges::mutex.renewInChild();
}

}  // namespace qgpu::guest
