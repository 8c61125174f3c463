// The stand-in driver keeps the rules that it is there to keep: a hook that breaks one of them is
// seen by the tests of the hooks only if these hold.

#include <atomic>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "tests/cuda_stand_in/stand_in.h"

namespace qgpu::nvidia::cuda {
namespace {

constexpr U kNonBlocking = 1;

// One process has one driver; each test has a context of its own in it.
class StandIn : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(QGPU_STAND_IN_DIR "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    in_ = function<StandInTable>("qgpuStandIn")();
    ASSERT_EQ(call<Result (*)(U)>("cuInit", 0u), kSuccess);
    ASSERT_EQ(call<Result (*)(Ctx*, U, Dev)>("cuCtxCreate_v2", &context_, 0u, 0), kSuccess);
    for (const char* name : {"sleep", "add"}) {
      Mod module = nullptr;
      call<Result (*)(Mod*, const void*)>("cuModuleLoadData", &module, "");
      call<Result (*)(Fn*, Mod, const char*)>("cuModuleGetFunction",
                                              name[0] == 's' ? &sleep_ : &add_, module, name);
    }
    misuses_ = in_->misuses();
  }
  void TearDown() override {
    EXPECT_EQ(call<Result (*)(Ctx)>("cuCtxDestroy_v2", context_), kSuccess);
    EXPECT_EQ(in_->misuses(), misuses_);
  }

  template <typename F>
  F function(const std::string& name) {
    auto* found = reinterpret_cast<F>(dlsym(library_, name.c_str()));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  template <typename F, typename... A>
  Result call(const std::string& name, A... a) {
    return function<F>(name)(a...);
  }
  Str stream(U flags = 0) {
    Str made = nullptr;
    EXPECT_EQ((call<Result (*)(Str*, U)>("cuStreamCreate", &made, flags)), kSuccess);
    return made;
  }
  Result launch(const std::string& variant, Fn kernel, void* argument, Str on) {
    void* arguments[] = {argument};
    return function<decltype(Calls::cuLaunchKernel)>(variant)(kernel, 1, 1, 1, 1, 1, 1, 0, on,
                                                              arguments, nullptr);
  }
  Result sleepOn(Str on, U us, const std::string& variant = "cuLaunchKernel") {
    return launch(variant, sleep_, &us, on);
  }
  Result query(Str on) { return call<Result (*)(Str)>("cuStreamQuery", on); }
  Result finish(Str on) { return call<Result (*)(Str)>("cuStreamSynchronize", on); }

  void* library_ = nullptr;
  const QgpuStandIn* in_ = nullptr;
  Ctx context_ = nullptr;
  Fn sleep_ = nullptr, add_ = nullptr;
  std::uint64_t misuses_ = 0;
};

TEST_F(StandIn, AKernelTakesItsTimeAndLeavesItsResult) {
  Ptr counter = 0;
  ASSERT_EQ((call<Result (*)(Ptr*, Size)>("cuMemAlloc_v2", &counter, Size{8})), kSuccess);
  Str s = stream();
  EXPECT_EQ(sleepOn(s, 20'000), kSuccess);
  EXPECT_EQ(launch("cuLaunchKernel", add_, &counter, s), kSuccess);
  EXPECT_EQ(query(s), kNotReady);
  EXPECT_EQ(finish(s), kSuccess);
  EXPECT_EQ(query(s), kSuccess);
  std::uint64_t value = 0;
  EXPECT_EQ((call<Result (*)(void*, Ptr, Size)>("cuMemcpyDtoH_v2", &value, counter, Size{8})),
            kSuccess);
  EXPECT_EQ(value, 1u);
  EXPECT_EQ((call<Result (*)(Ptr)>("cuMemFree_v2", counter)), kSuccess);
}

TEST_F(StandIn, TheLegacyStreamIsInOrderWithBlockingStreamsOnly) {
  Str blocking = stream(), free = stream(kNonBlocking);
  EXPECT_EQ(sleepOn(nullptr, 400'000), kSuccess);
  EXPECT_EQ(sleepOn(blocking, 1), kSuccess);
  EXPECT_EQ(sleepOn(free, 1), kSuccess);
  EXPECT_EQ(finish(free), kSuccess);
  EXPECT_EQ(query(nullptr), kNotReady);
  EXPECT_EQ(query(blocking), kNotReady);
  EXPECT_EQ(finish(blocking), kSuccess);
  EXPECT_EQ(query(nullptr), kSuccess);
}

TEST_F(StandIn, StreamZeroOfAPerThreadVariantIsTheThreadsOwn) {
  EXPECT_EQ(sleepOn(nullptr, 400'000, "cuLaunchKernel_ptsz"), kSuccess);
  EXPECT_EQ(query(perThreadStream()), kNotReady);
  std::thread([this] {
    call<Result (*)(Ctx)>("cuCtxSetCurrent", context_);
    EXPECT_EQ(query(perThreadStream()), kSuccess);
    EXPECT_EQ((call<Result (*)(Str)>("cuStreamQuery_ptsz", nullptr)), kSuccess);
  }).join();
  EXPECT_EQ(finish(perThreadStream()), kSuccess);
}

TEST_F(StandIn, AProcAddressIsTheExportOfTheVersionAndTheStreamAskedFor) {
  const auto ask = [&](const char* name, int version, std::uint64_t flags) {
    void* found = nullptr;
    function<decltype(Calls::cuGetProcAddress)>("cuGetProcAddress")(name, &found, version, flags);
    return found;
  };
  EXPECT_EQ(ask("cuLaunchKernel", 13000, 0), dlsym(library_, "cuLaunchKernel"));
  EXPECT_EQ(ask("cuLaunchKernel", 13000, kAskPerThreadStream),
            dlsym(library_, "cuLaunchKernel_ptsz"));
  EXPECT_EQ(ask("cuMemcpyBatchAsync", 12080, 0), dlsym(library_, "cuMemcpyBatchAsync"));
  EXPECT_EQ(ask("cuMemcpyBatchAsync", 13000, kAskPerThreadStream),
            dlsym(library_, "cuMemcpyBatchAsync_v2_ptsz"));
  EXPECT_EQ(ask("cuCtxSynchronize", 12080, 0), dlsym(library_, "cuCtxSynchronize"));
  EXPECT_EQ(ask("cuCtxSynchronize", 13000, 0), dlsym(library_, "cuCtxSynchronize_v2"));
  EXPECT_EQ(ask("cuLaunchKernelEx", 11000, 0), nullptr);
  EXPECT_EQ(ask("cuNoSuchThing", 13000, 0), nullptr);
}

TEST_F(StandIn, AnUnsafeCallBreaksACaptureUnlessItsThreadIsRelaxed) {
  Str s = stream();
  Graph graph = nullptr;
  const auto begin = [&] {
    EXPECT_EQ((call<Result (*)(Str, int)>("cuStreamBeginCapture_v2", s, kCaptureGlobal)), kSuccess);
    EXPECT_EQ(sleepOn(s, 1'000), kSuccess);
  };
  const auto end = [&] { return call<Result (*)(Str, Graph*)>("cuStreamEndCapture", s, &graph); };
  Evt event = nullptr;
  ASSERT_EQ((call<Result (*)(Evt*, U)>("cuEventCreate", &event, 0u)), kSuccess);
  const auto askAside = [&](bool relaxed) {
    std::thread([&, relaxed] {
      int mode = kCaptureRelaxed;
      if (relaxed) call<Result (*)(int*)>("cuThreadExchangeStreamCaptureMode", &mode);
      call<Result (*)(Evt)>("cuEventQuery", event);
    }).join();
  };
  const std::uint64_t broken = in_->brokenCaptures();
  begin();
  askAside(true);
  EXPECT_EQ(end(), kSuccess);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ((call<Result (*)(Graph)>("cuGraphDestroy", graph)), kSuccess);
  begin();
  askAside(false);
  EXPECT_EQ(end(), kCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  begin();
  EXPECT_EQ(query(s), kCaptureUnsupported);
  EXPECT_EQ(end(), kCaptureInvalidated);
  EXPECT_EQ(in_->brokenCaptures(), broken + 2);
  EXPECT_EQ(query(s), kSuccess) << "nothing that was captured ran";
}

TEST_F(StandIn, MemoryEndsWhereTheCardDoesAndComesBack) {
  Ptr first = 0, second = 0;
  const auto allocate = function<decltype(Calls::cuMemAlloc_v2)>("cuMemAlloc_v2");
  const auto free = function<decltype(Calls::cuMemFree_v2)>("cuMemFree_v2");
  const std::uint64_t before = in_->ioctls(0x2B);
  EXPECT_EQ(allocate(&first, Size{10} << 30), kSuccess);
  EXPECT_EQ(allocate(&second, Size{10} << 30), kOutOfMemory);
  EXPECT_EQ(in_->bytes(0), std::uint64_t{10} << 30);
  EXPECT_EQ(in_->ioctls(0x2B), before + 1) << "a refusal of the card's own asks nobody";
  EXPECT_EQ(free(first), kSuccess);
  EXPECT_EQ(allocate(&second, Size{10} << 30), kSuccess);
  EXPECT_EQ(free(second), kSuccess);
  EXPECT_EQ(in_->bytes(0), 0u);
}

TEST_F(StandIn, ADeadHandleIsRefusedAndCounted) {
  Str s = stream();
  EXPECT_EQ((call<Result (*)(Str)>("cuStreamDestroy_v2", s)), kSuccess);
  EXPECT_EQ(query(s), kInvalidHandle);
  EXPECT_EQ(in_->misuses(), ++misuses_);
}

TEST_F(StandIn, WhatIsLaunchedGoesIntoStreamsOfTheCurrentContextAlone) {
  Str s = stream();
  Ctx other = nullptr;
  EXPECT_EQ((call<Result (*)(Ctx*, U, Dev)>("cuCtxCreate_v2", &other, 0u, 0)), kSuccess);
  EXPECT_EQ(sleepOn(s, 1), kInvalidHandle);
  EXPECT_EQ(in_->misuses(), ++misuses_);
  EXPECT_EQ((call<Result (*)(Ctx)>("cuCtxDestroy_v2", other)), kSuccess);
  EXPECT_EQ((call<Result (*)(Ctx)>("cuCtxSetCurrent", context_)), kSuccess);
  EXPECT_EQ(sleepOn(s, 1), kSuccess);
}

}  // namespace
}  // namespace qgpu::nvidia::cuda
