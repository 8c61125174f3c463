// Allocations: reserved before the driver allocates, returned when it says that the object is
// destroyed (HAZARDS 22), which is later than clReleaseMemObject while work still uses it.
//
// What counts: buffers (also CL_MEM_USE_HOST_PTR: a card with memory of its own makes a copy, so
// one rule holds on every card), images, pipes, SVM. Sub-buffers and images over a buffer or image
// are views and cost 0.

#include <cstdlib>

#include "services/guest/gate/quota.h"
#include "services/guest/opencl/callbacks.h"
#include "services/guest/opencl/opencl_images.h"
#include "services/guest/opencl/opencl_layer.h"
#include "services/guest/rm/rm_ioctl.h"

namespace qgpu::guest {
namespace {

// What one object holds of the quota, until its destructor callback.
struct Charge {
  std::uint64_t bytes;
  std::uint32_t generation;
};

void CL_CALLBACK onDestroyed(cl_mem, void* data) {
  auto* charge = static_cast<Charge*>(data);
  release(charge->bytes, charge->generation);
  free(charge);
}

// Creates an object of `bytes` under the quota. `create(rc)` is the driver's call.
template <typename Create>
cl_mem createCharged(std::uint64_t bytes, cl_int* rcOut, Create create) {
  cl_int rc = CL_SUCCESS;
  cl_mem mem = nullptr;
  auto* charge = static_cast<Charge*>(malloc(sizeof(Charge)));
  const bool attached = ensureAttached();
  if (attached && countedByDriver()) bytes = 0;
  if (!charge) {
    rc = CL_OUT_OF_HOST_MEMORY;
  } else if (!attached || !reserveOrFail(bytes)) {
    rc = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    free(charge);
  } else {
    *charge = {bytes, session.generation.load()};
    mem = create(&rc);
    bool watched =
        mem && driver->clSetMemObjectDestructorCallback(mem, onDestroyed, charge) == CL_SUCCESS;
    if (!watched) {
      // Nobody would return the bytes: better no object than a leak of quota.
      if (mem) driver->clReleaseMemObject(mem);
      if (mem) rc = CL_OUT_OF_RESOURCES;
      mem = nullptr;
      release(bytes, charge->generation);
      free(charge);
    }
  }
  if (rcOut) *rcOut = rc;
  return mem;
}

cl_mem CL_API_CALL createBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host,
                                cl_int* rc) {
  return createCharged(size, rc, [&](cl_int* out) {
    return driver->clCreateBuffer(context, flags, size, host, out);
  });
}

cl_mem CL_API_CALL createBufferWithProperties(cl_context context,
                                              const cl_mem_properties* properties,
                                              cl_mem_flags flags, size_t size, void* host,
                                              cl_int* rc) {
  return createCharged(size, rc, [&](cl_int* out) {
    return driver->clCreateBufferWithProperties(context, properties, flags, size, host, out);
  });
}

cl_mem CL_API_CALL createImage(cl_context context, cl_mem_flags flags,
                               const cl_image_format* format, const cl_image_desc* desc, void* host,
                               cl_int* rc) {
  return createCharged(imageBytes(format, desc), rc, [&](cl_int* out) {
    return driver->clCreateImage(context, flags, format, desc, host, out);
  });
}

cl_mem CL_API_CALL createImageWithProperties(cl_context context,
                                             const cl_mem_properties* properties,
                                             cl_mem_flags flags, const cl_image_format* format,
                                             const cl_image_desc* desc, void* host, cl_int* rc) {
  return createCharged(imageBytes(format, desc), rc, [&](cl_int* out) {
    return driver->clCreateImageWithProperties(context, properties, flags, format, desc, host, out);
  });
}

cl_mem CL_API_CALL createImage2D(cl_context context, cl_mem_flags flags,
                                 const cl_image_format* format, size_t width, size_t height,
                                 size_t pitch, void* host, cl_int* rc) {
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE2D;
  desc.image_width = width;
  desc.image_height = height;
  return createCharged(imageBytes(format, &desc), rc, [&](cl_int* out) {
    return driver->clCreateImage2D(context, flags, format, width, height, pitch, host, out);
  });
}

cl_mem CL_API_CALL createImage3D(cl_context context, cl_mem_flags flags,
                                 const cl_image_format* format, size_t width, size_t height,
                                 size_t depth, size_t pitch, size_t slice, void* host, cl_int* rc) {
  cl_image_desc desc{};
  desc.image_type = CL_MEM_OBJECT_IMAGE3D;
  desc.image_width = width;
  desc.image_height = height;
  desc.image_depth = depth;
  return createCharged(imageBytes(format, &desc), rc, [&](cl_int* out) {
    return driver->clCreateImage3D(context, flags, format, width, height, depth, pitch, slice, host,
                                   out);
  });
}

cl_mem CL_API_CALL createPipe(cl_context context, cl_mem_flags flags, cl_uint packet, cl_uint most,
                              const cl_pipe_properties* properties, cl_int* rc) {
  std::uint64_t bytes = static_cast<std::uint64_t>(packet) * most;
  return createCharged(bytes, rc, [&](cl_int* out) {
    return driver->clCreatePipe(context, flags, packet, most, properties, out);
  });
}

// Live SVM allocations, by address.
struct Svm {
  void* address;
  Charge charge;
  Svm* next;
};
constexpr std::size_t kSvmBuckets = 256;
Mutex svmMutex;
Svm* svmBuckets[kSvmBuckets];

std::size_t svmBucket(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) >> 7) % kSvmBuckets;
}

// Forgets an allocation and returns its charge; bytes 0 if it was not ours.
Charge takeSvm(void* address) {
  Lock lock(svmMutex);
  for (Svm** link = &svmBuckets[svmBucket(address)]; *link; link = &(*link)->next) {
    if ((*link)->address != address) continue;
    Svm* found = *link;
    Charge charge = found->charge;
    *link = found->next;
    free(found);
    return charge;
  }
  return {0, 0};
}

void forgetSvmInChild() {
  svmMutex.renewInChild();
}

// Counts here on every card: a driver may take it as managed memory, whose size no other call says.
void* CL_API_CALL svmAlloc(cl_context context, cl_svm_mem_flags flags, size_t size,
                           cl_uint alignment) {
  if (!ensureAttached() || !reserveOrFail(size)) return nullptr;
  onForkInChild(forgetSvmInChild);
  const std::uint32_t generation = session.generation.load();
  void* address = driver->clSVMAlloc(context, flags, size, alignment);
  auto* record = address ? static_cast<Svm*>(malloc(sizeof(Svm))) : nullptr;
  if (!record) {
    if (address) driver->clSVMFree(context, address);
    release(size, generation);
    return nullptr;
  }
  Lock lock(svmMutex);
  *record = {address, {size, generation}, svmBuckets[svmBucket(address)]};
  svmBuckets[svmBucket(address)] = record;
  return address;
}

void CL_API_CALL svmFree(cl_context context, void* address) {
  Charge charge = takeSvm(address);
  driver->clSVMFree(context, address);
  if (charge.bytes) release(charge.bytes, charge.generation);
}

// What clEnqueueSVMFree will free by itself, or the application's own way of freeing.
using SvmFreeCallback = void(CL_CALLBACK*)(cl_command_queue, cl_uint, void*[], void*);
struct SvmFreeing {
  std::uint64_t bytes = 0;
  std::uint32_t generation = 0;
  SvmFreeCallback function = nullptr;
  void* data = nullptr;
};

void CL_CALLBACK onSvmFreed(cl_event event, cl_int, void* data) {
  auto* freeing = static_cast<SvmFreeing*>(data);
  release(freeing->bytes, freeing->generation);
  free(freeing);
  driver->clReleaseEvent(event);
}

void CL_CALLBACK onSvmFree(cl_command_queue queue, cl_uint n, void* pointers[], void* data) {
  SvmFreeing freeing = *static_cast<SvmFreeing*>(data);
  free(data);
  InCallback mark;
  freeing.function(queue, n, pointers, freeing.data);
}

cl_int CL_API_CALL enqueueSvmFree(cl_command_queue queue, cl_uint n, void* pointers[],
                                  SvmFreeCallback function, void* data, cl_uint waits,
                                  const cl_event* wait, cl_event* out) {
  auto* freeing = static_cast<SvmFreeing*>(calloc(1, sizeof(SvmFreeing)));
  if (!freeing) return CL_OUT_OF_HOST_MEMORY;
  freeing->function = function;
  freeing->data = data;
  if (function) {
    cl_int rc = driver->clEnqueueSVMFree(queue, n, pointers, onSvmFree, freeing, waits, wait, out);
    if (rc != CL_SUCCESS) free(freeing);
    return rc;
  }
  // The driver frees: the bytes return when the command is finished.
  cl_event event = nullptr;
  cl_int rc = driver->clEnqueueSVMFree(queue, n, pointers, nullptr, nullptr, waits, wait, &event);
  if (rc != CL_SUCCESS) {
    free(freeing);
    return rc;
  }
  freeing->generation = session.generation.load();
  for (cl_uint i = 0; i < n; ++i) {
    Charge charge = takeSvm(pointers[i]);
    if (charge.generation == freeing->generation) freeing->bytes += charge.bytes;
  }
  if (out) driver->clRetainEvent(*out = event);
  if (driver->clSetEventCallback(event, CL_COMPLETE, onSvmFreed, freeing) != CL_SUCCESS) {
    driver->clWaitForEvents(1, &event);
    onSvmFreed(event, CL_COMPLETE, freeing);
  }
  return CL_SUCCESS;
}

}  // namespace

void wrapMemory(cl_icd_dispatch& table) {
  table.clCreateBuffer = createBuffer;
  table.clCreateBufferWithProperties = createBufferWithProperties;
  table.clCreateImage = createImage;
  table.clCreateImageWithProperties = createImageWithProperties;
  table.clCreateImage2D = createImage2D;
  table.clCreateImage3D = createImage3D;
  table.clCreatePipe = createPipe;
  table.clSVMAlloc = svmAlloc;
  table.clSVMFree = svmFree;
  table.clEnqueueSVMFree = enqueueSvmFree;
}

}  // namespace qgpu::guest
