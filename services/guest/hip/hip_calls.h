#pragma once
// Every function of AMD's HIP runtime (libamdhip64.so) that libqgpu.so stands in front of, by
// exported name. Facts of the interface: Debian's libamdhip64-dev 5.2.3, HIP 6.3's headers, and for
// what came later the dispatch table of 7.1; hip_abi_test compares layouts with the header
// where a machine has one.
//
// HIP is CUDA's interface by other names, to the numbers of its errors: most functions take what a
// function of CUDA's driver takes. Those are named beside it and share its wrapper, so that what is
// known of streams, captures and memory is known once. The others have a list of their own.

#include "services/guest/cuda/cuda_driver.h"

namespace qgpu::hip {

using namespace cuda;  // handles and numbers are the same

struct Dim3 {
  U x, y, z;
};

struct Extent {
  Size width, height, depth;
};

struct PitchedPtr {
  void* address;
  Size pitch, width, height;
};

struct Copy3DParms {  // hipMemcpy3DParms
  Arr srcArray;
  Extent srcPosition;
  PitchedPtr src;
  Arr dstArray;
  Extent dstPosition;
  PitchedPtr dst;
  Extent extent;
  int kind;
};

struct DriverCopy3D;  // HIP_MEMCPY3D: releases differ in it, and nobody here looks behind
struct PeerCopy3D;    // hipMemcpy3DPeerParms

struct KernelConfig {  // hipLaunchConfig_t
  Dim3 grid, block;
  Size sharedBytes;
  Str stream;
  void* attributes;
  U attributeCount;
};

struct ChannelShape {  // hipChannelFormatDesc: bits of each channel
  int x, y, z, w, kind;
};

struct DeviceLaunch {  // hipLaunchParams
  void* kernel;
  Dim3 grid, block;
  void** arguments;
  Size sharedBytes;
  Str stream;
};

// The first bytes of hipDeviceProp_t, until release 6 and since.
struct Properties5 {
  char name[256];
  Size memory;
};
struct Properties6 {
  char name[256];
  unsigned char uuid[16], luid[8];
  U nodeMask;
  Size memory;
};

}  // namespace qgpu::hip

// X(symbol, function of CUDA's driver that takes the same)
#define QGPU_HIP_AS_CUDA(X)                                            \
  X(hipModuleLaunchKernel, cuLaunchKernel)                             \
  X(hipDrvLaunchKernelEx, cuLaunchKernelEx)                            \
  X(hipGraphUpload, cuGraphUpload)                                     \
  X(hipMemcpyHtoD, cuMemcpyHtoD_v2)                                    \
  X(hipMemcpyDtoD, cuMemcpyDtoD_v2)                                    \
  X(hipMemcpyHtoA, cuMemcpyHtoA_v2)                                    \
  X(hipMemcpyAtoD, cuMemcpyAtoD_v2)                                    \
  X(hipMemcpyDtoA, cuMemcpyDtoA_v2)                                    \
  X(hipMemcpyAtoA, cuMemcpyAtoA_v2)                                    \
  X(hipMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                          \
  X(hipMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                          \
  X(hipMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                          \
  X(hipMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2)                          \
  X(hipMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2)                          \
  X(hipMemcpyParam2D, cuMemcpy2D_v2)                                   \
  X(hipMemcpyParam2DAsync, cuMemcpy2DAsync_v2)                         \
  X(hipDrvMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2)                   \
  X(hipMemsetD8, cuMemsetD8_v2)                                        \
  X(hipMemsetD16, cuMemsetD16_v2)                                      \
  X(hipMemsetD32, cuMemsetD32_v2)                                      \
  X(hipMemsetD8Async, cuMemsetD8Async)                                 \
  X(hipMemsetD16Async, cuMemsetD16Async)                               \
  X(hipMemsetD32Async, cuMemsetD32Async)                               \
  X(hipMemsetD2D8, cuMemsetD2D8_v2)                                    \
  X(hipMemsetD2D8Async, cuMemsetD2D8Async)                             \
  X(hipMemsetD2D16, cuMemsetD2D16_v2)                                  \
  X(hipMemsetD2D16Async, cuMemsetD2D16Async)                           \
  X(hipMemsetD2D32, cuMemsetD2D32_v2)                                  \
  X(hipMemsetD2D32Async, cuMemsetD2D32Async)                           \
  X(hipMemMapArrayAsync, cuMemMapArrayAsync)                           \
  X(hipStreamWriteValue32, cuStreamWriteValue32)                       \
  X(hipStreamWriteValue64, cuStreamWriteValue64)                       \
  X(hipStreamBatchMemOp, cuStreamBatchMemOp)                           \
  X(hipLaunchHostFunc, cuLaunchHostFunc)                               \
  X(hipLaunchHostFunc_spt, cuLaunchHostFunc_ptsz)                      \
  X(hipSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync) \
  X(hipWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync)     \
  X(hipGraphExecDestroy, cuGraphExecDestroy)                           \
  X(hipModuleUnload, cuModuleUnload)                                   \
  X(hipLibraryUnload, cuLibraryUnload)                                 \
  X(hipStreamSynchronize, cuStreamSynchronize)                         \
  X(hipStreamSynchronize_spt, cuStreamSynchronize_ptsz)                \
  X(hipStreamQuery_spt, cuStreamQuery_ptsz)                            \
  X(hipStreamDestroy, cuStreamDestroy_v2)                              \
  X(hipEventSynchronize, cuEventSynchronize)                           \
  X(hipStreamBeginCapture, cuStreamBeginCapture_v2)                    \
  X(hipStreamBeginCapture_spt, cuStreamBeginCapture_v2_ptsz)           \
  X(hipStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph)         \
  X(hipStreamEndCapture, cuStreamEndCapture)                           \
  X(hipStreamEndCapture_spt, cuStreamEndCapture_ptsz)                  \
  X(hipDeviceSynchronize, cuCtxSynchronize)                            \
  X(hipMalloc, cuMemAlloc_v2)                                          \
  X(hipMallocManaged, cuMemAllocManaged)                               \
  X(hipMemAllocPitch, cuMemAllocPitch_v2)                              \
  X(hipFree, cuMemFree_v2)                                             \
  X(hipMallocAsync, cuMemAllocAsync)                                   \
  X(hipMallocFromPoolAsync, cuMemAllocFromPoolAsync)                   \
  X(hipFreeAsync, cuMemFreeAsync)                                      \
  X(hipMemPoolCreate, cuMemPoolCreate)                                 \
  X(hipMemPoolDestroy, cuMemPoolDestroy)                               \
  X(hipMemGetDefaultMemPool, cuMemGetDefaultMemPool)                   \
  X(hipMemGetMemPool, cuMemGetMemPool)                                 \
  X(hipMemRelease, cuMemRelease)                                       \
  X(hipMemMap, cuMemMap)                                               \
  X(hipMemUnmap, cuMemUnmap)                                           \
  X(hipMemRetainAllocationHandle, cuMemRetainAllocationHandle)         \
  X(hipArrayCreate, cuArrayCreate_v2)                                  \
  X(hipArray3DCreate, cuArray3DCreate_v2)                              \
  X(hipArrayDestroy, cuArrayDestroy)                                   \
  X(hipMipmappedArrayCreate, cuMipmappedArrayCreate)                   \
  X(hipMipmappedArrayDestroy, cuMipmappedArrayDestroy)                 \
  X(hipMemGetInfo, cuMemGetInfo_v2)                                    \
  X(hipDeviceTotalMem, cuDeviceTotalMem_v2)

// X(symbol, stream, (types)): `stream` is what its stream 0 means. Each name that ends in _spt, or
// has such a twin, is HIP's of per-thread default streams.
#define QGPU_HIP_PAIR(X, symbol, types) \
  X(symbol, kLegacy, types)             \
  X(symbol##_spt, kPerThread, types)

// Until release 6 two functions had C++'s names.
#define QGPU_HIP_ROW(X, symbol, ...) X(symbol, __VA_ARGS__)
#define QGPU_HIP_HCC_LAUNCH \
  _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_
#define QGPU_HIP_EXT_LAUNCH \
  _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j

// Work that waits at a shut gate.
#define QGPU_HIP_KERNELS(X)                                                                   \
  QGPU_HIP_PAIR(X, hipLaunchKernel, (const void*, Dim3, Dim3, void**, Size, Str))             \
  X(hipExtLaunchKernel, kLegacy, (const void*, Dim3, Dim3, void**, Size, Str, Evt, Evt, int)) \
  X(hipLaunchKernelExC, kLegacy, (const KernelConfig*, const void*, void**))                  \
  X(hipExtModuleLaunchKernel, kLegacy,                                                        \
    (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt, U))                           \
  QGPU_HIP_ROW(X, QGPU_HIP_EXT_LAUNCH, kLegacy,                                               \
               (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt, U))

// The same, and a capture does not take it up: what is launched into a captured stream runs.
#define QGPU_HIP_UNCAPTURED(X)                                                            \
  QGPU_HIP_PAIR(X, hipLaunchCooperativeKernel, (const void*, Dim3, Dim3, void**, U, Str)) \
  X(hipModuleLaunchCooperativeKernel, kLegacy, (Fn, U, U, U, U, U, U, U, Str, void**))    \
  X(hipHccModuleLaunchKernel, kLegacy,                                                    \
    (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt))                          \
  QGPU_HIP_ROW(X, QGPU_HIP_HCC_LAUNCH, kLegacy,                                           \
               (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt))               \
  QGPU_HIP_PAIR(X, hipGraphLaunch, (Exec, Str))                                           \
  X(hipMemcpyPeerAsync, kLegacy, (void*, int, const void*, int, Size, Str))               \
  X(hipDrvMemcpy3DAsync, kLegacy, (const DriverCopy3D*, Str))                             \
  X(hipMemPrefetchAsync, kLegacy, (const void*, Size, int, Str))                          \
  X(hipMemPrefetchAsync_v2, kLegacy, (const void*, Size, Location, U, Str))

#define QGPU_HIP_COPIES(X)                                                                    \
  QGPU_HIP_PAIR(X, hipMemcpy, (void*, const void*, Size, int))                                \
  X(hipMemcpyWithStream, kLegacy, (void*, const void*, Size, int, Str))                       \
  QGPU_HIP_PAIR(X, hipMemcpyAsync, (void*, const void*, Size, int, Str))                      \
  QGPU_HIP_PAIR(X, hipMemcpyToSymbol, (const void*, const void*, Size, Size, int))            \
  QGPU_HIP_PAIR(X, hipMemcpyToSymbolAsync, (const void*, const void*, Size, Size, int, Str))  \
  QGPU_HIP_PAIR(X, hipMemcpyFromSymbol, (void*, const void*, Size, Size, int))                \
  QGPU_HIP_PAIR(X, hipMemcpyFromSymbolAsync, (void*, const void*, Size, Size, int, Str))      \
  QGPU_HIP_PAIR(X, hipMemcpy2D, (void*, Size, const void*, Size, Size, Size, int))            \
  QGPU_HIP_PAIR(X, hipMemcpy2DAsync, (void*, Size, const void*, Size, Size, Size, int, Str))  \
  QGPU_HIP_PAIR(X, hipMemcpy2DToArray, (Arr, Size, Size, const void*, Size, Size, Size, int)) \
  QGPU_HIP_PAIR(X, hipMemcpy2DToArrayAsync,                                                   \
                (Arr, Size, Size, const void*, Size, Size, Size, int, Str))                   \
  QGPU_HIP_PAIR(X, hipMemcpy2DFromArray, (void*, Size, Arr, Size, Size, Size, Size, int))     \
  QGPU_HIP_PAIR(X, hipMemcpy2DFromArrayAsync,                                                 \
                (void*, Size, Arr, Size, Size, Size, Size, int, Str))                         \
  X(hipMemcpy2DArrayToArray, kLegacy, (Arr, Size, Size, Arr, Size, Size, Size, Size, int))    \
  X(hipMemcpyToArray, kLegacy, (Arr, Size, Size, const void*, Size, int))                     \
  QGPU_HIP_PAIR(X, hipMemcpyFromArray, (void*, Arr, Size, Size, Size, int))                   \
  QGPU_HIP_PAIR(X, hipMemcpy3D, (const Copy3DParms*))                                         \
  QGPU_HIP_PAIR(X, hipMemcpy3DAsync, (const Copy3DParms*, Str))                               \
  X(hipDrvMemcpy3D, kLegacy, (const DriverCopy3D*))                                           \
  X(hipMemcpy3DPeer, kLegacy, (PeerCopy3D*))                                                  \
  X(hipMemcpy3DPeerAsync, kLegacy, (PeerCopy3D*, Str))                                        \
  X(hipMemcpyDtoH, kLegacy, (void*, void*, Size))                                             \
  X(hipMemcpyAtoH, kLegacy, (void*, Arr, Size, Size))                                         \
  X(hipMemcpyPeer, kLegacy, (void*, int, const void*, int, Size))

#define QGPU_HIP_FILLS(X)                                                 \
  QGPU_HIP_PAIR(X, hipMemset, (void*, int, Size))                         \
  QGPU_HIP_PAIR(X, hipMemsetAsync, (void*, int, Size, Str))               \
  QGPU_HIP_PAIR(X, hipMemset2D, (void*, Size, int, Size, Size))           \
  QGPU_HIP_PAIR(X, hipMemset2DAsync, (void*, Size, int, Size, Size, Str)) \
  QGPU_HIP_PAIR(X, hipMemset3D, (PitchedPtr, int, Extent))                \
  QGPU_HIP_PAIR(X, hipMemset3DAsync, (PitchedPtr, int, Extent, Str))

// Neither held nor counted: they wait for others, and no card is busy with that.
#define QGPU_HIP_WAITS(X)                                 \
  X(hipStreamWaitValue32, kLegacy, (Str, void*, U, U, U)) \
  X(hipStreamWaitValue64, kLegacy, (Str, void*, std::uint64_t, U, std::uint64_t))

// One kernel on several devices.
#define QGPU_HIP_MANY(X)                                                     \
  X(hipLaunchCooperativeKernelMultiDevice, kLegacy, (DeviceLaunch*, int, U)) \
  X(hipExtLaunchMultiKernelMultiDevice, kLegacy, (DeviceLaunch*, int, U))

#define QGPU_HIP_MANY_FUNCTIONS(X) \
  X(hipModuleLaunchCooperativeKernelMultiDevice, kLegacy, (LaunchParams*, U, U))

// The thread's device may be another afterwards.
#define QGPU_HIP_DEVICES(X)                \
  X(hipSetDevice, kLegacy, (int))          \
  X(hipCtxCreate, kLegacy, (Ctx*, U, Dev)) \
  X(hipCtxSetCurrent, kLegacy, (Ctx))      \
  X(hipCtxPushCurrent, kLegacy, (Ctx))     \
  X(hipCtxPopCurrent, kLegacy, (Ctx*))

#define QGPU_HIP_OTHERS(X)                                                         \
  X(hipConfigureCall, kLegacy, (Dim3, Dim3, Size, Str))                            \
  X(hipLaunchByPtr, kLegacy, (const void*))                                        \
  X(hipStreamQuery, kLegacy, (Str))                                                \
  X(hipInit, kLegacy, (U))                                                         \
  X(hipGetProcAddress, kLegacy, (const char*, void**, int, std::uint64_t, int*))   \
  X(hipDeviceReset, kLegacy, ())                                                   \
  X(hipGetLastError, kLegacy, ())                                                  \
  X(hipPeekAtLastError, kLegacy, ())                                               \
  X(hipExtGetLastError, kLegacy, ())                                               \
  X(hipGetDeviceProperties, kLegacy, (Properties5*, int))                          \
  X(hipGetDevicePropertiesR0000, kLegacy, (Properties5*, int))                     \
  X(hipGetDevicePropertiesR0600, kLegacy, (Properties6*, int))                     \
  X(hipExtMallocWithFlags, kLegacy, (void**, Size, U))                             \
  X(hipMallocPitch, kLegacy, (void**, Size*, Size, Size))                          \
  X(hipMalloc3D, kLegacy, (PitchedPtr*, Extent))                                   \
  X(hipMemCreate, kLegacy, (Mem*, Size, const MemProperties*, unsigned long long)) \
  X(hipMallocArray, kLegacy, (Arr*, const ChannelShape*, Size, Size, U))           \
  X(hipMalloc3DArray, kLegacy, (Arr*, const ChannelShape*, Extent, U))             \
  X(hipFreeArray, kLegacy, (Arr))                                                  \
  X(hipMallocMipmappedArray, kLegacy, (Mip*, const ChannelShape*, Extent, U, U))   \
  X(hipFreeMipmappedArray, kLegacy, (Mip))

// With a wrapper of their own.
#define QGPU_HIP_OWN(X)      \
  QGPU_HIP_KERNELS(X)        \
  QGPU_HIP_UNCAPTURED(X)     \
  QGPU_HIP_MANY_FUNCTIONS(X) \
  QGPU_HIP_COPIES(X)         \
  QGPU_HIP_FILLS(X)          \
  QGPU_HIP_WAITS(X)          \
  QGPU_HIP_MANY(X)           \
  QGPU_HIP_DEVICES(X)        \
  QGPU_HIP_OTHERS(X)

// What is asked without a hook.
#define QGPU_HIP_CALLED(X)                               \
  X(hipGetDevice, kLegacy, (int*))                       \
  X(hipGetStreamDeviceId, kLegacy, (Str))                \
  X(hipStreamIsCapturing, kLegacy, (Str, int*))          \
  X(hipThreadExchangeStreamCaptureMode, kLegacy, (int*)) \
  X(hipEventCreateWithFlags, kLegacy, (Evt*, U))         \
  X(hipEventRecord, kLegacy, (Evt, Str))                 \
  X(hipEventQuery, kLegacy, (Evt))                       \
  X(hipEventElapsedTime, kLegacy, (float*, Evt, Evt))    \
  X(hipEventDestroy, kLegacy, (Evt))

namespace qgpu::hip {

// One pointer for each function, null where a runtime lacks it. Those that are as CUDA's are in
// cudaDriver, by CUDA's names.
struct Calls {
#define QGPU_MEMBER(symbol, stream, types) Result(*symbol) types;
  QGPU_HIP_OWN(QGPU_MEMBER)
  QGPU_HIP_CALLED(QGPU_MEMBER)
#undef QGPU_MEMBER
};

}  // namespace qgpu::hip
