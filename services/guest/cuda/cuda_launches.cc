// Work for the card: every wrapper that asks the gate. One template serves them all; the stream and
// the size of the work are found among the arguments by their types.

#include "services/guest/cuda/cuda_streams.h"
#include "services/guest/cuda/cuda_work.h"
#include "services/guest/gate/estimates.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

// The estimate is only needed while the window applies. The way of a launch through an open gate is
// inlined whole: its calls would cost a third of it.
[[gnu::noinline]] CudaWork contendedWork(const Launch& launch) {
  if (!launch.kernel) return {0, nullptr, transferNs(launch.bytes)};
  const std::uint64_t key = estimateKey(launch.kernel, 3, launch.grid);
  return {key, launch.kernel, estimateOf(key)};
}

[[gnu::always_inline]] inline CudaWork workOf(const Launch& launch) {
  if (loadRelaxed(session.gate->gate) & QGPU_GATE_CONTENDED) [[unlikely]] {
    return contendedWork(launch);
  }
  return {0, nullptr, kUnknownEstimate};
}

// Where no call of this thread is inside the driver.
template <typename Call>
[[gnu::always_inline]] inline Result inDriver(Call call) {
  cudaThread.insideDriver = 1;
  const Result rc = call();
  cudaThread.insideDriver = 0;
  return rc;
}

template <typename Call>
[[gnu::always_inline]] inline Result gated(Str handle, Stream0 zero, const Launch& launch,
                                           MayBlock mayBlock, Call call) {
  if (!looksAtCalls()) return call();
  if (captures.load(std::memory_order_relaxed)) [[unlikely]] {
    if (isCapturing(handle, zero)) return call();
  }
  CudaStream* stream = streamOf(handle, zero);
  if (!stream) return call();
  const CudaWork work = workOf(launch);
  const Pass pass = admit(work.estimateNs, mayBlock);
  if (!pass.admitted) return kDeviceUnavailable;
  wakeReaper();
  const Result rc = inDriver(call);
  if (rc != kSuccess) [[unlikely]] {
    retire(1, pass.windowNs, nowNs());
    return rc;
  }
  follow(*stream, pass, work);
  return rc;
}

// --- what the arguments say ---

template <typename... A>
inline Str streamAmong(A... a) {
  if (const auto* config = argument<const LaunchConfig*>(nullptr, a...)) return config->stream;
  return argument<Str>(nullptr, a...);
}

// --- the wrappers ---

template <auto member, Stream0 zero, MayBlock mayBlock, typename F>
struct Gated;
template <auto member, Stream0 zero, MayBlock mayBlock, typename... A>
struct Gated<member, zero, mayBlock, Result (*)(A...)> {
  static Result call(A... a) {
    return gated(streamAmong(a...), zero, launchOf(a...), mayBlock,
                 [&] { return (cudaDriver.*member)(a...); });
  }
};

// As gated, and all that was on the stream is finished when it returns.
template <auto member, Stream0 zero, typename F>
struct Draining;
template <auto member, Stream0 zero, typename... A>
struct Draining<member, zero, Result (*)(A...)> {
  static Result call(A... a) {
    CudaStream* stream = looksAtCalls() && !captures.load() ? streamOf(nullptr, zero) : nullptr;
    const std::uint64_t before = launchedOn(stream);
    const Result rc = Gated<member, zero, MayBlock::kYes, Result (*)(A...)>::call(a...);
    if (rc == kSuccess && stream && !captures.load()) {
      // What other threads launched meanwhile may run on: then its own is left to the reaper.
      const bool alone = launchedOn(stream) == before + 1;
      drained(stream, alone ? before + 1 : before);
    }
    return rc;
  }
};

// Waits of a stream: the card is idle in them.
template <auto member, typename F>
struct Noted;
template <auto member, typename... A>
struct Noted<member, Result (*)(A...)> {
  static Result call(A... a) {
    if (!looksAtCalls()) return (cudaDriver.*member)(a...);
    storeRelaxed(session.slot->last_submit_ns, coarseNs());
    return inDriver([&] { return (cudaDriver.*member)(a...); });
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
#define QGPU_GATED(symbol, base, since, stream, types) \
  table.symbol =                                       \
      Gated<&Calls::symbol, Stream0::stream, MayBlock::kYes, decltype(Calls::symbol)>::call;
#define QGPU_COUNTED(symbol, base, since, stream, types) \
  table.symbol =                                         \
      Gated<&Calls::symbol, Stream0::stream, MayBlock::kNo, decltype(Calls::symbol)>::call;
#define QGPU_DRAINING(symbol, base, since, stream, types) \
  table.symbol = Draining<&Calls::symbol, Stream0::stream, decltype(Calls::symbol)>::call;
#define QGPU_NOTED(symbol, base, since, stream, types) \
  table.symbol = Noted<&Calls::symbol, decltype(Calls::symbol)>::call;
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
