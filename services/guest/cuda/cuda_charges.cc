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
