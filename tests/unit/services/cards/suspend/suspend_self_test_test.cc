// The self-test of suspend=rm by real processes, on stand-ins of NVIDIA's drivers that need this or
// that commit, refuse, or let work go on.

#include <condition_variable>
#include <cstdarg>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "services/cards/suspend/card_check.h"
#include "services/cards/suspend/driver_calls.h"
#include "services/cards/suspend/probe_process.h"
#include "services/cards/suspend/self_test.h"
#include "tests/rm_stand_in/test_driver.h"
#include "tests/testing/child_process.h"
#include "tests/testing/eventually.h"

// What is done to a tenant's socket, and by whom: these stand before libc's calls. Its close waits
// for the tenant here, unless it is the card's thread that would wait.
struct TenantsFile {
  std::mutex mutex;
  std::condition_variable changed;
  ino_t inode = 0;  // 0: nothing is watched
  std::thread::id card;
  int asked = 0, closedByCard = 0, closing = 0;
  bool mayClose = false;

  bool is(int fd) const {
    struct stat file {};
    return ::fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) && file.st_ino == inode;
  }
  void ask(int fd) {
    const std::lock_guard lock(mutex);
    if (inode != 0 && is(fd)) asked++;
  }
  void close(int fd) {
    std::unique_lock lock(mutex);
    if (inode == 0 || !is(fd)) return;
    if (std::this_thread::get_id() == card) {
      closedByCard++;
      return;
    }
    closing++;
    changed.notify_all();
    changed.wait(lock, [&] { return mayClose; });
  }
} tenants;

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  using Ioctl = int (*)(int, unsigned long, ...);
  static const auto next = reinterpret_cast<Ioctl>(::dlsym(RTLD_NEXT, "ioctl"));
  tenants.ask(fd);
  return next(fd, request, argument);
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
  static const auto next = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "close"));
  tenants.close(fd);
  return next(fd);
}

namespace qgpu::suspend::suspend_self_test_test {
namespace {

using rm_stand_in::Commit;
using rm_stand_in::driver;

SelfTestOptions options() {
  SelfTestOptions wanted;
  wanted.uuid = "GPU-00000000-0000-0000-0000-000000000000";
  wanted.driverVersion = "580.142";
  wanted.probe = testing::binary("qgpu-suspend-probe");
  wanted.toggles = 5;
  return wanted;
}

std::uint32_t disabledNow() {
  std::uint32_t count = 0;
  for (const auto& object : driver().objects) {
    if (object.pid != 0 && object.disabled.load() != 0) count++;
  }
  return count;
}

class SelfTestOnStandIn : public ::testing::Test {
 protected:
  void SetUp() override {
    driver().commit = Commit::kNone;
    driver().refuseDisable = driver().refuseEnable = driver().refusal = 0;
    driver().queryNs = 0;
  }
  void TearDown() override { EXPECT_EQ(disabledNow(), 0u) << "something was left off the card"; }
};

TEST_F(SelfTestOnStandIn, TheFirstMethodThatStopsTheKernelIsTaken) {
  for (const auto& [needs, method] :
       {std::pair{Commit::kNone, SuspendMethod::kDisable},
        std::pair{Commit::kRestart, SuspendMethod::kDisableRestart},
        std::pair{Commit::kPreempt, SuspendMethod::kDisablePreempt}}) {
    driver().commit = needs;
    const SelfTest found = testSuspend(options());
    ASSERT_TRUE(found.method) << found.why;
    EXPECT_EQ(nameOf(*found.method), std::string(nameOf(method)));
    EXPECT_EQ(found.why, "");
    EXPECT_EQ(found.channels, 2u) << "one computes, one copies";
    EXPECT_EQ(found.tried.back().off.size(), 5u);
    for (const MethodTried& each : found.tried) EXPECT_EQ(each.works, each.method == method);
  }
}

TEST_F(SelfTestOnStandIn, ADriverThatSaysDoneAndLetsWorkGoOnHasNoMethod) {
  driver().commit = Commit::kNever;
  const SelfTest found = testSuspend(options());
  EXPECT_FALSE(found.method);
  EXPECT_EQ(found.tried.size(), std::size(kSuspendMethods));
  EXPECT_EQ(found.why, "the kernel went on while it was off");
}

// As on a busy machine: what the probe shows is always from before.
TEST_F(SelfTestOnStandIn, AProbeThatLooksLateDoesNotMakeAKernelThatStandsGoOn) {
  driver().queryNs = 4'000'000;
  const SelfTest found = testSuspend(options());
  ASSERT_TRUE(found.method) << found.why;
  EXPECT_EQ(nameOf(*found.method), std::string(nameOf(SuspendMethod::kDisable)));
}

TEST_F(SelfTestOnStandIn, AProbeThatLooksLateDoesNotMakeAKernelThatGoesOnStand) {
  driver().commit = Commit::kNever;
  driver().queryNs = 80'000'000;
  SelfTestOptions wanted = options();
  wanted.toggles = 1;
  const SelfTest found = testSuspend(wanted);
  EXPECT_FALSE(found.method);
  EXPECT_EQ(found.why, "the kernel went on while it was off");
  EXPECT_TRUE(found.sure);
}

TEST_F(SelfTestOnStandIn, AProbeThatLooksNoMoreIsADoubtAndNoRefusal) {
  const std::uint64_t before = driver().disables.load();
  std::thread busy([&] {
    while (driver().disables.load() == before) std::this_thread::yield();
    driver().queryNs = 3'600'000'000'000;
  });
  SelfTestOptions wanted = options();
  wanted.toggles = 100'000;  // however late it is noticed
  wanted.patience = seconds(1);
  const SelfTest found = testSuspend(wanted);
  busy.join();
  EXPECT_FALSE(found.method);
  EXPECT_FALSE(found.sure);
  EXPECT_EQ(found.tried.size(), 1u) << "no other is tried";
  EXPECT_EQ(found.why,
            "the probe had no time to look whether its kernel goes on: the machine is too busy");
}

TEST_F(SelfTestOnStandIn, ARefusalIsAReasonAndNothingStaysOff) {
  driver().refuseDisable = 1'000;
  const SelfTest found = testSuspend(options());
  EXPECT_FALSE(found.method);
  EXPECT_EQ(found.why, "the driver refused to disable channels (the driver's status 0x1b)");
}

// A driver may be busy with whoever's work, or have no memory now.
TEST_F(SelfTestOnStandIn, ARefusalThatMayPassSaysNothingOfTheCard) {
  for (const std::uint32_t passing : {0x03u, 0x51u, 0x65u, 0x66u}) {
    driver().refusal = passing;
    driver().refuseDisable = 1'000;
    const SelfTest found = testSuspend(options());
    EXPECT_FALSE(found.method);
    EXPECT_FALSE(found.sure) << found.why;
  }
  driver().refusal = 0;
  driver().refuseDisable = 1'000;
  EXPECT_TRUE(testSuspend(options()).sure) << "a refusal that stays is a word of the card";
}

TEST_F(SelfTestOnStandIn, WhatCanNotBePutBackAtOnceIsTriedUntilItIs) {
  driver().refuseEnable = 3;
  const SelfTest found = testSuspend(options());
  // The first method is in doubt for good; another one may be tried, as nothing is off any more.
  ASSERT_FALSE(found.tried.empty());
  EXPECT_FALSE(found.tried.front().works);
  EXPECT_EQ(driver().refuseEnable.load(), 0u);
}

TEST_F(SelfTestOnStandIn, ADriverThatIsNotInTheTableIsNotTouched) {
  const std::uint64_t before = driver().disables.load();
  SelfTestOptions wanted = options();
  for (const char* version : {"470.256.02", "525.60.13", "999.1", "nonsense"}) {
    wanted.driverVersion = version;
    const SelfTest found = testSuspend(wanted);
    EXPECT_FALSE(found.method);
    EXPECT_NE(found.why.find("is not known"), std::string::npos) << found.why;
  }
  EXPECT_EQ(driver().disables.load(), before);
}

TEST_F(SelfTestOnStandIn, AProbeThatIsNotThereIsAReason) {
  SelfTestOptions wanted = options();
  wanted.probe = "/nonexistent/probe";
  const SelfTest found = testSuspend(wanted);
  EXPECT_FALSE(found.method);
  EXPECT_NE(found.why.find("/nonexistent/probe"), std::string::npos) << found.why;
}

// --- whose channels are they? ---

TEST_F(SelfTestOnStandIn, AProcessThatNamesAnothersChannelStopsNobody) {
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  ProbeProcess victim(options()), liar(options());
  ASSERT_EQ(victim.begin(), "");
  ASSERT_EQ(liar.begin(), "");
  DriverCalls& calls = **opened;
  calls.process(1, victim.pidfd());
  calls.process(2, liar.pidfd());

  Channel claimed = victim.channels()[0];
  claimed.process = 2;
  const auto refused = calls.carryOut({Step::kDisable, {claimed}}, SuspendMethod::kDisable);
  EXPECT_EQ(refused.answer, Answer::kGone);
  EXPECT_EQ(refused.gone.size(), 1u);
  EXPECT_EQ(disabledNow(), 0u);

  Channel own = victim.channels()[0];
  own.process = 1;
  EXPECT_EQ(calls.carryOut({Step::kDisable, {own}}, SuspendMethod::kDisable).answer, Answer::kDone);
  EXPECT_EQ(disabledNow(), 1u);
  // Nor does it start anybody, though it names a file that it has not.
  claimed.fd = -1;
  EXPECT_EQ(calls.carryOut({Step::kEnable, {claimed}}, SuspendMethod::kDisable).answer,
            Answer::kGone);
  EXPECT_EQ(disabledNow(), 1u);
  own.fd = -1;  // closed since
  own.proven = true;
  EXPECT_EQ(calls.carryOut({Step::kDisable, {own}}, SuspendMethod::kDisable).answer, Answer::kDone)
      << "off already, and once more";
  // Beside one that is no more the driver refuses, and counts it all the same.
  Channel ended = own;
  ended.channel = 0x5cfffff0;
  const auto refusedBeside =
      calls.carryOut({Step::kDisable, {own, ended}}, SuspendMethod::kDisable);
  EXPECT_EQ(refusedBeside.answer, Answer::kGone);
  ASSERT_EQ(refusedBeside.gone.size(), 1u);
  EXPECT_EQ(refusedBeside.gone[0].channel, ended.channel);
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(disabledNow(), 1u) << i;
    EXPECT_EQ(calls.carryOut({Step::kEnable, {own}}, SuspendMethod::kDisable).answer,
              Answer::kDone);
  }
  EXPECT_EQ(disabledNow(), 0u);
  EXPECT_EQ(victim.end(), "");
}

TEST_F(SelfTestOnStandIn, ChannelsOfADeadProcessAreGone) {
  const SelfTest before = testSuspend(options());
  ASSERT_TRUE(before.method) << before.why;
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  DriverCalls& calls = **opened;
  const auto outcome = calls.carryOut(
      {Step::kDisable, {Channel{0xc1d00001, 0x5c000003, 0, 1, 1, 9}}}, SuspendMethod::kDisable);
  EXPECT_EQ(outcome.answer, Answer::kGone);
}

Channel provenOf(const ProbeProcess& probe, std::uint32_t process) {
  Channel channel = probe.channels()[0];
  channel.process = process;
  channel.proven = true;
  return channel;
}

// A proof grows stale when its client ends and another is given the name, after a million others.
TEST_F(SelfTestOnStandIn, ANameThatIsAnothersSinceItWasProvenStopsNobodyForLong) {
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  DriverCalls& calls = **opened;
  ProbeProcess victim(options()), liar(options());
  ASSERT_EQ(victim.begin(), "");
  ASSERT_EQ(liar.begin(), "");
  calls.process(1, victim.pidfd());
  calls.process(2, liar.pidfd());
  const Channel stale = provenOf(victim, 2);
  const std::uint64_t before = driver().enables;
  EXPECT_EQ(calls.carryOut({Step::kDisable, {stale}}, SuspendMethod::kDisable).answer,
            Answer::kGone);
  EXPECT_EQ(disabledNow(), 0u);
  EXPECT_EQ(driver().enables, before + 1);
  // What is held for its true owner's sake is not started by that.
  const Channel own = provenOf(victim, 1);
  EXPECT_EQ(calls.carryOut({Step::kDisable, {own}}, SuspendMethod::kDisable).answer, Answer::kDone);
  EXPECT_EQ(calls.carryOut({Step::kDisable, {stale}}, SuspendMethod::kDisable).answer,
            Answer::kGone);
  EXPECT_EQ(disabledNow(), 1u);
  EXPECT_EQ(calls.carryOut({Step::kEnable, {own}}, SuspendMethod::kDisable).answer, Answer::kDone);
  EXPECT_EQ(victim.end(), "");
}

TEST_F(SelfTestOnStandIn,
       WhatADeadProcessLeftIsTakenOffWithoutItAndIsGoneWhereTheDriverKnowsItNot) {
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  DriverCalls& calls = **opened;
  ProbeProcess probe(options());
  ASSERT_EQ(probe.begin(), "");
  // To the manager it is dead; somebody else has its file.
  Channel left = provenOf(probe, 1);
  left.dead = true;
  EXPECT_EQ(calls.carryOut({Step::kDisable, {left}}, SuspendMethod::kDisable).answer,
            Answer::kDone);
  EXPECT_EQ(disabledNow(), 1u);
  driver().refusal = 0x65;  // a timeout
  driver().refuseDisable = 1;
  const Outcome busy = calls.carryOut({Step::kDisable, {left}}, SuspendMethod::kDisable);
  EXPECT_EQ(busy.answer, Answer::kLater) << "it says nothing of the card";
  probe.kill();
  const Outcome gone = calls.carryOut({Step::kDisable, {left}}, SuspendMethod::kDisable);
  EXPECT_EQ(gone.answer, Answer::kGone);
  EXPECT_EQ(gone.gone.size(), 1u);
}

// --- a card in doubt ---

Verdict checked(const std::string& probe) {
  Loop loop;
  ProbeCheck check(options(), SuspendMethod::kDisable, probe);
  Verdict heard;
  check.start(loop, [&](Verdict verdict) {
    heard = std::move(verdict);
    loop.stop();
  });
  loop.run();
  return heard;
}

TEST_F(SelfTestOnStandIn, ACardInDoubtIsTestedByAProgramOfItsOwnWhileTheLoopGoesOn) {
  using Says = Verdict::Says;
  const std::string probe = testing::binary("qgpu-suspend-probe");
  EXPECT_EQ(checked(probe).says, Says::kWorks);
  driver().commit = Commit::kRestart;  // a method that stopped it once does not any more
  const Verdict goesOn = checked(probe);
  EXPECT_EQ(goesOn.says, Says::kFails);
  EXPECT_EQ(goesOn.why, "the kernel went on while it was off");
  driver().commit = Commit::kNone;
  driver().refuseDisable = 1'000;
  const Verdict refused = checked(probe);
  EXPECT_EQ(refused.says, Says::kFails);
  EXPECT_EQ(refused.why, "the driver refused to disable channels (the driver's status 0x1b)");
}

// No memory left on the card, or no program, says nothing of it.
TEST_F(SelfTestOnStandIn, WhatCanNotBeSeenOfACardInDoubtIsUnclear) {
  EXPECT_EQ(checked("/nonexistent/probe").says, Verdict::Says::kUnclear);
  EXPECT_EQ(checked("/nonexistent/probe").why, "/nonexistent/probe: No such file or directory");
  EXPECT_EQ(checked("/bin/true").why, "the check ended without a word");
  ::setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
  const Verdict noDriver = checked(testing::binary("qgpu-suspend-probe"));
  ::setenv("LD_LIBRARY_PATH", QGPU_STAND_IN_DIR, 1);
  EXPECT_EQ(noDriver.says, Verdict::Says::kUnclear) << noDriver.why;
  EXPECT_NE(noDriver.why.find("failed libcuda.so.1"), std::string::npos) << noDriver.why;
}

// Of a program that was started and can't be watched, nothing is left either.
TEST_F(SelfTestOnStandIn, ACheckThatCanNotBeWatchedLeavesNoDeadProgram) {
  Loop loop;
  ProbeCheck check(options(), SuspendMethod::kDisable, testing::binary("qgpu-suspend-probe"));
  const int free[] = {::dup(0), ::dup(0), ::dup(0)};  // two for its words, and the one to watch it
  for (const int fd : free) ::close(fd);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{static_cast<rlim_t>(free[2]), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::optional<Verdict> heard;
  check.start(loop, [&](Verdict verdict) {
    heard = std::move(verdict);
    loop.stop();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  loop.run();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->says, Verdict::Says::kUnclear);
  EXPECT_NE(heard->why.find("Too many open files"), std::string::npos) << heard->why;
  EXPECT_TRUE(testing::eventually([] {
    siginfo_t child{};
    return ::waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
  }));
}

TEST_F(SelfTestOnStandIn, ACheckThatIsNotWaitedForLeavesNoProgram) {
  Loop loop;
  std::optional<ProbeCheck> check;
  check.emplace(options(), SuspendMethod::kDisable, testing::binary("qgpu-suspend-probe"));
  bool heard = false;
  check->start(loop, [&](const Verdict&) { heard = true; });
  check.reset();
  EXPECT_FALSE(heard);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  EXPECT_EQ(errno, ECHILD);
}

// Without a free descriptor the manager can't ask who has a channel: it may well be there, and run.
TEST_F(SelfTestOnStandIn, WhoCanNotBeAskedIsNotTakenForGone) {
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  DriverCalls& calls = **opened;
  ProbeProcess probe(options());
  ASSERT_EQ(probe.begin(), "");
  calls.process(ProbeProcess::kProcess, probe.pidfd());
  const std::vector<Channel> channels = probe.channels();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  for (const Step step : {Step::kDisable, Step::kRestart, Step::kPreempt}) {
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool all = step == Step::kDisable;
    const Outcome outcome = calls.carryOut(
        {step, all ? channels : std::vector<Channel>{channels[0]}}, SuspendMethod::kDisablePreempt);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(outcome.answer, Answer::kLater) << "the card has no part in it";
    EXPECT_EQ(outcome.why, "its process's file: Too many open files");
    EXPECT_TRUE(outcome.gone.empty());
  }
  // A number that is another file's now is not its client's.
  Channel other = channels[0];
  other.fd = STDIN_FILENO;
  EXPECT_EQ(calls.carryOut({Step::kDisable, {other}}, SuspendMethod::kDisable).answer,
            Answer::kGone);
  EXPECT_EQ(probe.end(), "");
}

// A socket's close may last as long as its tenant likes, and a call on it do anything.
TEST_F(SelfTestOnStandIn, AFileThatIsNotTheDriversIsAskedNothingAndKeepsNobody) {
  const auto opened = DriverCalls::open(options());
  ASSERT_TRUE(opened) << opened.error().message;
  DriverCalls& calls = **opened;
  ProbeProcess probe(options());
  ASSERT_EQ(probe.begin(), "");
  Channel own = probe.channels()[0];
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  calls.process(ProbeProcess::kProcess, probe.pidfd());
  calls.process(2, self.get());
  Channel strange = own;
  strange.process = 2;
  strange.fd = socket.get();
  struct stat file {};
  ASSERT_EQ(::fstat(socket.get(), &file), 0);
  {
    const std::lock_guard lock(tenants.mutex);
    tenants.card = std::this_thread::get_id();
    tenants.inode = file.st_ino;
  }
  const auto disable = [&](const Channel& each) {
    return calls.carryOut({Step::kDisable, {each}}, SuspendMethod::kDisable);
  };
  for (int i = 0; i < DriverCalls::kClosingMost; i++) {
    const Outcome outcome = disable(strange);
    EXPECT_EQ(outcome.answer, Answer::kGone);
    EXPECT_EQ(outcome.why, "its process's file is not the driver's");
  }
  // It is taken no more of them while those wait, and that says nothing of the card.
  const Outcome tooMany = disable(strange);
  EXPECT_EQ(tooMany.answer, Answer::kLater);
  EXPECT_EQ(tooMany.why, "its process names files that take long to close");
  EXPECT_EQ(disable(own).answer, Answer::kDone) << "others are held all the while";
  EXPECT_EQ(calls.carryOut({Step::kEnable, {own}}, SuspendMethod::kDisable).answer, Answer::kDone);
  {
    std::unique_lock lock(tenants.mutex);
    tenants.changed.wait_for(lock, std::chrono::seconds(30),
                             [] { return tenants.closing == DriverCalls::kClosingMost; });
    EXPECT_EQ(tenants.closing, DriverCalls::kClosingMost);
    EXPECT_EQ(tenants.asked, 0);
    EXPECT_EQ(tenants.closedByCard, 0);
    tenants.mayClose = true;
    tenants.inode = 0;
    tenants.changed.notify_all();
  }
  EXPECT_TRUE(testing::eventually([&] { return disable(strange).answer == Answer::kGone; }));
  EXPECT_EQ(probe.end(), "");
}

}  // namespace
}  // namespace qgpu::suspend::suspend_self_test_test
