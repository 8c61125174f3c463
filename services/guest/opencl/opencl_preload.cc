// The LD_PRELOAD front, for ICD loaders that know no layers: exports the OpenCL functions that the
// layer wraps. Each is a jump through a pointer that first leads to a chooser and then straight to
// the wrapper, or to the loader's own function when a layer already runs in this process (from any
// copy of this library, HAZARDS 21) or no token was given.

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "services/guest/gate/attach.h"
#include "services/guest/gate/real_loader.h"
#include "services/guest/opencl/opencl_layer.h"

extern "C" std::uint32_t qgpu_layer_active;

// All functions that wrappers replace or call, one a line, which clang-format would not keep.
// clang-format off
#define QGPU_WRAPPED(X)                       \
  X(clGetPlatformIDs)                         \
  X(clGetPlatformInfo)                        \
  X(clGetDeviceIDs)                           \
  X(clGetDeviceInfo)                          \
  X(clCreateContext)                          \
  X(clCreateContextFromType)                  \
  X(clCreateCommandQueue)                     \
  X(clCreateCommandQueueWithProperties)       \
  X(clRetainCommandQueue)                     \
  X(clReleaseCommandQueue)                    \
  X(clSetCommandQueueProperty)                \
  X(clCreateBuffer)                           \
  X(clCreateBufferWithProperties)             \
  X(clCreateImage)                            \
  X(clCreateImageWithProperties)              \
  X(clCreateImage2D)                          \
  X(clCreateImage3D)                          \
  X(clCreatePipe)                             \
  X(clSVMAlloc)                               \
  X(clSVMFree)                                \
  X(clEnqueueSVMFree)                         \
  X(clSetMemObjectDestructorCallback)         \
  X(clSetEventCallback)                       \
  X(clSetProgramReleaseCallback)              \
  X(clSetContextDestructorCallback)           \
  X(clBuildProgram)                           \
  X(clCompileProgram)                         \
  X(clLinkProgram)                            \
  X(clCreateKernel)                           \
  X(clCreateKernelsInProgram)                 \
  X(clCloneKernel)                            \
  X(clWaitForEvents)                          \
  X(clFinish)                                 \
  X(clEnqueueNDRangeKernel)                   \
  X(clEnqueueTask)                            \
  X(clEnqueueNativeKernel)                    \
  X(clEnqueueReadBuffer)                      \
  X(clEnqueueReadBufferRect)                  \
  X(clEnqueueWriteBuffer)                     \
  X(clEnqueueWriteBufferRect)                 \
  X(clEnqueueCopyBuffer)                      \
  X(clEnqueueCopyBufferRect)                  \
  X(clEnqueueFillBuffer)                      \
  X(clEnqueueReadImage)                       \
  X(clEnqueueWriteImage)                      \
  X(clEnqueueFillImage)                       \
  X(clEnqueueCopyImage)                       \
  X(clEnqueueCopyImageToBuffer)               \
  X(clEnqueueCopyBufferToImage)               \
  X(clEnqueueMigrateMemObjects)               \
  X(clEnqueueMapBuffer)                       \
  X(clEnqueueMapImage)                        \
  X(clEnqueueUnmapMemObject)                  \
  X(clEnqueueSVMMemcpy)                       \
  X(clEnqueueSVMMemFill)                      \
  X(clEnqueueSVMMap)                          \
  X(clEnqueueSVMUnmap)                        \
  X(clEnqueueSVMMigrateMem)                   \
  X(clGetExtensionFunctionAddress)            \
  X(clGetExtensionFunctionAddressForPlatform)
#define QGPU_CALLED(X)           \
  X(clGetCommandQueueInfo)       \
  X(clGetEventInfo)              \
  X(clGetEventProfilingInfo)     \
  X(clRetainEvent)               \
  X(clReleaseEvent)              \
  X(clReleaseMemObject)          \
  X(clFlush)                     \
  X(clEnqueueMarkerWithWaitList)
// clang-format on

namespace qgpu::guest {
namespace {

cl_icd_dispatch loader;  // the next definition of each function: the ICD loader's
pthread_once_t once = PTHREAD_ONCE_INIT;

void* next(const char* name) {
  const RealLoader& real = realLoader();
  if (void* found = real.dlsym(RTLD_NEXT, name)) return found;
  // The program opened its loader privately.
  void* library = real.dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return library ? real.dlsym(library, name) : nullptr;
}

void choose();

constinit thread_local bool choosing = false;  // in choose(): the loader calls itself

void chooseOnce() {
  if (!choosing) pthread_once(&once, choose);
}

// Whether calls go to the loader alone: it runs a layer already, or there is no token.
bool direct() {
  return choosing || qgpu_layer_active || !tokenGiven();
}

// Stands for a function until the first call.
template <auto member, typename F>
struct Chooser;
template <auto member, typename R, typename... A>
struct Chooser<member, R(CL_API_CALL*)(A...)> {
  static R CL_API_CALL call(A... a) {
    chooseOnce();
    auto function = direct() ? loader.*member : layerTable()->*member;
    if (!function) function = loader.*member;
    if (function) return function(a...);
    if constexpr (__is_same(R, cl_int)) return CL_INVALID_OPERATION;
    if constexpr (!__is_same(R, void)) return R{};
  }
};

}  // namespace
}  // namespace qgpu::guest

// The pointers that the exported functions jump through, and those functions.
extern "C" {
#define QGPU_POINTER(name)                                                   \
  __attribute__((visibility("hidden"), used)) cl_api_##name qgpu_to_##name = \
      qgpu::guest::Chooser<&cl_icd_dispatch::name, cl_api_##name>::call;
QGPU_WRAPPED(QGPU_POINTER)
#undef QGPU_POINTER
}

#if defined(__x86_64__)
#define QGPU_JUMP(name) "jmp *qgpu_to_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define QGPU_JUMP(name) \
  "adrp x16, qgpu_to_" #name "\nldr x16, [x16, :lo12:qgpu_to_" #name "]\nbr x16\n"
#endif
#define QGPU_EXPORT(name)                                               \
  __asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name \
          ":\n" QGPU_JUMP(name) ".size " #name ", .-" #name "\n");
QGPU_WRAPPED(QGPU_EXPORT)

namespace qgpu::guest {
namespace {

// The loader reads OPENCL_LAYERS at its first call: after one that changes nothing it is known
// whether a layer runs. Then every exported function jumps straight to where it belongs.
void choose() {
#define QGPU_NEXT(name) loader.name = reinterpret_cast<cl_api_##name>(next(#name));
  QGPU_WRAPPED(QGPU_NEXT)
  QGPU_CALLED(QGPU_NEXT)
#undef QGPU_NEXT
  choosing = true;
  cl_uint platforms = 0;
  if (loader.clGetPlatformIDs) loader.clGetPlatformIDs(0, nullptr, &platforms);
  choosing = false;
  if (!direct()) driver = &loader;
  const cl_icd_dispatch& to = direct() ? loader : *layerTable();
#define QGPU_SETTLE(name) \
  if (to.name) __atomic_store_n(&qgpu_to_##name, to.name, __ATOMIC_SEQ_CST);
  QGPU_WRAPPED(QGPU_SETTLE)
#undef QGPU_SETTLE
}

}  // namespace
}  // namespace qgpu::guest
