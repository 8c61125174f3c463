#include "tests/gpu/work_driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/kernels.h"

namespace qgpu::gpu {
namespace {

constexpr int kMultiprocessors = 16;       // attribute of a device
constexpr U kBlocksPerMultiprocessor = 2;  // of 256 threads: always resident together
constexpr U kPortableAndMapped = 1 | 2;    // memory of the host

void load(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "qgpu-gpu-work: %s\n", dlerror());
    std::exit(4);
  }
#define QGPU_FIND(symbol, base, since, stream, types) \
  driver.symbol = reinterpret_cast<decltype(driver.symbol)>(dlsym(library, #symbol));
  NVIDIA_CUDA_HOOKED(QGPU_FIND)
  NVIDIA_CUDA_CALLED(QGPU_FIND)
  NVIDIA_CUDA_PLAIN(QGPU_FIND)
#undef QGPU_FIND
}

}  // namespace

void must(Result result, const char* call) {
  if (result == kSuccess) return;
  std::fprintf(stderr, "qgpu-gpu-work: %s: CUDA error %d\n", call, result);
  std::exit(3);
}

std::uint64_t nowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(t.tv_nsec);
}

Work::Work() {
  load(driver);
  Ctx context = nullptr;
  Mod spins = nullptr, works = nullptr;
  int multiprocessors = 1;
  QGPU_MUST(driver.cuInit(0));
  QGPU_MUST(driver.cuDeviceGetAttribute(&multiprocessors, kMultiprocessors, 0));
  QGPU_MUST(driver.cuDevicePrimaryCtxRetain(&context, 0));
  QGPU_MUST(driver.cuCtxSetCurrent(context));
  QGPU_MUST(driver.cuModuleLoadData(&spins, suspend::kSpinPtx));
  QGPU_MUST(driver.cuModuleLoadData(&works, kWorkPtx));
  QGPU_MUST(driver.cuModuleGetFunction(&kernels.nothing, spins, "nothing"));
  QGPU_MUST(driver.cuModuleGetFunction(&kernels.spin, spins, "spin"));
  QGPU_MUST(driver.cuModuleGetFunction(&kernels.mix, works, "mix"));
  QGPU_MUST(driver.cuModuleGetFunction(&kernels.together, works, "together"));
  QGPU_MUST(driver.cuModuleGetFunction(&kernels.multiply, works, "multiply"));
  QGPU_MUST(driver.cuStreamCreate(&stream, kNonBlocking));
  blocks = static_cast<U>(multiprocessors) * kBlocksPerMultiprocessor;
}

volatile std::uint64_t* Work::hostWord() {
  void* at = nullptr;
  QGPU_MUST(driver.cuMemHostAlloc(&at, sizeof(std::uint64_t), kPortableAndMapped));
  auto* word = static_cast<volatile std::uint64_t*>(at);
  *word = 0;
  return word;
}

Result Work::spin(std::uint64_t iterations, volatile std::uint64_t* progress, Str on) {
  void* arguments[] = {&iterations, &progress};
  return driver.cuLaunchKernel(kernels.spin, blocks, 1, 1, kThreads, 1, 1, 0, on, arguments,
                               nullptr);
}

Result Work::mix(std::uint64_t rounds, Ptr sum, Str on) {
  void* arguments[] = {&rounds, &sum};
  return driver.cuLaunchKernel(kernels.mix, blocks, 1, 1, kThreads, 1, 1, 0, on, arguments,
                               nullptr);
}

Result Work::together(std::uint64_t rounds, std::uint64_t iterations, Ptr meeting, Str on) {
  if (Result rc = driver.cuMemsetD32Async(meeting, 0, 2, on)) return rc;
  void* arguments[] = {&rounds, &iterations, &meeting};
  return driver.cuLaunchCooperativeKernel(kernels.together, blocks, 1, 1, kThreads, 1, 1, 0, on,
                                          arguments);
}

Result Work::multiply(Ptr a, Ptr b, Ptr c, std::uint64_t n, Str on) {
  void* arguments[] = {&a, &b, &c, &n};
  const U side = static_cast<U>(n / 16);
  return driver.cuLaunchKernel(kernels.multiply, side, side, 1, 16, 16, 1, 0, on, arguments,
                               nullptr);
}

TwoInFlight::TwoInFlight(Work& work) : work_(work) {
  constexpr U kWithoutTiming = 2;
  for (Evt& end : ends_) QGPU_MUST(work.driver.cuEventCreate(&end, kWithoutTiming));
}

bool TwoInFlight::put() {
  const std::uint64_t piece = pieces_++;
  QGPU_MUST(work_.driver.cuEventRecord(ends_[piece % 2], work_.stream));
  if (piece == 0) return false;
  QGPU_MUST(work_.driver.cuEventSynchronize(ends_[(piece - 1) % 2]));
  return true;
}

Options::Options(int count, char** words) : count_(count), words_(words) {}

std::string Options::text(const std::string& name, const std::string& otherwise) const {
  const std::string flag = "--" + name;
  for (int i = 0; i < count_; ++i) {
    if (flag == words_[i] && i + 1 < count_) return words_[i + 1];
    if (std::strncmp(words_[i], (flag + "=").c_str(), flag.size() + 1) == 0) {
      return words_[i] + flag.size() + 1;
    }
  }
  return otherwise;
}

std::uint64_t Options::number(const std::string& name, std::uint64_t otherwise) const {
  const std::string given = text(name, "");
  return given.empty() ? otherwise : std::strtoull(given.c_str(), nullptr, 10);
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

bool endAsked(const Options& options) {
  const std::string path = options.text("until", "");
  return !path.empty() && exists(path);
}

}  // namespace qgpu::gpu
