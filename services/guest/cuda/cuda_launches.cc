// Work for the card, by CUDA's own functions.

#include "services/guest/cuda/cuda_gated.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

struct CudaApi {
  static constexpr auto& driver = cudaDriver;
  static void enter() {}
  template <typename... A>
  static Launch launchOf(A... a) {
    return cuda::launchOf(a...);
  }
  template <typename... A>
  static Str streamAmong(A... a) {
    if (const auto* config = argument<const LaunchConfig*>(nullptr, a...)) return config->stream;
    return argument<Str>(nullptr, a...);
  }
};

// One kernel on several devices: each is a launch of its own stream.
Result launchOnDevices(LaunchParams* launches, U count, U flags) {
  if (!looksAtCalls() || !launches) {
    return cudaDriver.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  }
  Result rc = kSuccess;
  const auto call = [&] {
    return cudaDriver.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  };
  if (count == 0) return call();
  const LaunchParams& first = launches[0];
  rc = gated(first.stream, Stream0::kLegacy,
             {first.function, {first.gridX, first.gridY, first.gridZ}, 0}, MayBlock::kYes, call);
  for (U i = 1; i < count && rc == kSuccess; ++i) {
    // Accepted with the first; from here on they are only counted.
    gated(launches[i].stream, Stream0::kLegacy, {first.function, {1, 1, 1}, 0}, MayBlock::kNo,
          [] { return kSuccess; });
  }
  return rc;
}

// --- ends of what was launched ---

Result destroyGraph(Exec graph) {
  forgetKernel(graph);
  return cudaDriver.cuGraphExecDestroy(graph);
}

// Which kernels are its own is not known.
template <auto member, typename Code>
Result unload(Code code) {
  forgetAllKernels();
  return (cudaDriver.*member)(code);
}

}  // namespace

void wrapCudaLaunches(Calls& table) {
#define QGPU_GATED(symbol, base, since, stream, types)                           \
  table.symbol = Gated<CudaApi, &Calls::symbol, Stream0::stream, MayBlock::kYes, \
                       decltype(Calls::symbol)>::call;
#define QGPU_COUNTED(symbol, base, since, stream, types)                        \
  table.symbol = Gated<CudaApi, &Calls::symbol, Stream0::stream, MayBlock::kNo, \
                       decltype(Calls::symbol)>::call;
#define QGPU_DRAINING(symbol, base, since, stream, types) \
  table.symbol = Draining<CudaApi, &Calls::symbol, Stream0::stream, decltype(Calls::symbol)>::call;
#define QGPU_NOTED(symbol, base, since, stream, types) \
  table.symbol = Noted<CudaApi, &Calls::symbol, Stream0::stream, decltype(Calls::symbol)>::call;
  QGPU_CUDA_KERNELS(QGPU_GATED)
  QGPU_CUDA_COPIES(QGPU_GATED)
  QGPU_CUDA_FILLS(QGPU_GATED)
  QGPU_CUDA_DRAINING(QGPU_DRAINING)
  QGPU_CUDA_MEMOPS(QGPU_COUNTED)
  QGPU_CUDA_WAITS(QGPU_NOTED)
#undef QGPU_GATED
#undef QGPU_COUNTED
#undef QGPU_DRAINING
#undef QGPU_NOTED
  table.cuLaunchCooperativeKernelMultiDevice = launchOnDevices;
  table.cuGraphExecDestroy = destroyGraph;
  table.cuModuleUnload = unload<&Calls::cuModuleUnload, Mod>;
  table.cuLibraryUnload = unload<&Calls::cuLibraryUnload, Lib>;
}

}  // namespace qgpu::guest
