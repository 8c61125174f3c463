// Transfers: reads, writes, copies, fills, migrations and maps use the card and pass the gate like
// kernels. Unmapping is counted but never blocked: it ends what the application already began.

#include "services/guest/opencl/opencl_gated.h"

namespace qgpu::guest {
namespace {

constexpr std::uint64_t kGuessedPixelBytes = 4;

template <int I, typename First, typename... Rest>
auto pick(First first, [[maybe_unused]] Rest... rest) {
  if constexpr (I == 0) {
    return first;
  } else {
    return pick<I - 1>(rest...);
  }
}

inline std::uint64_t bytesOf(size_t size) {
  return size;
}
inline std::uint64_t bytesOf(const size_t* region) {
  return region ? region[0] * region[1] * region[2] * kGuessedPixelBytes : 0;
}

// The driver gets the wrapper's event in the place of the application's; all else is passed on.
template <typename T>
T inPlace(T argument, cl_event*) {
  return argument;
}
template <>
cl_event* inPlace(cl_event*, cl_event* own) {
  return own;
}

// Wrappers of the functions `cl_int f(queue, ..., cl_uint waits, const cl_event*, cl_event*)`.
// `blockingAt` and `sizeAt` are the places, after the queue, of the blocking flag and of the size
// or region; -1 where there is none.
template <typename F>
struct Wrapper;
template <typename... A>
struct Wrapper<cl_int(CL_API_CALL*)(cl_command_queue, A...)> {
  template <auto function, int blockingAt, int sizeAt>
  static cl_int CL_API_CALL call(cl_command_queue queue, A... a) {
    constexpr int kOutAt = static_cast<int>(sizeof...(A)) - 1;
    const cl_uint waits = pick<kOutAt - 2>(a...);
    std::uint64_t bytes = 0;
    if constexpr (sizeAt >= 0) bytes = bytesOf(pick<sizeAt>(a...));
    const Work work = transferWork(bytes, waits);
    Blocking blocking = Blocking::kNo;
    if constexpr (blockingAt >= 0) {
      if (pick<blockingAt>(a...)) blocking = Blocking::kYes;
    }
    cl_int waited = waitBeforeAdmission(blocking, waits, pick<kOutAt - 1>(a...));
    if (waited != CL_SUCCESS) return waited;
    cl_event* out = pick<kOutAt>(a...);
    return gated(queue, work, blocking, mayBlockHere(), out,
                 [&](cl_event* event) { return (driver->*function)(queue, inPlace(a, event)...); });
  }
};

void* CL_API_CALL mapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                            cl_map_flags flags, size_t offset, size_t size, cl_uint waits,
                            const cl_event* wait, cl_event* out, cl_int* rcOut) {
  void* mapped = nullptr;
  const Blocking blocks = blocking ? Blocking::kYes : Blocking::kNo;
  cl_int rc = waitBeforeAdmission(blocks, waits, wait);
  if (rc == CL_SUCCESS) {
    rc = gated(queue, transferWork(size, waits), blocks, mayBlockHere(), out, [&](cl_event* event) {
      cl_int inner = CL_SUCCESS;
      mapped = driver->clEnqueueMapBuffer(queue, mem, blocking, flags, offset, size, waits, wait,
                                          event, &inner);
      return inner;
    });
  }
  if (rcOut) *rcOut = rc;
  return mapped;
}

void* CL_API_CALL mapImage(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_map_flags flags,
                           const size_t* origin, const size_t* region, size_t* rowPitch,
                           size_t* slicePitch, cl_uint waits, const cl_event* wait, cl_event* out,
                           cl_int* rcOut) {
  void* mapped = nullptr;
  const Blocking blocks = blocking ? Blocking::kYes : Blocking::kNo;
  const Work work = transferWork(bytesOf(region), waits);
  cl_int rc = waitBeforeAdmission(blocks, waits, wait);
  if (rc == CL_SUCCESS) {
    rc = gated(queue, work, blocks, mayBlockHere(), out, [&](cl_event* event) {
      cl_int inner = CL_SUCCESS;
      mapped = driver->clEnqueueMapImage(queue, mem, blocking, flags, origin, region, rowPitch,
                                         slicePitch, waits, wait, event, &inner);
      return inner;
    });
  }
  if (rcOut) *rcOut = rc;
  return mapped;
}

cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem mem, void* mapped, cl_uint waits,
                         const cl_event* wait, cl_event* out) {
  const Work work = transferWork(0, waits);
  return gated(queue, work, Blocking::kNo, MayBlock::kNo, out, [&](cl_event* event) {
    return driver->clEnqueueUnmapMemObject(queue, mem, mapped, waits, wait, event);
  });
}

cl_int CL_API_CALL svmUnmap(cl_command_queue queue, void* pointer, cl_uint waits,
                            const cl_event* wait, cl_event* out) {
  const Work work = transferWork(0, waits);
  return gated(queue, work, Blocking::kNo, MayBlock::kNo, out, [&](cl_event* event) {
    return driver->clEnqueueSVMUnmap(queue, pointer, waits, wait, event);
  });
}

}  // namespace

#define QGPU_TRANSFER(name, blockingAt, sizeAt) \
  table.name = Wrapper<cl_api_##name>::call<&cl_icd_dispatch::name, blockingAt, sizeAt>

void wrapTransfers(cl_icd_dispatch& table) {
  QGPU_TRANSFER(clEnqueueReadBuffer, 1, 3);
  QGPU_TRANSFER(clEnqueueWriteBuffer, 1, 3);
  QGPU_TRANSFER(clEnqueueReadBufferRect, 1, 4);
  QGPU_TRANSFER(clEnqueueWriteBufferRect, 1, 4);
  QGPU_TRANSFER(clEnqueueCopyBuffer, -1, 4);
  QGPU_TRANSFER(clEnqueueCopyBufferRect, -1, 4);
  QGPU_TRANSFER(clEnqueueFillBuffer, -1, 4);
  QGPU_TRANSFER(clEnqueueReadImage, 1, 3);
  QGPU_TRANSFER(clEnqueueWriteImage, 1, 3);
  QGPU_TRANSFER(clEnqueueFillImage, -1, 3);
  QGPU_TRANSFER(clEnqueueCopyImage, -1, 4);
  QGPU_TRANSFER(clEnqueueCopyImageToBuffer, -1, 3);
  QGPU_TRANSFER(clEnqueueCopyBufferToImage, -1, 4);
  QGPU_TRANSFER(clEnqueueMigrateMemObjects, -1, -1);
  QGPU_TRANSFER(clEnqueueSVMMemcpy, 0, 3);
  QGPU_TRANSFER(clEnqueueSVMMemFill, -1, 3);
  QGPU_TRANSFER(clEnqueueSVMMap, 0, 3);
  QGPU_TRANSFER(clEnqueueSVMMigrateMem, -1, -1);
  table.clEnqueueMapBuffer = mapBuffer;
  table.clEnqueueMapImage = mapImage;
  table.clEnqueueUnmapMemObject = unmap;
  table.clEnqueueSVMUnmap = svmUnmap;
}

#undef QGPU_TRANSFER

}  // namespace qgpu::guest
