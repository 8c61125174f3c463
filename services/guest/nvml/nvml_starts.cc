// NVML's start opens the driver's device nodes, and a program may ask NVML before anything else, as
// nvidia-smi and serving frameworks do. Where a guard in the kernel (services/guard) watches the
// nodes, they are refused to a process that has not attached yet; so it attaches here. What the
// driver answers is its own: one that could not attach has no nodes there, and NVML says so.

#include "services/guest/cuda/cuda_driver.h"
#include "services/guest/gate/attach.h"

namespace qgpu::guest {
namespace {

template <auto function, typename... A>
cuda::Result start(A... a) {
  ensureAttached();
  return (cudaDriver.*function)(a...);
}

}  // namespace

void wrapNvmlStarts(cuda::Calls& table) {
#define QGPU_START(symbol, base, since, stream, types) table.symbol = start<&cuda::Calls::symbol>;
  QGPU_NVML_STARTS(QGPU_START)
#undef QGPU_START
}

}  // namespace qgpu::guest
