// Streams and contexts: synchronising calls, which are never gated and retire what they waited for;
// captures; and the ends of streams and contexts, before which nothing of theirs may be asked
// again.

#include "services/guest/cuda/cuda_charges.h"
#include "services/guest/cuda/cuda_paging.h"
#include "services/guest/cuda/cuda_streams.h"
#include "services/guest/gate/estimates.h"
#include "services/guest/paging/pager.h"

namespace qgpu::guest {
namespace {

using namespace cuda;  // the names of the interface

// --- waiting ---

template <auto member, Stream0 zero>
Result finishStream(Str handle) {
  CudaStream* stream = looksAtCalls() ? knownStream(handle, zero) : nullptr;
  const std::uint64_t before = launchedOn(stream);
  const Result rc = (cudaDriver.*member)(handle);
  if (rc == kSuccess) drained(stream, before);
  return rc;
}

Result finishContext() {
  if (!looksAtCalls()) return cudaDriver.cuCtxSynchronize();
  ContextDrain drain(nullptr);
  const Result rc = cudaDriver.cuCtxSynchronize();
  if (rc == kSuccess) drain.finished();
  return rc;
}
Result finishThatContext(Ctx context) {
  if (!looksAtCalls()) return cudaDriver.cuCtxSynchronize_v2(context);
  ContextDrain drain(context);
  const Result rc = cudaDriver.cuCtxSynchronize_v2(context);
  if (rc == kSuccess) drain.finished();
  return rc;
}

Result finishEvent(Evt event) {
  const Result rc = cudaDriver.cuEventSynchronize(event);
  if (rc == kSuccess && looksAtCalls()) pollStreams();
  return rc;
}

// --- ends ---

// Which waits for what is in the stream. Meanwhile nobody asks it, nor afterwards (hip_driver.h).
Result destroyStreamOfHip(Str handle, Result (*destroy)(Str)) {
  const bool made = handle && handle != legacyStream() && handle != perThreadStream();
  CudaStream* stream = made && looksAtCalls() ? knownStream(handle, Stream0::kLegacy) : nullptr;
  streamCloses(stream);
  const Result rc = destroy(handle);
  if (rc == kSuccess) {
    streamIsGone(stream);
  } else {
    streamStays(stream);
  }
  return rc;
}

template <auto member>
Result destroyStream(Str handle) {
  if (driverIsHip()) return destroyStreamOfHip(handle, cudaDriver.*member);
  CudaStream* stream = looksAtCalls() ? knownStream(handle, Stream0::kLegacy) : nullptr;
  const bool captured = captures.load() && isCapturing(handle, Stream0::kLegacy);
  if (stream && !captured && pager::active.load()) {
    leaveLastMarker(*stream);  // a wait may be in it, which is no launch
  } else if (stream && !captured && launchedOn(stream) != loadRelaxed(stream->retired)) {
    leaveMarker(*stream, launchedOn(stream), Pass{}, CudaWork{});
  }
  // From here on the reaper does not ask it.
  streamEnded(stream);
  return (cudaDriver.*member)(handle);
}

enum class Belongings { kEnd, kStay };  // memory and modules, with their context

// A call that may end a context, null where it is none of ours: `gone` says whether it did. Its
// work is over then. The reaper leaves the context alone meanwhile.
template <typename Call, typename Gone>
Result closing(Ctx context, Belongings belongings, Call call, Gone gone) {
  if (context) contextCloses(context, true);
  paged::OfContext memory(belongings == Belongings::kEnd ? context : nullptr);
  Result rc = kSuccess;
  {
    const pager::Still noCopies;
    memory.takeOut();
    rc = call();
  }
  if (context && rc == kSuccess && gone()) {
    contextEnded(context);
    memory.end();
    if (belongings == Belongings::kEnd) releaseMemoryOf(context);
    if (belongings == Belongings::kEnd) forgetAllKernels();
    forgetStreamCaches();
  } else if (context) {
    contextCloses(context, false);
  }
  forgetOwnDefaultStreams();
  return rc;
}

template <auto member>
Result destroyContext(Ctx context) {
  const auto call = [&] { return (cudaDriver.*member)(context); };
  return closing(looksAtCalls() ? context : nullptr, Belongings::kEnd, call, [] { return true; });
}

// Whoever attached to a context detaches from it; the last one ends it.
Result detachContext(Ctx context) {
  const auto call = [&] { return cudaDriver.cuCtxDetach(context); };
  return closing(looksAtCalls() ? context : nullptr, Belongings::kEnd, call,
                 [&] { return !contextLives(context); });
}

// Its streams know a green context as an ordinary one; memory and modules are the primary
// context's.
Result destroyGreen(Green green) {
  Ctx context = nullptr;
  if (looksAtCalls() && cudaDriver.cuCtxFromGreenCtx) cudaDriver.cuCtxFromGreenCtx(&context, green);
  const auto call = [&] { return cudaDriver.cuGreenCtxDestroy(green); };
  return closing(context, Belongings::kStay, call, [] { return true; });
}

template <auto member>
Result endPrimary(Dev device) {
  const Ctx context = looksAtCalls() ? primaryOf(device) : nullptr;
  const auto call = [&] { return (cudaDriver.*member)(device); };
  return closing(context, Belongings::kEnd, call, [&] { return !primaryOf(device); });
}

// Another context may be the thread's own now: what stream 0 means changed.
template <auto member, typename F>
struct Changing;
template <auto member, typename... A>
struct Changing<member, Result (*)(A...)> {
  static Result call(A... a) {
    const Result rc = (cudaDriver.*member)(a...);
    forgetOwnDefaultStreams();
    return rc;
  }
};

// --- captures ---

template <auto member, Stream0 zero, typename F>
struct Beginning;
template <auto member, Stream0 zero, typename... More>
struct Beginning<member, zero, Result (*)(Str, More...)> {
  static Result call(Str handle, More... more) {
    if (!looksAtCalls()) return (cudaDriver.*member)(handle, more...);
    CudaStream* stream = streamOf(handle, zero);
    const pager::OnCard memory;  // and nothing leaves before the capture is over
    if (!memory.there()) return noDeviceAnyMore();
    captureBegins();
    const Result rc = (cudaDriver.*member)(handle, more...);
    captureBegan(stream, rc == kSuccess);
    return rc;
  }
};

// Where the stream itself goes on to say that its capture is broken.
bool endsCaptureOfHip(Result rc) {
  constexpr Result kUnjoined = 904;
  return rc == kSuccess || rc == kCaptureInvalidated || rc == kUnjoined;
}

template <auto member, Stream0 zero, typename F>
struct Ending;
template <auto member, Stream0 zero, typename... More>
struct Ending<member, zero, Result (*)(Str, More...)> {
  static Result call(Str handle, More... more) {
    const bool was = looksAtCalls() && captures.load() && isCapturing(handle, zero);
    const Result rc = (cudaDriver.*member)(handle, more...);
    // A broken capture ends as well, with an error.
    if (!was) return rc;
    const bool ended = driverIsHip() ? endsCaptureOfHip(rc) : !isCapturing(handle, zero);
    if (ended) captureEnded(knownStream(handle, zero));
    return rc;
  }
};

}  // namespace

Ctx primaryOf(Dev device) {
  Ctx context = nullptr;
  U flags = 0;
  int active = 0;
  if (!cudaDriver.cuDevicePrimaryCtxGetState || !cudaDriver.cuDevicePrimaryCtxRetain ||
      cudaDriver.cuDevicePrimaryCtxGetState(device, &flags, &active) != kSuccess || !active) {
    return nullptr;
  }
  if (cudaDriver.cuDevicePrimaryCtxRetain(&context, device) != kSuccess) return nullptr;
  auto* release = cudaDriver.cuDevicePrimaryCtxRelease_v2 ? cudaDriver.cuDevicePrimaryCtxRelease_v2
                                                          : cudaDriver.cuDevicePrimaryCtxRelease;
  if (release) release(device);
  return context;
}

void wrapCudaStreams(Calls& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuStreamSynchronize = finishStream<&Calls::cuStreamSynchronize, legacy>;
  table.cuStreamSynchronize_ptsz = finishStream<&Calls::cuStreamSynchronize_ptsz, own>;
  table.cuStreamQuery = finishStream<&Calls::cuStreamQuery, legacy>;
  table.cuStreamQuery_ptsz = finishStream<&Calls::cuStreamQuery_ptsz, own>;
  table.cuStreamDestroy = destroyStream<&Calls::cuStreamDestroy>;
  table.cuStreamDestroy_v2 = destroyStream<&Calls::cuStreamDestroy_v2>;
  table.cuEventSynchronize = finishEvent;
#define QGPU_BEGINNING(symbol, zero) \
  table.symbol = Beginning<&Calls::symbol, zero, decltype(Calls::symbol)>::call;
  QGPU_BEGINNING(cuStreamBeginCapture, legacy)
  QGPU_BEGINNING(cuStreamBeginCapture_ptsz, own)
  QGPU_BEGINNING(cuStreamBeginCapture_v2, legacy)
  QGPU_BEGINNING(cuStreamBeginCapture_v2_ptsz, own)
  QGPU_BEGINNING(cuStreamBeginCaptureToGraph, legacy)
  QGPU_BEGINNING(cuStreamBeginCaptureToGraph_ptsz, own)
  QGPU_BEGINNING(cuStreamBeginRecaptureToGraph, legacy)
  QGPU_BEGINNING(cuStreamBeginRecaptureToGraph_ptsz, own)
  QGPU_BEGINNING(cuStreamBeginCaptureToCig, legacy)
  QGPU_BEGINNING(cuStreamBeginCaptureToCig_ptsz, own)
#undef QGPU_BEGINNING
#define QGPU_ENDING(symbol, zero) \
  table.symbol = Ending<&Calls::symbol, zero, decltype(Calls::symbol)>::call;
  QGPU_ENDING(cuStreamEndCapture, legacy)
  QGPU_ENDING(cuStreamEndCapture_ptsz, own)
  QGPU_ENDING(cuStreamEndCaptureToCig, legacy)
  QGPU_ENDING(cuStreamEndCaptureToCig_ptsz, own)
#undef QGPU_ENDING
#define QGPU_CHANGING(symbol, base, since, stream, types) \
  table.symbol = Changing<&Calls::symbol, decltype(Calls::symbol)>::call;
  QGPU_CUDA_CONTEXTS(QGPU_CHANGING)
#undef QGPU_CHANGING
  table.cuCtxSynchronize = finishContext;
  table.cuCtxSynchronize_v2 = finishThatContext;
  table.cuCtxDestroy = destroyContext<&Calls::cuCtxDestroy>;
  table.cuCtxDestroy_v2 = destroyContext<&Calls::cuCtxDestroy_v2>;
  table.cuCtxDetach = detachContext;
  table.cuGreenCtxDestroy = destroyGreen;
  table.cuDevicePrimaryCtxRelease = endPrimary<&Calls::cuDevicePrimaryCtxRelease>;
  table.cuDevicePrimaryCtxRelease_v2 = endPrimary<&Calls::cuDevicePrimaryCtxRelease_v2>;
  table.cuDevicePrimaryCtxReset = endPrimary<&Calls::cuDevicePrimaryCtxReset>;
  table.cuDevicePrimaryCtxReset_v2 = endPrimary<&Calls::cuDevicePrimaryCtxReset_v2>;
}

}  // namespace qgpu::guest
