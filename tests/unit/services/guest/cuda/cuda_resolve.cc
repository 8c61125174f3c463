#include <dlfcn.h>

#include "tests/unit/services/guest/cuda/cuda_program.h"

#ifdef QGPU_CUDA_LINKED
extern "C" {
#define QGPU_DECLARE(symbol, base, since, stream, types) void symbol();
NVIDIA_CUDA_HOOKED(QGPU_DECLARE)
NVIDIA_CUDA_CALLED(QGPU_DECLARE)
#undef QGPU_DECLARE
}
#endif

// The versions by which programs of before and after glibc 2.34 ask for it.
extern "C" void* oldDlsym(void*, const char*);
__asm__(".symver oldDlsym, dlsym@GLIBC_2.2.5");
extern "C" void* newDlsym(void*, const char*);
__asm__(".symver newDlsym, dlsym@GLIBC_2.34");

namespace qgpu::testing {
namespace {

namespace cuda = nvidia::cuda;
using cuda::Result;
using Find = void* (*)(void*, const char*);
using Proc1 = decltype(CudaTable::cuGetProcAddress);
using Proc2 = decltype(CudaTable::cuGetProcAddress_v2);

template <typename F>
void set(F& place, void* found) {
  place = reinterpret_cast<F>(found);
}

void fillBy(CudaTable& table, Find find, void* handle) {
#define QGPU_FILL(symbol, base, since, stream, types) set(table.symbol, find(handle, #symbol));
  NVIDIA_CUDA_HOOKED(QGPU_FILL)
  NVIDIA_CUDA_CALLED(QGPU_FILL)
#undef QGPU_FILL
}

std::uint64_t kindOf(cuda::Stream0 stream) {
  return stream == cuda::Stream0::kPerThread ? cuda::kAskPerThreadStream : cuda::kAskLegacyStream;
}

// As a runtime of the version that brought each function would ask.
void fillByProc1(CudaTable& table, Proc1 ask) {
  void* found = nullptr;
#define QGPU_FILL(symbol, base, since, stream, types)       \
  found = nullptr;                                          \
  ask(#base, &found, since, kindOf(cuda::Stream0::stream)); \
  set(table.symbol, found);
  NVIDIA_CUDA_HOOKED(QGPU_FILL)
  NVIDIA_CUDA_CALLED(QGPU_FILL)
#undef QGPU_FILL
}
void fillByProc2(CudaTable& table, Proc2 ask) {
  void* found = nullptr;
  int status = 0;
#define QGPU_FILL(symbol, base, since, stream, types)                \
  found = nullptr;                                                   \
  ask(#base, &found, since, kindOf(cuda::Stream0::stream), &status); \
  set(table.symbol, status == cuda::kSymbolFound ? found : nullptr);
  NVIDIA_CUDA_HOOKED(QGPU_FILL)
  NVIDIA_CUDA_CALLED(QGPU_FILL)
#undef QGPU_FILL
}

#ifdef QGPU_CUDA_LINKED
void fillLinked(CudaTable& table) {
#define QGPU_FILL(symbol, base, since, stream, types) \
  set(table.symbol, reinterpret_cast<void*>(&::symbol));
  NVIDIA_CUDA_HOOKED(QGPU_FILL)
  NVIDIA_CUDA_CALLED(QGPU_FILL)
#undef QGPU_FILL
}
#endif

}  // namespace

void* cudaLibrary() {
  static void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  return library;
}

bool resolveCuda(const std::string& way, CudaTable& table) {
#ifdef QGPU_CUDA_LINKED
  if (way == "linked") return fillLinked(table), true;
#endif
  if (way == "global") {
    if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL)) return false;
    fillBy(table, dlsym, RTLD_DEFAULT);
    return table.cuInit != nullptr;
  }
  void* library = cudaLibrary();
  if (!library) return false;
  if (way == "dlsym") {
    fillBy(table, dlsym, library);
  } else if (way == "dlsym-2.2.5") {
    fillBy(table, oldDlsym, library);
  } else if (way == "dlsym-2.34") {
    fillBy(table, newDlsym, library);
  } else if (way == "dlvsym") {
    void* libc = dlopen("libc.so.6", RTLD_LAZY);
    auto find = reinterpret_cast<Find>(dlvsym(libc, "dlsym", "GLIBC_2.2.5"));
    if (!find) return false;
    fillBy(table, find, library);
  } else if (way == "proc1") {
    fillByProc1(table, reinterpret_cast<Proc1>(dlsym(library, "cuGetProcAddress")));
  } else if (way == "proc2") {
    fillByProc2(table, reinterpret_cast<Proc2>(dlsym(library, "cuGetProcAddress_v2")));
  } else {
    return false;
  }
  return table.cuInit != nullptr;
}

}  // namespace qgpu::testing
