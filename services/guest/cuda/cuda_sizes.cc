// The sizes that a tenant reads: its quota for the card's memory, by CUDA and by NVML alike, since
// programs compare the two.

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/quota.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

// `total` and `free` of one card as the driver has them. The quota is over all cards of the task,
// so what is left of it has nothing to do with the size of this one.
template <typename N>
void limit(N& total, N& free) {
  const auto left = static_cast<N>(leftBytes());
  total = static_cast<N>(limitToQuota(total));
  if (left < free) free = left;
}

Result memoryInfo(Size* free, Size* total) {
  Size ownFree = 0, ownTotal = 0;  // HIP's caller may want one of the two
  if (!free && driverIsHip()) free = &ownFree;
  if (!total && driverIsHip()) total = &ownTotal;
  const Result rc = cudaDriver.cuMemGetInfo_v2(free, total);
  if (rc != kSuccess || !free || !total) return rc;
  if (session.state.load() == State::kAttached) limit(*total, *free);
  return rc;
}

Result totalMemory(Size* out, Dev device) {
  const Result rc = cudaDriver.cuDeviceTotalMem_v2(out, device);
  if (rc == kSuccess && out) *out = limitToQuota(*out);
  return rc;
}

// A program that only looks, as nvidia-smi does, attaches with this.
Result nvmlMemory(NvmlDevice device, NvmlMemory* out) {
  const Result rc = cudaDriver.nvmlDeviceGetMemoryInfo(device, out);
  if (rc != kSuccess || !out || !ensureAttached()) return rc;
  limit(out->total, out->free);
  out->used = out->total - out->free;
  return rc;
}

Result nvmlMemory2(NvmlDevice device, NvmlMemory2* out) {
  const Result rc = cudaDriver.nvmlDeviceGetMemoryInfo_v2(device, out);
  if (rc != kSuccess || !out || !ensureAttached()) return rc;
  limit(out->total, out->free);
  out->reserved = 0;  // the driver's own share is not the tenant's affair
  out->used = out->total - out->free;
  return rc;
}

}  // namespace

void wrapCudaSizes(Calls& table) {
  table.cuMemGetInfo_v2 = memoryInfo;
  table.cuDeviceTotalMem_v2 = totalMemory;
  table.nvmlDeviceGetMemoryInfo = nvmlMemory;
  table.nvmlDeviceGetMemoryInfo_v2 = nvmlMemory2;
}

}  // namespace qgpu::guest
