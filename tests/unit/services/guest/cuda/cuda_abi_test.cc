// The declarations of NVIDIA's interface that are ours, beside cuda.h, where a machine has it (it
// is never needed to build): layouts, numbers, and every function's arguments. And the other way:
// every function of CUDA 13 whose name says that it launches, copies or allocates is in the hook
// table, or is named here with the reason why not, so that a new version shows its holes.

#include <algorithm>
#include <array>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>

#ifdef QGPU_CUDA_HEADER
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#endif

#include "services/guest/cuda/cuda_names.h"
#include "services/nvidia_abi/cuda_calls.h"
#include "tests/cuda_stand_in/nvidia_cuda.h"

// What the toolkit of this machine does not have yet is taken to be as we declare it.
#ifdef QGPU_CUDA_HEADER
#define QGPU_LATER(symbol) \
  extern "C" std::remove_pointer_t<decltype(qgpu::cuda::Calls::symbol)> symbol;
#if CUDA_VERSION < 13020
QGPU_LATER(cuMemcpyWithAttributesAsync)
QGPU_LATER(cuMemcpyWithAttributesAsync_ptsz)
QGPU_LATER(cuMemcpy3DWithAttributesAsync)
QGPU_LATER(cuMemcpy3DWithAttributesAsync_ptsz)
QGPU_LATER(cuLaunchHostFunc_v2)
QGPU_LATER(cuLaunchHostFunc_v2_ptsz)
QGPU_LATER(cuStreamBeginCaptureToCig)
QGPU_LATER(cuStreamBeginCaptureToCig_ptsz)
QGPU_LATER(cuStreamEndCaptureToCig)
QGPU_LATER(cuStreamEndCaptureToCig_ptsz)
#endif
#if CUDA_VERSION < 13030
QGPU_LATER(cuStreamBeginRecaptureToGraph)
QGPU_LATER(cuStreamBeginRecaptureToGraph_ptsz)
#endif
#endif

namespace qgpu::cuda {
namespace {

std::set<std::string> hooked() {
  return {
#define QGPU_NAME(symbol, base, since, stream, types) #symbol,
      QGPU_CUDA_HOOKED(QGPU_NAME)
#undef QGPU_NAME
  };
}

// The stand-in of the driver has a list of its own: what is wrong in one is not in the other.
TEST(CudaHooks, TheStandInsFunctionsHaveTheSameNamesVersionsAndForms) {
  using Row = std::array<std::string, 5>;
#define QGPU_ROW(symbol, base, since, stream, types) \
  Row{#symbol, #base, std::to_string(since), #stream, #types},
  const std::vector<Row> ours = {QGPU_CUDA_HOOKED(QGPU_ROW) QGPU_CUDA_CALLED(QGPU_ROW)
                                     QGPU_NVML_HOOKED(QGPU_ROW)};
  const std::vector<Row> theirs = {NVIDIA_CUDA_HOOKED(QGPU_ROW) NVIDIA_CUDA_CALLED(QGPU_ROW)
                                       NVIDIA_NVML_HOOKED(QGPU_ROW)};
#undef QGPU_ROW
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i], theirs[i]);
}

// What a name says: work for the card, or memory of it.
const std::regex kWork(
    "cu(Launch|GraphLaunch|GraphUpload|Memcpy|Memset|MemPrefetch|MemDiscard|"
    "MemBatch|MemMapArray|Stream(Write|Wait|Batch|Begin(Rec|C)apture|EndCapture)|Signal|"
    "WaitExternal).*");
const std::regex kMemory(
    "cu(MemAlloc|MemFree|MemCreate|MemRelease|MemMap|MemUnmap|MemImport|"
    "MemRetain|Array3?D?Create|ArrayDestroy|MipmappedArray(Create|Destroy)|"
    "MemGetInfo|DeviceTotalMem|MemPool(Create|Destroy|Import)|MemGet(Default)?MemPool|"
    "ImportExternalMemory|"
    "IpcOpenMem|MulticastCreate|GraphAddMemAlloc|MemHostAlloc|MemHostRegister)"
    ".*");

// Why a function that looks like work or memory has no hook. Ends with '*': all that begin so.
const std::map<std::string, std::string> kWithout = {
    {"cuMemAllocHost", "memory of the host"},
    {"cuMemAllocHost_v2", "memory of the host"},
    {"cuMemHostAlloc", "memory of the host"},
    {"cuMemHostRegister", "memory of the host"},
    {"cuMemHostRegister_v2", "memory of the host"},
    {"cuMemFreeHost", "memory of the host"},
    {"cuStreamWaitEvent", "orders streams, no card is busy with it"},
    {"cuStreamWaitEvent_ptsz", "orders streams, no card is busy with it"},
    {"cuMemPoolImportFromShareableHandle", "counted where it was allocated"},
    {"cuMemPoolImportPointer", "counted where it was allocated"},
    {"cuIpcOpenMemHandle", "counted where it was allocated"},
    {"cuIpcOpenMemHandle_v2", "counted where it was allocated"},
    {"cuImportExternalMemory", "counted nowhere yet: for the resource manager's boundary"},
    {"cuMulticastCreate", "counted nowhere yet: for the resource manager's boundary"},
    {"cuGraphAddMemAllocNode", "counted nowhere yet: for the resource manager's boundary"},
};

// The forms of before CUDA 3.2 and 4.0: addresses and sizes of 32 bits, of no use to 64-bit code.
bool isOldForm(const std::string& name, const std::set<std::string>& all) {
  return all.contains(name + "_v2") && name.find("_v2") == name.npos &&
         (name.starts_with("cuMemcpy") || name.starts_with("cuMemset") ||
          name.starts_with("cuArray") || name.starts_with("cuMemAlloc") || name == "cuMemFree" ||
          name == "cuMemGetInfo" || name == "cuDeviceTotalMem");
}

std::set<std::string> exportedByCuda13() {
  std::ifstream in(QGPU_CUDA_SYMBOLS);
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') names.insert(line);
  }
  return names;
}

std::vector<std::string> holes(const std::set<std::string>& all, const std::set<std::string>& own) {
  std::vector<std::string> found;
  for (const std::string& name : all) {
    const bool wanted = std::regex_match(name, kWork) || std::regex_match(name, kMemory);
    if (!wanted || own.contains(name) || kWithout.contains(name)) continue;
    // A header calls the present form by the name of the old one.
    if (!isOldForm(name, all) && !isOldForm(name, own)) found.push_back(name);
  }
  return found;
}

TEST(CudaHooks, EveryFunctionOfCuda13ThatLaunchesOrAllocatesIsHookedOrNamed) {
  const auto all = exportedByCuda13();
  ASSERT_GT(all.size(), 600u);
  for (const std::string& name : holes(all, hooked())) ADD_FAILURE() << name << " has no hook";
}

TEST(CudaHooks, WhatAProgramIsWarnedOfIsWorkByItsName) {
  for (const std::string& name : exportedByCuda13()) {
    const bool work = std::regex_match(name, kWork) && !kWithout.contains(name);
    EXPECT_EQ(looksLikeWork(name), work) << name;
  }
  EXPECT_FALSE(looksLikeWork("cu"));
  EXPECT_TRUE(looksLikeWork("cuLaunchOfTomorrow"));
}

TEST(CudaHooks, AHoleIsSeen) {
  auto own = hooked();
  own.erase("cuLaunchKernelEx_ptsz");
  auto all = exportedByCuda13();
  all.insert("cuMemcpyBatchAsync_v3");
  EXPECT_EQ(holes(all, own),
            (std::vector<std::string>{"cuLaunchKernelEx_ptsz", "cuMemcpyBatchAsync_v3"}));
}

TEST(CudaHooks, EveryHookIsAFunctionOfCuda13) {
  const auto all = exportedByCuda13();
  for (const std::string& name : hooked()) EXPECT_TRUE(all.contains(name)) << name;
  for (const auto& [name, reason] : kWithout) {
    EXPECT_TRUE(all.contains(name)) << name << " is named, and CUDA has no such function";
    EXPECT_FALSE(hooked().contains(name)) << name;
  }
}

// A form of a function, as cuGetProcAddress is asked for it.
using Form = std::tuple<std::string, int, Stream0>;

std::set<Form> hookedForms() {
  return {
#define QGPU_FORM(symbol, base, since, stream, types) {#base, since, Stream0::stream},
      QGPU_CUDA_HOOKED(QGPU_FORM)
#undef QGPU_FORM
  };
}

TEST(CudaHooks, TheFormsThatTheRuntimeOfCuda13AsksForAreOurs) {
  std::ifstream in(QGPU_CUDART_ASKS);
  const auto forms = hookedForms();
  std::set<std::string> bases;
  for (const Form& form : forms) bases.insert(std::get<0>(form));
  std::size_t ours = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int version = 0, flags = 0;
    if (line[0] == '#' || !(words >> name >> version >> flags)) continue;
    if (!bases.contains(name)) {
      EXPECT_FALSE(looksLikeWork(name)) << line;
      continue;
    }
    const Stream0 stream = flags == kAskPerThreadStream ? Stream0::kPerThread : Stream0::kLegacy;
    EXPECT_TRUE(forms.contains({name, version, stream})) << line;
    ++ours;
  }
  EXPECT_GE(ours, 131u);
}

#ifdef QGPU_CUDA_HEADER

template <typename A, typename B>
constexpr bool sameArgument() {
  return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
         std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_class_v<A> == std::is_class_v<B>;
}
template <typename Ours, typename Theirs>
struct SameShape;
template <typename... A, typename R, typename... B>
struct SameShape<Result (*)(A...), R (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return (sameArgument<A, B>() && ...);
    }
  }();
};

#define QGPU_SHAPE(symbol, base, since, stream, types) \
  static_assert(SameShape<decltype(Calls::symbol), decltype(&::symbol)>::value, #symbol);
QGPU_CUDA_KERNELS(QGPU_SHAPE)
QGPU_CUDA_COPIES(QGPU_SHAPE)
QGPU_CUDA_FILLS(QGPU_SHAPE)
QGPU_CUDA_DRAINING(QGPU_SHAPE)
QGPU_CUDA_MEMOPS(QGPU_SHAPE)
QGPU_CUDA_WAITS(QGPU_SHAPE)
QGPU_CUDA_STREAMS(QGPU_SHAPE)
QGPU_CUDA_CONTEXTS(QGPU_SHAPE)
QGPU_CUDA_MEMORY(QGPU_SHAPE)
QGPU_CUDA_PLUMBING(QGPU_SHAPE)
QGPU_CUDA_CALLED(QGPU_SHAPE)

static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(sizeof(LaunchParams) == sizeof(CUDA_LAUNCH_PARAMS));
static_assert(offsetof(LaunchParams, stream) == offsetof(CUDA_LAUNCH_PARAMS, hStream));
static_assert(sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D_v2));
static_assert(offsetof(Copy2D, width) == offsetof(CUDA_MEMCPY2D_v2, WidthInBytes));
static_assert(sizeof(Copy3D) == sizeof(CUDA_MEMCPY3D_v2));
static_assert(sizeof(Copy3D) == sizeof(CUDA_MEMCPY3D_PEER_v1));
static_assert(offsetof(Copy3D, width) == offsetof(CUDA_MEMCPY3D_v2, WidthInBytes));
static_assert(sizeof(CopyOperation) == sizeof(CUDA_MEMCPY3D_BATCH_OP_v1));
static_assert(offsetof(CopyOperation, width) == offsetof(CUDA_MEMCPY3D_BATCH_OP_v1, extent.width));
static_assert(sizeof(ArrayShape) == sizeof(CUDA_ARRAY_DESCRIPTOR_v2));
static_assert(offsetof(ArrayShape, channels) == offsetof(CUDA_ARRAY_DESCRIPTOR_v2, NumChannels));
static_assert(sizeof(ArrayShape3D) == sizeof(CUDA_ARRAY3D_DESCRIPTOR_v2));
static_assert(offsetof(ArrayShape3D, format) == offsetof(CUDA_ARRAY3D_DESCRIPTOR_v2, Format));
static_assert(sizeof(MemProperties) == sizeof(CUmemAllocationProp_v1));
static_assert(offsetof(MemProperties, location) == offsetof(CUmemAllocationProp_v1, location));
static_assert(sizeof(PoolProperties) == sizeof(CUmemPoolProps_v1));
static_assert(offsetof(PoolProperties, location) == offsetof(CUmemPoolProps_v1, location));
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE && kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
static_assert(kCaptureInvalidated == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
static_assert(kCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(kContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(kIllegalState == CUDA_ERROR_ILLEGAL_STATE);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kCaptureBroken == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(kAskPerThreadStream == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

// A toolkit newer than the list: its names, from the header itself.
TEST(CudaHooks, TheToolkitOfThisMachineHasNoHole) {
  std::ifstream in(QGPU_CUDA_HEADER);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::regex declaration("CUDAAPI\\s+(cu[A-Z]\\w+)\\s*\\(");
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), declaration), last; it != last; ++it) {
    names.insert((*it)[1]);
  }
  ASSERT_GT(names.size(), 400u);
  for (const std::string& name : holes(names, hooked())) ADD_FAILURE() << name << " has no hook";
}
#endif

}  // namespace
}  // namespace qgpu::cuda
