// What libqgpu.so knows of HIP against what was written down of AMD's headers for the stand-in, and
// against the list of all that the runtime exports.

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/guest/hip/hip_calls.h"
#include "services/guest/hip/hip_work.h"
#include "tests/hip_stand_in/amd_hip.h"

#ifdef QGPU_HIP_HEADER
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#endif

namespace qgpu::testing::hip_abi_test {
namespace {

// How the machine passes an argument: its size, and whether it is one word or a structure.
template <typename T>
std::string formOf() {
  return (std::is_class_v<T> ? "{" : "") + std::to_string(sizeof(T));
}
template <typename F>
struct Forms;
template <typename R, typename... A>
struct Forms<R (*)(A...)> {
  static std::string of() { return ((formOf<A>() + " ") + ... + std::string()); }
};

using Named = std::map<std::string, std::string>;

Named hooked() {
  Named all;
#define QGPU_AS(symbol, as) all[#symbol] = Forms<decltype(cuda::Calls::as)>::of();
#define QGPU_OWN(symbol, stream, types) all[#symbol] = Forms<decltype(hip::Calls::symbol)>::of();
  QGPU_HIP_AS_CUDA(QGPU_AS)
  QGPU_HIP_OWN(QGPU_OWN)
  QGPU_HIP_CALLED(QGPU_OWN)
#undef QGPU_AS
#undef QGPU_OWN
  return all;
}

namespace written {
using namespace amd;
#define QGPU_WRITTEN(symbol, types, ...) using f_##symbol = int(*) types;
AMD_HIP_AS_CUDA(QGPU_WRITTEN)
AMD_HIP_OWN(QGPU_WRITTEN)
AMD_HIP_CALLED(QGPU_WRITTEN)
#undef QGPU_WRITTEN
}  // namespace written

Named writtenDown() {
  Named all;
#define QGPU_WRITTEN(symbol, types, ...) all[#symbol] = Forms<written::f_##symbol>::of();
  AMD_HIP_AS_CUDA(QGPU_WRITTEN)
  AMD_HIP_OWN(QGPU_WRITTEN)
  AMD_HIP_CALLED(QGPU_WRITTEN)
#undef QGPU_WRITTEN
  return all;
}

TEST(HipAbi, EveryFunctionTakesWhatAmdsHeadersSay) {
  const Named ours = hooked(), theirs = writtenDown();
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [symbol, forms] : theirs) {
    const auto at = ours.find(symbol);
    ASSERT_NE(at, ours.end()) << symbol;
    EXPECT_EQ(at->second, forms) << symbol;
  }
}

TEST(HipAbi, LayoutsAreThoseOfTheStandIn) {
  EXPECT_EQ(sizeof(hip::KernelConfig), sizeof(amd::KernelConfig));
  EXPECT_EQ(offsetof(hip::KernelConfig, stream), offsetof(amd::KernelConfig, stream));
  EXPECT_EQ(sizeof(hip::DeviceLaunch), sizeof(amd::DeviceLaunch));
  EXPECT_EQ(offsetof(hip::DeviceLaunch, stream), offsetof(amd::DeviceLaunch, stream));
  EXPECT_EQ(offsetof(hip::Copy3DParms, extent), offsetof(amd::Copy3DParms, extent));
  EXPECT_EQ(offsetof(hip::Properties5, memory), offsetof(amd::Properties5, totalGlobalMem));
  EXPECT_EQ(offsetof(hip::Properties6, memory), offsetof(amd::Properties, totalGlobalMem));
  EXPECT_EQ(sizeof(hip::ChannelShape), sizeof(amd::ChannelShape));
}

std::vector<std::string> exportedNames() {
  std::ifstream in(QGPU_HIP_SYMBOLS);
  std::vector<std::string> names;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') names.push_back(line);
  }
  return names;
}

// Puts work into a stream, gives or takes memory of the card, or ends either.
bool matters(const std::string& name) {
  static const std::set<std::string> kExact = {"hipFree", "hipFreeAsync", "hipFreeArray",
                                               "hipFreeMipmappedArray", "hipDeviceReset"};
  if (kExact.contains(name)) return true;
  if (name.starts_with("hipGraph") && name != "hipGraphLaunch" && name != "hipGraphUpload" &&
      name != "hipGraphExecDestroy") {
    return false;
  }
  for (const char* part : {"Launch", "Memcpy", "Memset", "Malloc", "MemCreate", "MemRelease",
                           "MemMap", "MemUnmap", "MemPrefetch", "ArrayCreate", "ArrayDestroy",
                           "Array3DCreate", "StreamWriteValue", "StreamWaitValue", "BatchMemOp",
                           "BeginCapture", "EndCapture", "SemaphoresAsync", "MemAllocPitch"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(HipAbi, WhatTheRuntimeExportsAndMattersHasAHook) {
  const Named ours = hooked();
  // Copies in batches changed their arguments since; of the host's memory; of a graph's nodes,
  // which run when the graph does; and what a program that is built as every one is now does not
  // call.
  const std::set<std::string> left = {"hipMemcpyBatchAsync",
                                      "hipMemcpy3DBatchAsync",
                                      "hipMemPrefetchBatchAsync",
                                      "hipHostMalloc",
                                      "hipMallocHost",
                                      "hipDrvGraphAddMemcpyNode",
                                      "hipDrvGraphAddMemsetNode",
                                      "hipDrvGraphExecMemcpyNodeSetParams",
                                      "hipDrvGraphExecMemsetNodeSetParams",
                                      "hipDrvGraphMemcpyNodeGetParams",
                                      "hipDrvGraphMemcpyNodeSetParams"};
  std::set<std::string> exported;
  for (const std::string& name : exportedNames()) {
    exported.insert(name);
    if (!matters(name) || left.contains(name)) continue;
    EXPECT_TRUE(ours.contains(name)) << name;
  }
  EXPECT_GT(exported.size(), 400u);
  for (const auto& [symbol, forms] : ours) {
    EXPECT_TRUE(exported.contains(symbol)) << symbol << " is no name of the runtime's";
  }
}

// --- how much work a call is ---

std::uint64_t bytesOf(const cuda::Launch& launch) {
  return launch.kernel ? ~0ull : launch.bytes;
}

TEST(HipWork, ACopyIsAsLongAsItsArgumentsSayInTheirOwnOrder) {
  void* to = nullptr;
  const void* from = nullptr;
  const std::size_t bytes = 1000, offset = 7, pitch = 512, width = 100, height = 3;
  const hip::Arr array = nullptr;
  const hip::Str stream = nullptr;
  EXPECT_EQ(bytesOf(hip::launchOf(to, from, bytes, 1)), 1000u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, from, bytes, 1, stream)), 1000u);
  EXPECT_EQ(bytesOf(hip::launchOf(from, from, bytes, offset, 1)), 1000u) << "to a symbol";
  EXPECT_EQ(bytesOf(hip::launchOf(from, from, bytes, offset, 1, stream)), 1000u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, from, bytes, offset, 2)), 1000u) << "from a symbol";
  EXPECT_EQ(bytesOf(hip::launchOf(to, pitch, from, pitch, width, height, 1)), 300u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, pitch, from, pitch, width, height, 1, stream)), 300u);
  EXPECT_EQ(bytesOf(hip::launchOf(array, offset, offset, from, pitch, width, height, 1)), 300u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, pitch, array, offset, offset, width, height, 1)), 300u);
  EXPECT_EQ(bytesOf(hip::launchOf(array, offset, offset, from, bytes, 1)), 1000u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, array, offset, offset, bytes, 1)), 1000u);
  EXPECT_EQ(bytesOf(hip::launchOf(to, 0, from, 1, bytes)), 1000u) << "between devices";
  EXPECT_EQ(bytesOf(hip::launchOf(to, 7, bytes)), 1000u) << "a fill";
  EXPECT_EQ(bytesOf(hip::launchOf(to, pitch, 7, width, height, stream)), 300u);
  const hip::Extent extent{10, 20, 30};
  EXPECT_EQ(bytesOf(hip::launchOf(hip::PitchedPtr{}, 7, extent)), 6000u);
  hip::Copy3DParms volume{};
  volume.extent = extent;
  EXPECT_EQ(bytesOf(hip::launchOf(static_cast<const hip::Copy3DParms*>(&volume))), 6000u);
  const hip::DriverCopy3D* unknown = nullptr;
  EXPECT_EQ(bytesOf(hip::launchOf(unknown)), 0u);
}

TEST(HipWork, AKernelIsKnownByItsAddressAndGrid) {
  const char stub = 0;
  const void* kernel = &stub;
  const cuda::Launch launch =
      hip::launchOf(kernel, hip::Dim3{2, 3, 4}, hip::Dim3{64, 1, 1}, static_cast<void**>(nullptr),
                    std::size_t{0}, hip::Str{});
  EXPECT_EQ(launch.kernel, kernel);
  EXPECT_EQ(launch.grid[0] * 100 + launch.grid[1] * 10 + launch.grid[2], 234u);
}

#ifdef QGPU_HIP_HEADER
TEST(HipAbi, LayoutsAreThoseOfTheHeader) {
  static_assert(sizeof(hip::Dim3) == sizeof(dim3));
  static_assert(sizeof(hip::Extent) == sizeof(hipExtent));
  static_assert(sizeof(hip::PitchedPtr) == sizeof(hipPitchedPtr));
  static_assert(sizeof(hip::Copy3DParms) == sizeof(hipMemcpy3DParms));
  static_assert(offsetof(hip::Copy3DParms, extent) == offsetof(hipMemcpy3DParms, extent));
  static_assert(sizeof(hip::ChannelShape) == sizeof(hipChannelFormatDesc));
  static_assert(sizeof(hip::DeviceLaunch) == sizeof(hipLaunchParams));
  static_assert(offsetof(hip::DeviceLaunch, stream) == offsetof(hipLaunchParams, stream));
  static_assert(sizeof(cuda::Copy2D) == sizeof(hip_Memcpy2D));
  static_assert(sizeof(cuda::ArrayShape) == sizeof(HIP_ARRAY_DESCRIPTOR));
  static_assert(sizeof(cuda::ArrayShape3D) == sizeof(HIP_ARRAY3D_DESCRIPTOR));
  static_assert(hipErrorOutOfMemory == cuda::kOutOfMemory);
  static_assert(hipErrorNotReady == cuda::kNotReady);
  static_assert(hipErrorNoDevice == cuda::kNoDevice);
}
#endif

}  // namespace
}  // namespace qgpu::testing::hip_abi_test
