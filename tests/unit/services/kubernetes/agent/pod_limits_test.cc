// Pods under limits of NVIDIA's driver, on the stand-in of NVML, with plain folders as cgroups:
// what the driver is told of a pod's tasks as they come and go, and that nobody waits for one that
// is sick.

#include "services/kubernetes/agent/pod_limits.h"

#include <algorithm>
#include <capnp/message.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sstream>
#include <stdlib.h>

#include "runtime/kj/bridge.h"
#include "services/cards/nvidia/memory_limits.h"
#include "tests/unit/services/cards/nvml_machine.h"

namespace qgpu::pod_limits_test {
namespace {

using Limits = std::vector<std::string>;  // "uid card bytes"

struct PodLimited : ::testing::Test {
  ~PodLimited() noexcept override { ::unsetenv("QGPU_STAND_IN_LIMITS"); }
  PodLimited() {
    ::setenv("QGPU_STAND_IN_LIMITS", (folder / "limits").c_str(), 1);
    machine.write({t4(kFirst), t4(kSecond)});
    config.mounts = {folder / "cgroups"};
  }
  // Forks, so before there is anything else.
  void start(const LimiterTimes& times = {}) {
    auto limiter = limitNvidiaMemory(times);
    ASSERT_TRUE(limiter) << limiter.error().message;
    limits.emplace(std::move(*limiter), kj.lowLevel(), kj.timer(), log, config);
  }
  std::string makePod(const std::string& uid) const {
    const std::string cgroup = folder / "cgroups/kubepods/burstable/pod" + uid;
    std::filesystem::create_directories(cgroup);
    return cgroup;
  }
  // Returns when a container of the task may start.
  void hold(const std::string& uid, std::uint64_t task, const std::string& cards, Bytes mem,
            Permille share = Permille(300)) {
    capnp::MallocMessageBuilder message;
    auto info = message.initRoot<schema::TaskInfo>();
    info.setId(task);
    info.setCard(cards);
    info.initSpec().setMemBytes(static_cast<std::uint64_t>(mem.value));
    info.getSpec().setSharePermille(static_cast<std::uint32_t>(share.value));
    wait(limits->hold(uid, info.asReader()));
  }
  void wait(kj::Promise<void> promise) {
    kj.timer().timeoutAfter(20 * kj::SECONDS, kj::mv(promise)).wait(kj.waitScope());
  }
  bool become(const Limits& wanted) {
    const kj::TimePoint end = kj.timer().now() + 20 * kj::SECONDS;
    while (told() != wanted && kj.timer().now() < end) {
      kj.timer().afterDelay(1 * kj::MILLISECONDS).wait(kj.waitScope());
    }
    return told() == wanted;
  }
  Limits told() const {
    Limits all;
    std::ifstream in(folder / "limits");
    for (std::string line; std::getline(in, line);) {
      std::replace(line.begin(), line.end(), '|', ' ');
      std::istringstream words(line);
      std::string cgroup, card, soft, hard;
      words >> cgroup >> card >> soft >> hard;
      EXPECT_EQ(soft, "0");
      all.push_back(cgroup.substr(cgroup.rfind("/pod") + 4) + " " + card + " " + hard);
    }
    return all;
  }
  std::size_t warned(const std::string& what) const {
    return static_cast<std::size_t>(std::count_if(
        warnings.begin(), warnings.end(),
        [&](const std::string& line) { return line.find(what) != std::string::npos; }));
  }

  Machine machine;
  testing::TempFolder folder{"pod-limits"};
  PodLimitsConfig config;
  std::vector<std::string> warnings;
  Log log{LogLevel::Warn, [this](LogLevel, const std::string& line) { warnings.push_back(line); }};
  Loop loop;
  KjBridge kj{loop};
  std::optional<PodLimits> limits;
};

TEST_F(PodLimited, APodHasTheSumOfItsTasksOnEachCardBeforeTheyStart) {
  start();
  makePod("u1");
  makePod("u2");
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits{"u1 " + kFirst + " 4000"});
  hold("u1", 2, kFirst, Bytes(500));
  hold("u1", 3, kSecond, Bytes(70));
  hold("u2", 4, kFirst, Bytes(8));
  const Limits all = {"u1 " + kFirst + " 4500", "u1 " + kSecond + " 70", "u2 " + kFirst + " 8"};
  EXPECT_EQ(told(), all);
  EXPECT_EQ(warnings, Limits());
}

TEST_F(PodLimited, WhatEndsIsTakenOffAndThePodsLimitsEndWithItsLastTask) {
  start();
  makePod("u1");
  hold("u1", 1, kFirst, Bytes(4000));
  hold("u1", 2, kFirst, Bytes(500));
  hold("u1", 3, kSecond, Bytes(70));
  limits->keep({2, 9});
  EXPECT_TRUE(become({"u1 " + kFirst + " 500"}));
  limits->keep({9});
  EXPECT_TRUE(become({}));
  hold("u1", 4, kSecond, Bytes(60));
  EXPECT_EQ(told(), Limits{"u1 " + kSecond + " 60"}) << "a pod of that uid may have tasks again";
}

TEST_F(PodLimited, WhoHasItsCardsAloneIsNotLimited) {
  start();
  makePod("u1");
  hold("u1", 1, kFirst, Bytes(4000), kWholeCard);
  hold("u1", 2, kFirst + "," + kSecond, Bytes(4000), Permille(2000));
  hold("u1", 3, kSecond, Bytes(30), Permille(0));  // online
  EXPECT_EQ(told(), Limits{"u1 " + kSecond + " 30"});
}

TEST_F(PodLimited, WhatTheDriverRefusesIsSaidOnceAndTriedAgainAndThePodStarts) {
  config.again = Nanos(0);
  start();
  makePod("u1");
  machine.write({"!limits|4", t4(kFirst)});
  hold("u1", 1, kFirst, Bytes(4000));
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits());
  EXPECT_EQ(warned("NVML error 4"), 1u);
  machine.write({t4(kFirst)});
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits{"u1 " + kFirst + " 4000"});
}

TEST_F(PodLimited, WhatWasToldIsNotToldAgain) {
  start();
  makePod("u1");
  hold("u1", 1, kFirst, Bytes(4000));
  std::filesystem::remove(folder / "limits");
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits());
}

TEST_F(PodLimited, APodWithoutACgroupStartsAndIsLimitedOnceItHasOne) {
  start();
  hold("u1", 1, kFirst, Bytes(4000));
  hold("u2", 2, kFirst, Bytes(4000));
  EXPECT_EQ(warned("no cgroup"), 1u);
  makePod("u1");
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits{"u1 " + kFirst + " 4000"});
}

TEST_F(PodLimited, NobodyWaitsForADriverThatHangs) {
  config.patience = millis(50);
  start({.patience = seconds(3600)});
  makePod("u1");
  machine.write({"!hang|1", t4(kFirst)});
  hold("u1", 1, kFirst, Bytes(4000));
  EXPECT_EQ(told(), Limits());
}

}  // namespace
}  // namespace qgpu::pod_limits_test
