// Kernels: the launches proper. Their time is learnt per kernel and global work size.

#include <cstdlib>
#include <cstring>

#include "services/guest/gate/estimates.h"
#include "services/guest/opencl/opencl_gated.h"

namespace qgpu::guest {
namespace {

Work kernelWork(cl_kernel kernel, cl_uint dimensions, const size_t* global, cl_uint waits) {
  std::uint64_t key = estimateKey(kernel, dimensions, global);
  return {key, kernel, estimateOf(key), waits != 0};
}

cl_int CL_API_CALL ndRange(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                           const size_t* offset, const size_t* global, const size_t* local,
                           cl_uint waits, const cl_event* wait, cl_event* out) {
  Work work = kernelWork(kernel, dimensions, global, waits);
  return gated(queue, work, Blocking::kNo, mayBlockHere(), out, [&](cl_event* event) {
    return driver->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                          wait, event);
  });
}

cl_int CL_API_CALL task(cl_command_queue queue, cl_kernel kernel, cl_uint waits,
                        const cl_event* wait, cl_event* out) {
  Work work = kernelWork(kernel, 0, nullptr, waits);
  return gated(queue, work, Blocking::kNo, mayBlockHere(), out, [&](cl_event* event) {
    return driver->clEnqueueTask(queue, kernel, waits, wait, event);
  });
}

// A native kernel is a function of the application that the driver calls with a copy of its
// arguments. The copy begins with the function itself, so the trampoline finds it.
using NativeFunction = void(CL_CALLBACK*)(void*);
struct alignas(16) NativeHeader {
  NativeFunction function;
};

void CL_CALLBACK onNative(void* arguments) {
  auto* header = static_cast<NativeHeader*>(arguments);
  InCallback mark;
  header->function(header + 1);
}

cl_int CL_API_CALL nativeKernel(cl_command_queue queue, NativeFunction function, void* arguments,
                                size_t bytes, cl_uint mems, const cl_mem* memList,
                                const void** memPlaces, cl_uint waits, const cl_event* wait,
                                cl_event* out) {
  // Null cases are the driver's to refuse.
  bool wrapped = function && (arguments != nullptr || bytes == 0);
  const size_t placesAt = (sizeof(NativeHeader) + bytes + 15) / 16 * 16;
  auto* block = static_cast<char*>(wrapped ? malloc(placesAt + mems * sizeof(void*)) : nullptr);
  if (wrapped && !block) return CL_OUT_OF_HOST_MEMORY;
  auto** places = reinterpret_cast<const void**>(block + placesAt);
  if (wrapped) {
    *reinterpret_cast<NativeHeader*>(block) = {function};
    if (bytes) memcpy(block + sizeof(NativeHeader), arguments, bytes);
    for (cl_uint i = 0; memPlaces && i < mems; ++i) {
      auto at = static_cast<const char*>(memPlaces[i]) - static_cast<const char*>(arguments);
      places[i] = block + sizeof(NativeHeader) + at;
    }
  }
  Work work{0, nullptr, kUnknownEstimate, waits != 0};
  cl_int rc = gated(queue, work, Blocking::kNo, mayBlockHere(), out, [&](cl_event* event) {
    if (!wrapped) {
      return driver->clEnqueueNativeKernel(queue, function, arguments, bytes, mems, memList,
                                           memPlaces, waits, wait, event);
    }
    return driver->clEnqueueNativeKernel(queue, onNative, block, sizeof(NativeHeader) + bytes, mems,
                                         memList, memPlaces ? places : nullptr, waits, wait, event);
  });
  free(block);
  return rc;
}

// Kernel handles are reused: what was learnt at an address ends with the kernel.
cl_kernel CL_API_CALL createKernel(cl_program program, const char* name, cl_int* rc) {
  cl_kernel kernel = driver->clCreateKernel(program, name, rc);
  if (kernel) forgetKernel(kernel);
  return kernel;
}

cl_int CL_API_CALL createKernels(cl_program program, cl_uint room, cl_kernel* out, cl_uint* count) {
  cl_uint made = 0;
  cl_int rc = driver->clCreateKernelsInProgram(program, room, out, &made);
  if (count) *count = made;
  for (cl_uint i = 0; rc == CL_SUCCESS && out && i < made; ++i) forgetKernel(out[i]);
  return rc;
}

cl_kernel CL_API_CALL cloneKernel(cl_kernel source, cl_int* rc) {
  cl_kernel kernel = driver->clCloneKernel(source, rc);
  if (kernel) forgetKernel(kernel);
  return kernel;
}

}  // namespace

void wrapLaunches(cl_icd_dispatch& table) {
  table.clEnqueueNDRangeKernel = ndRange;
  table.clEnqueueTask = task;
  table.clEnqueueNativeKernel = nativeKernel;
  table.clCreateKernel = createKernel;
  table.clCreateKernelsInProgram = createKernels;
  table.clCloneKernel = cloneKernel;
}

}  // namespace qgpu::guest
