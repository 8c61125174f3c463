#pragma once
// How much work a call of HIP is, where its arguments say that in another order than CUDA's
// (cuda_work.h); all others are looked at as those of CUDA are.

#include "services/guest/cuda/cuda_work.h"
#include "services/guest/hip/hip_calls.h"

namespace qgpu::hip {

// --- kernels, by the address of their stub ---

template <typename... A>
inline Launch launchOf(const void* kernel, Dim3 grid, A...) {
  return {kernel, {grid.x, grid.y, grid.z}, 0};
}
template <typename... A>
inline Launch launchOf(const KernelConfig* config, const void* kernel, A...) {
  if (!config) return {kernel, {0, 0, 0}, 0};
  return {kernel, {config->grid.x, config->grid.y, config->grid.z}, 0};
}

// --- to and from a variable: length and offset ---

template <typename... A>
inline Launch launchOf(const void*, const void*, Size bytes, Size, int, A...) {
  return ofBytes(bytes);
}
template <typename... A>
inline Launch launchOf(void*, const void*, Size bytes, Size, int, A...) {
  return ofBytes(bytes);
}

// --- rectangles: width in bytes and height come last ---

template <typename... A>
inline Launch launchOf(void*, Size, const void*, Size, Size width, Size height, int, A...) {
  return ofBytes(width * height);
}
template <typename... A>
inline Launch launchOf(Arr, Size, Size, const void*, Size, Size width, Size height, int, A...) {
  return ofBytes(width * height);
}
template <typename... A>
inline Launch launchOf(void*, Size, Arr, Size, Size, Size width, Size height, int, A...) {
  return ofBytes(width * height);
}
template <typename... A>
inline Launch launchOf(Arr, Size, Size, Arr, Size, Size, Size width, Size height, int, A...) {
  return ofBytes(width * height);
}
template <typename... A>
inline Launch launchOf(void*, Size, int, Size width, Size height, A...) {
  return ofBytes(width * height);
}

// --- volumes ---

template <typename... A>
inline Launch launchOf(const Copy3DParms* copy, A...) {
  return ofBytes(copy ? copy->extent.width * copy->extent.height * copy->extent.depth : 0);
}
template <typename... A>
inline Launch launchOf(PitchedPtr, int, Extent extent, A...) {
  return ofBytes(extent.width * extent.height * extent.depth);
}

// --- as CUDA's ---

template <typename... A>
inline Launch launchOf(A... a) {
  return cuda::launchOf(a...);
}

}  // namespace qgpu::hip
