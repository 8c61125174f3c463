#include "services/guest/opencl/callbacks.h"

#include <cstdlib>
#include <cstring>

#include "services/guest/opencl/opencl_layer.h"

namespace qgpu::guest {

constinit thread_local int callbackDepth = 0;

namespace {

// Returns null when memory is out; the caller then refuses with CL_OUT_OF_HOST_MEMORY.
template <typename F>
Trampoline<F>* wrap(F function, void* data) {
  auto* t = static_cast<Trampoline<F>*>(malloc(sizeof(Trampoline<F>)));
  if (t) *t = {function, data};
  return t;
}

// Runs the application's function with its own data, once, and frees the record.
template <typename... A, typename Tail>
void callOnce(Tail* trampoline, A... arguments) {
  Tail copy = *trampoline;
  free(trampoline);
  InCallback mark;
  copy.function(arguments..., copy.data);
}

using EventCallback = void(CL_CALLBACK*)(cl_event, cl_int, void*);
using MemCallback = void(CL_CALLBACK*)(cl_mem, void*);
using ProgramCallback = void(CL_CALLBACK*)(cl_program, void*);
using ContextCallback = void(CL_CALLBACK*)(cl_context, void*);
using NativeKernel = void(CL_CALLBACK*)(void*);

void CL_CALLBACK onEvent(cl_event event, cl_int status, void* data) {
  callOnce(static_cast<Trampoline<EventCallback>*>(data), event, status);
}
void CL_CALLBACK onMem(cl_mem mem, void* data) {
  callOnce(static_cast<Trampoline<MemCallback>*>(data), mem);
}
void CL_CALLBACK onProgram(cl_program program, void* data) {
  callOnce(static_cast<Trampoline<ProgramCallback>*>(data), program);
}
void CL_CALLBACK onContext(cl_context context, void* data) {
  callOnce(static_cast<Trampoline<ContextCallback>*>(data), context);
}

// What a context notifies of is told any number of times, until the context is destroyed.
void CL_CALLBACK onNotice(const char* what, const void* details, size_t bytes, void* data) {
  const auto copy = *static_cast<Trampoline<ContextNotify>*>(data);
  InCallback mark;
  copy.function(what, details, bytes, copy.data);
}
void CL_CALLBACK onContextGone(cl_context, void* data) {
  free(data);
}

// Registers `entry` with a trampoline; a registration that failed never calls back.
template <typename F, typename Register>
cl_int registerOnce(F function, void* data, Register call) {
  if (!function) return call(nullptr);  // the driver says what is wrong with that
  Trampoline<F>* t = wrap(function, data);
  if (!t) return CL_OUT_OF_HOST_MEMORY;
  cl_int rc = call(t);
  if (rc != CL_SUCCESS) free(t);
  return rc;
}

cl_int CL_API_CALL setEventCallback(cl_event event, cl_int type, EventCallback f, void* data) {
  return registerOnce(f, data, [&](void* t) {
    return driver->clSetEventCallback(event, type, t ? onEvent : nullptr, t);
  });
}

cl_int CL_API_CALL setMemCallback(cl_mem mem, MemCallback f, void* data) {
  return registerOnce(f, data, [&](void* t) {
    return driver->clSetMemObjectDestructorCallback(mem, t ? onMem : nullptr, t);
  });
}

cl_int CL_API_CALL setProgramCallback(cl_program program, ProgramCallback f, void* data) {
  return registerOnce(f, data, [&](void* t) {
    return driver->clSetProgramReleaseCallback(program, t ? onProgram : nullptr, t);
  });
}

cl_int CL_API_CALL setContextCallback(cl_context context, ContextCallback f, void* data) {
  return registerOnce(f, data, [&](void* t) {
    return driver->clSetContextDestructorCallback(context, t ? onContext : nullptr, t);
  });
}

// Builds: without a callback they need no trampoline. A build that failed at once may or may not
// have called back, so its record is left to the callback: it leaks rather than being freed twice.
template <typename Build>
cl_int buildWith(ProgramCallback f, void* data, Build call) {
  if (!f) return call(nullptr, data);
  Trampoline<ProgramCallback>* t = wrap(f, data);
  return t ? call(onProgram, t) : CL_OUT_OF_HOST_MEMORY;
}

cl_int CL_API_CALL buildProgram(cl_program program, cl_uint n, const cl_device_id* devices,
                                const char* options, ProgramCallback f, void* data) {
  return buildWith(f, data, [&](ProgramCallback callback, void* t) {
    return driver->clBuildProgram(program, n, devices, options, callback, t);
  });
}

cl_int CL_API_CALL compileProgram(cl_program program, cl_uint n, const cl_device_id* devices,
                                  const char* options, cl_uint headers, const cl_program* header,
                                  const char** names, ProgramCallback f, void* data) {
  return buildWith(f, data, [&](ProgramCallback callback, void* t) {
    return driver->clCompileProgram(program, n, devices, options, headers, header, names, callback,
                                    t);
  });
}

cl_program CL_API_CALL linkProgram(cl_context context, cl_uint n, const cl_device_id* devices,
                                   const char* options, cl_uint inputs, const cl_program* input,
                                   ProgramCallback f, void* data, cl_int* rc) {
  cl_program linked = nullptr;
  cl_int failed = buildWith(f, data, [&](ProgramCallback callback, void* t) {
    linked = driver->clLinkProgram(context, n, devices, options, inputs, input, callback, t, rc);
    return CL_SUCCESS;
  });
  if (failed != CL_SUCCESS && rc) *rc = failed;
  return linked;
}

}  // namespace

// The record lives as long as the context; where the driver can't tell of its end, for ever.
cl_context createContextOver(const cl_context_properties* properties, cl_uint n,
                             const cl_device_id* devices, ContextNotify notify, void* data,
                             cl_int* rc) {
  if (!notify) return driver->clCreateContext(properties, n, devices, nullptr, data, rc);
  Trampoline<ContextNotify>* t = wrap(notify, data);
  if (!t) {
    if (rc) *rc = CL_OUT_OF_HOST_MEMORY;
    return nullptr;
  }
  cl_context context = driver->clCreateContext(properties, n, devices, onNotice, t, rc);
  if (!context) {
    free(t);
  } else if (driver->clSetContextDestructorCallback) {
    driver->clSetContextDestructorCallback(context, onContextGone, t);
  }
  return context;
}

void wrapCallbacks(cl_icd_dispatch& table) {
  table.clSetEventCallback = setEventCallback;
  table.clSetMemObjectDestructorCallback = setMemCallback;
  table.clSetProgramReleaseCallback = setProgramCallback;
  table.clSetContextDestructorCallback = setContextCallback;
  table.clBuildProgram = buildProgram;
  table.clCompileProgram = compileProgram;
  table.clLinkProgram = linkProgram;
}

}  // namespace qgpu::guest
