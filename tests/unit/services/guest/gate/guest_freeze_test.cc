// Freeze: kernels of a real driver are stopped in the middle and go on where they were.

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing::guest_freeze_test {
namespace {

using namespace std::chrono_literals;

FakeManager::Options freezing() {
  FakeManager::Options options;
  options.suspend = QGPU_SUSPEND_FREEZE;
  return options;
}

// Whether kernels made no progress over a time in which a running one makes a lot.
bool standsStill(const GuestChild& guest, std::uint64_t forMs) {
  const std::uint64_t before = guest.progress();
  return !eventually([&] { return guest.progress() != before; }, std::chrono::milliseconds(forMs));
}

TEST(GuestFreeze, DriverThreadsAreKnownExactly) {
  FakeManager manager(freezing());
  auto environment = tenantOf(manager);
  environment.push_back("POCL_MAX_PTHREAD_COUNT=2");
  GuestChild guest(environment);
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.driverThreads(), 2u);
  EXPECT_NE(manager.lastHello().freeze_signal, 0u);
}

// The CPUs on which a thread of `pid` may run, as the kernel tells them: "0" or "0-1".
std::string cpusOf(pid_t pid, std::uint32_t tid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status");
  const std::string name = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return "?";
}

// Woken from one place they would all begin their slice on one CPU.
TEST(GuestFreeze, EachDriverThreadHasACpuOfItsOwn) {
  FakeManager manager(freezing());
  auto environment = tenantOf(manager);
  environment.push_back("POCL_MAX_PTHREAD_COUNT=2");
  GuestChild guest(environment);
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  ASSERT_EQ(manager.driverThreads(), 2u);
  const auto cpu = [&](int i) { return cpusOf(guest.pid(), manager.slot(0).tids[i]); };
  EXPECT_EQ(cpu(0).find_first_not_of("0123456789"), std::string::npos) << cpu(0);
  EXPECT_EQ(cpu(1).find_first_not_of("0123456789"), std::string::npos) << cpu(1);
  const bool several = std::thread::hardware_concurrency() > 1;
  EXPECT_EQ(cpu(0) != cpu(1), several);
  EXPECT_EQ(cpusOf(guest.pid(), static_cast<std::uint32_t>(guest.pid())),
            cpusOf(getpid(), static_cast<std::uint32_t>(getpid())))
      << "the program's own threads are not moved";
}

TEST(GuestFreeze, ADriverWithoutThreadsOfItsOwnIsNotFrozen) {
  FakeManager manager(freezing());
  auto environment = tenantOf(manager);
  environment.push_back("POCL_DEVICES=basic");
  GuestChild guest(environment);
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.driverThreads(), 0u);
}

TEST(GuestFreeze, ALongKernelStopsInTheMiddleAndGoesOnWithRightResults) {
  FakeManager manager(freezing());
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  ASSERT_GT(manager.driverThreads(), 0u);
  EXPECT_EQ(guest.ask("launch 1000"), "0");
  EXPECT_EQ(guest.ask("flush"), "0");
  for (int i = 0; i < 2; ++i) {
    std::uint64_t seen = guest.progress();
    ASSERT_TRUE(eventually([&] { return guest.progress() > seen; }));
    std::uint64_t rings = manager.rings();
    manager.freeze();
    ASSERT_TRUE(eventually([&] { return manager.frozen() == manager.driverThreads(); }));
    EXPECT_TRUE(eventually([&] { return manager.rings() > rings; }));
    EXPECT_TRUE(standsStill(guest, 60));
    EXPECT_EQ(manager.inFlight(), 1u);
    EXPECT_NE(guest.ask("sizes"), "");  // host threads run on
    manager.setGate(QGPU_GATE_OPEN);
    EXPECT_TRUE(eventually([&] { return manager.frozen() == 0; }));
  }
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("check"), "ok");
  EXPECT_TRUE(retiresAll(manager));
}

TEST(GuestFreeze, ASignalThatComesAfterTheGateOpenedStopsNothing) {
  FakeManager manager(freezing());
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.sendFreezeSignals();
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.frozen(), 0u);
}

// The application's own handler must never get the manager's signals.
TEST(GuestFreeze, ASignalThatTheApplicationTakesLaterIsNoLongerSent) {
  FakeManager manager(freezing());
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  ASSERT_GT(manager.driverThreads(), 0u);
  EXPECT_EQ(guest.ask("takesignal"), "ok");
  EXPECT_TRUE(eventually([&] { return manager.driverThreads() == 0; }));
  EXPECT_TRUE(eventually([&] { return guest.errors().find("took signal") != std::string::npos; }));
}

// A handler may take locks of the program and go on with its work: not while its thread is held.
TEST(GuestFreeze, NoHandlerOfTheProgramRunsOnAFrozenThread) {
  FakeManager manager(freezing());
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  ASSERT_GT(manager.driverThreads(), 0u);
  EXPECT_EQ(guest.ask("signals count"), "ok");
  EXPECT_EQ(guest.ask("launch 1000"), "0");
  EXPECT_EQ(guest.ask("flush"), "0");
  manager.freeze();
  ASSERT_TRUE(eventually([&] { return manager.frozen() == manager.driverThreads(); }));
  const auto thread = static_cast<pid_t>(manager.slot(0).tids[0]);
  ASSERT_EQ(::syscall(SYS_tgkill, guest.pid(), thread, SIGUSR1), 0);
  EXPECT_FALSE(eventually([&] { return guest.ask("signals") != "0"; }, 60ms));
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_TRUE(eventually([&] { return guest.ask("signals") == "1"; })) << "it comes afterwards";
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("check"), "ok");
}

// C9: a frozen task whose manager is gone runs on by itself after the grace.
TEST(GuestFreeze, C9_AFrozenTaskRunsOnWhenTheManagerIsLost) {
  FakeManager::Options options = freezing();
  options.orphanGraceNs = 1'000'000'000;
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 50"), "0");
  EXPECT_EQ(guest.ask("flush"), "0");
  manager.freeze();
  ASSERT_TRUE(eventually([&] { return manager.frozen() == manager.driverThreads(); }));
  manager.die();
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("check"), "ok");
}

// A new manager's word counts for threads that were frozen by the old one.
TEST(GuestFreeze, FrozenThreadsFollowTheGatePageOfANewManager) {
  FakeManager manager(freezing());
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 50"), "0");
  manager.freeze();
  ASSERT_TRUE(eventually([&] { return manager.frozen() == manager.driverThreads(); }));
  manager.die();
  manager.restart(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("check"), "ok");
}

}  // namespace
}  // namespace qgpu::testing::guest_freeze_test
