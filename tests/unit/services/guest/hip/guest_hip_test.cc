// HIP programs under libqgpu.so, on the stand-in of AMD's runtime: every way to a function leads to
// its hook, a shut gate holds what puts work into a stream, memory is counted as it is asked for.

#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "services/guest/hip/hip_calls.h"
#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing::guest_hip_test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kInitBytes = 4096;  // what the program's init allocates and keeps

FakeManager::Options hipTask() {
  FakeManager::Options options;
  options.platform = "AMD Accelerated Parallel Processing";
  return options;
}

std::vector<std::string> bareHip(const std::string& way = "dlsym") {
  return {"LD_LIBRARY_PATH=" QGPU_HIP_STAND_IN_DIR, "QGPU_TEST_WAY=" + way};
}

std::vector<std::string> tenantBy(const FakeManager& manager, const std::string& way = "dlsym") {
  std::vector<std::string> environment = bareHip(way);
  environment.insert(environment.end(),
                     {"LD_PRELOAD=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=" + manager.socketPath(),
                      "QGPU_TOKEN=" + FakeManager::token()});
  return environment;
}

std::string programFor(const std::string& way) {
  return way == "linked" ? QGPU_HIP_LINKED_PROGRAM : QGPU_HIP_PROGRAM;
}

class HipTenant : public GuestChild {
 public:
  explicit HipTenant(const FakeManager& manager, const std::string& way = "dlsym")
      : HipTenant(tenantBy(manager, way), way) {}
  explicit HipTenant(const std::vector<std::string>& environment, const std::string& way = "dlsym")
      : GuestChild(environment, programFor(way)) {}
};

// --- every function ---

struct Work {
  std::string symbol;
  bool held, counted;
};

// What CUDA's hooks of the same wrapper do.
std::vector<Work> workFunctions() {
  std::set<std::string> held, counted, uncounted;
#define QGPU_HELD(symbol, base, since, stream, types) held.insert(#symbol);
#define QGPU_COUNTED(symbol, base, since, stream, types) counted.insert(#symbol);
#define QGPU_UNCOUNTED(symbol, base, since, stream, types) uncounted.insert(#symbol);
  QGPU_CUDA_KERNELS(QGPU_HELD)
  QGPU_CUDA_COPIES(QGPU_HELD)
  QGPU_CUDA_FILLS(QGPU_HELD)
  QGPU_CUDA_DRAINING(QGPU_HELD)
  QGPU_CUDA_MEMOPS(QGPU_COUNTED)
  QGPU_CUDA_WAITS(QGPU_UNCOUNTED)
#undef QGPU_HELD
#undef QGPU_COUNTED
#undef QGPU_UNCOUNTED
  std::vector<Work> all;
#define QGPU_AS(symbol, as)                                         \
  if (held.contains(#as)) all.push_back({#symbol, true, true});     \
  if (counted.contains(#as)) all.push_back({#symbol, false, true}); \
  if (uncounted.contains(#as)) all.push_back({#symbol, false, false});
  QGPU_HIP_AS_CUDA(QGPU_AS)
#undef QGPU_AS
#define QGPU_HELD(symbol, stream, types) all.push_back({#symbol, true, true});
#define QGPU_WAITS(symbol, stream, types) all.push_back({#symbol, false, false});
  QGPU_HIP_KERNELS(QGPU_HELD)
  QGPU_HIP_UNCAPTURED(QGPU_HELD)
  QGPU_HIP_MANY_FUNCTIONS(QGPU_HELD)
  QGPU_HIP_COPIES(QGPU_HELD)
  QGPU_HIP_FILLS(QGPU_HELD)
  QGPU_HIP_MANY(QGPU_HELD)
  QGPU_HIP_WAITS(QGPU_WAITS)
#undef QGPU_HELD
#undef QGPU_WAITS
  return all;
}

// A graph of one kernel for the functions that launch one.
void prepare(GuestChild& guest) {
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  ASSERT_EQ(guest.ask("begin a 0"), "0");
  ASSERT_EQ(guest.ask("sleep a 1"), "0");
  ASSERT_EQ(guest.ask("end a"), "0");
  ASSERT_EQ(guest.ask("instantiate a"), "0");
  ASSERT_EQ(guest.ask("graphfordo"), "ok");
  ASSERT_EQ(guest.ask("set"), "ok");  // what stream waits wait for is there already
}

class EveryLookUp : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryLookUp, LeadsToEveryHookAndEachIsCountedOnce) {
  FakeManager manager(hipTask());
  HipTenant guest(manager, GetParam());
  prepare(guest);
  EXPECT_EQ(manager.attaches(), 1u);
  const std::vector<Work> all = workFunctions();
  ASSERT_GT(all.size(), 90u);
  for (const Work& each : all) {
    const std::uint64_t before = manager.slot(0).admitted;
    EXPECT_EQ(guest.ask("do " + each.symbol), "0 1") << each.symbol;
    EXPECT_EQ(manager.slot(0).admitted - before, each.counted ? 1u : 0u) << each.symbol;
  }
  EXPECT_EQ(guest.ask("wait"), "0");
  EXPECT_TRUE(retiresAll(manager)) << manager.inFlight();
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

INSTANTIATE_TEST_SUITE_P(Hip, EveryLookUp, ::testing::Values("linked", "dlsym", "dlvsym", "proc"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Hip, AShutGateHoldsEveryFunctionThatMayBeHeld) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  prepare(guest);
  for (const Work& each : workFunctions()) {
    if (!each.held) continue;
    const std::uint64_t before = manager.slot(0).admitted;
    manager.setGate(0);
    guest.send("do " + each.symbol);
    ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; })) << each.symbol;
    EXPECT_FALSE(guest.answered()) << each.symbol;
    EXPECT_EQ(manager.slot(0).admitted, before) << each.symbol;
    manager.setGate(QGPU_GATE_OPEN);
    EXPECT_EQ(guest.answer(), "0 1") << each.symbol;
  }
  EXPECT_EQ(guest.ask("wait"), "0");
  EXPECT_TRUE(retiresAll(manager)) << manager.inFlight();
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

// --- streams ---

// Nobody waits for them: the reaper asks each stream, and default streams by the name that every
// release knows.
TEST(Hip, WorkOfEveryStreamIsSeenToEnd) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  for (const char* stream : {"null", "a", "own"}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(guest.ask(std::string("sleep ") + stream + " 500"), "0");
    EXPECT_TRUE(retiresAll(manager)) << stream << ": " << manager.inFlight();
  }
  EXPECT_EQ(manager.slot(0).launches, 9u);
  EXPECT_EQ(guest.ask("destroy a"), "0");
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

TEST(Hip, ACaptureIsNeitherHeldNorBroken) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a 1"), "0");
  ASSERT_EQ(guest.ask("stream b 1"), "0");
  EXPECT_EQ(guest.ask("sleep b 20000"), "0");  // the reaper has something to look at meanwhile
  EXPECT_EQ(guest.ask("begin a 0"), "0");
  manager.setGate(0);
  const std::uint64_t before = manager.slot(0).admitted;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(guest.ask("sleep a 100"), "0");
  EXPECT_EQ(manager.slot(0).admitted, before);
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.ask("end a"), "0");
  EXPECT_EQ(guest.ask("instantiate a"), "0");
  EXPECT_EQ(guest.ask("launch a"), "0");
  EXPECT_EQ(manager.slot(0).admitted, before + 1);
  EXPECT_TRUE(retiresAll(manager));
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

// --- where HIP's laws are others than CUDA's ---

struct Ready {
  explicit Ready(const std::string& libraries = QGPU_HIP_STAND_IN_DIR)
      : guest([&] {
          auto environment = tenantBy(manager);
          environment[0] = "LD_LIBRARY_PATH=" + libraries;
          return environment;
        }()) {
    EXPECT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("stream a"), "0");
    EXPECT_EQ(guest.ask("stream b 1"), "0");
  }
  FakeManager manager{hipTask()};
  HipTenant guest;
};

TEST(HipLaws, TheNullStreamIsNeverAskedSinceThatIsABarrier) {
  Ready s;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(s.guest.ask("sleep null 2000"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
  EXPECT_EQ(s.guest.ask("calls hipStreamQuery"), "0");
  EXPECT_EQ(s.guest.ask("sleep a 2000"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
}

TEST(HipLaws, NobodyAsksEventsOfAStreamWhileItIsCaptured) {
  Ready s;
  EXPECT_EQ(s.guest.ask("sleep own 20000"), "0");  // which leaves an event behind each launch
  EXPECT_EQ(s.guest.ask("begin own 2"), "0");
  EXPECT_EQ(s.guest.ask("sleep own 100"), "0");
  EXPECT_EQ(s.guest.ask("sleep b 40000"), "0");
  EXPECT_EQ(s.guest.ask("sync b"), "0") << "the reaper had time to ask";
  EXPECT_EQ(s.guest.ask("end own"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
  EXPECT_EQ(s.guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

TEST(HipLaws, WhatRunsBesideACaptureIsHeld) {
  Ready s;
  EXPECT_EQ(s.guest.ask("begin a 2"), "0");
  for (const char* launch : {"sleep null 1", "coop a"}) {
    const std::uint64_t before = s.manager.slot(0).admitted;
    s.manager.setGate(0);
    s.guest.send(launch);
    EXPECT_TRUE(eventually([&] { return s.manager.waiting() == 1; })) << launch;
    s.manager.setGate(QGPU_GATE_OPEN);
    EXPECT_EQ(s.guest.answer(), "0") << launch;
    EXPECT_EQ(s.manager.slot(0).admitted, before + 1) << launch;
  }
  EXPECT_EQ(s.guest.ask("end a"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
  EXPECT_TRUE(eventually([&] { return s.guest.ask("stats") == "0 0 0"; }))
      << "misuses, broken captures, pending: what ran in stream a was not followed to its end";
}

TEST(HipLaws, ABrokenCaptureIsOverThoughItsStreamSaysThatItIsBroken) {
  Ready s;
  EXPECT_EQ(s.guest.ask("begin a 0"), "0");
  EXPECT_NE(s.guest.ask("sync a"), "0") << "which breaks it";
  EXPECT_EQ(s.guest.ask("end a"), "901") << "hipErrorStreamCaptureInvalidated";
  EXPECT_EQ(s.guest.ask("sleep b 500"), "0");
  EXPECT_TRUE(retiresAll(s.manager)) << "streams are asked again";
}

TEST(HipLaws, NoEventIsAskedOnceItsStreamIsDestroyed) {
  Ready s;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(s.guest.ask("sleep a 3000"), "0");
  EXPECT_EQ(s.guest.ask("destroy a"), "0") << "it waits";
  EXPECT_EQ(s.manager.inFlight(), 0u);
  EXPECT_EQ(s.guest.ask("sleep b 1000"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
  EXPECT_EQ(s.guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

TEST(HipLaws, ADestroyThatIsRefusedEndsNothing) {
  Ready s;
  EXPECT_EQ(s.guest.ask("sleep null 50000"), "0");
  EXPECT_NE(s.guest.ask("destroy null"), "0");
  EXPECT_GE(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("wait"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
}

TEST(HipLaws, ACaptureOfTheThreadsOwnDefaultStreamEnds) {
  Ready s;
  EXPECT_EQ(s.guest.ask("beginown"), "0");
  EXPECT_EQ(s.guest.ask("endown"), "0");
  EXPECT_EQ(s.guest.ask("sleep a 500"), "0");
  EXPECT_TRUE(retiresAll(s.manager)) << "streams are asked again";
}

TEST(HipLaws, TheOldWayToLaunchGoesWhereItWasConfiguredTo) {
  Ready s;
  const std::uint64_t before = s.manager.slot(0).admitted;
  EXPECT_EQ(s.guest.ask("old a"), "0");
  EXPECT_EQ(s.manager.slot(0).admitted, before + 1);
  EXPECT_TRUE(retiresAll(s.manager));
}

TEST(HipLaws, AResetOfThePrimaryContextGivesNothingBack) {
  Ready s;
  EXPECT_EQ(s.guest.ask("alloc plain 1 1048576"), "0");
  EXPECT_EQ(s.guest.ask("sleep a 50000"), "0");
  EXPECT_EQ(s.guest.ask("primaryreset"), "0");
  EXPECT_EQ(s.manager.bytes(), kMiB + kInitBytes);
  EXPECT_EQ(s.manager.inFlight(), 1u);
}

TEST(HipLaws, AResetOfTheDeviceGivesStreamOrderedMemoryBackToo) {
  Ready s;
  EXPECT_EQ(s.guest.ask("alloc async 1 1048576"), "0");
  EXPECT_EQ(s.guest.ask("reset"), "0");
  EXPECT_EQ(s.manager.bytes(), 0u);
}

TEST(HipLaws, ACopyOfNothingEndsNothing) {
  Ready s;
  EXPECT_EQ(s.guest.ask("sleep null 50000"), "0");
  EXPECT_EQ(s.guest.ask("readnothing"), "0");
  EXPECT_GE(s.manager.inFlight(), 1u);
  EXPECT_EQ(s.guest.ask("wait"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
}

TEST(HipLaws, OneOfTheTwoSizesMayBeLeftOut) {
  Ready s;
  EXPECT_EQ(s.guest.ask("freeonly"), "0");
  EXPECT_EQ(s.guest.ask("totalonly"), "0");
}

TEST(HipLaws, AnErrorOfTheLibrarysIsTheLastError) {
  Ready s;
  EXPECT_EQ(s.guest.ask("alloc plain 1 " + std::to_string(4096 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask("peek"), "2");
  EXPECT_EQ(s.guest.ask("lasterror"), "2");
  EXPECT_EQ(s.guest.ask("lasterror"), "0");
  EXPECT_EQ(s.guest.ask("alloc plain 1 " + std::to_string(4096 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask("sleep a 1"), "0");
  EXPECT_EQ(s.guest.ask("lasterror"), "0") << "the last call was well";
}

// A program may look for CUDA as well, as some of its libraries do.
TEST(Hip, ATenantOfAnAmdCardHasNoCudaAndLosesNothingByAsking) {
  const std::string both = QGPU_HIP_STAND_IN_DIR ":" QGPU_STAND_IN_DIR;
  Ready s(both);
  EXPECT_EQ(s.guest.ask("cuda"), "100");
  EXPECT_EQ(s.guest.ask("sleep a 5000"), "0");
  EXPECT_TRUE(retiresAll(s.manager));
  EXPECT_NE(s.guest.ask("calls hipStreamQuery"), "0") << "it is HIP that is asked, not CUDA";
  FakeManager manager(hipTask());
  auto environment = tenantBy(manager);
  environment[0] = "LD_LIBRARY_PATH=" + both;
  HipTenant first(environment);
  EXPECT_EQ(first.ask("cuda"), "100");
  EXPECT_EQ(first.ask("init"), "0") << first.errors();
  EXPECT_EQ(first.ask("sleep null 500"), "0");
  EXPECT_TRUE(retiresAll(manager));
}

TEST(Hip, EachDeviceHasADefaultStreamOfItsOwn) {
  FakeManager::Options options = hipTask();
  options.devices = {0, 1};
  FakeManager manager(options);
  auto environment = tenantBy(manager);
  environment.push_back("QGPU_STAND_IN_DEVICES=2");
  HipTenant guest(environment);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("sleep null 50000"), "0");
  EXPECT_EQ(guest.ask("device 1"), "0");
  EXPECT_EQ(guest.ask("sleep null 1"), "0");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).retired >= 1; })) << "the second one's";
  EXPECT_EQ(guest.ask("wait"), "0");
  EXPECT_TRUE(retiresAll(manager));
  EXPECT_EQ(guest.ask("stats"), "0 0 0") << "misuses, broken captures, pending";
}

TEST(Hip, AResetEndsWorkAndGivesTheMemoryBack) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  EXPECT_EQ(guest.ask("alloc plain 1 1048576"), "0");
  EXPECT_EQ(guest.ask("sleep a 1000"), "0");
  EXPECT_EQ(manager.bytes(), kMiB + kInitBytes);
  EXPECT_EQ(guest.ask("reset"), "0");
  EXPECT_EQ(manager.bytes(), 0u);
  EXPECT_TRUE(retiresAll(manager));
  EXPECT_EQ(guest.ask("alloc plain 2 1048576"), "0");
  EXPECT_EQ(guest.ask("sleep null 1000"), "0");
  EXPECT_TRUE(retiresAll(manager));
}

TEST(Hip, WhatIsCopiedArrives) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("copied"), "same");
}

// --- memory ---

class EveryKind : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryKind, IsChargedRefusedOverTheQuotaAndReturned) {
  FakeManager::Options options = hipTask();
  options.quotaBytes = 64 * kMiB;
  FakeManager manager(options);
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  ASSERT_EQ(guest.ask("stream a"), "0");
  const auto alloc = [&](int id, std::uint64_t bytes) {
    return guest.ask(std::string("alloc ") + GetParam() + " " + std::to_string(id) + " " +
                     std::to_string(bytes));
  };
  EXPECT_EQ(alloc(1, 40 * kMiB), "0");
  EXPECT_EQ(manager.bytes() - kInitBytes, 40 * kMiB);
  EXPECT_EQ(alloc(2, 32 * kMiB), "2") << "hipErrorOutOfMemory";
  EXPECT_EQ(manager.bytes() - kInitBytes, 40 * kMiB);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kInitBytes; })) << manager.bytes();
  EXPECT_EQ(alloc(2, 32 * kMiB), "0");
  EXPECT_EQ(manager.bytes() - kInitBytes, 32 * kMiB);
  EXPECT_NE(guest.errors().find("refused"), std::string::npos) << "one line says so";
  EXPECT_EQ(guest.ask("stats").substr(0, 4), "0 0 ") << "misuses, broken captures";
}
INSTANTIATE_TEST_SUITE_P(Hip, EveryKind,
                         ::testing::Values("plain", "flags", "managed", "pitch", "volume", "async",
                                           "array", "array3d", "mipmap", "physical"),
                         [](const auto& each) { return std::string(each.param); });

TEST(Hip, PhysicalMemoryIsFreeWhenItsLastMapIsGone) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("alloc physical 1 2097152"), "0");
  EXPECT_EQ(guest.ask("map 1"), "0");
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(manager.bytes(), 2 * kMiB + kInitBytes);
  EXPECT_EQ(guest.ask("unmap 1"), "0");
  EXPECT_EQ(manager.bytes(), kInitBytes);
  EXPECT_EQ(guest.ask("alloc host 2 2097152"), "0");
  EXPECT_EQ(manager.bytes(), kInitBytes) << "the host's memory is none of the card's";
}

TEST(Hip, EverySizeThatAProgramReadsIsItsQuotas) {
  FakeManager::Options options = hipTask();
  options.quotaBytes = 64 * kMiB;
  FakeManager manager(options);
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  const std::string total = std::to_string(64 * kMiB);
  EXPECT_EQ(guest.ask("info"), std::to_string(64 * kMiB - kInitBytes) + " " + total + " " + total +
                                   " " + total + " " + total);
}

// --- who gets a device ---

TEST(Hip, WithoutATokenThePreloadedLibraryIsNotInTheWay) {
  for (const char* way : {"linked", "dlsym", "proc"}) {
    auto environment = bareHip(way);
    environment.push_back("LD_PRELOAD=" QGPU_GUEST_LIBRARY);
    HipTenant guest(environment, way);
    prepare(guest);
    EXPECT_EQ(guest.ask("do hipLaunchKernel"), "0 1");
    EXPECT_EQ(guest.ask("do hipMemcpyDtoH"), "0 1");
    EXPECT_EQ(guest.errors(), "");
  }
}

TEST(Hip, WithoutAManagerThereIsNoDevice) {
  for (const char* way : {"linked", "dlsym", "proc"}) {
    auto environment = bareHip(way);
    environment.insert(environment.end(),
                       {"LD_PRELOAD=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=/nonexistent/socket",
                        "QGPU_TOKEN=" + FakeManager::token(), "QGPU_ATTACH_TIMEOUT_MS=20"});
    HipTenant guest(environment, way);
    EXPECT_EQ(guest.ask("init"), "100") << "hipErrorNoDevice";
    EXPECT_NE(guest.errors().find("no manager"), std::string::npos);
  }
}

TEST(Hip, ATaskOnAnotherKindOfCardHasNoDeviceAndIsToldWhyOnce) {
  FakeManager manager({});
  HipTenant guest(manager);
  EXPECT_EQ(guest.ask("init"), "100");
  const std::string told = guest.errors();
  EXPECT_NE(told.find("Portable Computing Language"), std::string::npos);
  EXPECT_EQ(guest.ask("init"), "100");
  EXPECT_EQ(guest.errors(), told);
}

TEST(Hip, AWayToLaunchThatIsNotKnownIsToldOnce) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("resolve hipLaunchKernel"), "found");
  EXPECT_EQ(guest.ask("resolve hipLaunchOfNobody"), "none");
  EXPECT_EQ(guest.errors(), "");
  EXPECT_EQ(guest.ask("resolve hipLaunchOfTomorrow"), "found");
  const std::string told = guest.errors();
  EXPECT_NE(told.find("hipLaunchOfTomorrow"), std::string::npos);
  EXPECT_EQ(guest.ask("resolve hipLaunchOfTomorrow"), "found");
  EXPECT_EQ(guest.errors(), told);
}

// The library's own exports are no runtime.
TEST(Hip, AProgramThatLooksForARuntimeIsNotToldThatThereIsOne) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  EXPECT_EQ(guest.ask("probe"), "none");
  EXPECT_EQ(guest.ask("global hipMalloc"), "found");
  EXPECT_EQ(guest.ask("global hipMallocOfNobody"), "none");
  EXPECT_EQ(manager.attaches(), 0u) << "it only looked";
}

TEST(Hip, AForkedChildIsATenantOfItsOwn) {
  FakeManager manager(hipTask());
  HipTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  guest.ask("fork");
  EXPECT_EQ(manager.attaches(), 2u) << guest.errors();
  EXPECT_EQ(manager.slot(0).bytes + 0u, kInitBytes) << "nothing of its parent's changed";
}

}  // namespace
}  // namespace qgpu::testing::guest_hip_test
