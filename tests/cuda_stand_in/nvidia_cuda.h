#pragma once
// CUDA's driver interface and NVML's as the stand-ins of the driver, and the programs that run on
// them, speak it: numbers, layouts and names as NVIDIA's headers say them, written down here once
// more. Nothing of services/guest is included, so that what is wrong there meets a driver that does
// not know it; cuda_stand_in_test holds both lists of functions beside each other.
//
// X(symbol, base, since, stream, (types)): `base` is what cuGetProcAddress calls it, `since` the
// CUDA version of this form of it, `stream` what its stream 0 means.

#include <cstddef>
#include <cstdint>

namespace qgpu::nvidia::cuda {

enum class Stream0 { kLegacy, kPerThread };

constexpr int perThreadSince(int since) {
  return since < 7000 ? 7000 : since;
}

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kIllegalState = 401;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kCaptureInvalidated = 901;
inline constexpr Result kCaptureImplicit = 906;
inline constexpr Result kStreamDetached = 917;  // its green context is gone

using Dev = int;
using Ptr = unsigned long long;  // device memory
using Mem = unsigned long long;  // physical memory of the virtual memory interface
using Size = std::size_t;
using U = unsigned int;
using Ctx = struct CtxTag*;
using Green = struct GreenTag*;  // a context of some of a card's multiprocessors
using Str = struct StrTag*;
using Evt = struct EvtTag*;
using Fn = struct FnTag*;
using Mod = struct ModTag*;
using Lib = struct LibTag*;  // code that is loaded into every context
using Arr = struct ArrTag*;
using Mip = struct MipTag*;
using Pool = struct PoolTag*;
using Graph = struct GraphTag*;
using Exec = struct ExecTag*;  // an instantiated graph
using Node = struct NodeTag*;
using Tex = struct TexTag*;  // a texture of before CUDA 5
using Sem = struct SemTag*;  // external semaphore
using HostFn = void (*)(void*);
using RecaptureFn = Result (*)(void*, Node, Node, const void*, const void*);

// Two handles that are no pointers: the default streams by name.
inline Str legacyStream() {
  return reinterpret_cast<Str>(std::uintptr_t{1});
}
inline Str perThreadStream() {
  return reinterpret_cast<Str>(std::uintptr_t{2});
}

inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kNotCapturing = 0, kCapturing = 1, kCaptureBroken = 2;
inline constexpr std::uint64_t kAskLegacyStream = 1, kAskPerThreadStream = 2;
inline constexpr int kSymbolFound = 0, kSymbolNotFound = 1, kSymbolTooNew = 2;

struct Location {
  int type;
  int id;
};

struct LaunchConfig {
  U gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Str stream;
  void* attributes;
  U attributeCount;
};

struct LaunchParams {
  Fn function;
  U gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Str stream;
  void** arguments;
};

struct Copy2D {
  Size srcX, srcY;
  int srcType;
  const void* srcHost;
  Ptr srcDevice;
  Arr srcArray;
  Size srcPitch, dstX, dstY;
  int dstType;
  void* dstHost;
  Ptr dstDevice;
  Arr dstArray;
  Size dstPitch, width, height;
};

struct Copy3D {
  Size srcX, srcY, srcZ, srcLod;
  int srcType;
  const void* srcHost;
  Ptr srcDevice;
  Arr srcArray;
  void* srcContext;  // of the peer variant; reserved otherwise
  Size srcPitch, srcHeight, dstX, dstY, dstZ, dstLod;
  int dstType;
  void* dstHost;
  Ptr dstDevice;
  Arr dstArray;
  void* dstContext;
  Size dstPitch, dstHeight, width, height, depth;
};

struct CopyOperation {  // one of many; its places have forms of their own
  unsigned char from[40], to[40];
  Size width, height, depth;
  int order;
  U flags;
};

struct ArrayShape {
  Size width, height;
  int format;
  U channels;
};

struct ArrayShape3D {
  Size width, height, depth;
  int format;
  U channels, flags;
};

struct MemProperties {
  int type, handleTypes;
  Location location;
  void* security;
  unsigned char flags[8];
};

struct MemAccess {  // who may do what with an address
  Location location;
  int rights;
};
inline constexpr int kReadWrite = 3;

inline constexpr int kPinned = 1, kManaged = 2;  // types of allocations and of pools

struct PoolProperties {
  int type, handleTypes;
  Location location;
  void* security;
  Size most;
  unsigned short usage;
  unsigned char reserved[54];
};

// --- NVML ---

using NvmlDevice = struct NvmlDeviceTag*;

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlPci {
  char shortId[16];
  U domain, bus, device, deviceId, subsystemId;
  char id[32];
};

struct NvmlMemory2 {
  U version;
  unsigned long long total, reserved, free, used;
};

struct NvmlProcesses {  // nvmlProcessDetailList_t
  U version, mode, count;
  void* entries;
};

struct NvmlUtilization {  // nvmlProcessesUtilizationInfo_t
  U version, count;
  unsigned long long since;
  void* entries;
};

static_assert(sizeof(NvmlPci) == 68);
static_assert(sizeof(NvmlMemory) == 24 && sizeof(NvmlMemory2) == 40);
static_assert(sizeof(NvmlProcesses) == 24 && sizeof(NvmlUtilization) == 24);

}  // namespace qgpu::nvidia::cuda

// A call with a stream, and one without; each with its per-thread twin.
#define NVIDIA_STREAM_PAIR(X, symbol, base, since, types) \
  X(symbol, base, since, kLegacy, types)                  \
  X(symbol##_ptsz, base, qgpu::nvidia::cuda::perThreadSince(since), kPerThread, types)
#define NVIDIA_PLAIN_PAIR(X, symbol, base, since, types) \
  X(symbol, base, since, kLegacy, types)                 \
  X(symbol##_ptds, base, qgpu::nvidia::cuda::perThreadSince(since), kPerThread, types)

// Work that waits at a shut gate: kernels, graphs, copies, fills, prefetches.
#define NVIDIA_CUDA_KERNELS(X)                                                                 \
  X(cuLaunch, cuLaunch, 2000, kLegacy, (Fn))                                                   \
  X(cuLaunchGrid, cuLaunchGrid, 2000, kLegacy, (Fn, int, int))                                 \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, kLegacy, (Fn, int, int, Str))                  \
  NVIDIA_STREAM_PAIR(X, cuLaunchKernel, cuLaunchKernel, 4000,                                  \
                     (Fn, U, U, U, U, U, U, U, Str, void**, void**))                           \
  NVIDIA_STREAM_PAIR(X, cuLaunchKernelEx, cuLaunchKernelEx, 11060,                             \
                     (const LaunchConfig*, Fn, void**, void**))                                \
  NVIDIA_STREAM_PAIR(X, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,            \
                     (Fn, U, U, U, U, U, U, U, Str, void**))                                   \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, kLegacy, \
    (LaunchParams*, U, U))                                                                     \
  NVIDIA_STREAM_PAIR(X, cuGraphLaunch, cuGraphLaunch, 10000, (Exec, Str))                      \
  NVIDIA_STREAM_PAIR(X, cuGraphUpload, cuGraphUpload, 11010, (Exec, Str))

#define NVIDIA_CUDA_COPIES(X)                                                                   \
  NVIDIA_PLAIN_PAIR(X, cuMemcpy, cuMemcpy, 4000, (Ptr, Ptr, Size))                              \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyPeer, cuMemcpyPeer, 4000, (Ptr, Ctx, Ptr, Ctx, Size))            \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, (Ptr, const void*, Size))           \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, (Ptr, Ptr, Size))                   \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, (Arr, Size, Ptr, Size))             \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, (Ptr, Arr, Size, Size))             \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, (Arr, Size, const void*, Size))     \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, (Arr, Size, Arr, Size, Size))       \
  NVIDIA_PLAIN_PAIR(X, cuMemcpy2D_v2, cuMemcpy2D, 3020, (const Copy2D*))                        \
  NVIDIA_PLAIN_PAIR(X, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, (const Copy2D*))      \
  NVIDIA_PLAIN_PAIR(X, cuMemcpy3D_v2, cuMemcpy3D, 3020, (const Copy3D*))                        \
  NVIDIA_PLAIN_PAIR(X, cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const Copy3D*))                   \
  NVIDIA_STREAM_PAIR(X, cuMemcpyAsync, cuMemcpyAsync, 4000, (Ptr, Ptr, Size, Str))              \
  NVIDIA_STREAM_PAIR(X, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000,                             \
                     (Ptr, Ctx, Ptr, Ctx, Size, Str))                                           \
  NVIDIA_STREAM_PAIR(X, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020,                          \
                     (Ptr, const void*, Size, Str))                                             \
  NVIDIA_STREAM_PAIR(X, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, (void*, Ptr, Size, Str)) \
  NVIDIA_STREAM_PAIR(X, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, (Ptr, Ptr, Size, Str))   \
  NVIDIA_STREAM_PAIR(X, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020,                          \
                     (Arr, Size, const void*, Size, Str))                                       \
  NVIDIA_STREAM_PAIR(X, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020,                          \
                     (void*, Arr, Size, Size, Str))                                             \
  NVIDIA_STREAM_PAIR(X, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, (const Copy2D*, Str))        \
  NVIDIA_STREAM_PAIR(X, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, (const Copy3D*, Str))        \
  NVIDIA_STREAM_PAIR(X, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, (const Copy3D*, Str))   \
  NVIDIA_STREAM_PAIR(X, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080,                          \
                     (Ptr*, Ptr*, Size*, Size, void*, Size*, Size, Size*, Str))                 \
  NVIDIA_STREAM_PAIR(X, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000,                       \
                     (Ptr*, Ptr*, Size*, Size, void*, Size*, Size, Str))                        \
  NVIDIA_STREAM_PAIR(X, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080,                      \
                     (Size, CopyOperation*, Size*, unsigned long long, Str))                    \
  NVIDIA_STREAM_PAIR(X, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000,                   \
                     (Size, CopyOperation*, unsigned long long, Str))                           \
  NVIDIA_STREAM_PAIR(X, cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, 13020,        \
                     (Ptr, Ptr, Size, void*, Str))                                              \
  NVIDIA_STREAM_PAIR(X, cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, 13020,    \
                     (CopyOperation*, unsigned long long, Str))                                 \
  NVIDIA_STREAM_PAIR(X, cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, 12060,            \
                     (void*, Size, U, Size*, Str))

#define NVIDIA_CUDA_FILLS(X)                                                                      \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD8_v2, cuMemsetD8, 3020, (Ptr, unsigned char, Size))               \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD16_v2, cuMemsetD16, 3020, (Ptr, unsigned short, Size))            \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD32_v2, cuMemsetD32, 3020, (Ptr, U, Size))                         \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD2D8_v2, cuMemsetD2D8, 3020,                                       \
                    (Ptr, Size, unsigned char, Size, Size))                                       \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD2D16_v2, cuMemsetD2D16, 3020,                                     \
                    (Ptr, Size, unsigned short, Size, Size))                                      \
  NVIDIA_PLAIN_PAIR(X, cuMemsetD2D32_v2, cuMemsetD2D32, 3020, (Ptr, Size, U, Size, Size))         \
  NVIDIA_STREAM_PAIR(X, cuMemsetD8Async, cuMemsetD8Async, 3020, (Ptr, unsigned char, Size, Str))  \
  NVIDIA_STREAM_PAIR(X, cuMemsetD16Async, cuMemsetD16Async, 3020,                                 \
                     (Ptr, unsigned short, Size, Str))                                            \
  NVIDIA_STREAM_PAIR(X, cuMemsetD32Async, cuMemsetD32Async, 3020, (Ptr, U, Size, Str))            \
  NVIDIA_STREAM_PAIR(X, cuMemsetD2D8Async, cuMemsetD2D8Async, 3020,                               \
                     (Ptr, Size, unsigned char, Size, Size, Str))                                 \
  NVIDIA_STREAM_PAIR(X, cuMemsetD2D16Async, cuMemsetD2D16Async, 3020,                             \
                     (Ptr, Size, unsigned short, Size, Size, Str))                                \
  NVIDIA_STREAM_PAIR(X, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020,                             \
                     (Ptr, Size, U, Size, Size, Str))                                             \
  NVIDIA_STREAM_PAIR(X, cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, (Ptr, Size, Dev, Str))      \
  NVIDIA_STREAM_PAIR(X, cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020,                         \
                     (Ptr, Size, Location, U, Str))                                               \
  NVIDIA_STREAM_PAIR(X, cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000,                  \
                     (Ptr*, Size*, Size, Location*, Size*, Size, unsigned long long, Str))        \
  NVIDIA_STREAM_PAIR(X, cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000,                    \
                     (Ptr*, Size*, Size, unsigned long long, Str))                                \
  NVIDIA_STREAM_PAIR(X, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync,     \
                     13000, (Ptr*, Size*, Size, Location*, Size*, Size, unsigned long long, Str)) \
  NVIDIA_STREAM_PAIR(X, cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, (void*, U, Str))

// Held as those above, and all of their stream is finished when they return.
#define NVIDIA_CUDA_DRAINING(X)                                                 \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void*, Ptr, Size)) \
  NVIDIA_PLAIN_PAIR(X, cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, (void*, Arr, Size, Size))

// Counted, never held: something that runs already may wait for them.
#define NVIDIA_CUDA_MEMOPS(X)                                                                     \
  NVIDIA_STREAM_PAIR(X, cuStreamWriteValue32, cuStreamWriteValue32, 8000, (Str, Ptr, U, U))       \
  NVIDIA_STREAM_PAIR(X, cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, (Str, Ptr, U, U))   \
  NVIDIA_STREAM_PAIR(X, cuStreamWriteValue64, cuStreamWriteValue64, 9000,                         \
                     (Str, Ptr, unsigned long long, U))                                           \
  NVIDIA_STREAM_PAIR(X, cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070,                     \
                     (Str, Ptr, unsigned long long, U))                                           \
  NVIDIA_STREAM_PAIR(X, cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, (Str, U, void*, U))         \
  NVIDIA_STREAM_PAIR(X, cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, (Str, U, void*, U))     \
  NVIDIA_STREAM_PAIR(X, cuLaunchHostFunc, cuLaunchHostFunc, 10000, (Str, HostFn, void*))          \
  NVIDIA_STREAM_PAIR(X, cuLaunchHostFunc_v2, cuLaunchHostFunc_v2, 13020, (Str, HostFn, void*, U)) \
  NVIDIA_STREAM_PAIR(X, cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000,  \
                     (const Sem*, const void*, U, Str))

// Neither held nor counted: they wait for others, and no card is busy with that.
#define NVIDIA_CUDA_WAITS(X)                                                                  \
  NVIDIA_STREAM_PAIR(X, cuStreamWaitValue32, cuStreamWaitValue32, 8000, (Str, Ptr, U, U))     \
  NVIDIA_STREAM_PAIR(X, cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, (Str, Ptr, U, U)) \
  NVIDIA_STREAM_PAIR(X, cuStreamWaitValue64, cuStreamWaitValue64, 9000,                       \
                     (Str, Ptr, unsigned long long, U))                                       \
  NVIDIA_STREAM_PAIR(X, cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070,                   \
                     (Str, Ptr, unsigned long long, U))                                       \
  NVIDIA_STREAM_PAIR(X, cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000,  \
                     (const Sem*, const void*, U, Str))

// Ends of what is launched: another may get its address.
#define NVIDIA_CUDA_CODE(X)                                         \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, kLegacy, (Exec)) \
  X(cuModuleUnload, cuModuleUnload, 2000, kLegacy, (Mod))           \
  X(cuLibraryUnload, cuLibraryUnload, 12000, kLegacy, (Lib))

// What retires work, ends streams and begins and ends captures.
#define NVIDIA_CUDA_STREAMS(X)                                                                     \
  NVIDIA_STREAM_PAIR(X, cuStreamSynchronize, cuStreamSynchronize, 2000, (Str))                     \
  NVIDIA_STREAM_PAIR(X, cuStreamQuery, cuStreamQuery, 2000, (Str))                                 \
  X(cuStreamDestroy, cuStreamDestroy, 2000, kLegacy, (Str))                                        \
  X(cuStreamDestroy_v2, cuStreamDestroy, 4000, kLegacy, (Str))                                     \
  X(cuEventSynchronize, cuEventSynchronize, 2000, kLegacy, (Evt))                                  \
  NVIDIA_STREAM_PAIR(X, cuStreamBeginCapture, cuStreamBeginCapture, 10000, (Str))                  \
  NVIDIA_STREAM_PAIR(X, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (Str, int))          \
  NVIDIA_STREAM_PAIR(X, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,           \
                     (Str, Graph, const Node*, const void*, Size, int))                            \
  NVIDIA_STREAM_PAIR(X, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030,       \
                     (Str, int, Graph, RecaptureFn, void*))                                        \
  NVIDIA_STREAM_PAIR(X, cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig, 13020, (Str, void*)) \
  NVIDIA_STREAM_PAIR(X, cuStreamEndCaptureToCig, cuStreamEndCaptureToCig, 13020, (Str))            \
  NVIDIA_STREAM_PAIR(X, cuStreamEndCapture, cuStreamEndCapture, 10000, (Str, Graph*))

#define NVIDIA_CUDA_CONTEXTS(X)                                                     \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000, kLegacy, ())                          \
  X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, kLegacy, (Ctx))                   \
  X(cuCtxCreate, cuCtxCreate, 2000, kLegacy, (Ctx*, U, Dev))                        \
  X(cuCtxCreate_v2, cuCtxCreate, 3020, kLegacy, (Ctx*, U, Dev))                     \
  X(cuCtxCreate_v3, cuCtxCreate, 11040, kLegacy, (Ctx*, void*, int, U, Dev))        \
  X(cuCtxCreate_v4, cuCtxCreate, 12050, kLegacy, (Ctx*, void*, U, Dev))             \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, kLegacy, (Ctx))                         \
  X(cuCtxPushCurrent, cuCtxPushCurrent, 2000, kLegacy, (Ctx))                       \
  X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, kLegacy, (Ctx))                    \
  X(cuCtxPopCurrent, cuCtxPopCurrent, 2000, kLegacy, (Ctx*))                        \
  X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, kLegacy, (Ctx*))                     \
  X(cuCtxDestroy, cuCtxDestroy, 2000, kLegacy, (Ctx))                               \
  X(cuCtxDestroy_v2, cuCtxDestroy, 4000, kLegacy, (Ctx))                            \
  X(cuCtxDetach, cuCtxDetach, 2000, kLegacy, (Ctx))                                 \
  X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, kLegacy, (Green))                  \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, kLegacy, (Dev))     \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, kLegacy, (Dev)) \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, kLegacy, (Dev))         \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, kLegacy, (Dev))

#define NVIDIA_CUDA_MEMORY(X)                                                                      \
  X(cuMemAlloc_v2, cuMemAlloc, 3020, kLegacy, (Ptr*, Size))                                        \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, kLegacy, (Ptr*, Size*, Size, Size, U))              \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, kLegacy, (Ptr*, Size, U))                          \
  X(cuMemFree_v2, cuMemFree, 3020, kLegacy, (Ptr))                                                 \
  NVIDIA_STREAM_PAIR(X, cuMemAllocAsync, cuMemAllocAsync, 11020, (Ptr*, Size, Str))                \
  NVIDIA_STREAM_PAIR(X, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                   \
                     (Ptr*, Size, Pool, Str))                                                      \
  NVIDIA_STREAM_PAIR(X, cuMemFreeAsync, cuMemFreeAsync, 11020, (Ptr, Str))                         \
  X(cuMemPoolCreate, cuMemPoolCreate, 11020, kLegacy, (Pool*, const PoolProperties*))              \
  X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, kLegacy, (Pool))                                    \
  X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, kLegacy, (Pool*, Location*, int))       \
  X(cuMemGetMemPool, cuMemGetMemPool, 13000, kLegacy, (Pool*, Location*, int))                     \
  X(cuMemCreate, cuMemCreate, 10020, kLegacy,                                                      \
    (Mem*, Size, const MemProperties*, unsigned long long))                                        \
  X(cuMemRelease, cuMemRelease, 10020, kLegacy, (Mem))                                             \
  X(cuMemMap, cuMemMap, 10020, kLegacy, (Ptr, Size, Size, Mem, unsigned long long))                \
  X(cuMemUnmap, cuMemUnmap, 10020, kLegacy, (Ptr, Size))                                           \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, kLegacy, (Mem*, void*))       \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, kLegacy,                \
    (Mem*, void*, int))                                                                            \
  X(cuArrayCreate_v2, cuArrayCreate, 3020, kLegacy, (Arr*, const ArrayShape*))                     \
  X(cuArray3DCreate_v2, cuArray3DCreate, 3020, kLegacy, (Arr*, const ArrayShape3D*))               \
  X(cuArrayDestroy, cuArrayDestroy, 2000, kLegacy, (Arr))                                          \
  X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, kLegacy, (Mip*, const ArrayShape3D*, U)) \
  X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, kLegacy, (Mip))                        \
  X(cuMemGetInfo_v2, cuMemGetInfo, 3020, kLegacy, (Size*, Size*))                                  \
  X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, kLegacy, (Size*, Dev))

// What names addresses and begins no work.
#define NVIDIA_CUDA_NAMING(X)                                                                      \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, kLegacy, (Ptr*, Size*, Ptr))              \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, kLegacy, (void*, int, Ptr))                \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, kLegacy, (U, int*, void**, Ptr))         \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, kLegacy, (void*, Ptr))                             \
  X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, kLegacy,                  \
    (void*, Ptr, Size, int, unsigned long long))                                                   \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, kLegacy,                                    \
    (Node*, Graph, const Node*, Size, const Copy3D*, Ctx))                                         \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, kLegacy,                                    \
    (Node*, Graph, const Node*, Size, const void*, Ctx))                                           \
  X(cuGraphAddNode, cuGraphAddNode, 12020, kLegacy, (Node*, Graph, const Node*, Size, void*))      \
  X(cuGraphAddNode_v2, cuGraphAddNode, 12030, kLegacy,                                             \
    (Node*, Graph, const Node*, const void*, Size, void*))                                         \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, kLegacy,                \
    (Exec, Node, const Copy3D*, Ctx))                                                              \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, kLegacy,                \
    (Exec, Node, const void*, Ctx))                                                                \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, kLegacy,                      \
    (Exec*, Graph, unsigned long long))                                                            \
  NVIDIA_STREAM_PAIR(X, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,         \
                     (Exec*, Graph, void*))                                                        \
  X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, kLegacy, (Exec, Graph, void*))                 \
  X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, kLegacy, (const void*, int, Ptr))          \
  X(cuMemGetAccess, cuMemGetAccess, 10020, kLegacy, (unsigned long long*, const Location*, Ptr))   \
  X(cuMulticastBindAddr, cuMulticastBindAddr, 12010, kLegacy,                                      \
    (Mem, Size, Ptr, Size, unsigned long long))                                                    \
  X(cuTexObjectCreate, cuTexObjectCreate, 5000, kLegacy,                                           \
    (unsigned long long*, const void*, const void*, const void*))                                  \
  X(cuTexRefSetAddress_v2, cuTexRefSetAddress, 3020, kLegacy, (Size*, Tex, Ptr, Size))             \
  X(cuTexRefSetAddress2D_v3, cuTexRefSetAddress2D, 4010, kLegacy,                                  \
    (Tex, const ArrayShape*, Ptr, Size))                                                           \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, kLegacy, (Node, const Copy3D*)) \
  X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000, kLegacy, (Node, const void*))   \
  X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, kLegacy, (Node, void*))                     \
  X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, kLegacy, (Exec, Node, void*))       \
  X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070, kLegacy,                            \
    (Node*, Graph, const Node*, Size, const void*))                                                \
  X(cuGraphBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams, 11070, kLegacy,                \
    (Node, const void*))                                                                           \
  X(cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 11070, kLegacy,        \
    (Exec, Node, const void*))                                                                     \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, kLegacy,                            \
    (Node*, Graph, const Node*, Size, Graph))                                                      \
  X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, kLegacy,        \
    (Exec, Node, Graph))                                                                           \
  X(cuGraphInstantiate, cuGraphInstantiate, 10000, kLegacy, (Exec*, Graph, Node*, char*, Size))    \
  X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, kLegacy, (Exec*, Graph, Node*, char*, Size)) \
  X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, kLegacy, (Exec, Graph, Node*, int*))

#define NVIDIA_CUDA_PLUMBING(X)                                                                    \
  X(cuInit, cuInit, 2000, kLegacy, (U))                                                            \
  X(cuGetProcAddress, cuGetProcAddress, 11030, kLegacy, (const char*, void**, int, std::uint64_t)) \
  X(cuGetProcAddress_v2, cuGetProcAddress, 12000, kLegacy,                                         \
    (const char*, void**, int, std::uint64_t, int*))

// Everything that has a hook.
#define NVIDIA_CUDA_HOOKED(X) \
  NVIDIA_CUDA_KERNELS(X)      \
  NVIDIA_CUDA_COPIES(X)       \
  NVIDIA_CUDA_FILLS(X)        \
  NVIDIA_CUDA_DRAINING(X)     \
  NVIDIA_CUDA_MEMOPS(X)       \
  NVIDIA_CUDA_WAITS(X)        \
  NVIDIA_CUDA_CODE(X)         \
  NVIDIA_CUDA_STREAMS(X)      \
  NVIDIA_CUDA_CONTEXTS(X)     \
  NVIDIA_CUDA_MEMORY(X)       \
  NVIDIA_CUDA_NAMING(X)       \
  NVIDIA_CUDA_PLUMBING(X)

// What the hooks themselves call, and programs call without a hook.
#define NVIDIA_CUDA_CALLED(X)                                                                     \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, kLegacy, (Ctx, U*))                             \
  X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, kLegacy, (Ctx*, Green))                          \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, kLegacy, (Ctx*))                                      \
  X(cuStreamGetCtx, cuStreamGetCtx, 9020, kLegacy, (Str, Ctx*))                                   \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, kLegacy, (Str, int*))                        \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, kLegacy, (int*)) \
  X(cuEventCreate, cuEventCreate, 2000, kLegacy, (Evt*, U))                                       \
  X(cuEventRecord, cuEventRecord, 2000, kLegacy, (Evt, Str))                                      \
  X(cuEventQuery, cuEventQuery, 2000, kLegacy, (Evt))                                             \
  X(cuEventDestroy_v2, cuEventDestroy, 4000, kLegacy, (Evt))                                      \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000, kLegacy, (float*, Evt, Evt))                    \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, kLegacy, (Ctx*, Dev))               \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, kLegacy, (Dev, U*, int*))       \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000, kLegacy, (Dev*))                                        \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020, kLegacy,                                     \
    (Ptr*, Size, Size, Ptr, unsigned long long))                                                  \
  X(cuMemAddressFree, cuMemAddressFree, 10020, kLegacy, (Ptr, Size))                              \
  X(cuMemSetAccess, cuMemSetAccess, 10020, kLegacy, (Ptr, Size, const MemAccess*, Size))          \
  X(cuMemHostRegister_v2, cuMemHostRegister, 6050, kLegacy, (void*, Size, U))                     \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, kLegacy, (void*))

// Each fills an array, of which the caller says the room and the driver how much of it is filled.
#define NVIDIA_NVML_LISTS(X)                                                           \
  X(nvmlDeviceGetComputeRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))       \
  X(nvmlDeviceGetComputeRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetComputeRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetGraphicsRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))      \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*))   \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))   \
  X(nvmlDeviceGetMPSComputeRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*)) \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))

#define NVIDIA_NVML_HOOKED(X)                                                                   \
  X(nvmlDeviceGetMemoryInfo, , 0, kLegacy, (NvmlDevice, NvmlMemory*))                           \
  X(nvmlDeviceGetMemoryInfo_v2, , 0, kLegacy, (NvmlDevice, NvmlMemory2*))                       \
  X(nvmlDeviceGetRunningProcessDetailList, , 0, kLegacy, (NvmlDevice, NvmlProcesses*))          \
  X(nvmlDeviceGetProcessUtilization, , 0, kLegacy, (NvmlDevice, void*, U*, unsigned long long)) \
  X(nvmlDeviceGetProcessesUtilizationInfo, , 0, kLegacy, (NvmlDevice, NvmlUtilization*))        \
  X(nvmlInit, , 0, kLegacy, ())                                                                 \
  X(nvmlInit_v2, , 0, kLegacy, ())                                                              \
  X(nvmlInitWithFlags, , 0, kLegacy, (U))                                                       \
  NVIDIA_NVML_LISTS(X)

namespace qgpu::nvidia::cuda {

// One pointer for each function, null where a driver lacks it.
struct Calls {
#define NVIDIA_MEMBER(symbol, base, since, stream, types) Result(*symbol) types;
  NVIDIA_CUDA_HOOKED(NVIDIA_MEMBER)
  NVIDIA_CUDA_CALLED(NVIDIA_MEMBER)
  NVIDIA_NVML_HOOKED(NVIDIA_MEMBER)
#undef NVIDIA_MEMBER
};

}  // namespace qgpu::nvidia::cuda
