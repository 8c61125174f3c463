#pragma once
// AMD's HIP runtime interface as its stand-in, and the programs that run on it, speak it: numbers,
// layouts and names as AMD's headers say them (Debian's libamdhip64-dev 5.2.3, HIP 6.3, and 7.1
// for what came later), written down here once more. Nothing of services/guest is included, so that
// what is wrong there meets a runtime that does not know it; hip_abi_test holds both lists of
// functions beside each other.
//
// X(symbol, (types)), and where a function of the CUDA stand-in does the same, its name.

#include "tests/cuda_stand_in/nvidia_cuda.h"

namespace qgpu::amd {

using namespace nvidia::cuda;  // handles are pointers here as there, and errors have the same
                               // numbers

struct Dim3 {
  std::uint32_t x, y, z;
};
static_assert(sizeof(Dim3) == 12);

struct Extent {
  std::size_t width, height, depth;
};

struct PitchedPtr {
  void* ptr;
  std::size_t pitch, xsize, ysize;
};

struct Copy3DParms {  // hipMemcpy3DParms
  Arr srcArray;
  std::size_t srcPos[3];
  PitchedPtr srcPtr;
  Arr dstArray;
  std::size_t dstPos[3];
  PitchedPtr dstPtr;
  Extent extent;
  int kind;
};
static_assert(sizeof(Copy3DParms) == 160 && offsetof(Copy3DParms, extent) == 128);

struct DriverCopy3D;  // HIP_MEMCPY3D: releases differ in it
struct PeerCopy3D;    // hipMemcpy3DPeerParms

struct KernelConfig {  // hipLaunchConfig_t
  Dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  Str stream;
  void* attrs;
  unsigned int numAttrs;
};

struct ChannelShape {  // hipChannelFormatDesc
  int x, y, z, w, f;
};

struct DeviceLaunch {  // hipLaunchParams
  void* func;
  Dim3 gridDim, blockDim;
  void** args;
  std::size_t sharedMem;
  Str stream;
};
static_assert(sizeof(DeviceLaunch) == 56 && offsetof(DeviceLaunch, stream) == 48);

struct Properties5 {  // hipDeviceProp_t until release 6
  char name[256];
  std::size_t totalGlobalMem;  // at 256
  unsigned char rest[512];
};
struct Properties {  // and since
  char name[256];
  unsigned char before[32];
  std::size_t totalGlobalMem;  // at 288
  unsigned char rest[1176];
};
static_assert(offsetof(Properties5, totalGlobalMem) == 256);
static_assert(offsetof(Properties, totalGlobalMem) == 288);

}  // namespace qgpu::amd

#define AMD_HIP_AS_CUDA(X)                                                                   \
  X(hipModuleLaunchKernel, (Fn, U, U, U, U, U, U, U, Str, void**, void**), cuLaunchKernel)   \
  X(hipDrvLaunchKernelEx, (const LaunchConfig*, Fn, void**, void**), cuLaunchKernelEx)       \
  X(hipGraphUpload, (Exec, Str), cuGraphUpload)                                              \
  X(hipMemcpyHtoD, (void*, void*, Size), cuMemcpyHtoD_v2)                                    \
  X(hipMemcpyDtoD, (void*, void*, Size), cuMemcpyDtoD_v2)                                    \
  X(hipMemcpyHtoA, (Arr, Size, const void*, Size), cuMemcpyHtoA_v2)                          \
  X(hipMemcpyAtoD, (void*, Arr, Size, Size), cuMemcpyAtoD_v2)                                \
  X(hipMemcpyDtoA, (Arr, Size, void*, Size), cuMemcpyDtoA_v2)                                \
  X(hipMemcpyAtoA, (Arr, Size, Arr, Size, Size), cuMemcpyAtoA_v2)                            \
  X(hipMemcpyHtoDAsync, (void*, void*, Size, Str), cuMemcpyHtoDAsync_v2)                     \
  X(hipMemcpyDtoHAsync, (void*, void*, Size, Str), cuMemcpyDtoHAsync_v2)                     \
  X(hipMemcpyDtoDAsync, (void*, void*, Size, Str), cuMemcpyDtoDAsync_v2)                     \
  X(hipMemcpyAtoHAsync, (void*, Arr, Size, Size, Str), cuMemcpyAtoHAsync_v2)                 \
  X(hipMemcpyHtoAAsync, (Arr, Size, const void*, Size, Str), cuMemcpyHtoAAsync_v2)           \
  X(hipMemcpyParam2D, (const Copy2D*), cuMemcpy2D_v2)                                        \
  X(hipMemcpyParam2DAsync, (const Copy2D*, Str), cuMemcpy2DAsync_v2)                         \
  X(hipDrvMemcpy2DUnaligned, (const Copy2D*), cuMemcpy2DUnaligned_v2)                        \
  X(hipMemsetD8, (void*, unsigned char, Size), cuMemsetD8_v2)                                \
  X(hipMemsetD16, (void*, unsigned short, Size), cuMemsetD16_v2)                             \
  X(hipMemsetD32, (void*, int, Size), cuMemsetD32_v2)                                        \
  X(hipMemsetD8Async, (void*, unsigned char, Size, Str), cuMemsetD8Async)                    \
  X(hipMemsetD16Async, (void*, unsigned short, Size, Str), cuMemsetD16Async)                 \
  X(hipMemsetD32Async, (void*, int, Size, Str), cuMemsetD32Async)                            \
  X(hipMemsetD2D8, (void*, Size, unsigned char, Size, Size), cuMemsetD2D8_v2)                \
  X(hipMemsetD2D8Async, (void*, Size, unsigned char, Size, Size, Str), cuMemsetD2D8Async)    \
  X(hipMemsetD2D16, (void*, Size, unsigned short, Size, Size), cuMemsetD2D16_v2)             \
  X(hipMemsetD2D16Async, (void*, Size, unsigned short, Size, Size, Str), cuMemsetD2D16Async) \
  X(hipMemsetD2D32, (void*, Size, unsigned int, Size, Size), cuMemsetD2D32_v2)               \
  X(hipMemsetD2D32Async, (void*, Size, unsigned int, Size, Size, Str), cuMemsetD2D32Async)   \
  X(hipMemMapArrayAsync, (void*, U, Str), cuMemMapArrayAsync)                                \
  X(hipStreamWriteValue32, (Str, void*, U, U), cuStreamWriteValue32)                         \
  X(hipStreamWriteValue64, (Str, void*, std::uint64_t, U), cuStreamWriteValue64)             \
  X(hipStreamBatchMemOp, (Str, U, void*, U), cuStreamBatchMemOp)                             \
  X(hipLaunchHostFunc, (Str, HostFn, void*), cuLaunchHostFunc)                               \
  X(hipLaunchHostFunc_spt, (Str, HostFn, void*), cuLaunchHostFunc_ptsz)                      \
  X(hipSignalExternalSemaphoresAsync, (const Sem*, const void*, U, Str),                     \
    cuSignalExternalSemaphoresAsync)                                                         \
  X(hipWaitExternalSemaphoresAsync, (const Sem*, const void*, U, Str),                       \
    cuWaitExternalSemaphoresAsync)                                                           \
  X(hipGraphExecDestroy, (Exec), cuGraphExecDestroy)                                         \
  X(hipModuleUnload, (Mod), cuModuleUnload)                                                  \
  X(hipLibraryUnload, (Lib), cuLibraryUnload)                                                \
  X(hipStreamSynchronize, (Str), cuStreamSynchronize)                                        \
  X(hipStreamSynchronize_spt, (Str), cuStreamSynchronize_ptsz)                               \
  X(hipStreamQuery_spt, (Str), cuStreamQuery_ptsz)                                           \
  X(hipStreamDestroy, (Str), cuStreamDestroy_v2)                                             \
  X(hipEventSynchronize, (Evt), cuEventSynchronize)                                          \
  X(hipStreamBeginCapture, (Str, int), cuStreamBeginCapture_v2)                              \
  X(hipStreamBeginCapture_spt, (Str, int), cuStreamBeginCapture_v2_ptsz)                     \
  X(hipStreamBeginCaptureToGraph, (Str, Graph, const Node*, const void*, Size, int),         \
    cuStreamBeginCaptureToGraph)                                                             \
  X(hipStreamEndCapture, (Str, Graph*), cuStreamEndCapture)                                  \
  X(hipStreamEndCapture_spt, (Str, Graph*), cuStreamEndCapture_ptsz)                         \
  X(hipDeviceSynchronize, (), cuCtxSynchronize)                                              \
  X(hipMalloc, (void**, Size), cuMemAlloc_v2)                                                \
  X(hipMallocManaged, (void**, Size, U), cuMemAllocManaged)                                  \
  X(hipMemAllocPitch, (void**, Size*, Size, Size, U), cuMemAllocPitch_v2)                    \
  X(hipFree, (void*), cuMemFree_v2)                                                          \
  X(hipMallocAsync, (void**, Size, Str), cuMemAllocAsync)                                    \
  X(hipMallocFromPoolAsync, (void**, Size, Pool, Str), cuMemAllocFromPoolAsync)              \
  X(hipFreeAsync, (void*, Str), cuMemFreeAsync)                                              \
  X(hipMemPoolCreate, (Pool*, const PoolProperties*), cuMemPoolCreate)                       \
  X(hipMemPoolDestroy, (Pool), cuMemPoolDestroy)                                             \
  X(hipMemGetDefaultMemPool, (Pool*, Location*, int), cuMemGetDefaultMemPool)                \
  X(hipMemGetMemPool, (Pool*, Location*, int), cuMemGetMemPool)                              \
  X(hipMemRelease, (Mem), cuMemRelease)                                                      \
  X(hipMemMap, (void*, Size, Size, Mem, unsigned long long), cuMemMap)                       \
  X(hipMemUnmap, (void*, Size), cuMemUnmap)                                                  \
  X(hipMemRetainAllocationHandle, (Mem*, void*), cuMemRetainAllocationHandle)                \
  X(hipArrayCreate, (Arr*, const ArrayShape*), cuArrayCreate_v2)                             \
  X(hipArray3DCreate, (Arr*, const ArrayShape3D*), cuArray3DCreate_v2)                       \
  X(hipArrayDestroy, (Arr), cuArrayDestroy)                                                  \
  X(hipMipmappedArrayCreate, (Mip*, ArrayShape3D*, U), cuMipmappedArrayCreate)               \
  X(hipMipmappedArrayDestroy, (Mip), cuMipmappedArrayDestroy)                                \
  X(hipMemGetInfo, (Size*, Size*), cuMemGetInfo_v2)                                          \
  X(hipDeviceTotalMem, (Size*, int), cuDeviceTotalMem_v2)

// Until release 6 two functions had C++'s names.
#define AMD_HIP_ROW(X, symbol, ...) X(symbol, __VA_ARGS__)
#define AMD_HIP_HCC_LAUNCH \
  _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_
#define AMD_HIP_EXT_LAUNCH \
  _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j

#define AMD_HIP_KERNELS(X)                                                                    \
  X(hipLaunchKernel, (const void*, Dim3, Dim3, void**, Size, Str))                            \
  X(hipLaunchKernel_spt, (const void*, Dim3, Dim3, void**, Size, Str))                        \
  X(hipExtLaunchKernel, (const void*, Dim3, Dim3, void**, Size, Str, Evt, Evt, int))          \
  X(hipLaunchKernelExC, (const KernelConfig*, const void*, void**))                           \
  X(hipExtModuleLaunchKernel, (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt, U)) \
  AMD_HIP_ROW(X, AMD_HIP_EXT_LAUNCH, (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt, U))

// Those that no stream captures: they run.
#define AMD_HIP_UNCAPTURED(X)                                                              \
  X(hipModuleLaunchCooperativeKernel, (Fn, U, U, U, U, U, U, U, Str, void**))              \
  X(hipGraphLaunch, (Exec, Str))                                                           \
  X(hipGraphLaunch_spt, (Exec, Str))                                                       \
  X(hipMemPrefetchAsync, (const void*, Size, int, Str))                                    \
  X(hipMemPrefetchAsync_v2, (const void*, Size, Location, U, Str))                         \
  X(hipHccModuleLaunchKernel, (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt)) \
  X(hipMemcpyPeerAsync, (void*, int, const void*, int, Size, Str))                         \
  X(hipDrvMemcpy3DAsync, (const DriverCopy3D*, Str))                                       \
  X(hipLaunchCooperativeKernel, (const void*, Dim3, Dim3, void**, U, Str))                 \
  X(hipLaunchCooperativeKernel_spt, (const void*, Dim3, Dim3, void**, U, Str))             \
  AMD_HIP_ROW(X, AMD_HIP_HCC_LAUNCH, (Fn, U, U, U, U, U, U, Size, Str, void**, void**, Evt, Evt))

#define AMD_HIP_MANY_FUNCTIONS(X) \
  X(hipModuleLaunchCooperativeKernelMultiDevice, (LaunchParams*, U, U))

#define AMD_HIP_COPIES(X)                                                                    \
  X(hipMemcpy, (void*, const void*, Size, int))                                              \
  X(hipMemcpy_spt, (void*, const void*, Size, int))                                          \
  X(hipMemcpyWithStream, (void*, const void*, Size, int, Str))                               \
  X(hipMemcpyAsync, (void*, const void*, Size, int, Str))                                    \
  X(hipMemcpyAsync_spt, (void*, const void*, Size, int, Str))                                \
  X(hipMemcpyToSymbol, (const void*, const void*, Size, Size, int))                          \
  X(hipMemcpyToSymbol_spt, (const void*, const void*, Size, Size, int))                      \
  X(hipMemcpyToSymbolAsync, (const void*, const void*, Size, Size, int, Str))                \
  X(hipMemcpyToSymbolAsync_spt, (const void*, const void*, Size, Size, int, Str))            \
  X(hipMemcpyFromSymbol, (void*, const void*, Size, Size, int))                              \
  X(hipMemcpyFromSymbol_spt, (void*, const void*, Size, Size, int))                          \
  X(hipMemcpyFromSymbolAsync, (void*, const void*, Size, Size, int, Str))                    \
  X(hipMemcpyFromSymbolAsync_spt, (void*, const void*, Size, Size, int, Str))                \
  X(hipMemcpy2D, (void*, Size, const void*, Size, Size, Size, int))                          \
  X(hipMemcpy2D_spt, (void*, Size, const void*, Size, Size, Size, int))                      \
  X(hipMemcpy2DAsync, (void*, Size, const void*, Size, Size, Size, int, Str))                \
  X(hipMemcpy2DAsync_spt, (void*, Size, const void*, Size, Size, Size, int, Str))            \
  X(hipMemcpy2DToArray, (Arr, Size, Size, const void*, Size, Size, Size, int))               \
  X(hipMemcpy2DToArray_spt, (Arr, Size, Size, const void*, Size, Size, Size, int))           \
  X(hipMemcpy2DToArrayAsync, (Arr, Size, Size, const void*, Size, Size, Size, int, Str))     \
  X(hipMemcpy2DToArrayAsync_spt, (Arr, Size, Size, const void*, Size, Size, Size, int, Str)) \
  X(hipMemcpy2DFromArray, (void*, Size, Arr, Size, Size, Size, Size, int))                   \
  X(hipMemcpy2DFromArray_spt, (void*, Size, Arr, Size, Size, Size, Size, int))               \
  X(hipMemcpy2DFromArrayAsync, (void*, Size, Arr, Size, Size, Size, Size, int, Str))         \
  X(hipMemcpy2DFromArrayAsync_spt, (void*, Size, Arr, Size, Size, Size, Size, int, Str))     \
  X(hipMemcpy2DArrayToArray, (Arr, Size, Size, Arr, Size, Size, Size, Size, int))            \
  X(hipMemcpyToArray, (Arr, Size, Size, const void*, Size, int))                             \
  X(hipMemcpyFromArray, (void*, Arr, Size, Size, Size, int))                                 \
  X(hipMemcpyFromArray_spt, (void*, Arr, Size, Size, Size, int))                             \
  X(hipMemcpy3D, (const Copy3DParms*))                                                       \
  X(hipMemcpy3D_spt, (const Copy3DParms*))                                                   \
  X(hipMemcpy3DAsync, (const Copy3DParms*, Str))                                             \
  X(hipMemcpy3DAsync_spt, (const Copy3DParms*, Str))                                         \
  X(hipDrvMemcpy3D, (const DriverCopy3D*))                                                   \
  X(hipMemcpy3DPeer, (PeerCopy3D*))                                                          \
  X(hipMemcpy3DPeerAsync, (PeerCopy3D*, Str))                                                \
  X(hipMemcpyDtoH, (void*, void*, Size))                                                     \
  X(hipMemcpyAtoH, (void*, Arr, Size, Size))                                                 \
  X(hipMemcpyPeer, (void*, int, const void*, int, Size))

#define AMD_HIP_FILLS(X)                                       \
  X(hipMemset, (void*, int, Size))                             \
  X(hipMemset_spt, (void*, int, Size))                         \
  X(hipMemsetAsync, (void*, int, Size, Str))                   \
  X(hipMemsetAsync_spt, (void*, int, Size, Str))               \
  X(hipMemset2D, (void*, Size, int, Size, Size))               \
  X(hipMemset2D_spt, (void*, Size, int, Size, Size))           \
  X(hipMemset2DAsync, (void*, Size, int, Size, Size, Str))     \
  X(hipMemset2DAsync_spt, (void*, Size, int, Size, Size, Str)) \
  X(hipMemset3D, (PitchedPtr, int, Extent))                    \
  X(hipMemset3D_spt, (PitchedPtr, int, Extent))                \
  X(hipMemset3DAsync, (PitchedPtr, int, Extent, Str))          \
  X(hipMemset3DAsync_spt, (PitchedPtr, int, Extent, Str))

#define AMD_HIP_WAITS(X)                         \
  X(hipStreamWaitValue32, (Str, void*, U, U, U)) \
  X(hipStreamWaitValue64, (Str, void*, std::uint64_t, U, std::uint64_t))

#define AMD_HIP_MANY(X)                                             \
  X(hipLaunchCooperativeKernelMultiDevice, (DeviceLaunch*, int, U)) \
  X(hipExtLaunchMultiKernelMultiDevice, (DeviceLaunch*, int, U))

#define AMD_HIP_DEVICES(X)        \
  X(hipSetDevice, (int))          \
  X(hipCtxCreate, (Ctx*, U, int)) \
  X(hipCtxSetCurrent, (Ctx))      \
  X(hipCtxPushCurrent, (Ctx))     \
  X(hipCtxPopCurrent, (Ctx*))

#define AMD_HIP_OTHERS(X)                                                 \
  X(hipConfigureCall, (Dim3, Dim3, Size, Str))                            \
  X(hipLaunchByPtr, (const void*))                                        \
  X(hipStreamQuery, (Str))                                                \
  X(hipGetLastError, ())                                                  \
  X(hipPeekAtLastError, ())                                               \
  X(hipExtGetLastError, ())                                               \
  X(hipInit, (U))                                                         \
  X(hipGetProcAddress, (const char*, void**, int, std::uint64_t, int*))   \
  X(hipDeviceReset, ())                                                   \
  X(hipGetDeviceProperties, (Properties5*, int))                          \
  X(hipGetDevicePropertiesR0000, (Properties5*, int))                     \
  X(hipGetDevicePropertiesR0600, (Properties*, int))                      \
  X(hipExtMallocWithFlags, (void**, Size, U))                             \
  X(hipMallocPitch, (void**, Size*, Size, Size))                          \
  X(hipMalloc3D, (PitchedPtr*, Extent))                                   \
  X(hipMemCreate, (Mem*, Size, const MemProperties*, unsigned long long)) \
  X(hipMallocArray, (Arr*, const ChannelShape*, Size, Size, U))           \
  X(hipMalloc3DArray, (Arr*, const ChannelShape*, Extent, U))             \
  X(hipFreeArray, (Arr))                                                  \
  X(hipMallocMipmappedArray, (Mip*, const ChannelShape*, Extent, U, U))   \
  X(hipFreeMipmappedArray, (Mip))

#define AMD_HIP_CALLED(X)                       \
  X(hipGetDevice, (int*))                       \
  X(hipGetStreamDeviceId, (Str))                \
  X(hipStreamIsCapturing, (Str, int*))          \
  X(hipThreadExchangeStreamCaptureMode, (int*)) \
  X(hipEventCreateWithFlags, (Evt*, U))         \
  X(hipEventRecord, (Evt, Str))                 \
  X(hipEventQuery, (Evt))                       \
  X(hipEventElapsedTime, (float*, Evt, Evt))    \
  X(hipEventDestroy, (Evt))

// Those that hooks know, but for what does as CUDA's.
#define AMD_HIP_OWN(X)      \
  AMD_HIP_KERNELS(X)        \
  AMD_HIP_UNCAPTURED(X)     \
  AMD_HIP_MANY_FUNCTIONS(X) \
  AMD_HIP_COPIES(X)         \
  AMD_HIP_FILLS(X)          \
  AMD_HIP_WAITS(X)          \
  AMD_HIP_MANY(X)           \
  AMD_HIP_DEVICES(X)        \
  AMD_HIP_OTHERS(X)

// What a program needs besides.
#define AMD_HIP_PLAIN(X)                                     \
  X(hipStreamCreateWithFlags, (Str*, U))                     \
  X(hipStreamWaitEvent, (Str, Evt, U))                       \
  X(hipDevicePrimaryCtxReset, (int))                         \
  X(hipGraphInstantiate, (Exec*, Graph, Node*, char*, Size)) \
  X(hipMemAddressReserve, (void**, Size, Size, void*, unsigned long long))
