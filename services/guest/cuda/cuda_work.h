#pragma once
// How much work a call of CUDA is, as its arguments say: the kernel and its grid, whose time is
// learnt, or the bytes that a copy or a fill moves, from which its time follows. The window of work
// in flight (cuda_streams.h) is kept by these estimates.
//
// launchOf(arguments...) is called by the hooks with the arguments of the hooked call as they are.
// Overloads tell the forms of calls apart by the types of their first arguments, so that the table
// of hooks names no form. A form without an overload of its own falls to the first template, which
// takes what it finds. All is pure, and nothing is dereferenced but the descriptions of copies that
// the driver itself reads.

#include "services/nvidia_abi/cuda_abi.h"

namespace qgpu::cuda {

// What a call is taken for before it was measured. Without kernel and bytes: something small.
struct Launch {
  const void* kernel = nullptr;  // of a kernel or a graph: learnt
  std::size_t grid[3] = {0, 0, 0};
  std::uint64_t bytes = 0;  // of a copy or fill: by its size
};

// The last of the arguments that has exactly the type of `otherwise`, else `otherwise`.
template <typename Wanted, typename... A>
inline Wanted argument(Wanted otherwise, A... a) {
  Wanted found = otherwise;
  [[maybe_unused]] const auto look = [&](auto value) {
    if constexpr (__is_same(decltype(value), Wanted)) found = value;
  };
  (look(a), ...);
  return found;
}

// What the descriptions of copies say, in bytes; 0 where there is none. Lengths are the program's
// own, so a sum may wrap: an estimate is wrong then, and nothing else.
inline std::uint64_t bytesOf(const Copy2D* copy) {
  return copy ? copy->width * copy->height : 0;
}
inline std::uint64_t bytesOf(const Copy3D* copy) {
  return copy ? copy->width * copy->height * copy->depth : 0;
}
inline std::uint64_t bytesOf(const CopyOperation* copies, Size count) {
  std::uint64_t sum = 0;
  for (Size i = 0; copies && i < count; ++i) {
    sum += copies[i].width * copies[i].height * copies[i].depth;
  }
  return sum;
}
inline std::uint64_t sumOf(const Size* sizes, Size count) {
  std::uint64_t sum = 0;
  for (Size i = 0; sizes && i < count; ++i) sum += sizes[i];
  return sum;
}
// Of a copy or fill of so many bytes.
inline Launch ofBytes(std::uint64_t bytes) {
  return {nullptr, {0, 0, 0}, bytes};
}

// Any other call: a copy with its size or its description, a graph, or what moves nothing.
template <typename... A>
inline Launch launchOf(A... a) {
  Launch launch;
  launch.bytes = argument<Size>(0, a...);  // the last size of a plain call is its length
  if (const auto* flat = argument<const Copy2D*>(nullptr, a...)) launch.bytes = bytesOf(flat);
  if (const auto* deep = argument<const Copy3D*>(nullptr, a...)) launch.bytes = bytesOf(deep);
  if (Exec graph = argument<Exec>(nullptr, a...)) launch.kernel = graph;
  return launch;
}

// --- kernels: cuLaunchKernel and its like, with three sizes of the grid or a configuration; and
// the old form, cuLaunch and cuLaunchGrid, with none or two ---

template <typename... A>
inline Launch launchOf(Fn kernel, U x, U y, U z, A...) {
  return {kernel, {x, y, z}, 0};
}
template <typename... A>
inline Launch launchOf(const LaunchConfig* config, Fn kernel, A...) {
  if (!config) return {kernel, {0, 0, 0}, 0};
  return {kernel, {config->gridX, config->gridY, config->gridZ}, 0};
}
inline Launch launchOf(Fn kernel) {
  return {kernel, {1, 1, 1}, 0};
}
inline Launch launchOf(Fn kernel, int x, int y) {
  return {kernel, {static_cast<std::size_t>(x), static_cast<std::size_t>(y), 1}, 0};
}
inline Launch launchOf(Fn kernel, int x, int y, Str) {
  return launchOf(kernel, x, y);
}

// --- fills, whose lengths are in elements, and whose rows have a pitch, a width and a height ---

template <typename... Stream>
inline Launch launchOf(Ptr, unsigned short, Size count, Stream...) {
  return ofBytes(count * sizeof(short));
}
template <typename... Stream>
inline Launch launchOf(Ptr, U, Size count, Stream...) {
  return ofBytes(count * sizeof(U));
}
template <typename... Stream>
inline Launch launchOf(Ptr, Size, unsigned char, Size width, Size height, Stream...) {
  return ofBytes(width * height);
}
template <typename... Stream>
inline Launch launchOf(Ptr, Size, unsigned short, Size width, Size height, Stream...) {
  return ofBytes(width * height * sizeof(short));
}
template <typename... Stream>
inline Launch launchOf(Ptr, Size, U, Size width, Size height, Stream...) {
  return ofBytes(width * height * sizeof(U));
}

// --- many copies at once (cuMemcpyBatchAsync and the like): the sum of all ---

template <typename... More>
inline Launch launchOf(Ptr*, Ptr*, Size* sizes, Size count, More...) {
  return ofBytes(sumOf(sizes, count));
}
template <typename... More>
inline Launch launchOf(Ptr*, Size* sizes, Size count, More...) {
  return ofBytes(sumOf(sizes, count));
}
template <typename... More>
inline Launch launchOf(Size count, CopyOperation* copies, More...) {
  return ofBytes(bytesOf(copies, count));
}
template <typename... More>
inline Launch launchOf(CopyOperation* copy, unsigned long long, More...) {
  return ofBytes(bytesOf(copy, 1));
}

}  // namespace qgpu::cuda
