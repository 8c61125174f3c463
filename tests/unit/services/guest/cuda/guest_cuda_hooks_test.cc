// Every way in which a program comes to the driver's functions leads to every hook, and each hook
// calls the very function that was asked for, once, and is counted once.

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "services/nvidia_abi/cuda_calls.h"
#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_cuda_hooks_test {
namespace {

struct Named {
  std::string symbol;
  bool counted;
};

// All functions that put work into a stream.
std::vector<Named> workFunctions() {
  return {
#define QGPU_COUNTED(symbol, base, since, stream, types) {#symbol, true},
#define QGPU_UNCOUNTED(symbol, base, since, stream, types) {#symbol, false},
      QGPU_CUDA_KERNELS(QGPU_COUNTED) QGPU_CUDA_COPIES(QGPU_COUNTED) QGPU_CUDA_FILLS(QGPU_COUNTED)
          QGPU_CUDA_DRAINING(QGPU_COUNTED) QGPU_CUDA_MEMOPS(QGPU_COUNTED)
              QGPU_CUDA_WAITS(QGPU_UNCOUNTED)
#undef QGPU_COUNTED
#undef QGPU_UNCOUNTED
  };
}

// A graph of one kernel for the functions that launch one.
void prepare(GuestChild& guest) {
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  ASSERT_EQ(guest.ask("begin a 0"), "0");
  ASSERT_EQ(guest.ask("sleep a 1"), "0");
  ASSERT_EQ(guest.ask("end a"), "0 graph");
  ASSERT_EQ(guest.ask("instantiate a"), "0");
  ASSERT_EQ(guest.ask("graphfordo"), "ok");
  ASSERT_EQ(guest.ask("set"), "ok");  // what stream waits wait for is there already
}

class EveryLookUp : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryLookUp, LeadsToEveryHookAndEachIsCountedOnce) {
  const std::string way = GetParam();
  FakeManager manager(cudaTask());
  CudaTenant guest(manager, way);
  prepare(guest);
  EXPECT_EQ(manager.attaches(), 1u);
  EXPECT_EQ(guest.ask("missing"), "none");
  EXPECT_EQ(guest.ask("bare"), "none");
  for (const Named& each : workFunctions()) {
    const std::uint64_t before = manager.slot(0).admitted;
    EXPECT_EQ(guest.ask("do " + each.symbol), "0 1") << each.symbol;
    EXPECT_EQ(manager.slot(0).admitted - before, each.counted ? 1u : 0u) << each.symbol;
  }
  EXPECT_EQ(guest.ask("ctxsync"), "0");
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; })) << manager.inFlight();
  EXPECT_EQ(manager.slot(0).launches, manager.slot(0).retired);
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

INSTANTIATE_TEST_SUITE_P(CudaHooks, EveryLookUp,
                         ::testing::Values("linked", "global", "dlsym", "dlsym-2.2.5", "dlsym-2.34",
                                           "dlvsym", "proc1", "proc2"),
                         [](const auto& each) {
                           std::string name = each.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

// Kernels, graphs, copies and fills; those with stream 0 in either default stream.
TEST(CudaHooks, AShutGateHoldsEveryFunctionThatMayBeHeld) {
  const std::vector<std::string> held = {
#define QGPU_NAME(symbol, base, since, stream, types) #symbol,
      QGPU_CUDA_KERNELS(QGPU_NAME) QGPU_CUDA_COPIES(QGPU_NAME) QGPU_CUDA_FILLS(QGPU_NAME)
          QGPU_CUDA_DRAINING(QGPU_NAME)
#undef QGPU_NAME
  };
  FakeManager manager(cudaTask());
  CudaTenant guest(manager, "proc2");
  prepare(guest);
  for (const std::string& symbol : held) {
    const std::uint64_t before = manager.slot(0).admitted;
    manager.setGate(0);
    guest.send("do " + symbol);
    ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; })) << symbol;
    EXPECT_FALSE(guest.answered()) << symbol;
    EXPECT_EQ(manager.slot(0).admitted, before) << symbol;
    manager.setGate(QGPU_GATE_OPEN);
    EXPECT_EQ(guest.answer(), "0 1") << symbol;
  }
  EXPECT_EQ(guest.ask("ctxsync"), "0");
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; })) << manager.inFlight();
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

TEST(CudaHooks, AddressesThatNoExportHasAreKnownByTheirAddressToo) {
  for (const char* way : {"proc1", "proc2"}) {
    FakeManager manager(cudaTask());
    auto environment = cudaTenantOf(manager, way);
    environment.push_back("QGPU_STAND_IN_PRIVATE=1");
    CudaTenant guest(environment, way);
    prepare(guest);
    for (const char* symbol : {"cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoDAsync_v2",
                               "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2_ptsz"}) {
      const std::uint64_t before = manager.slot(0).admitted;
      EXPECT_EQ(guest.ask(std::string("do ") + symbol), "0 1") << symbol;
      EXPECT_EQ(manager.slot(0).admitted, before + 1) << symbol;
    }
  }
}

TEST(CudaHooks, AWayToLaunchThatIsNotKnownIsToldOnce) {
  const std::string unknown = "resolve cuLaunchOfTomorrow";
  for (const std::string& how : {unknown, unknown + " 14000"}) {
    FakeManager manager(cudaTask());
    CudaTenant guest(manager);
    ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
    for (const char* known : {"cuLaunchKernel", "cuMemcpyHtoD", "cuStreamWaitEvent", "cuDeviceGet",
                              "cuMemcpyHtoD 14000", "cuStreamWaitEvent 14000"}) {
      guest.ask(std::string("resolve ") + known);
    }
    EXPECT_EQ(guest.errors(), "") << how;
    EXPECT_EQ(guest.ask(how), "found");
    const std::string told = guest.errors();
    EXPECT_NE(told.find("cuLaunchOfTomorrow"), std::string::npos) << how;
    EXPECT_EQ(guest.ask(how), "found");
    EXPECT_EQ(guest.ask("resolve cuLaunchOfNobody"), "none");
    EXPECT_EQ(guest.errors(), told);
  }
}

TEST(CudaHooks, ALibraryOpenedWithDeepbindDoesNotReachPastThem) {
  if (QGPU_GUEST_SANITIZED) GTEST_SKIP() << "AddressSanitizer refuses such libraries";
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  const std::uint64_t before = manager.slot(0).admitted;
  EXPECT_EQ(guest.ask("deep " QGPU_CUDA_DEEP_LIBRARY), "0");
  EXPECT_EQ(manager.slot(0).admitted, before + 3);
}

// The library's own exports are no driver.
TEST(CudaHooks, AProgramThatLooksForADriverIsNotToldThatThereIsOne) {
  FakeManager manager(cudaTask());
  CudaTenant bare(bareCuda());
  CudaTenant guest(manager);
  EXPECT_EQ(bare.ask("probe"), "none error");
  EXPECT_EQ(guest.ask("probe"), "none error");
  EXPECT_EQ(manager.attaches(), 0u);
}

std::vector<std::string> onOldDriver(const FakeManager& manager) {
  auto environment = cudaTenantOf(manager);
  environment[0] = "LD_LIBRARY_PATH=" QGPU_CUDA_OLD_DRIVER_DIR;
  return environment;
}

TEST(CudaHooks, AFunctionThatAnOldDriverLacksIsNotFoundInOurs) {
  FakeManager manager(cudaTask());
  CudaTenant guest(onOldDriver(manager));
  EXPECT_EQ(guest.ask("global cuInit"), "found");
  EXPECT_EQ(guest.ask("global cuCtxSynchronize"), "found");
  EXPECT_EQ(guest.ask("global cuLaunchKernelEx"), "none");
  EXPECT_EQ(guest.ask("global nvmlDeviceGetMemoryInfo"), "none") << "not loaded";
  EXPECT_EQ(guest.ask("global malloc"), "found");
}

TEST(CudaHooks, WhatADriverGivesWithoutExportingItIsTheDriversOwn) {
  FakeManager manager(cudaTask());
  CudaTenant guest(onOldDriver(manager));
  EXPECT_EQ(guest.ask("private cuLaunchKernel"), "42");
  EXPECT_NE(guest.errors().find("cuLaunchKernel"), std::string::npos) << "it is told";
  EXPECT_EQ(guest.ask("private cuLaunchKernelEx"), "none");
}

// It opens the driver's nodes, which a guard in the kernel keeps from who has not attached.
TEST(CudaHooks, NvmlStartsInAProcessThatHasAttached) {
  for (const char* name : {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"}) {
    FakeManager manager(cudaTask());
    CudaTenant guest(manager);
    EXPECT_EQ(guest.ask("global malloc"), "found");
    EXPECT_EQ(manager.attaches(), 0u);
    EXPECT_EQ(guest.ask(std::string("nvml_start ") + name), "0");
    EXPECT_EQ(manager.attaches(), 1u) << name;
  }
}

// Programs ask the loader, not the pointer, whether a name was found.
TEST(CudaHooks, ANameThatIsFoundLeavesTheLoaderWithoutAnError) {
  for (const char* name : {"cuLaunchKernel", "nvmlDeviceGetMemoryInfo"}) {
    FakeManager manager(cudaTask());
    CudaTenant both(manager);
    EXPECT_EQ(both.ask(std::string("resolve ") + name), "found") << "only this library is loaded";
  }
}

TEST(CudaHooks, WithoutATokenThePreloadedLibraryIsNotInTheWay) {
  for (const char* way : {"linked", "dlsym", "proc2"}) {
    auto environment = bareCuda(way);
    environment.push_back("LD_PRELOAD=" QGPU_GUEST_LIBRARY);
    CudaTenant guest(environment, way);
    prepare(guest);
    EXPECT_EQ(guest.ask("do cuLaunchKernel"), "0 1");
    EXPECT_EQ(guest.ask("do cuMemcpyDtoH_v2"), "0 1");
    EXPECT_EQ(guest.ask("info"), std::to_string((16ull << 30) - kCudaInitBytes) + " " +
                                     std::to_string(16ull << 30) + " " +
                                     std::to_string(16ull << 30));
    EXPECT_EQ(guest.errors(), "");
  }
}

// HAZARDS 18.
TEST(CudaHooks, WithoutAManagerThereIsNoDevice) {
  auto environment = bareCuda();
  environment.insert(environment.end(),
                     {"LD_PRELOAD=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=/nonexistent/socket",
                      "QGPU_TOKEN=" + FakeManager::token(), "QGPU_ATTACH_TIMEOUT_MS=20"});
  CudaTenant guest(environment);
  EXPECT_EQ(guest.ask("init"), "100");  // CUDA_ERROR_NO_DEVICE
  EXPECT_NE(guest.errors().find("no manager"), std::string::npos);
}

// HAZARDS 14.
TEST(CudaHooks, ATaskOnAnotherKindOfCardHasNoCudaDeviceAndIsToldWhy) {
  FakeManager manager({});
  CudaTenant guest(manager);
  EXPECT_EQ(guest.ask("init"), "100");
  EXPECT_NE(guest.errors().find("Portable Computing Language"), std::string::npos);
}

// What was told at the first attach holds, for later ones and for children too.
TEST(CudaHooks, AProgramMayClearItsEnvironmentOnceItIsATenant) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("clearenv"), "ok");
  manager.die();
  manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return manager.slot(0).obeys == 2; }));
  EXPECT_EQ(manager.reattaches(), 1u);
  guest.ask("fork and attach");
  EXPECT_EQ(manager.attaches(), 2u) << guest.errors();
  EXPECT_EQ(std::string(manager.lastHello().token, QGPU_TOKEN_LEN), FakeManager::token());
}

TEST(CudaHooks, AForkedChildHarmsNothingOfItsParents) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("fork"), "0");
  EXPECT_EQ(guest.ask("fork cuda init"), "3") << "CUDA_ERROR_NOT_INITIALIZED";
  EXPECT_EQ(manager.bytes(), kCudaInitBytes);
  EXPECT_EQ(guest.ask("sleep null 100"), "0");
  EXPECT_EQ(guest.ask("sync null"), "0");
  EXPECT_TRUE(retiresAll(manager));
}

// A context takes some hundred milliseconds, one program after the other.
TEST(CudaHooks, CuInitAttachesAndMakesNoContext) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  EXPECT_EQ(guest.ask("initalone"), "0") << guest.errors();
  EXPECT_EQ(manager.attaches(), 1u);
  for (const char* maker : {"cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuCtxCreate_v2",
                            "cuCtxCreate_v3", "cuCtxCreate_v4"}) {
    EXPECT_EQ(guest.ask(std::string("calls ") + maker), "0") << maker;
  }
  EXPECT_EQ(manager.bytes(), 0u);
}

// NCCL chooses its ways by it: nothing of ours stands in between.
TEST(CudaHooks, HowNearTheCardsOfATaskAreIsWhatTheDriverSays) {
  const TempFolder folder("peers");
  const std::string rest = "|Stand-in GPU|17179869184|0|0|0|0|0\n";
  const std::string cards =
      folder.write("cards", "GPU-a" + rest + "GPU-b" + rest + "!links|0>1 1>0\n");
  FakeManager::Options options = cudaTask();
  options.devices = {0, 1};
  FakeManager manager(options);
  auto ours = cudaTenantOf(manager), bare = bareCuda();
  for (auto* each : {&ours, &bare}) {
    each->insert(each->end(), {"QGPU_STAND_IN_DEVICES=2", "QGPU_STAND_IN_CARDS=" + cards});
  }
  CudaTenant tenant(ours), program(bare);
  ASSERT_EQ(tenant.ask("init"), "0") << tenant.errors();
  ASSERT_EQ(program.ask("init"), "0") << program.errors();
  EXPECT_EQ(tenant.ask("peers 0 1"), "0:1 0:1 0:0");
  for (const char* pair : {"peers 0 1", "peers 1 0", "peers 0 0"}) {
    EXPECT_EQ(tenant.ask(pair), program.ask(pair)) << pair;
  }
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_hooks_test
