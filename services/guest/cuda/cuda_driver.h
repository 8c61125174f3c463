#pragma once
// The CUDA front end of libqgpu.so: the driver's own functions, the wrappers in front of them, and
// how a program comes to the wrappers. Whatever way it asks (linked names, dlsym, dlvsym,
// cuGetProcAddress), the driver is asked first and the *address* that it gave decides: an address
// that is in the table becomes its wrapper, any other stays. So a version that is unknown here is
// never replaced by one with other arguments.
//
// Nothing is attached and nothing of the driver is called while symbols are looked up; that begins
// with cuInit. Looking up takes no lock: threads that do it together store the same.

#include "services/nvidia_abi/cuda_calls.h"

namespace qgpu::guest {

// The driver's functions; null where it lacks one, or before it was found.
extern cuda::Calls cudaDriver;

// Whose functions cudaDriver has. AMD's runtime has most of CUDA's by other names, and shares their
// wrappers (hip_calls.h). A process may load both, and starts one of the two as a tenant: the
// first.
enum class Runtime : int { kNone, kCuda, kHip };
// Whether cudaDriver is this one's, from now on if it was nobody's.
bool claimDriver(Runtime runtime);
bool driverIsHip();

// Fill in the wrappers of one area each.
void wrapCudaLaunches(cuda::Calls& table);
void wrapCudaStreams(cuda::Calls& table);
void wrapCudaMemory(cuda::Calls& table);
void wrapCudaSizes(cuda::Calls& table);
void wrapCudaNaming(cuda::Calls& table);
void wrapNvmlProcesses(cuda::Calls& table);
void wrapNvmlStarts(cuda::Calls& table);
// All but NVML's.
inline void wrapCuda(cuda::Calls& table) {
  wrapCudaLaunches(table);
  wrapCudaStreams(table);
  wrapCudaMemory(table);
  wrapCudaSizes(table);
  wrapCudaNaming(table);
}

// Finds libcuda.so.1 and libnvidia-ml.so.1 where the process has loaded them by now. False: no
// driver is there.
bool findCudaDriver();

// What dlsym() and dlvsym() are to answer `caller` for a name that may be CUDA's or NVML's.
void* chooseCudaSymbol(void* handle, const char* name, const char* version, const void* caller);

// Whether an address is one of code of libcuda.so.1.
bool isOfCudaDriver(const void* address);

// The wrapper of an address of the driver's; the address itself where it has none.
void* wrapperOf(void* address);

}  // namespace qgpu::guest
