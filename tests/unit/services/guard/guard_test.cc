// Whom the guard lets to a card's nodes, and how it lives on without its manager.

#include "services/guard/guard.h"

#include <cerrno>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "services/guard/guard_abi.h"
#include "tests/unit/services/guard/holder.h"
#include "tests/unit/services/guard/tenants.h"

namespace qgpu::testing {
namespace {

TEST_F(GuardTest, WhoIsOfNoTaskIsLeftAlone) {
  EXPECT_EQ(tryOpen(card0), kGotIn);
  EXPECT_EQ(tryOpen(shared), kGotIn);
  EXPECT_EQ(guard->tally(0), 0u);
}

TEST_F(GuardTest, WhoAttachedHasItsCardAndWhatCardsShare) {
  EXPECT_EQ(tenant(Is::Attached, [&] { return tryOpen(card0); }), kGotIn);
  EXPECT_EQ(tenant(Is::Attached, [&] { return tryOpen(shared); }), kGotIn);
  EXPECT_EQ(tenant(Is::Attached,
                   [&] {
                     const Fd file(::open(card0.c_str(), O_RDONLY));
                     return file ? tryIoctl(file.get()) + tryMap(file.get()) : errno;
                   }),
            kGotIn);
}

TEST_F(GuardTest, EachThreadOfAnAttachedProcessHasIt) {
  EXPECT_EQ(tenant(Is::Attached,
                   [&] {
                     int got = 255;
                     const std::function<void()> body = [&] { got = tryOpen(card0); };
                     pthread_t thread{};
                     ::pthread_create(
                         &thread, nullptr,
                         [](void* its) -> void* {
                           (*static_cast<const std::function<void()>*>(its))();
                           return nullptr;
                         },
                         const_cast<std::function<void()>*>(&body));
                     ::pthread_join(thread, nullptr);
                     return got;
                   }),
            kGotIn);
}

TEST_F(GuardTest, AProgramThatUsesNoCardIsNotHurt) {
  EXPECT_EQ(execute({"/bin/sh", "-c", "cat /dev/null && echo hello >/dev/null && /bin/true"}), 0);
  EXPECT_EQ(tenant(Is::Judged,
                   [] {
                     void* map =
                         ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                     return map == MAP_FAILED ? errno : 0;
                   }),
            0);
}

TEST_F(GuardTest, EachRefusalIsCountedAndTheFirstIsTold) {
  EXPECT_EQ(tenant(Is::Judged, [&] { return tryOpen(card0); }), EPERM);
  EXPECT_EQ(tenant(Is::Attached, [&] { return tryOpen(card1); }), EPERM);
  EXPECT_EQ(guard->tally(0), 1u);
  EXPECT_EQ(guard->tally(1), 1u);
  std::vector<GuardRefusal> told;
  guard->takeNews([&](const GuardRefusal& refusal) { told.push_back(refusal); });
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].task, kGuardedTask);
  EXPECT_EQ(told[0].card, 0u);
  EXPECT_FALSE(told[0].attached);
  EXPECT_EQ(told[0].way, GuardRefusal::Way::Open);
  EXPECT_EQ(told[0].program, "guard_test");
  EXPECT_TRUE(told[1].attached);
}

TEST_F(GuardTest, AFloodIsCountedInFullAndToldInPart) {
  constexpr int kTimes = 20'000;
  EXPECT_EQ(tenant(Is::Judged,
                   [&] {
                     for (int i = 0; i < kTimes; ++i) {
                       if (tryOpen(card0) != EPERM) return 1;
                     }
                     return 0;
                   }),
            0);
  EXPECT_EQ(guard->tally(0), static_cast<std::uint64_t>(kTimes));
  std::size_t told = 0;
  guard->takeNews([&](const GuardRefusal&) { ++told; });
  EXPECT_GE(told, 1u);
  EXPECT_LT(told, 2'000u);
}

TEST_F(GuardTest, WhoIsShutOutHasItNoMore) {
  EXPECT_EQ(tenant(Is::Attached, [&] { return tryOpen(card0); }), kGotIn);
  Held held([&] { return tryOpen(card0); });
  ASSERT_TRUE(guard->letIn(held.pidfd(), kGuardedTask, {0}));
  guard->shutOut(held.pidfd(), kGuardedTask);
  held.letGo();
  EXPECT_EQ(held.wait(), EPERM);
}

TEST_F(GuardTest, WhoAttachedBeforeThereWasAGuardHasItsCardUnlessItIsJudgedAlready) {
  Held before([&] { return tryOpen(card0); }), judged([&] { return tryOpen(card0); });
  ASSERT_TRUE(guard->judge(judged.pidfd(), kGuardedTask));
  for (const Held* one : {&before, &judged}) {
    ASSERT_TRUE(guard->judge(one->pidfd(), kGuardedTask, {0}));
    one->letGo();
  }
  EXPECT_EQ(before.wait(), kGotIn);
  EXPECT_EQ(judged.wait(), EPERM);
}

TEST_F(GuardTest, ANodeThatIsNoCardsAnyMoreIsFree) {
  ASSERT_TRUE(guard->setNodes({}));
  EXPECT_EQ(tenant(Is::Judged, [&] { return tryOpen(card0); }), kGotIn);
}

TEST_F(GuardTest, ItHoldsAfterItsManagerWasKilledAndTheNextOneGoesOn) {
  const auto attached = holder();
  guard.reset();
  // A manager that takes over, labels a process and is killed.
  Pipe labelled;
  Held tenantOfKilled([&] { return tryOpen(card0); });
  ForkedProcess killed([&] {
    auto taken = Guard::open(folder);
    if (!taken || !(*taken)->judge(tenantOfKilled.pidfd(), kGuardedTask)) return 1;
    labelled.say();
    ::pause();
    return 0;
  });
  ASSERT_TRUE(labelled.hear());
  killed.kill();
  EXPECT_EQ(killed.wait(), -SIGKILL);

  tenantOfKilled.letGo();
  EXPECT_EQ(tenantOfKilled.wait(), EPERM) << "nobody runs it now";
  auto next = Guard::open(folder);
  ASSERT_TRUE(next) << next.error().message;
  guard = std::move(*next);
  EXPECT_EQ(guard->tally(0), 1u) << "what was counted stays";
  EXPECT_EQ(tenant(Is::Judged, [&] { return tryOpen(card0); }), EPERM) << "its nodes stay";
  EXPECT_EQ(tenant(Is::Judged, [&] { return tryOpen(attached->procPath()); }), EPERM);
}

TEST_F(GuardTest, TheNextManagerTakesOverWithoutAMomentBetween) {
  Pipe stop;
  Held tenantThatTries([&] {
    ::fcntl(stop.out.get(), F_SETFL, O_NONBLOCK);
    while (!stop.hear()) {
      if (tryOpen(card0) != EPERM) return 1;
    }
    return 0;
  });
  ASSERT_TRUE(guard->judge(tenantThatTries.pidfd(), kGuardedTask));
  tenantThatTries.letGo();
  for (int i = 0; i < 10; ++i) {
    auto next = Guard::open(folder);
    ASSERT_TRUE(next) << next.error().message;
    guard = std::move(*next);
  }
  stop.say();
  EXPECT_EQ(tenantThatTries.wait(), 0);
}

TEST_F(GuardTest, WhatAnOlderManagerLeftGoes) {
  guard.reset();
  ASSERT_EQ(::mkdir((path("bpf") + "/other").c_str(), 0700), 0);
  auto other = Guard::open(path("bpf") + "/other/run");
  ASSERT_TRUE(other);
  const std::string ofThis = "/other/run/nodes-" + std::to_string(QGPU_GUARD_LAYOUT);
  ASSERT_EQ(::rename((path("bpf") + ofThis).c_str(), (folder + "/nodes-0").c_str()), 0);
  auto next = Guard::open(folder);
  ASSERT_TRUE(next) << next.error().message;
  guard = std::move(*next);
  EXPECT_NE(::access((folder + "/nodes-0").c_str(), F_OK), 0);
  other->reset();
  EXPECT_TRUE(Guard::remove(path("bpf") + "/other/run"));
}

TEST_F(GuardTest, WithoutItsFolderItIsGone) {
  guard.reset();
  EXPECT_TRUE(Guard::remove(folder));
  auto again = Guard::open(folder);
  ASSERT_TRUE(again);
  guard = std::move(*again);
  EXPECT_EQ(tenant(Is::Judged, [&] { return tryOpen(card0); }), kGotIn) << "a new one is empty";
}

TEST_F(GuardTest, AFolderThatIsNoBpffsIsRefusedInWords) {
  auto opened = Guard::open(path("no") + "/run");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("mount -t bpf"), std::string::npos);
}

}  // namespace
}  // namespace qgpu::testing
