// Kernels, host functions, stream memory operations, and everything that is only one operation.

#include <cstring>

#include "tests/cuda_stand_in/table.h"

namespace qgpu::stand_in {
namespace {

std::uint64_t wordOf(void** arguments, int index) {
  return *static_cast<const std::uint64_t*>(arguments[index]);
}

// Depends on how much was asked for and on nothing else; sums of different ones don't cancel out.
std::uint64_t mixed(std::uint64_t rounds) {
  std::uint64_t x = rounds * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  return x ^ x >> 27;
}

// Kernels of tests/gpu. False: it is none of them.
bool workOfTestsGpu(const char* name, void** arguments, Work& work) {
  if (std::strcmp(name, "spin") == 0) {
    auto* progress = reinterpret_cast<std::uint64_t*>(wordOf(arguments, 1));
    const std::uint64_t iterations = work.ns = wordOf(arguments, 0);
    work.act = [=] { __atomic_fetch_add(progress, iterations / 1024, __ATOMIC_SEQ_CST); };
    work.begin = [=] { __atomic_fetch_add(progress, 1, __ATOMIC_SEQ_CST); };
  } else if (std::strcmp(name, "mix") == 0) {
    auto* sum = reinterpret_cast<std::uint64_t*>(wordOf(arguments, 1));
    const std::uint64_t rounds = work.ns = wordOf(arguments, 0);
    work.act = [=] { __atomic_fetch_xor(sum, mixed(rounds), __ATOMIC_SEQ_CST); };
  } else if (std::strcmp(name, "together") == 0) {
    work.ns = wordOf(arguments, 0) * wordOf(arguments, 1);
  } else if (std::strcmp(name, "multiply") == 0) {
    const std::uint64_t n = wordOf(arguments, 3);
    work.ns = n * n * n / 1000;
  } else {
    return false;
  }
  return true;
}

// Kernels that touch every word of a block of memory: one fills it, one changes each word, and one
// counts the words that are not what so many changes made of them.
std::uint64_t filled(std::uint64_t seed, std::uint64_t at) {
  return seed * 0x9E3779B97F4A7C15u + at;
}
std::uint64_t stirred(std::uint64_t word) {
  return word * 6364136223846793005u + 1442695040888963407u;
}
bool workOnBlocks(const char* name, void** arguments, Work& work) {
  const bool fills = std::strcmp(name, "fill") == 0, checks = std::strcmp(name, "check") == 0;
  if (!fills && !checks && std::strcmp(name, "stir") != 0) return false;
  auto* block = reinterpret_cast<std::uint64_t*>(wordOf(arguments, 0));
  const std::uint64_t words = wordOf(arguments, 1);
  if (!fills && !checks) {
    work.act = [=] {
      for (std::uint64_t i = 0; i < words; ++i) block[i] = stirred(block[i]);
    };
    return true;
  }
  const std::uint64_t seed = wordOf(arguments, 2);
  if (fills) {
    work.act = [=] {
      for (std::uint64_t i = 0; i < words; ++i) block[i] = filled(seed, i);
    };
    return true;
  }
  const std::uint64_t rounds = wordOf(arguments, 3);
  auto* wrong = reinterpret_cast<std::uint64_t*>(wordOf(arguments, 4));
  work.act = [=] {
    std::uint64_t times = 1, plus = 0;  // of all rounds together
    for (std::uint64_t n = 0; n < rounds; ++n) {
      plus = stirred(plus);
      times *= stirred(1) - stirred(0);
    }
    for (std::uint64_t i = 0; i < words; ++i) {
      const std::uint64_t word = filled(seed, i) * times + plus;
      if (block[i] != word) __atomic_fetch_add(wrong, 1, __ATOMIC_SEQ_CST);
    }
  };
  return true;
}

Work kernelWork(Fn function, void** arguments) {
  const char* name = reinterpret_cast<const char*>(function);
  Work work;
  if (workOfTestsGpu(name, arguments, work) || workOnBlocks(name, arguments, work)) return work;
  if (std::strcmp(name, "sleep") == 0) {
    work.ns = std::uint64_t{*static_cast<const std::uint32_t*>(arguments[0])} * 1'000;
  } else if (std::strcmp(name, "add") == 0) {
    auto* counter = *static_cast<std::uint64_t**>(arguments[0]);
    work.act = [counter] { __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST); };
  }
  return work;
}

// Into streams of the current context alone, or of a green one upon it: a driver may refuse others.
Result launchOn(Str handle, Stream0 zero, Work work) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  if (!stream) return rc;
  const Context* current = currentContext();
  if (!current) return kInvalidContext;
  if (memoryOf(*stream->context) != memoryOf(*current)) return ++machine().misuses, kInvalidHandle;
  return put(*stream, std::move(work));
}

template <Stream0 zero>
Result kernel(Fn function, U, U, U, U, U, U, U, Str stream, void** arguments, void**) {
  return launchOn(stream, zero, kernelWork(function, arguments));
}
template <Stream0 zero>
Result kernelEx(const LaunchConfig* config, Fn function, void** arguments, void**) {
  return launchOn(config->stream, zero, kernelWork(function, arguments));
}
template <Stream0 zero>
Result cooperative(Fn function, U, U, U, U, U, U, U, Str stream, void** arguments) {
  return launchOn(stream, zero, kernelWork(function, arguments));
}
// Each device's stream is of a context of that device.
Result onManyDevices(LaunchParams* launches, U count, U) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  for (U i = 0; i < count && rc == kSuccess; ++i) {
    Stream* stream = find(launches[i].stream, Stream0::kLegacy, rc);
    if (stream) rc = put(*stream, kernelWork(launches[i].function, launches[i].arguments));
  }
  return rc;
}

// On the stream's thread always, never on the caller's: it takes a moment.
template <Stream0 zero>
Result hostFunction(Str stream, HostFn function, void* data) {
  return launchOn(stream, zero, Work{1, [=] { function(data); }});
}

template <Stream0 zero>
Result hostFunction2(Str stream, HostFn function, void* data, U) {
  return hostFunction<zero>(stream, function, data);
}

template <Stream0 zero, typename Value>
Result writeValue(Str stream, Ptr address, Value value, U) {
  auto* word = reinterpret_cast<Value*>(address);
  return launchOn(stream, zero, Work{0, [=] { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }});
}

template <Stream0 zero, typename Value>
Result waitValue(Str handle, Ptr address, Value value, U) {
  Locked held(machine().lock);
  Result rc = kSuccess;
  Stream* stream = find(handle, zero, rc);
  const auto* word = reinterpret_cast<const Value*>(address);
  const auto reached = [=] { return __atomic_load_n(word, __ATOMIC_SEQ_CST) >= value; };
  return stream ? put(*stream, Work{}, reached) : rc;
}

template <typename F>
struct Plain;
template <typename... A>
struct Plain<Result (*)(A...)> {
  template <Stream0 zero, bool hostWaits>
  static Result call(A... a) {
    return plainCall(zero, hostWaits, a...);
  }
};

template <Stream0 zero, bool hostWaits, typename F>
void otherwisePlain(F& place) {
  if (!place) place = &Plain<F>::template call<zero, hostWaits>;
}

}  // namespace

void fillLaunches(Table& table) {
  constexpr auto legacy = Stream0::kLegacy, own = Stream0::kPerThread;
  table.cuLaunchKernel = kernel<legacy>;
  table.cuLaunchKernel_ptsz = kernel<own>;
  table.cuLaunchKernelEx = kernelEx<legacy>;
  table.cuLaunchKernelEx_ptsz = kernelEx<own>;
  table.cuLaunchCooperativeKernel = cooperative<legacy>;
  table.cuLaunchCooperativeKernel_ptsz = cooperative<own>;
  table.cuLaunchCooperativeKernelMultiDevice = onManyDevices;
  table.cuLaunchHostFunc = hostFunction<legacy>;
  table.cuLaunchHostFunc_ptsz = hostFunction<own>;
  table.cuLaunchHostFunc_v2 = hostFunction2<legacy>;
  table.cuLaunchHostFunc_v2_ptsz = hostFunction2<own>;
  table.cuLaunchOfTomorrow = [](Str stream) { return launchOn(stream, Stream0::kLegacy, Work{}); };
  table.cuStreamWriteValue32 = table.cuStreamWriteValue32_v2 = writeValue<legacy, U>;
  table.cuStreamWriteValue32_ptsz = table.cuStreamWriteValue32_v2_ptsz = writeValue<own, U>;
  table.cuStreamWriteValue64 = table.cuStreamWriteValue64_v2 =
      writeValue<legacy, unsigned long long>;
  table.cuStreamWriteValue64_ptsz = table.cuStreamWriteValue64_v2_ptsz =
      writeValue<own, unsigned long long>;
  table.cuStreamWaitValue32 = table.cuStreamWaitValue32_v2 = waitValue<legacy, U>;
  table.cuStreamWaitValue32_ptsz = table.cuStreamWaitValue32_v2_ptsz = waitValue<own, U>;
  table.cuStreamWaitValue64 = table.cuStreamWaitValue64_v2 = waitValue<legacy, unsigned long long>;
  table.cuStreamWaitValue64_ptsz = table.cuStreamWaitValue64_v2_ptsz =
      waitValue<own, unsigned long long>;
#define QGPU_PLAIN(symbol, base, since, stream, types) \
  otherwisePlain<Stream0::stream, false>(table.symbol);
#define QGPU_WAITED(symbol, base, since, stream, types) \
  otherwisePlain<Stream0::stream, true>(table.symbol);
  NVIDIA_CUDA_KERNELS(QGPU_PLAIN)
  NVIDIA_CUDA_COPIES(QGPU_PLAIN)
  NVIDIA_CUDA_FILLS(QGPU_PLAIN)
  NVIDIA_CUDA_MEMOPS(QGPU_PLAIN)
  NVIDIA_CUDA_WAITS(QGPU_PLAIN)
  NVIDIA_CUDA_DRAINING(QGPU_WAITED)
#undef QGPU_PLAIN
#undef QGPU_WAITED
}

}  // namespace qgpu::stand_in
