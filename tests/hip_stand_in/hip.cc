// AMD's runtime without a card: libamdhip64.so.5, on the machine of the CUDA stand-in (streams,
// captures and their laws, memory). Each thread has a device, whose context is made when it is
// first needed. A kernel is the address of its name. Where HIP's laws are others than CUDA's (clr
// of release 6.3: hip_event.cpp, hip_stream.cpp, hip_graph.cpp, hip_context.cpp), they are below.

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tests/cuda_stand_in/export_jump.h"
#include "tests/cuda_stand_in/table.h"
#include "tests/hip_stand_in/amd_hip.h"

namespace qgpu::hip_stand_in {
namespace {

using namespace amd;  // the names of the interface
using stand_in::Table;

Table filled() {
  stand_in::machine().legacyRunsInCaptures = true;
  return stand_in::filledTable();
}
Table cuda = filled();

thread_local int ownDevice = 0;

Result copy(void* to, const void* from, Size bytes, Str stream, Stream0 zero, bool waits) {
  stand_in::Locked held(stand_in::machine().lock);
  Result rc = kSuccess;
  stand_in::Stream* found = stand_in::find(stream, zero, rc);
  if (!found) return rc;
  rc = stand_in::put(*found, {0, [=] { std::memcpy(to, from, bytes); }});
  if (rc == kSuccess && waits) stand_in::waitFor(held, {{found, found->put}});
  return rc;
}

template <auto member>
Result kernel(const void* name, void** arguments, Str stream) {
  const auto function = reinterpret_cast<Fn>(const_cast<void*>(name));
  return (cuda.*member)(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

// --- what each function does: as one of CUDA's, by its kind, or by its name ---

template <auto member, typename F, typename G>
struct As;
template <auto member, typename... A, typename... B>
struct As<member, Result (*)(A...), Result (*)(B...)> {
  static Result call(A... a) { return (cuda.*member)((B)a...); }
};

constexpr Stream0 zeroOf(const char* symbol) {
  const std::string_view name = symbol;
  return name.size() > 4 && name.substr(name.size() - 4) == "_spt" ? Stream0::kPerThread
                                                                   : Stream0::kLegacy;
}

template <Stream0 zero, typename F>
struct Kernel;
template <Stream0 zero, typename First, typename... A>
struct Kernel<zero, Result (*)(First, A...)> {
  // The first void** has the kernel's own arguments.
  static Result call(First name, A... a) {
    void** arguments = nullptr;
    [[maybe_unused]] const auto look = [&](auto value) {
      if constexpr (std::is_same_v<decltype(value), void**>) {
        if (!arguments) arguments = value;
      }
    };
    (look(a), ...);
    constexpr auto member =
        zero == Stream0::kPerThread ? &Table::cuLaunchKernel_ptsz : &Table::cuLaunchKernel;
    return kernel<member>((const void*)name, arguments, stand_in::pick<Str>(nullptr, a...));
  }
};

// Does what no stream captures.
template <Stream0 zero, typename Call>
Result outsideOfCaptures(Str handle, Call call) {
  stand_in::Stream* stream = nullptr;
  std::shared_ptr<stand_in::Capture> capture;
  {
    stand_in::Locked held(stand_in::machine().lock);
    Result rc = kSuccess;
    stream = stand_in::find(handle, zero, rc);
    if (!stream) return rc;
    capture.swap(stream->capture);
  }
  const Result rc = call();
  stand_in::Locked held(stand_in::machine().lock);
  stream->capture.swap(capture);
  return rc;
}

template <typename Within, Stream0 zero, typename F>
struct Uncaptured;
template <typename Within, Stream0 zero, typename... A>
struct Uncaptured<Within, zero, Result (*)(A...)> {
  static Result call(A... a) {
    return outsideOfCaptures<zero>(stand_in::pick<Str>(nullptr, a...),
                                   [&] { return Within::call(a...); });
  }
};

template <Stream0 zero, typename F>
struct Operation;
template <Stream0 zero, typename... A>
struct Operation<zero, Result (*)(A...)> {
  static Result call(A... a) { return stand_in::plainCall(zero, false, a...); }
};

// A kernel where the arguments name one, a graph, or another operation.
template <Stream0 zero, typename F>
struct Runs : Operation<zero, F> {};
template <Stream0 zero, typename... A>
struct Runs<zero, Result (*)(const void*, Dim3, A...)>
    : Kernel<zero, Result (*)(const void*, Dim3, A...)> {};
template <Stream0 zero, typename... A>
struct Runs<zero, Result (*)(Fn, A...)> : Kernel<zero, Result (*)(Fn, A...)> {};
template <Stream0 zero>
struct Runs<zero, Result (*)(Exec, Str)> {
  static Result call(Exec graph, Str stream) {
    return zero == Stream0::kPerThread ? cuda.cuGraphLaunch_ptsz(graph, stream)
                                       : cuda.cuGraphLaunch(graph, stream);
  }
};

template <Stream0 zero>
Result copyNow(void* to, const void* from, Size bytes, int) {
  return copy(to, from, bytes, nullptr, zero, true);
}
template <Stream0 zero>
Result copyLater(void* to, const void* from, Size bytes, int, Str stream) {
  return copy(to, from, bytes, stream, zero, false);
}

Result many(DeviceLaunch* launches, int count, U) {
  Result rc = kSuccess;
  for (int i = 0; i < count && rc == kSuccess; ++i) {
    const DeviceLaunch& one = launches[i];
    rc = outsideOfCaptures<Stream0::kLegacy>(
        one.stream, [&] { return kernel<&Table::cuLaunchKernel>(one.func, one.args, one.stream); });
  }
  return rc;
}

// --- captures and events ---

thread_local Result lastRefusal = kSuccess;

// What a broken capture leaves: the stream says so until the next one begins.
std::set<Str> broken;  // with the machine's lock held

template <bool own>
Result beginCapture(Str stream, int mode) {
  const Result rc = own ? cuda.cuStreamBeginCapture_v2_ptsz(stream, mode)
                        : cuda.cuStreamBeginCapture_v2(stream, mode);
  stand_in::Locked held(stand_in::machine().lock);
  if (rc == kSuccess) broken.erase(stream);
  return rc;
}
template <bool own>
Result endCapture(Str stream, Graph* out) {
  const Result rc =
      own ? cuda.cuStreamEndCapture_ptsz(stream, out) : cuda.cuStreamEndCapture(stream, out);
  stand_in::Locked held(stand_in::machine().lock);
  if (rc == kCaptureInvalidated) broken.insert(stream);
  return rc;
}

Result isCapturing(Str handle, int* status) {
  stand_in::Locked held(stand_in::machine().lock);
  Result rc = kSuccess;
  const stand_in::Stream* stream = stand_in::find(handle, Stream0::kLegacy, rc);
  if (!stream) return rc;
  *status = broken.contains(handle) ? kCaptureBroken : kNotCapturing;
  if (stream->legacy) {
    for (const stand_in::Stream* other : stream->context->streams) {
      if (other->blocking && other->capture) return kCaptureImplicit;
    }
  }
  if (stream->capture) *status = stream->capture->broken ? kCaptureBroken : kCapturing;
  return kSuccess;
}

// Whoever asks breaks the capture of the stream that the event was recorded in, and reads freed
// memory where that stream is gone.
Result queryEvent(Evt handle) {
  {
    stand_in::Locked held(stand_in::machine().lock);
    Result rc = kSuccess;
    const stand_in::Event* event = stand_in::find(handle, rc);
    if (!event) return rc;
    if (event->stream && event->stream->dead) ++stand_in::machine().misuses;
    if (event->stream && event->stream->capture) {
      stand_in::breakCapture(*event->stream->capture);
      return kCaptureInvalidated;
    }
  }
  return cuda.cuEventQuery(handle);
}

// Waits for what is in the stream.
Result destroyStream(Str stream) {
  if (!stream || stream == perThreadStream()) return kInvalidHandle;
  int status = kNotCapturing;
  if (isCapturing(stream, &status) == kSuccess && status == kNotCapturing) {
    cuda.cuStreamSynchronize(stream);
  }
  return cuda.cuStreamDestroy_v2(stream);
}

// --- devices ---

Result setDevice(int device) {
  if (device < 0 || device >= stand_in::deviceCount()) return kInvalidDevice;
  ownDevice = device;
  return kSuccess;
}

Result getDevice(int* device) {
  return *device = ownDevice, kSuccess;
}

int deviceOfStream(Str stream) {
  stand_in::Locked held(stand_in::machine().lock);
  Result rc = kSuccess;
  const stand_in::Stream* found = stand_in::find(stream, Stream0::kLegacy, rc);
  return found ? found->context->device : -1;
}

// Of each device; one that was reset is made anew by the next call.
std::mutex contextsLock;
std::map<int, Ctx> contexts;

// Has the thread's device as its context.
Result enter() {
  static const Result ready = cuda.cuInit(0);
  if (ready) return ready;
  Ctx context = nullptr;
  {
    std::lock_guard held(contextsLock);
    Ctx& known = contexts[ownDevice];
    if (!known) {
      if (const Result rc = cuda.cuDevicePrimaryCtxRetain(&known, ownDevice)) return rc;
    }
    context = known;
  }
  return cuda.cuCtxSetCurrent(context);
}

Result resetThatDevice(int device) {
  std::lock_guard held(contextsLock);
  contexts.erase(device);
  return cuda.cuDevicePrimaryCtxReset_v2(device);
}

template <typename P>
Result properties(P* out, int device) {
  *out = P{};
  return cuda.cuDeviceTotalMem_v2(&out->totalGlobalMem, device);
}

// --- memory ---

Result allocatePitch(void** out, Size* pitch, Size width, Size height) {
  return cuda.cuMemAllocPitch_v2((Ptr*)out, pitch, width, height, 4);
}

Result allocate3D(PitchedPtr* out, Extent extent) {
  *out = {nullptr, 0, extent.width, extent.height};
  return allocatePitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}

// Bits become the format and channels of CUDA's driver: floats are 32 bits wide.
ArrayShape3D shapeOf(const ChannelShape* shape, Extent extent) {
  const int channels = (shape->x > 0) + (shape->y > 0) + (shape->z > 0) + (shape->w > 0);
  const int format = shape->x == 32 ? 0x20 : shape->x == 16 ? 0x02 : 0x01;
  return {extent.width, extent.height, extent.depth, format, static_cast<U>(channels), 0};
}

Result allocateArray(Arr* out, const ChannelShape* shape, Extent extent, U) {
  const ArrayShape3D wanted = shapeOf(shape, extent);
  return cuda.cuArray3DCreate_v2(out, &wanted);
}

// --- the table ---

struct Hip {
#define QGPU_MEMBER(symbol, types, ...) Result(*symbol) types;
  AMD_HIP_AS_CUDA(QGPU_MEMBER)
  AMD_HIP_OWN(QGPU_MEMBER)
  AMD_HIP_CALLED(QGPU_MEMBER)
  AMD_HIP_PLAIN(QGPU_MEMBER)
#undef QGPU_MEMBER
};

Result getProcAddress(const char*, void**, int, std::uint64_t, int*);

void fillWork(Hip& hip) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  hip.hipMemcpy = copyNow<legacy>;
  hip.hipMemcpy_spt = copyNow<own>;
  hip.hipMemcpyAsync = hip.hipMemcpyWithStream = copyLater<legacy>;
  hip.hipMemcpyAsync_spt = copyLater<own>;
  hip.hipLaunchKernelExC = [](const KernelConfig* config, const void* name, void** arguments) {
    return kernel<&Table::cuLaunchKernel>(name, arguments, config->stream);
  };
  hip.hipStreamWaitValue32 = [](Str stream, void* at, U value, U, U) {
    return cuda.cuStreamWaitValue32(stream, (Ptr)at, value, 0);
  };
  hip.hipStreamWaitValue64 = [](Str stream, void* at, std::uint64_t value, U, std::uint64_t) {
    return cuda.cuStreamWaitValue64(stream, (Ptr)at, value, 0);
  };
  hip.hipLaunchCooperativeKernelMultiDevice = hip.hipExtLaunchMultiKernelMultiDevice = many;
}

thread_local Str configured = nullptr;  // where hipLaunchByPtr() launches to

void fillDevicesAndMemory(Hip& hip) {
  hip.hipModuleLaunchCooperativeKernelMultiDevice = [](LaunchParams* launches, U count, U flags) {
    return cuda.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
  };
  hip.hipConfigureCall = [](Dim3, Dim3, Size, Str stream) { return configured = stream, kSuccess; };
  hip.hipLaunchByPtr = [](const void* name) {
    return kernel<&Table::cuLaunchKernel>(name, nullptr, configured);
  };
  hip.hipSetDevice = setDevice;
  hip.hipGetDevice = getDevice;
  hip.hipGetStreamDeviceId = deviceOfStream;
  hip.hipInit = [](U) { return kSuccess; };
  hip.hipStreamQuery = [](Str stream) { return cuda.cuStreamQuery(stream); };
  hip.hipGetProcAddress = getProcAddress;
  hip.hipDeviceReset = [] { return resetThatDevice(ownDevice); };
  hip.hipDevicePrimaryCtxReset = [](int) { return kSuccess; };  // it does nothing
  hip.hipGetDeviceProperties = hip.hipGetDevicePropertiesR0000 = properties<Properties5>;
  hip.hipGetDevicePropertiesR0600 = properties<Properties>;
  hip.hipExtMallocWithFlags = [](void** out, Size bytes, U) {
    return cuda.cuMemAlloc_v2((Ptr*)out, bytes);
  };
  hip.hipMallocPitch = allocatePitch;
  hip.hipMalloc3D = allocate3D;
  hip.hipMemCreate = [](Mem* out, Size bytes, const MemProperties* wanted, unsigned long long f) {
    return cuda.cuMemCreate(out, bytes, wanted, f);
  };
  hip.hipMallocArray = [](Arr* out, const ChannelShape* shape, Size width, Size height, U flags) {
    return allocateArray(out, shape, {width, height, 0}, flags);
  };
  hip.hipMalloc3DArray = allocateArray;
  hip.hipFreeArray = [](Arr array) { return cuda.cuArrayDestroy(array); };
  hip.hipMallocMipmappedArray = [](Mip* out, const ChannelShape* shape, Extent extent, U levels,
                                   U) {
    const ArrayShape3D wanted = shapeOf(shape, extent);
    return cuda.cuMipmappedArrayCreate(out, &wanted, levels);
  };
  hip.hipFreeMipmappedArray = [](Mip mip) { return cuda.cuMipmappedArrayDestroy(mip); };
}

void fillStreams(Hip& hip) {
  hip.hipStreamIsCapturing = isCapturing;
  hip.hipStreamBeginCapture = beginCapture<false>;
  hip.hipStreamBeginCapture_spt = beginCapture<true>;
  hip.hipStreamEndCapture = endCapture<false>;
  hip.hipStreamEndCapture_spt = endCapture<true>;
  hip.hipStreamDestroy = destroyStream;
  hip.hipGetLastError =
      hip.hipExtGetLastError = [] { return std::exchange(lastRefusal, kSuccess); };
  hip.hipPeekAtLastError = [] { return lastRefusal; };
  hip.hipThreadExchangeStreamCaptureMode = [](int* mode) {
    return cuda.cuThreadExchangeStreamCaptureMode(mode);
  };
  hip.hipEventCreateWithFlags = [](Evt* out, U flags) { return cuda.cuEventCreate(out, flags); };
  // A default stream by the number that later releases gave it is none here.
  hip.hipEventRecord = [](Evt event, Str stream) {
    return stream == legacyStream() ? kInvalidHandle : cuda.cuEventRecord(event, stream);
  };
  hip.hipEventQuery = queryEvent;
  hip.hipEventElapsedTime = [](float* ms, Evt from, Evt to) {
    return cuda.cuEventElapsedTime(ms, from, to);
  };
  hip.hipEventDestroy = [](Evt event) { return cuda.cuEventDestroy_v2(event); };
  hip.hipStreamCreateWithFlags = [](Str* out, U flags) { return cuda.cuStreamCreate(out, flags); };
  hip.hipStreamWaitEvent = [](Str stream, Evt event, U flags) {
    return cuda.cuStreamWaitEvent(stream, event, flags);
  };
  hip.hipGraphInstantiate = [](Exec* out, Graph graph, Node*, char*, Size) {
    return cuda.cuGraphInstantiateWithFlags(out, graph, 0);
  };
  hip.hipMemAddressReserve = [](void** out, Size bytes, Size alignment, void* at,
                                unsigned long long flags) {
    return cuda.cuMemAddressReserve((Ptr*)out, bytes, alignment, (Ptr)at, flags);
  };
}

Hip filledHip() {
  Hip hip{};
#define QGPU_AS(symbol, types, as) \
  hip.symbol = As<&Table::as, decltype(Hip::symbol), decltype(Table::as)>::call;
#define QGPU_KERNEL(symbol, types) \
  hip.symbol = Kernel<zeroOf(#symbol), decltype(Hip::symbol)>::call;
#define QGPU_OPERATION(symbol, types) \
  hip.symbol = Operation<zeroOf(#symbol), decltype(Hip::symbol)>::call;
  AMD_HIP_AS_CUDA(QGPU_AS)
  AMD_HIP_KERNELS(QGPU_KERNEL)
  AMD_HIP_COPIES(QGPU_OPERATION)
  AMD_HIP_FILLS(QGPU_OPERATION)
#define QGPU_RUNS(symbol, types)                                                         \
  hip.symbol = Uncaptured<Runs<zeroOf(#symbol), decltype(Hip::symbol)>, zeroOf(#symbol), \
                          decltype(Hip::symbol)>::call;
  AMD_HIP_UNCAPTURED(QGPU_RUNS)
#undef QGPU_RUNS
#undef QGPU_AS
#undef QGPU_KERNEL
#undef QGPU_OPERATION
  fillWork(hip);
  fillDevicesAndMemory(hip);
  fillStreams(hip);
  return hip;
}
Hip hip = filledHip();

template <auto member>
std::atomic<std::uint64_t> calls{0};

// What stands between a name and its function.
template <auto member, typename F>
struct Counted;
template <auto member, typename... A>
struct Counted<member, Result (*)(A...)> {
  static Result call(A... a) {
    calls<member>.fetch_add(1, std::memory_order_relaxed);
    if (!(hip.*member)) return kNotSupported;
    if (const Result rc = enter()) return rc;
    const Result rc = (hip.*member)(a...);
    if (rc != kSuccess && rc != kNotReady) lastRefusal = rc;
    return rc;
  }
};

}  // namespace
}  // namespace qgpu::hip_stand_in

#define AMD_HIP_ALL(X) AMD_HIP_AS_CUDA(X) AMD_HIP_OWN(X) AMD_HIP_CALLED(X) AMD_HIP_PLAIN(X)

extern "C" {
#define QGPU_POINTER(symbol, types, ...)                                                        \
  __attribute__((visibility("hidden"), used)) void* qgpu_to_##symbol = reinterpret_cast<void*>( \
      &qgpu::hip_stand_in::Counted<&qgpu::hip_stand_in::Hip::symbol,                            \
                                   decltype(qgpu::hip_stand_in::Hip::symbol)>::call);
AMD_HIP_ALL(QGPU_POINTER)
#undef QGPU_POINTER
#define QGPU_NAMED(symbol, types, ...) extern char symbol[];
namespace exported {
AMD_HIP_ALL(QGPU_NAMED)
}  // namespace exported
#undef QGPU_NAMED
}

#define QGPU_EXPORT(symbol, types, ...) QGPU_EXPORT_JUMP(symbol)
AMD_HIP_ALL(QGPU_EXPORT)
#undef QGPU_EXPORT

namespace qgpu::hip_stand_in {
namespace {

struct Entry {
  const char* symbol;
  void* exported;
  const std::atomic<std::uint64_t>* calls;
};

const Entry entries[] = {
#define QGPU_ENTRY(symbol, types, ...) {#symbol, ::exported::symbol, &calls<&Hip::symbol>},
    AMD_HIP_ALL(QGPU_ENTRY)
#undef QGPU_ENTRY
};

const Entry* entryOf(const std::string& symbol) {
  for (const Entry& entry : entries) {
    if (symbol == entry.symbol) return &entry;
  }
  return nullptr;
}

// Names of one meaning have a form for each release, and for each kind of default stream.
Result getProcAddress(const char* symbol, void** out, int version, std::uint64_t flags,
                      int* status) {
  std::string name = symbol;
  if (name == "hipGetDeviceProperties" && version >= 600) name += "R0600";
  const Entry* entry = flags & kAskPerThreadStream ? entryOf(name + "_spt") : nullptr;
  if (!entry) entry = entryOf(name);
  *out = entry ? entry->exported : nullptr;
  if (status) *status = entry ? kSymbolFound : kSymbolNotFound;
  return entry ? kSuccess : kNotFound;
}

const QgpuStandIn questions = {
    [](const char* symbol) {
      const Entry* entry = entryOf(symbol);
      return entry ? entry->calls->load() : ~std::uint64_t{0};
    },
    [](const char* symbol) {
      const Entry* entry = entryOf(symbol);
      return entry ? entry->exported : nullptr;
    },
    [] { return stand_in::Locked(stand_in::machine().lock), stand_in::machine().misuses; },
    stand_in::allocatedBytes,
    [] { return stand_in::Locked(stand_in::machine().lock), stand_in::machine().pending; },
    [] { return stand_in::Locked(stand_in::machine().lock), stand_in::machine().brokenCaptures; },
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace qgpu::hip_stand_in

extern "C" __attribute__((visibility("default"))) int hipLaunchOfTomorrow() {
  return 0;
}
extern "C" __attribute__((visibility("default"))) const QgpuStandIn* qgpuStandIn() {
  return &qgpu::hip_stand_in::questions;
}
