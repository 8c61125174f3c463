#pragma once
// How a program comes to the driver's functions: each of the ways that CUDA runtimes, frameworks
// and plain programs do. For cuda_program, which is a tenant in the tests of libqgpu.so.

#include <string>

#include "tests/cuda_stand_in/stand_in.h"

namespace qgpu::testing {

// All functions that the program calls, by their exported names.
using CudaTable = nvidia::cuda::Calls;

// The ways: "dlsym", "dlsym-2.2.5", "dlsym-2.34", "dlvsym", "global", "proc1", "proc2".
// "linked" is another program's, since it is the linker's.
bool resolveCuda(const std::string& way, CudaTable& table);

// The library itself, as the program opened it.
void* cudaLibrary();

}  // namespace qgpu::testing
