// HIP's functions that are unlike any of CUDA's.

#include "services/guest/cuda/cuda_charges.h"
#include "services/guest/cuda/cuda_gated.h"
#include "services/guest/hip/hip_driver.h"
#include "services/guest/hip/hip_work.h"

namespace qgpu::guest {
namespace {

using namespace hip;  // the names of the interface
using namespace charges;

struct HipApi {
  static constexpr auto& driver = hipDriver;
  // Its last error is from then on what it says.
  static void enter() { cudaThread.answered = kSuccess; }
  template <typename... A>
  static Launch launchOf(A... a) {
    return hip::launchOf(a...);
  }
  template <typename... A>
  static Str streamAmong(A... a) {
    if (const auto* config = argument<const KernelConfig*>(nullptr, a...)) return config->stream;
    return argument<Str>(nullptr, a...);
  }
};

// --- one kernel on several devices: each is a launch of its own stream ---

Launch launchOf(const DeviceLaunch& launch) {
  return {launch.kernel, {launch.grid.x, launch.grid.y, launch.grid.z}, 0};
}
Launch launchOf(const LaunchParams& launch) {
  return {launch.function, {launch.gridX, launch.gridY, launch.gridZ}, 0};
}

template <auto member, typename Params, typename Count>
Result launchOnDevices(Params* launches, Count count, U flags) {
  const auto call = [&] { return (hipDriver.*member)(launches, count, flags); };
  if (!looksAtCalls() || !launches || count <= 0) return call();
  const auto legacy = Stream0::kLegacy;
  Result rc = gatedAlways(launches[0].stream, legacy, launchOf(launches[0]), call);
  for (Count i = 1; i < count && rc == kSuccess; ++i) {
    // Accepted with the first; from here on they are only counted.
    gated(launches[i].stream, legacy, launchOf(launches[i]), MayBlock::kNo,
          [] { return kSuccess; });
  }
  return rc;
}

// --- the old way to launch: where to is said by a call before ---

constinit thread_local Str configured = nullptr;

Result configureCall(Dim3 grid, Dim3 block, Size shared, Str stream) {
  configured = stream;
  return hipDriver.hipConfigureCall(grid, block, shared, stream);
}
Result launchByAddress(const void* kernel) {
  const Str stream = configured;
  configured = nullptr;
  return gated(stream, Stream0::kLegacy, {kernel, {1, 1, 1}, 0}, MayBlock::kYes,
               [&] { return HipApi::enter(), hipDriver.hipLaunchByPtr(kernel); });
}

// --- devices ---

// Another device may be the thread's own now: what stream 0 means changed.
template <auto member, typename F>
struct Changing;
template <auto member, typename... A>
struct Changing<member, Result (*)(A...)> {
  static Result call(A... a) {
    const Result rc = (hipDriver.*member)(a...);
    forgetOwnDefaultStreams();
    return rc;
  }
};

// All that was on the device is gone, its memory and code with it.
Result resetDevice() {
  const auto call = [] { return hipDriver.hipDeviceReset(); };
  const Ctx context = looksAtCalls() ? currentContext() : nullptr;
  if (!context) return call();
  cudaDriver.cuCtxSynchronize();  // of the null stream a reset knows nothing
  contextCloses(context, true);
  const Result rc = call();
  if (rc == kSuccess) {
    contextEnded(context);
    releaseMemoryOf(context);
    forgetAllKernels();
    forgetStreamCaches();
  } else {
    contextCloses(context, false);
  }
  forgetOwnDefaultStreams();
  return rc;
}

// --- errors ---

// Calls that the library answered by itself, as a refused allocation, are none of the runtime's.
template <auto member, bool forgets>
Result lastError() {
  const Result rc = (hipDriver.*member)(), own = cudaThread.answered;
  if (forgets) cudaThread.answered = kSuccess;
  return own != kSuccess ? own : rc;
}

// --- sizes ---

template <auto member, typename P>
Result properties(P* out, int device) {
  const Result rc = (hipDriver.*member)(out, device);
  if (rc == kSuccess && out) out->memory = static_cast<Size>(limitToQuota(out->memory));
  return rc;
}

// --- memory ---

// Addresses are pointers here, and numbers in CUDA's driver. `address` is where `call` leaves it.
template <typename Call>
Result chargedAddress(std::uint64_t bytes, void* const& address, Call call) {
  return charged(Kind::kAddress, wanted(bytes), currentContext(), [&](std::uint64_t& name) {
    const Result rc = call();
    name = reinterpret_cast<std::uintptr_t>(address);
    return rc;
  });
}

Result allocateWithFlags(void** out, Size bytes, U flags) {
  const auto call = [&] { return hipDriver.hipExtMallocWithFlags(out, bytes, flags); };
  if (!looksAtCalls() || !out) return call();
  return chargedAddress(bytes, *out, call);
}

Result allocatePitch(void** out, Size* pitch, Size width, Size height) {
  const auto call = [&] { return hipDriver.hipMallocPitch(out, pitch, width, height); };
  if (!looksAtCalls() || !out || !pitch) return call();
  return chargedAddress(widestRow(width) * height, *out, call);
}

Result allocate3D(PitchedPtr* out, Extent extent) {
  const auto call = [&] { return hipDriver.hipMalloc3D(out, extent); };
  if (!looksAtCalls() || !out) return call();
  return chargedAddress(widestRow(extent.width) * extent.height * extent.depth, out->address, call);
}

// Until release 5.3 the first member said how it is compressed, mostly 0, and memory was of a card
// only. Since then it says that it is pinned, and where.
bool isOfCard(const MemProperties& properties) {
  constexpr int kOnDevice = 1;
  return properties.type != kPinned || properties.location.type == kOnDevice;
}

Result create(Mem* out, Size bytes, const MemProperties* properties, unsigned long long flags) {
  const auto call = [&] { return hipDriver.hipMemCreate(out, bytes, properties, flags); };
  if (!looksAtCalls() || !out || !properties || !isOfCard(*properties)) return call();
  return charged(Kind::kPhysical, wanted(bytes), nullptr, [&](std::uint64_t& name) {
    const Result rc = call();
    name = *out;
    return rc;
  });
}

// --- arrays ---

std::uint64_t bytesOf(const ChannelShape& shape, std::uint64_t count) {
  const std::int64_t bits = std::int64_t{shape.x} + shape.y + shape.z + shape.w;
  return bits > 0 ? count * static_cast<std::uint64_t>(bits) / 8 : 0;
}

Result createArray(Arr* out, const ChannelShape* shape, Size width, Size height, U flags) {
  const auto call = [&] { return hipDriver.hipMallocArray(out, shape, width, height, flags); };
  if (!looksAtCalls() || !out || !shape) return call();
  return createArrayOf(bytesOf(*shape, texels(width, height, 1)), out, call);
}

Result createArray3D(Arr* out, const ChannelShape* shape, Extent extent, U flags) {
  const auto call = [&] { return hipDriver.hipMalloc3DArray(out, shape, extent, flags); };
  if (!looksAtCalls() || !out || !shape) return call();
  const std::uint64_t count = texels(extent.width, extent.height, extent.depth);
  return createArrayOf(bytesOf(*shape, count), out, call);
}

Result createMipmap(Mip* out, const ChannelShape* shape, Extent extent, U levels, U flags) {
  const auto call = [&] {
    return hipDriver.hipMallocMipmappedArray(out, shape, extent, levels, flags);
  };
  if (!looksAtCalls() || !out || !shape) return call();
  const std::uint64_t count = texels(extent.width, extent.height, extent.depth);
  return createArrayOf(withLevels(bytesOf(*shape, count), levels), out, call);
}

}  // namespace

void wrapHip(hip::Calls& table) {
#define QGPU_GATED(symbol, stream, types)                                            \
  table.symbol = Gated<HipApi, &hip::Calls::symbol, Stream0::stream, MayBlock::kYes, \
                       decltype(hip::Calls::symbol)>::call;
#define QGPU_NOTED(symbol, stream, types) \
  table.symbol =                          \
      Noted<HipApi, &hip::Calls::symbol, Stream0::stream, decltype(hip::Calls::symbol)>::call;
#define QGPU_ALWAYS(symbol, stream, types)                                 \
  table.symbol = GatedAlways<HipApi, &hip::Calls::symbol, Stream0::stream, \
                             decltype(hip::Calls::symbol)>::call;
#define QGPU_MANY(symbol, stream, types) \
  table.symbol = launchOnDevices<&hip::Calls::symbol, DeviceLaunch, int>;
#define QGPU_FUNCTIONS(symbol, stream, types) \
  table.symbol = launchOnDevices<&hip::Calls::symbol, LaunchParams, U>;
#define QGPU_CHANGING(symbol, stream, types) \
  table.symbol = Changing<&hip::Calls::symbol, decltype(hip::Calls::symbol)>::call;
  QGPU_HIP_KERNELS(QGPU_GATED)
  QGPU_HIP_COPIES(QGPU_GATED)
  QGPU_HIP_FILLS(QGPU_GATED)
  QGPU_HIP_WAITS(QGPU_NOTED)
  QGPU_HIP_UNCAPTURED(QGPU_ALWAYS)
  QGPU_HIP_MANY(QGPU_MANY)
  QGPU_HIP_MANY_FUNCTIONS(QGPU_FUNCTIONS)
  QGPU_HIP_DEVICES(QGPU_CHANGING)
#undef QGPU_GATED
#undef QGPU_NOTED
#undef QGPU_ALWAYS
#undef QGPU_MANY
#undef QGPU_FUNCTIONS
#undef QGPU_CHANGING
  table.hipConfigureCall = configureCall;
  table.hipLaunchByPtr = launchByAddress;
  table.hipDeviceReset = resetDevice;
  table.hipGetLastError = lastError<&hip::Calls::hipGetLastError, true>;
  table.hipExtGetLastError = lastError<&hip::Calls::hipExtGetLastError, true>;
  table.hipPeekAtLastError = lastError<&hip::Calls::hipPeekAtLastError, false>;
  table.hipGetDeviceProperties = properties<&hip::Calls::hipGetDeviceProperties, Properties5>;
  table.hipGetDevicePropertiesR0000 =
      properties<&hip::Calls::hipGetDevicePropertiesR0000, Properties5>;
  table.hipGetDevicePropertiesR0600 =
      properties<&hip::Calls::hipGetDevicePropertiesR0600, Properties6>;
  table.hipExtMallocWithFlags = allocateWithFlags;
  table.hipMallocPitch = allocatePitch;
  table.hipMalloc3D = allocate3D;
  table.hipMemCreate = create;
  table.hipMallocArray = createArray;
  table.hipMalloc3DArray = createArray3D;
  table.hipFreeArray = destroyArray<hipDriver, &hip::Calls::hipFreeArray, Arr>;
  table.hipMallocMipmappedArray = createMipmap;
  table.hipFreeMipmappedArray = destroyArray<hipDriver, &hip::Calls::hipFreeMipmappedArray, Mip>;
}

}  // namespace qgpu::guest
