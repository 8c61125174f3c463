#pragma once
// Every driver function that libqgpu.so stands in front of, by exported name, as lists that the
// hooks, the exports and the tests' stand-in driver are all made from: one place to add a name.
//
// X(symbol, base, since, stream, (types)): `base` is what cuGetProcAddress calls it, `since` the
// CUDA version of this form of it, `stream` what its stream 0 means. Names are exact: a function
// whose name is not here is never touched, whatever it begins with.

#include "services/nvidia_abi/cuda_abi.h"

namespace qgpu::cuda {

enum class Stream0 { kLegacy, kPerThread };

constexpr int perThreadSince(int since) {
  return since < 7000 ? 7000 : since;
}

}  // namespace qgpu::cuda

// A call with a stream, and one without; each with its per-thread twin.
#define QGPU_STREAM_PAIR(X, symbol, base, since, types) \
  X(symbol, base, since, kLegacy, types)                \
  X(symbol##_ptsz, base, qgpu::cuda::perThreadSince(since), kPerThread, types)
#define QGPU_PLAIN_PAIR(X, symbol, base, since, types) \
  X(symbol, base, since, kLegacy, types)               \
  X(symbol##_ptds, base, qgpu::cuda::perThreadSince(since), kPerThread, types)

// Work that waits at a shut gate: kernels, graphs, copies, fills, prefetches.
#define QGPU_CUDA_KERNELS(X)                                                                   \
  X(cuLaunch, cuLaunch, 2000, kLegacy, (Fn))                                                   \
  X(cuLaunchGrid, cuLaunchGrid, 2000, kLegacy, (Fn, int, int))                                 \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, kLegacy, (Fn, int, int, Str))                  \
  QGPU_STREAM_PAIR(X, cuLaunchKernel, cuLaunchKernel, 4000,                                    \
                   (Fn, U, U, U, U, U, U, U, Str, void**, void**))                             \
  QGPU_STREAM_PAIR(X, cuLaunchKernelEx, cuLaunchKernelEx, 11060,                               \
                   (const LaunchConfig*, Fn, void**, void**))                                  \
  QGPU_STREAM_PAIR(X, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,              \
                   (Fn, U, U, U, U, U, U, U, Str, void**))                                     \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, kLegacy, \
    (LaunchParams*, U, U))                                                                     \
  QGPU_STREAM_PAIR(X, cuGraphLaunch, cuGraphLaunch, 10000, (Exec, Str))                        \
  QGPU_STREAM_PAIR(X, cuGraphUpload, cuGraphUpload, 11010, (Exec, Str))

#define QGPU_CUDA_COPIES(X)                                                                        \
  QGPU_PLAIN_PAIR(X, cuMemcpy, cuMemcpy, 4000, (Ptr, Ptr, Size))                                   \
  QGPU_PLAIN_PAIR(X, cuMemcpyPeer, cuMemcpyPeer, 4000, (Ptr, Ctx, Ptr, Ctx, Size))                 \
  QGPU_PLAIN_PAIR(X, cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, (Ptr, const void*, Size))                \
  QGPU_PLAIN_PAIR(X, cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, (Ptr, Ptr, Size))                        \
  QGPU_PLAIN_PAIR(X, cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, (Arr, Size, Ptr, Size))                  \
  QGPU_PLAIN_PAIR(X, cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, (Ptr, Arr, Size, Size))                  \
  QGPU_PLAIN_PAIR(X, cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, (Arr, Size, const void*, Size))          \
  QGPU_PLAIN_PAIR(X, cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, (Arr, Size, Arr, Size, Size))            \
  QGPU_PLAIN_PAIR(X, cuMemcpy2D_v2, cuMemcpy2D, 3020, (const Copy2D*))                             \
  QGPU_PLAIN_PAIR(X, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, (const Copy2D*))           \
  QGPU_PLAIN_PAIR(X, cuMemcpy3D_v2, cuMemcpy3D, 3020, (const Copy3D*))                             \
  QGPU_PLAIN_PAIR(X, cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const Copy3D*))                        \
  QGPU_STREAM_PAIR(X, cuMemcpyAsync, cuMemcpyAsync, 4000, (Ptr, Ptr, Size, Str))                   \
  QGPU_STREAM_PAIR(X, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, (Ptr, Ctx, Ptr, Ctx, Size, Str)) \
  QGPU_STREAM_PAIR(X, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020,                               \
                   (Ptr, const void*, Size, Str))                                                  \
  QGPU_STREAM_PAIR(X, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, (void*, Ptr, Size, Str))      \
  QGPU_STREAM_PAIR(X, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, (Ptr, Ptr, Size, Str))        \
  QGPU_STREAM_PAIR(X, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020,                               \
                   (Arr, Size, const void*, Size, Str))                                            \
  QGPU_STREAM_PAIR(X, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020,                               \
                   (void*, Arr, Size, Size, Str))                                                  \
  QGPU_STREAM_PAIR(X, cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, (const Copy2D*, Str))             \
  QGPU_STREAM_PAIR(X, cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, (const Copy3D*, Str))             \
  QGPU_STREAM_PAIR(X, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, (const Copy3D*, Str))        \
  QGPU_STREAM_PAIR(X, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080,                               \
                   (Ptr*, Ptr*, Size*, Size, void*, Size*, Size, Size*, Str))                      \
  QGPU_STREAM_PAIR(X, cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000,                            \
                   (Ptr*, Ptr*, Size*, Size, void*, Size*, Size, Str))                             \
  QGPU_STREAM_PAIR(X, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, 12080,                           \
                   (Size, CopyOperation*, Size*, unsigned long long, Str))                         \
  QGPU_STREAM_PAIR(X, cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000,                        \
                   (Size, CopyOperation*, unsigned long long, Str))                                \
  QGPU_STREAM_PAIR(X, cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, 13020,             \
                   (Ptr, Ptr, Size, void*, Str))                                                   \
  QGPU_STREAM_PAIR(X, cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, 13020,         \
                   (CopyOperation*, unsigned long long, Str))                                      \
  QGPU_STREAM_PAIR(X, cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, 12060,                 \
                   (void*, Size, U, Size*, Str))

#define QGPU_CUDA_FILLS(X)                                                                         \
  QGPU_PLAIN_PAIR(X, cuMemsetD8_v2, cuMemsetD8, 3020, (Ptr, unsigned char, Size))                  \
  QGPU_PLAIN_PAIR(X, cuMemsetD16_v2, cuMemsetD16, 3020, (Ptr, unsigned short, Size))               \
  QGPU_PLAIN_PAIR(X, cuMemsetD32_v2, cuMemsetD32, 3020, (Ptr, U, Size))                            \
  QGPU_PLAIN_PAIR(X, cuMemsetD2D8_v2, cuMemsetD2D8, 3020, (Ptr, Size, unsigned char, Size, Size))  \
  QGPU_PLAIN_PAIR(X, cuMemsetD2D16_v2, cuMemsetD2D16, 3020,                                        \
                  (Ptr, Size, unsigned short, Size, Size))                                         \
  QGPU_PLAIN_PAIR(X, cuMemsetD2D32_v2, cuMemsetD2D32, 3020, (Ptr, Size, U, Size, Size))            \
  QGPU_STREAM_PAIR(X, cuMemsetD8Async, cuMemsetD8Async, 3020, (Ptr, unsigned char, Size, Str))     \
  QGPU_STREAM_PAIR(X, cuMemsetD16Async, cuMemsetD16Async, 3020, (Ptr, unsigned short, Size, Str))  \
  QGPU_STREAM_PAIR(X, cuMemsetD32Async, cuMemsetD32Async, 3020, (Ptr, U, Size, Str))               \
  QGPU_STREAM_PAIR(X, cuMemsetD2D8Async, cuMemsetD2D8Async, 3020,                                  \
                   (Ptr, Size, unsigned char, Size, Size, Str))                                    \
  QGPU_STREAM_PAIR(X, cuMemsetD2D16Async, cuMemsetD2D16Async, 3020,                                \
                   (Ptr, Size, unsigned short, Size, Size, Str))                                   \
  QGPU_STREAM_PAIR(X, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020,                                \
                   (Ptr, Size, U, Size, Size, Str))                                                \
  QGPU_STREAM_PAIR(X, cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, (Ptr, Size, Dev, Str))         \
  QGPU_STREAM_PAIR(X, cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020,                            \
                   (Ptr, Size, Location, U, Str))                                                  \
  QGPU_STREAM_PAIR(X, cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000,                     \
                   (Ptr*, Size*, Size, Location*, Size*, Size, unsigned long long, Str))           \
  QGPU_STREAM_PAIR(X, cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000,                       \
                   (Ptr*, Size*, Size, unsigned long long, Str))                                   \
  QGPU_STREAM_PAIR(X, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, \
                   (Ptr*, Size*, Size, Location*, Size*, Size, unsigned long long, Str))           \
  QGPU_STREAM_PAIR(X, cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, (void*, U, Str))

// Held as those above, and all of their stream is finished when they return.
#define QGPU_CUDA_DRAINING(X)                                                 \
  QGPU_PLAIN_PAIR(X, cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void*, Ptr, Size)) \
  QGPU_PLAIN_PAIR(X, cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, (void*, Arr, Size, Size))

// Counted, never held: something that runs already may wait for them.
#define QGPU_CUDA_MEMOPS(X)                                                                     \
  QGPU_STREAM_PAIR(X, cuStreamWriteValue32, cuStreamWriteValue32, 8000, (Str, Ptr, U, U))       \
  QGPU_STREAM_PAIR(X, cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, (Str, Ptr, U, U))   \
  QGPU_STREAM_PAIR(X, cuStreamWriteValue64, cuStreamWriteValue64, 9000,                         \
                   (Str, Ptr, unsigned long long, U))                                           \
  QGPU_STREAM_PAIR(X, cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070,                     \
                   (Str, Ptr, unsigned long long, U))                                           \
  QGPU_STREAM_PAIR(X, cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, (Str, U, void*, U))         \
  QGPU_STREAM_PAIR(X, cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, (Str, U, void*, U))     \
  QGPU_STREAM_PAIR(X, cuLaunchHostFunc, cuLaunchHostFunc, 10000, (Str, HostFn, void*))          \
  QGPU_STREAM_PAIR(X, cuLaunchHostFunc_v2, cuLaunchHostFunc_v2, 13020, (Str, HostFn, void*, U)) \
  QGPU_STREAM_PAIR(X, cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000,  \
                   (const Sem*, const void*, U, Str))

// Neither held nor counted: they wait for others, and no card is busy with that.
#define QGPU_CUDA_WAITS(X)                                                                  \
  QGPU_STREAM_PAIR(X, cuStreamWaitValue32, cuStreamWaitValue32, 8000, (Str, Ptr, U, U))     \
  QGPU_STREAM_PAIR(X, cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, (Str, Ptr, U, U)) \
  QGPU_STREAM_PAIR(X, cuStreamWaitValue64, cuStreamWaitValue64, 9000,                       \
                   (Str, Ptr, unsigned long long, U))                                       \
  QGPU_STREAM_PAIR(X, cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070,                   \
                   (Str, Ptr, unsigned long long, U))                                       \
  QGPU_STREAM_PAIR(X, cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000,  \
                   (const Sem*, const void*, U, Str))

// Ends of what is launched: another may get its address.
#define QGPU_CUDA_CODE(X)                                           \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, kLegacy, (Exec)) \
  X(cuModuleUnload, cuModuleUnload, 2000, kLegacy, (Mod))           \
  X(cuLibraryUnload, cuLibraryUnload, 12000, kLegacy, (Lib))

// What retires work, ends streams and begins and ends captures.
#define QGPU_CUDA_STREAMS(X)                                                                     \
  QGPU_STREAM_PAIR(X, cuStreamSynchronize, cuStreamSynchronize, 2000, (Str))                     \
  QGPU_STREAM_PAIR(X, cuStreamQuery, cuStreamQuery, 2000, (Str))                                 \
  X(cuStreamDestroy, cuStreamDestroy, 2000, kLegacy, (Str))                                      \
  X(cuStreamDestroy_v2, cuStreamDestroy, 4000, kLegacy, (Str))                                   \
  X(cuEventSynchronize, cuEventSynchronize, 2000, kLegacy, (Evt))                                \
  QGPU_STREAM_PAIR(X, cuStreamBeginCapture, cuStreamBeginCapture, 10000, (Str))                  \
  QGPU_STREAM_PAIR(X, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (Str, int))          \
  QGPU_STREAM_PAIR(X, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,           \
                   (Str, Graph, const Node*, const void*, Size, int))                            \
  QGPU_STREAM_PAIR(X, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030,       \
                   (Str, int, Graph, RecaptureFn, void*))                                        \
  QGPU_STREAM_PAIR(X, cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig, 13020, (Str, void*)) \
  QGPU_STREAM_PAIR(X, cuStreamEndCaptureToCig, cuStreamEndCaptureToCig, 13020, (Str))            \
  QGPU_STREAM_PAIR(X, cuStreamEndCapture, cuStreamEndCapture, 10000, (Str, Graph*))

#define QGPU_CUDA_CONTEXTS(X)                                                       \
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

#define QGPU_CUDA_MEMORY(X)                                                                        \
  X(cuMemAlloc_v2, cuMemAlloc, 3020, kLegacy, (Ptr*, Size))                                        \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, kLegacy, (Ptr*, Size*, Size, Size, U))              \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, kLegacy, (Ptr*, Size, U))                          \
  X(cuMemFree_v2, cuMemFree, 3020, kLegacy, (Ptr))                                                 \
  QGPU_STREAM_PAIR(X, cuMemAllocAsync, cuMemAllocAsync, 11020, (Ptr*, Size, Str))                  \
  QGPU_STREAM_PAIR(X, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                     \
                   (Ptr*, Size, Pool, Str))                                                        \
  QGPU_STREAM_PAIR(X, cuMemFreeAsync, cuMemFreeAsync, 11020, (Ptr, Str))                           \
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
#define QGPU_CUDA_NAMING(X)                                                                        \
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
  QGPU_STREAM_PAIR(X, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,           \
                   (Exec*, Graph, void*))                                                          \
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

#define QGPU_CUDA_PLUMBING(X)                                                                      \
  X(cuInit, cuInit, 2000, kLegacy, (U))                                                            \
  X(cuGetProcAddress, cuGetProcAddress, 11030, kLegacy, (const char*, void**, int, std::uint64_t)) \
  X(cuGetProcAddress_v2, cuGetProcAddress, 12000, kLegacy,                                         \
    (const char*, void**, int, std::uint64_t, int*))

// Everything that has a hook.
#define QGPU_CUDA_HOOKED(X) \
  QGPU_CUDA_KERNELS(X)      \
  QGPU_CUDA_COPIES(X)       \
  QGPU_CUDA_FILLS(X)        \
  QGPU_CUDA_DRAINING(X)     \
  QGPU_CUDA_MEMOPS(X)       \
  QGPU_CUDA_WAITS(X)        \
  QGPU_CUDA_CODE(X)         \
  QGPU_CUDA_STREAMS(X)      \
  QGPU_CUDA_CONTEXTS(X)     \
  QGPU_CUDA_MEMORY(X)       \
  QGPU_CUDA_NAMING(X)       \
  QGPU_CUDA_PLUMBING(X)

// What the hooks themselves call, and programs call without a hook.
#define QGPU_CUDA_CALLED(X)                                                                       \
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
#define QGPU_NVML_LISTS(X)                                                             \
  X(nvmlDeviceGetComputeRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))       \
  X(nvmlDeviceGetComputeRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetComputeRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetGraphicsRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))      \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*))   \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))   \
  X(nvmlDeviceGetMPSComputeRunningProcesses, , 0, kLegacy, (NvmlDevice, U*, void*))    \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v2, , 0, kLegacy, (NvmlDevice, U*, void*)) \
  X(nvmlDeviceGetMPSComputeRunningProcesses_v3, , 0, kLegacy, (NvmlDevice, U*, void*))

// What opens the driver's device nodes.
#define QGPU_NVML_STARTS(X)        \
  X(nvmlInit, , 0, kLegacy, ())    \
  X(nvmlInit_v2, , 0, kLegacy, ()) \
  X(nvmlInitWithFlags, , 0, kLegacy, (U))

#define QGPU_NVML_HOOKED(X)                                                                     \
  X(nvmlDeviceGetMemoryInfo, , 0, kLegacy, (NvmlDevice, NvmlMemory*))                           \
  X(nvmlDeviceGetMemoryInfo_v2, , 0, kLegacy, (NvmlDevice, NvmlMemory2*))                       \
  X(nvmlDeviceGetRunningProcessDetailList, , 0, kLegacy, (NvmlDevice, NvmlProcesses*))          \
  X(nvmlDeviceGetProcessUtilization, , 0, kLegacy, (NvmlDevice, void*, U*, unsigned long long)) \
  X(nvmlDeviceGetProcessesUtilizationInfo, , 0, kLegacy, (NvmlDevice, NvmlUtilization*))        \
  QGPU_NVML_STARTS(X)                                                                           \
  QGPU_NVML_LISTS(X)

namespace qgpu::cuda {

// One pointer for each function, null where a driver lacks it.
struct Calls {
#define QGPU_MEMBER(symbol, base, since, stream, types) Result(*symbol) types;
  QGPU_CUDA_HOOKED(QGPU_MEMBER)
  QGPU_CUDA_CALLED(QGPU_MEMBER)
  QGPU_NVML_HOOKED(QGPU_MEMBER)
#undef QGPU_MEMBER
};

}  // namespace qgpu::cuda

// Exports `symbol` as a jump through the pointer qgpu_to_<symbol>.
#if defined(__x86_64__)
#define QGPU_JUMP(symbol) "jmp *qgpu_to_" #symbol "(%rip)\n"
#elif defined(__aarch64__)
#define QGPU_JUMP(symbol) \
  "adrp x16, qgpu_to_" #symbol "\nldr x16, [x16, :lo12:qgpu_to_" #symbol "]\nbr x16\n"
#endif
#define QGPU_EXPORT_JUMP(symbol)                                              \
  __asm__(".text\n.globl " #symbol "\n.type " #symbol ", %function\n" #symbol \
          ":\n" QGPU_JUMP(symbol) ".size " #symbol ", .-" #symbol "\n");
