// Limits of memory that NVIDIA's driver keeps for a cgroup, on the stand-in of NVML: how they are
// asked for, by whom, and what becomes of a driver that refuses, hangs, or has none.

#include "services/cards/nvidia/memory_limits.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>

#include "services/base/child_probe.h"
#include "services/cards/cards.h"
#include "services/cards/nvidia/nvml.h"
#include "tests/unit/services/cards/nvml_machine.h"

namespace qgpu::memory_limits_test {
namespace {

struct MemoryLimits : ::testing::Test {
  MemoryLimits() {
    ::setenv("QGPU_STAND_IN_LIMITS", file().c_str(), 1);
    machine.write({t4(kFirst), t4(kSecond)});
    std::filesystem::create_directories(cgroup);
  }
  ~MemoryLimits() override { ::unsetenv("QGPU_STAND_IN_LIMITS"); }

  std::string file() const { return folder / "limits"; }
  // As the driver has them, a line each.
  std::string limits() const {
    std::ifstream in(file());
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  std::string line(const std::string& card, std::uint64_t hard) const {
    return cgroup + "|" + card + "|0|" + std::to_string(hard) + "\n";
  }
  // What the limiter answers; "no answer" where it gives none.
  std::string carriedOut(const MemoryLimiter& limiter, const LimitOrder& order) const {
    EXPECT_TRUE(limiter.order(order));
    pollfd answered{limiter.fd(), POLLIN, 0};
    char packet[4096];
    if (::poll(&answered, 1, 20'000) != 1) return "no answer";
    const ssize_t n = ::read(limiter.fd(), packet, sizeof packet);
    const auto answer =
        parseLimitAnswer({packet, static_cast<std::size_t>(std::max<ssize_t>(n, 0))});
    if (!answer) return "no answer";
    EXPECT_EQ(answer->number, order.number);
    return answer->why;
  }

  Machine machine;
  testing::TempFolder folder{"limits"};
  const std::string cgroup = folder / "kubepods/pod1";
};

// In a child, as it is used: what NVML knows of cards would stay in this process.
std::string askOf(const std::string& card,
                  const std::function<std::string(const Nvml&, cuda::NvmlDevice)>& question) {
  const auto answer = askInChild("NVML", "it", seconds(20), [&](int out) {
    const auto nvml = Nvml::open();
    cuda::NvmlDevice device = nullptr;
    if (nvml && nvml->byUuid(card, device) == Nvml::kSuccess) {
      ::dprintf(out, "%s", question(*nvml, device).c_str());
    }
  });
  return answer ? *answer : answer.error().message;
}

TEST_F(MemoryLimits, NvmlSetsReadsAndLiftsThem) {
  const auto set = [&](std::uint64_t hard) {
    return askOf(kSecond, [&](const Nvml& nvml, cuda::NvmlDevice device) {
      return std::to_string(nvml.setMemoryLimit(device, cgroup, hard));
    });
  };
  const auto read = [&] {
    return askOf(kSecond, [&](const Nvml& nvml, cuda::NvmlDevice device) {
      std::uint64_t hard = 0;
      const int rc = nvml.memoryLimit(device, cgroup, hard);
      return rc != Nvml::kSuccess ? nvml.describe(rc) : std::to_string(hard);
    });
  };
  EXPECT_EQ(read(), "18446744073709551615");
  EXPECT_EQ(set(4096), "0");
  EXPECT_EQ(read(), "4096");
  EXPECT_EQ(limits(), line(kSecond, 4096)) << "the soft one reserves nothing";
  EXPECT_EQ(set(Nvml::kNoLimit), "0");
  EXPECT_EQ(limits(), "");
}

TEST_F(MemoryLimits, ADriverBefore615HasNone) {
  ::unsetenv("QGPU_STAND_IN_LIMITS");
  const std::string answers = askOf(kFirst, [&](const Nvml& nvml, cuda::NvmlDevice device) {
    std::uint64_t hard = 0;
    const int read = nvml.memoryLimit(device, cgroup, hard);
    return std::to_string(read) + " " + std::to_string(hard) + " " +
           std::to_string(nvml.setMemoryLimit(device, cgroup, 4096));
  });
  EXPECT_EQ(answers, "13 18446744073709551615 13");
}

TEST_F(MemoryLimits, FoundCardsComeWithALimiterWhereTheirDriverHasThem) {
  CardsOptions options;
  options.backend = "nvidia";
  const auto found = findCards(options);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_TRUE(found->limiter);
  EXPECT_EQ(found->noLimiter, "");
  EXPECT_NE(found->cards[0].memoryCounted.find("; pods are limited by the driver itself"),
            std::string::npos)
      << found->cards[0].memoryCounted;
  EXPECT_EQ(carriedOut(*found->limiter, {1, cgroup, {{kFirst, Bytes(4096)}}}), "");
  EXPECT_EQ(limits(), line(kFirst, 4096));
}

TEST_F(MemoryLimits, FoundCardsComeWithoutOneWhereTheirDriverHasNone) {
  ::unsetenv("QGPU_STAND_IN_LIMITS");
  CardsOptions options;
  options.backend = "nvidia";
  const auto found = findCards(options);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_FALSE(found->limiter);
  EXPECT_EQ(found->noLimiter, "drivers limit a cgroup's memory from 615 on");
  EXPECT_EQ(found->cards[0].memoryCounted.find("pods"), std::string::npos);
}

TEST_F(MemoryLimits, AnOrderIsOfSeveralCardsAndLiftsWhatHasNoLimit) {
  const auto limiter = limitNvidiaMemory();
  ASSERT_TRUE(limiter) << limiter.error().message;
  EXPECT_EQ(carriedOut(*limiter, {1, cgroup, {{kFirst, Bytes(4096)}, {kSecond, Bytes(8192)}}}), "");
  EXPECT_EQ(limits(), line(kFirst, 4096) + line(kSecond, 8192));
  EXPECT_EQ(carriedOut(*limiter, {2, cgroup, {{kFirst, std::nullopt}, {kSecond, Bytes(512)}}}), "");
  EXPECT_EQ(limits(), line(kSecond, 512));
}

TEST_F(MemoryLimits, WhatTheDriverRefusesIsAnsweredWithItsReason) {
  const auto limiter = limitNvidiaMemory();
  ASSERT_TRUE(limiter) << limiter.error().message;
  machine.write({"!limits|4", t4(kFirst)});
  const std::string why = carriedOut(*limiter, {1, cgroup, {{kFirst, Bytes(4096)}}});
  EXPECT_NE(why.find(kFirst + ": NVML error 4"), std::string::npos) << why;
  machine.write({t4(kFirst)});
  EXPECT_EQ(carriedOut(*limiter, {2, cgroup, {{kFirst, Bytes(4096)}}}), "") << "it can again";
}

TEST_F(MemoryLimits, ACgroupThatIsGoneHasNothingToLift) {
  const auto limiter = limitNvidiaMemory();
  ASSERT_TRUE(limiter) << limiter.error().message;
  EXPECT_EQ(carriedOut(*limiter, {1, folder / "kubepods/pod2", {{kFirst, std::nullopt}}}), "");
}

TEST_F(MemoryLimits, ADriverThatHangsIsGivenUpAndThenLeftAloneForAWhile) {
  const auto limiter = limitNvidiaMemory({.patience = millis(200), .quiet = seconds(3600)});
  ASSERT_TRUE(limiter) << limiter.error().message;
  machine.write({"!hang|1", t4(kFirst)});
  const std::string why = carriedOut(*limiter, {1, cgroup, {{kFirst, Bytes(4096)}}});
  EXPECT_NE(why.find("did not answer in time"), std::string::npos) << why;
  machine.write({t4(kFirst)});
  EXPECT_EQ(carriedOut(*limiter, {2, cgroup, {{kFirst, Bytes(4096)}}}), why);
  EXPECT_EQ(limits(), "");
}

TEST_F(MemoryLimits, TheControllerOfDeviceMemoryIsSwitchedOnAboveACgroup) {
  const std::string root = folder / "root";
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  };
  const auto read = [](const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const char* at : {"", "/kubepods", "/kubepods/pod1"}) {
    std::filesystem::create_directories(root + at);
    write(root + at + "/cgroup.controllers", "cpu memory dmem\n");
    write(root + at + "/cgroup.subtree_control", "cpu memory\n");
  }
  giveDeviceMemoryController(root + "/kubepods/pod1");
  EXPECT_EQ(read(root + "/cgroup.subtree_control"), "+dmem");
  EXPECT_EQ(read(root + "/kubepods/cgroup.subtree_control"), "+dmem");
  EXPECT_EQ(read(root + "/kubepods/pod1/cgroup.subtree_control"), "cpu memory\n");

  write(root + "/cgroup.subtree_control", "cpu dmem\n");
  write(root + "/kubepods/cgroup.controllers", "cpu memory\n");
  write(root + "/kubepods/cgroup.subtree_control", "cpu\n");
  giveDeviceMemoryController(root + "/kubepods/pod1");
  EXPECT_EQ(read(root + "/cgroup.subtree_control"), "cpu dmem\n") << "it was on";
  EXPECT_EQ(read(root + "/kubepods/cgroup.subtree_control"), "cpu\n") << "a kernel without it";
}

TEST(LimitOrders, TravelAsPacketsAndWhatIsNoneIsNot) {
  const LimitOrder order{7, "/sys/fs/cgroup/a b", {{kFirst, Bytes(0)}, {kSecond, std::nullopt}}};
  EXPECT_EQ(parseLimitOrder(limitPacket(order)), order);
  for (const char* wrong : {"", "7", "x\t/c", "7\t/c\tcard", "7\t/c\tcard\t-1", "7\t/c\tcard\tx",
                            "7\t/c\tcard\t9223372036854775808"}) {
    EXPECT_FALSE(parseLimitOrder(wrong)) << wrong;
  }
  for (const char* wrong : {"", "7", "x\twhy", "7\ta\tb"}) {
    EXPECT_FALSE(parseLimitAnswer(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace qgpu::memory_limits_test
