#pragma once
// Trampolines around the application's callbacks. A launch from inside a driver's callback would
// block the driver's own thread at a shut gate, and with it the work whose end the manager waits
// for (HAZARDS 3), so the thread is marked while the callback runs and its launches only count.

#include "services/guest/gate/gate.h"
#include "services/guest/opencl/opencl_layer.h"

namespace qgpu::guest {

extern constinit thread_local int callbackDepth;

inline MayBlock mayBlockHere() {
  return callbackDepth ? MayBlock::kNo : MayBlock::kYes;
}

class InCallback {
 public:
  InCallback() { ++callbackDepth; }
  ~InCallback() { --callbackDepth; }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
};

using ContextNotify = void(CL_CALLBACK*)(const char*, const void*, size_t, void*);

// The driver's clCreateContext, with `notify` (may be null) marked as a callback.
cl_context createContextOver(const cl_context_properties* properties, cl_uint n,
                             const cl_device_id* devices, ContextNotify notify, void* data,
                             cl_int* rc);

// A callback of the application with its argument, on the heap until it ran.
template <typename F>
struct Trampoline {
  F function;
  void* data;
};

}  // namespace qgpu::guest
