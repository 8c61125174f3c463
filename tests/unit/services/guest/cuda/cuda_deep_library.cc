// A library that is linked with the driver, to be opened with RTLD_DEEPBIND.

#include "tests/cuda_stand_in/nvidia_cuda.h"

using namespace qgpu::nvidia::cuda;

extern "C" {
Result cuCtxGetCurrent(Ctx*);
Result cuModuleLoadData(Mod*, const void*);
Result cuModuleGetFunction(Fn*, Mod, const char*);
Result cuLaunchKernel(Fn, U, U, U, U, U, U, U, Str, void**, void**);

__attribute__((visibility("default"))) Result qgpuLaunchNothing(U times) {
  Mod module = nullptr;
  Fn nothing = nullptr;
  cuModuleLoadData(&module, "");
  Result rc = cuModuleGetFunction(&nothing, module, "nothing");
  for (U i = 0; i < times && rc == kSuccess; ++i) {
    rc = cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  return rc;
}
}
