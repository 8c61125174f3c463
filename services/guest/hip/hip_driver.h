#pragma once
// The front end of libqgpu.so for AMD's HIP runtime: its own functions, the wrappers in front of
// them, and how a program comes to the wrappers.
//
// HIP has no first call that all programs make, so the first call of any of them attaches. Until
// then every exported name leads to a function that does that; whatever way a program asks for a
// name (linked, dlsym, dlvsym, hipGetProcAddress), it is given the exported one.
//
// A tenant has one of the two, CUDA or this, by the platform of its card. Their machinery is the
// same (hip_calls.h), with what HIP's runtime does otherwise (its sources, clr of release 6.3):
// - Who asks whether an event is over breaks the capture of the stream that it was recorded in,
//   whatever the mode of the thread.
// - Who asks the null stream puts a barrier into it, before and behind all blocking streams.
// - Launches into the null stream run while another stream is captured, and some kinds of launches
//   run in a captured one.
// - A capture that broke keeps its state after it was ended.
// - hipStreamDestroy() waits for what is in the stream, whose events may not be asked after it.
// - hipDevicePrimaryCtxReset() does nothing; hipDeviceReset() ends memory of pools as well.

#include "services/guest/hip/hip_calls.h"

namespace qgpu::guest {

// The runtime's functions that are unlike any of CUDA's; those that are alike are in cudaDriver.
extern hip::Calls hipDriver;

// Fills in the wrappers of hip::Calls.
void wrapHip(hip::Calls& table);

// Finds libamdhip64.so where the process has loaded it by now. False: it is not there.
bool findHip();

// Whether it could be one of HIP's.
bool namesHip(const char* name);

// What stands for a context in the machinery of streams: a device has one.
inline cuda::Ctx contextOfDevice(int device) {
  return reinterpret_cast<cuda::Ctx>(static_cast<std::uintptr_t>(device) + 1);
}

// What dlsym() and dlvsym() are to answer for such a name.
void* chooseHipSymbol(void* handle, const char* name, const char* version);

}  // namespace qgpu::guest
