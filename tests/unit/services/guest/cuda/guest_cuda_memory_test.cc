// The quota in CUDA programs: every way to memory is charged before it is given, over the quota it
// is CUDA's own "out of memory", and every way to free it returns exactly what was charged, when it
// is free.

#include <gtest/gtest.h>
#include <string>

#include "tests/unit/services/guest/cuda/cuda_tenant.h"

namespace qgpu::testing::guest_cuda_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

struct Scene {
  explicit Scene(std::uint64_t quota = 64 * kMiB)
      : manager([&] {
          auto options = cudaTask();
          options.quotaBytes = quota;
          return options;
        }()),
        guest(manager) {
    EXPECT_EQ(guest.ask("init"), "0") << guest.errors();
    EXPECT_EQ(guest.ask("stream a"), "0");
  }
  ~Scene() { EXPECT_EQ(guest.ask("stats").substr(0, 4), "0 0 ") << "misuses, broken captures"; }
  std::uint64_t held() { return manager.bytes() - kCudaInitBytes; }
  bool holds(std::uint64_t bytes) {
    return eventually([&] { return held() == bytes; });
  }
  FakeManager manager;
  CudaTenant guest;
};

std::string alloc(const std::string& kind, int id, std::uint64_t bytes) {
  return "alloc " + kind + " " + std::to_string(id) + " " + std::to_string(bytes);
}

class EveryKind : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryKind, IsChargedRefusedOverTheQuotaAndReturned) {
  Scene s;
  const std::string kind = GetParam();
  EXPECT_EQ(s.guest.ask(alloc(kind, 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.held(), 40 * kMiB);
  EXPECT_EQ(s.guest.ask(alloc(kind, 2, 32 * kMiB)), "2") << "CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(s.held(), 40 * kMiB);
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_TRUE(s.holds(0));
  EXPECT_EQ(s.guest.ask(alloc(kind, 2, 32 * kMiB)), "0");
  EXPECT_EQ(s.held(), 32 * kMiB);
  EXPECT_EQ(s.guest.ask("free 2"), "0");
  EXPECT_TRUE(s.holds(0));
}
INSTANTIATE_TEST_SUITE_P(CudaMemory, EveryKind,
                         ::testing::Values("plain", "pitch", "managed", "async", "async-own",
                                           "pool", "physical", "array", "array3d", "mipmap"),
                         [](const auto& each) {
                           std::string name = each.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(CudaMemory, WhatTheDriverRefusesIsNotCharged) {
  FakeManager::Options options = cudaTask();
  options.quotaBytes = 1ull << 40;
  FakeManager manager(options);
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask(alloc("plain", 1, 17ull << 30)), "2");
  EXPECT_EQ(manager.bytes(), kCudaInitBytes);
}

// The quota is over all of them: what one holds leaves the other's memory free.
TEST(CudaMemory, OnSeveralCardsEachSizeIsThatCardsOwnWithinTheQuota) {
  FakeManager::Options options = cudaTask();
  options.devices = {0, 1};
  options.quotaBytes = 1500 * kMiB;
  FakeManager manager(options);
  auto environment = cudaTenantOf(manager);
  environment.push_back("QGPU_STAND_IN_DEVICES=2");
  environment.push_back("QGPU_STAND_IN_BYTES=" + std::to_string(1024 * kMiB));
  CudaTenant guest(environment);
  const auto sizes = [](std::uint64_t free) {
    const std::string card = std::to_string(1024 * kMiB);
    return std::to_string(free) + " " + card + " " + card;
  };
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask(alloc("plain", 1, 600 * kMiB)), "0");
  EXPECT_EQ(guest.ask("info"), sizes(424 * kMiB - kCudaInitBytes)) << "what the card has";
  ASSERT_EQ(guest.ask("card 1"), "0");
  EXPECT_EQ(guest.ask("info"), sizes(900 * kMiB - kCudaInitBytes)) << "what the quota leaves";
  EXPECT_EQ(guest.ask(alloc("plain", 2, 600 * kMiB)), "0");
  EXPECT_EQ(guest.ask("info"), sizes(300 * kMiB - kCudaInitBytes));
}

TEST(CudaMemory, AFreeThatTheDriverRefusesReturnsNothing) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("freewrong"), "1");
  EXPECT_EQ(manager.bytes(), kCudaInitBytes);
}

// HAZARDS 22.
TEST(CudaMemory, AStreamOrderedFreeReturnsItsBytesWhenTheStreamHasComeToIt) {
  Scene s;
  EXPECT_EQ(s.guest.ask(alloc("async", 1, 40 * kMiB)), "0");
  EXPECT_EQ(s.guest.ask("waitvalue a"), "0");
  EXPECT_EQ(s.guest.ask("add a"), "0");
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.guest.ask(alloc("plain", 2, 32 * kMiB)), "2");
  EXPECT_EQ(s.held(), 40 * kMiB);
  EXPECT_EQ(s.guest.ask("set"), "ok");
  EXPECT_TRUE(s.holds(0));
  EXPECT_EQ(s.guest.ask(alloc("plain", 2, 32 * kMiB)), "0");
  EXPECT_EQ(s.guest.ask("free 2"), "0");
}

TEST(CudaMemory, MappedMemoryIsHeldUntilTheLastMapAndReferenceAreGone) {
  Scene s;
  EXPECT_EQ(s.guest.ask(alloc("physical", 1, 8 * kMiB)), "0");
  EXPECT_EQ(s.guest.ask("map 1"), "0");
  EXPECT_EQ(s.guest.ask("retain 1"), "0");
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.held(), 8 * kMiB) << "one reference and a map";
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(s.held(), 8 * kMiB) << "a map";
  EXPECT_EQ(s.guest.ask("unmap 1"), "0");
  EXPECT_EQ(s.held(), 0u);
}

// NCCL asks so, in threads that have no context.
TEST(CudaMemory, PhysicalMemoryOfTheHostCostsNothingAndNeedsNoContext) {
  Scene s;
  EXPECT_EQ(s.guest.ask("nocontext"), "0");
  for (const char* kind : {"host", "host-node", "host-near"}) {
    EXPECT_EQ(s.guest.ask(alloc(kind, 1, 80 * kMiB)), "0") << kind << ": more than the quota";
    EXPECT_EQ(s.guest.ask("map 1"), "0") << kind;
    EXPECT_EQ(s.held(), 0u) << kind;
    EXPECT_EQ(s.guest.ask("free 1"), "0") << kind;
    EXPECT_EQ(s.guest.ask("unmap 1"), "0") << kind;
    EXPECT_EQ(s.held(), 0u) << kind;
  }
  EXPECT_EQ(s.guest.ask(alloc("physical", 2, 40 * kMiB)), "0");
  EXPECT_EQ(s.held(), 40 * kMiB) << "the card's counts without a context too";
  EXPECT_EQ(s.guest.ask("free 2"), "0");
  EXPECT_EQ(s.held(), 0u);
}

// As llama.cpp's pool takes memory.
TEST(CudaMemory, ARangeGrowsPieceByPieceToTheQuotaAndComesBackAtOnce) {
  Scene s;
  const std::string piece = std::to_string(8 * kMiB);
  for (const char* range : {"1", "2"}) {
    EXPECT_EQ(s.guest.ask(std::string("grow ") + range + " " + piece + " 32"), "7 2") << range;
    EXPECT_EQ(s.held(), 56 * kMiB) << "no eighth beside what the program has";
    EXPECT_EQ(s.guest.ask(alloc("plain", 3, 8 * kMiB)), "2");
    EXPECT_EQ(s.guest.ask(std::string("unmap ") + range), "0");
    EXPECT_EQ(s.held(), 0u);
  }
}

TEST(CudaMemory, AContextsMemoryEndsWithIt) {
  Scene s;
  EXPECT_EQ(s.guest.ask("ctxnew"), "0");
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 4 * kMiB)), "0");
  EXPECT_EQ(s.guest.ask(alloc("array", 2, 4 * kMiB)), "0");
  EXPECT_EQ(s.held(), 8 * kMiB);
  EXPECT_EQ(s.guest.ask("ctxend"), "0");
  EXPECT_EQ(s.held(), 0u);
  EXPECT_EQ(s.guest.ask("reset"), "0");
  EXPECT_EQ(s.manager.bytes(), 0u) << "the primary context's too";
}

TEST(CudaMemory, APrimaryContextThatOthersHoldKeepsItsMemory) {
  FakeManager manager(cudaTask());
  CudaTenant guest(manager);
  ASSERT_EQ(guest.ask("init"), "0") << guest.errors();
  EXPECT_EQ(guest.ask("release"), "0");
  EXPECT_EQ(manager.bytes(), 0u) << "the last one";
}

TEST(CudaMemory, CudaAndNvmlTellTheQuotaAlike) {
  Scene s;
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 16 * kMiB)), "0");
  const std::string quota = std::to_string(64 * kMiB);
  const std::string left = std::to_string(48 * kMiB - kCudaInitBytes);
  const std::string used = std::to_string(16 * kMiB + kCudaInitBytes);
  EXPECT_EQ(s.guest.ask("info"), left + " " + quota + " " + quota);
  EXPECT_EQ(s.guest.ask("nvml"), left + " " + quota + " " + used + " 0");
}

TEST(CudaMemory, TheQuotaIsTheTasksOverItsProcesses) {
  Scene s;
  CudaTenant other(s.manager);
  ASSERT_EQ(other.ask("init"), "0") << other.errors();
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 40 * kMiB)), "0");
  EXPECT_EQ(other.ask(alloc("managed", 1, 40 * kMiB)), "2");
  EXPECT_EQ(s.guest.ask("free 1"), "0");
  EXPECT_EQ(other.ask(alloc("managed", 1, 40 * kMiB)), "0");
  EXPECT_EQ(other.ask("free 1"), "0");
}

TEST(CudaMemory, AProcessIsToldWhatTheOthersOfItsTaskLeave) {
  Scene s;
  const std::string quota = std::to_string(64 * kMiB);
  const auto left = [&](std::uint64_t taken) {
    return std::to_string(64 * kMiB - taken) + " " + quota + " " + quota;
  };
  EXPECT_EQ(s.guest.ask(alloc("plain", 1, 16 * kMiB)), "0");
  {
    CudaTenant second(s.manager);
    ASSERT_EQ(second.ask("init"), "0") << second.errors();
    EXPECT_EQ(second.ask("info"), left(16 * kMiB + 2 * kCudaInitBytes));
    EXPECT_EQ(second.ask(alloc("plain", 1, 8 * kMiB)), "0");
    EXPECT_EQ(second.ask("info"), left(24 * kMiB + 2 * kCudaInitBytes));
    EXPECT_EQ(second.ask("nvml"), s.guest.ask("nvml"));
    EXPECT_EQ(s.guest.ask("info"), left(24 * kMiB + 2 * kCudaInitBytes));
  }
  s.manager.reap(1);
  CudaTenant third(s.manager);  // in a slot of its own, as one that starts when another is over
  ASSERT_EQ(third.ask("init"), "0") << third.errors();
  EXPECT_EQ(third.ask("info"), left(16 * kMiB + 2 * kCudaInitBytes));
}

}  // namespace
}  // namespace qgpu::testing::guest_cuda_memory_test
