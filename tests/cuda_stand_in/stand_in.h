#pragma once
// A driver without a card: libcuda.so.1 and libnvidia-ml.so.1 with the entry points of the real
// ones, for tests of what stands in front of a driver. Kernels are time that passes on a thread of
// their stream; copies copy. It keeps the rules that a hook can break: per-thread default streams,
// the implicit order of the legacy stream, versions in cuGetProcAddress, and the laws of stream
// capture (an unsafe call in a forbidden mode breaks the capture, as on a card). A handle, but for
// a graph's, is never reused, so a call with a dead one is seen and counted.
//
// Its environment: QGPU_STAND_IN_DEVICES (1), QGPU_STAND_IN_BYTES per card (16 GiB),
// QGPU_STAND_IN_CONTEXT (bytes of the card that a context asks the kernel for, where one answers;
// 2 MiB, where a real one takes some hundred), QGPU_STAND_IN_CARD=FILE, by which the processes that
// name it have those bytes together, and QGPU_STAND_IN_PRIVATE=1, under which
// cuGetProcAddress gives addresses that are no export's.
// Kernels by name: "nothing", "sleep" (argument 0: microseconds), "add" (argument 0: device address
// of a counter that it raises by one), "fill" (address, 64-bit words, seed), "stir" (address,
// words: changes each), "check" (address, words, seed, how often they were stirred, address of a
// count that it raises by each that is another), and those of tests/gpu/kernels.h, where an
// iteration is a nanosecond and a product of matrices takes one for each thousand multiplications.

#include <cstdint>

#include "tests/cuda_stand_in/nvidia_cuda.h"

extern "C" {

// What tests ask of it, by dlsym. Counts are since the process began.
struct QgpuStandIn {
  std::uint64_t (*calls)(const char* symbol);  // of the function itself; ~0: no such function
  void* (*function)(const char* symbol);       // the export's address; null: no such function
  std::uint64_t (*misuses)();                  // calls with a dead handle
  std::uint64_t (*bytes)(int device);          // allocated now
  std::uint64_t (*pending)();                  // operations in streams that are not finished
  std::uint64_t (*brokenCaptures)();
  std::uint64_t (*ioctls)(std::uint32_t number);  // resource manager calls issued, by number
  std::uint64_t (*events)();                      // that were created and not destroyed
  // The function does nothing from now on but say so; success: what it does by itself.
  void (*answer)(const char* symbol, qgpu::nvidia::cuda::Result rc);
};
const QgpuStandIn* qgpuStandIn();
}

using StandInTable = const QgpuStandIn* (*)();
