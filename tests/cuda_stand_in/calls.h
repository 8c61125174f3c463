#pragma once
// Every function of a driver that the tests' programs call and the stand-in has: those that hooks
// know, and the others that a program needs to get going.

#include "tests/cuda_stand_in/nvidia_cuda.h"

// Functions without a hook, by the same form as the hooked ones.
#define NVIDIA_CUDA_PLAIN(X)                                                                \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020, kLegacy, (int*))                          \
  X(cuDeviceGet, cuDeviceGet, 2000, kLegacy, (Dev*, int))                                   \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, kLegacy, (int*))                              \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, kLegacy, (int*, int, Dev))            \
  X(cuDeviceGetName, cuDeviceGetName, 2000, kLegacy, (char*, int, Dev))                     \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, kLegacy, (int*, Dev, Dev))          \
  X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, kLegacy, (int*, int, Dev, Dev)) \
  X(cuModuleLoadData, cuModuleLoadData, 2000, kLegacy, (Mod*, const void*))                 \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000, kLegacy, (Fn*, Mod, const char*))       \
  X(cuStreamCreate, cuStreamCreate, 2000, kLegacy, (Str*, U))                               \
  NVIDIA_STREAM_PAIR(X, cuStreamWaitEvent, cuStreamWaitEvent, 3020, (Str, Evt, U))          \
  X(cuEventRecord_ptsz, cuEventRecord, 7000, kPerThread, (Evt, Str))                        \
  X(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, 10000, kPerThread, (Str, int*))          \
  X(cuGraphDestroy, cuGraphDestroy, 10000, kLegacy, (Graph))                                \
  X(cuCtxAttach, cuCtxAttach, 2000, kLegacy, (Ctx*, U))                                     \
  X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, kLegacy, (Green*, void*, Dev, U))            \
  X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12040, kLegacy, (Str*, Green, U, int))  \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020, kLegacy, (void**, Size, U))                       \
  X(cuMemFreeHost, cuMemFreeHost, 2000, kLegacy, (void*))                                   \
  X(cuLaunchOfTomorrow, cuLaunchOfTomorrow, 13990, kLegacy, (Str))                          \
  X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, kLegacy, (Ptr*, IpcMemory, U))        \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, kLegacy, (Ptr))                         \
  X(cuGetExportTable, cuGetExportTable, 3000, kLegacy, (const void**, const void*))

namespace qgpu::stand_in {

namespace cuda = nvidia::cuda;
using namespace cuda;  // the names of the interface, as its own implementation says them

struct IpcMemory {  // CUipcMemHandle: what it says is the driver's own affair
  unsigned char bytes[64];
};

struct Table : Calls {
#define QGPU_MEMBER(symbol, base, since, stream, types) Result(*symbol) types;
  NVIDIA_CUDA_PLAIN(QGPU_MEMBER)
#undef QGPU_MEMBER
};

}  // namespace qgpu::stand_in
