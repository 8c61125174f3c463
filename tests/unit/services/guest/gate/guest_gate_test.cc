// The gate in a real program: what passes, what is held, and what the manager sees of it.

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing::guest_gate_test {
namespace {

using namespace std::chrono_literals;

TEST(GuestGate, AnOpenGateLetsARealProgramThroughAndCountsItsLaunches) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(retiresAll(manager));
  EXPECT_GE(manager.slot(0).admitted, 2u);
  EXPECT_EQ(guest.ask("check"), "ok");
  EXPECT_EQ(manager.attaches(), 1u);
}

TEST(GuestGate, AShutGateHoldsALaunchUntilItOpens) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(0);
  std::uint64_t rings = manager.rings();
  std::uint64_t before = manager.slot(0).admitted;
  guest.send("launch 1");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  EXPECT_TRUE(eventually([&] { return manager.rings() > rings; }));
  EXPECT_TRUE(retiresAll(manager));
  EXPECT_EQ(manager.slot(0).admitted, before);
  EXPECT_FALSE(guest.answered());
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.waiting(), 0u);
}

TEST(GuestGate, NotifyRingsOncePerGateWordAndStampsTheSubmit) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  for (int round = 0; round < 3; ++round) {
    std::uint64_t rings = manager.rings();
    const auto before = static_cast<std::uint64_t>(monotonicNs());
    manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_NOTIFY);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(guest.ask("touch"), "0");
    EXPECT_EQ(guest.ask("finish"), "0");
    EXPECT_EQ(manager.rings(), rings + 1);
    EXPECT_GE(manager.slot(0).last_submit_ns, before);
  }
}

TEST(GuestGate, AnOnlineTaskIsNeverHeldAndRingsWhenItBegins) {
  FakeManager::Options options;
  options.taskClass = QGPU_ONLINE;
  options.windowNs = 1;
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  std::uint64_t rings = manager.rings();
  manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_NOTIFY | QGPU_GATE_CONTENDED);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(guest.ask("touch"), "0");
  EXPECT_EQ(manager.rings(), rings + 1);
  manager.setGate(0);
  EXPECT_EQ(guest.ask("touch"), "0");
  const auto before = static_cast<std::uint64_t>(monotonicNs());
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_GE(manager.slot(0).last_retire_ns, before);
  EXPECT_TRUE(retiresAll(manager));
}

// The end of the last work in flight under a shut gate is told at once: the slice is settled.
TEST(GuestGate, TheLastRetirementUnderAShutGateRings) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("launchuser 1"), "0");
  manager.setGate(0);
  std::uint64_t rings = manager.rings();
  EXPECT_EQ(manager.inFlight(), 1u);
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
  EXPECT_TRUE(eventually([&] { return manager.rings() > rings; }));
}

// HAZARDS 19: nobody synchronises, yet what was launched is flushed, seen and retired.
TEST(GuestGate, LaunchesThatNobodyWaitsForRetire) {
  for (int queue : {0, 1, 2, 3}) {  // profiling, out of order
    FakeManager manager({});
    GuestChild guest(tenantOf(manager));
    ASSERT_EQ(guest.ask("init " + std::to_string(queue)), "ok") << guest.errors();
    EXPECT_TRUE(retiresAll(manager));  // what "init" launched
    const std::uint64_t launches = manager.slot(0).launches;
    for (int i = 0; i < 100; ++i) EXPECT_EQ(guest.ask("touch"), "0");
    EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; })) << "queue " << queue;
    EXPECT_TRUE(eventually([&] { return manager.slot(0).launches == launches + 100; }));
    EXPECT_EQ(manager.slot(0).gpu_ns != 0, (queue & 1) != 0);
  }
}

TEST(GuestGate, A1_NoCallThatLaunchesGoesAroundTheGate) {
  for (const std::string call : {"task", "clone", "native"}) {
    FakeManager manager({});
    GuestChild guest(tenantOf(manager));
    ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
    manager.setGate(0);
    EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
    guest.send("launchby " + call);
    EXPECT_TRUE(eventually([&] { return manager.waiting() == 1; })) << call;
    EXPECT_TRUE(retiresAll(manager)) << call;
    manager.setGate(QGPU_GATE_OPEN);
    const std::string launched = guest.answer();
    EXPECT_EQ(guest.ask("finish"), "0");
    EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; })) << call;
    if (launched != "0") continue;  // the driver refused it, which costs nothing
    if (call == "native") {
      EXPECT_EQ(guest.ask("callbacks"), "1 1");
      EXPECT_EQ(guest.ask("check"), "ok") << "it was handed its arguments and its buffer";
    }
  }
}

// A wait for events is a wait for their queues: what ended by then shows as retired at once.
TEST(GuestGate, WhatWasWaitedForByItsEventIsRetiredBeforeTheProgramGoesOn) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_TRUE(retiresAll(manager));  // what "init" launched
  const std::uint64_t launches = manager.slot(0).launches;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(guest.ask("launchwait 1"), "0");
    EXPECT_TRUE(retiresAll(manager));
    EXPECT_EQ(manager.slot(0).launches, launches + i);
  }
  EXPECT_EQ(guest.ask("finish"), "0") << "the queue lives on after its second reference went";
}

// HAZARDS 5, from outside: with the gate shut and nothing in flight, nothing begins.
TEST(GuestGate, A1_NothingBeginsOnceTheManagerSawAShutGateAndNothingInFlight) {
  FakeManager manager({});
  GuestChild one(tenantOf(manager)), two(tenantOf(manager));
  ASSERT_EQ(one.ask("init"), "ok") << one.errors();
  ASSERT_EQ(two.ask("init"), "ok") << two.errors();
  one.send("hammer 2 6000 3");
  two.send("hammer 2 6000 5");
  int settled = 0;
  while (!one.answered() || !two.answered()) {
    manager.setGate(0);
    ASSERT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
    std::uint64_t retired = manager.slot(0).retired + manager.slot(1).retired;
    // A launch that meets the shut gate shows for an instant and takes itself back.
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(manager.slot(0).retired + manager.slot(1).retired, retired);
    }
    ++settled;
    manager.setGate(QGPU_GATE_OPEN);
    std::int64_t goOn = monotonicNs() + 300'000;
    eventually([&] { return monotonicNs() > goOn; });
  }
  EXPECT_EQ(one.answer(), "0");
  EXPECT_EQ(two.answer(), "0");
  EXPECT_GT(settled, 5);
  EXPECT_EQ(manager.waiting(), 0u);
}

// HAZARDS 15: one wake of the manager's lets all waiters through. A wake that got lost would cost
// the 100 ms after which a waiter looks by itself, in every round.
TEST(GuestGate, EachWokenLaunchWakesTheNext) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < 5; ++round) {
    manager.setGate(0);
    guest.send("hammer 8 1 1");
    ASSERT_TRUE(eventually([&] { return manager.waiting() == 8; }));
    const std::int64_t opened = monotonicNs();
    manager.setGate(QGPU_GATE_OPEN);
    EXPECT_TRUE(eventually([&] { return manager.waiting() == 0; }));
    shortest = std::min(shortest, monotonicNs() - opened);
    EXPECT_EQ(guest.answer(), "0");
  }
  EXPECT_LT(shortest, 75'000'000);
}

// HAZARDS 15: the same at the end of the task.
TEST(GuestGate, EachLaunchThatLearnsTheEndWakesTheNext) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < 3; ++round) {
    FakeManager manager({});
    GuestChild guest(tenantOf(manager));
    ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
    manager.setGate(0);
    guest.send("hammer 8 1 1");
    ASSERT_TRUE(eventually([&] { return manager.waiting() == 8; }));
    const std::int64_t closed = monotonicNs();
    manager.close();
    EXPECT_TRUE(eventually([&] { return manager.waiting() == 0; }));
    shortest = std::min(shortest, monotonicNs() - closed);
    EXPECT_NE(guest.answer(), "0");
  }
  EXPECT_LT(shortest, 75'000'000);
}

// HAZARDS 10: what is in flight is bounded in estimated time while somebody else wants the card.
TEST(GuestGate, TheWindowBoundsWhatIsInFlightOnlyWhileContended) {
  FakeManager::Options options;
  options.windowNs = 1;  // whatever is in flight fills it
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  ASSERT_NE(guest.ask("pace 4 3"), "");  // teaches the estimate
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("launchuser 3"), "0");
  EXPECT_EQ(guest.ask("burst 7 3"), "0");
  EXPECT_EQ(manager.inFlight(), 8u);
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  guest.send("burst 8 3");
  std::uint64_t most = 0;
  while (!guest.answered()) most = std::max(most, manager.inFlight());
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_GE(most, 1u);
  EXPECT_LE(most, 2u);  // the second is the one that asks and takes itself back
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).window_used_ns == 0; }));
}

// HAZARDS 3: the kernel in flight waits for an event that the host sets after a launch which waits
// at the window, and vice versa at the gate; neither is for ever.
TEST(GuestGate, AKernelThatWaitsForTheHostBlocksNeitherWindowNorGate) {
  FakeManager::Options options;
  options.windowNs = 1'000'000;
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init 2"), "ok") << guest.errors();
  ASSERT_NE(guest.ask("pace 4 2"), "");
  manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("launchuser 2"), "0");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).parked != 0; }));
  EXPECT_EQ(guest.ask("launch 2"), "0");  // the window gives way
  manager.setGate(0);
  guest.send("launch 2");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  EXPECT_TRUE(eventually([&] { return manager.slot(0).parked != 0; }));  // so the card may go on
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).parked == 0; }));
  EXPECT_TRUE(retiresAll(manager));
}

// Launched while alone on the card a kernel has no event of its own; that it can't run is not known
// of it then, and a kernel that runs must never count as parked: the card would go on.
TEST(GuestGate, A1_AKernelThatRunsIsNeverParked) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 300"), "0");
  manager.setGate(0);
  bool parked = false;
  while (manager.inFlight() != 0) parked = parked || manager.slot(0).parked != 0;
  EXPECT_FALSE(parked);
  EXPECT_EQ(guest.ask("finish"), "0");
}

// HAZARDS 3: a kernel without event of its own that waits for the host is known to be parked, also
// while a thread waits in clFinish.
TEST(GuestGate, AKernelThatWaitsForTheHostIsParkedAlsoBehindAnOpenGate) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("launchuser 1"), "0");
  EXPECT_EQ(guest.ask("behinduser finish"), "ok");
  manager.setGate(0);
  EXPECT_TRUE(eventually([&] { return manager.slot(0).parked != 0; }, 5s));
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_EQ(guest.ask("join"), "0");
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
}

// HAZARDS 3: a blocking call waits for an event that the host sets after a launch of another
// thread, which waits at the gate. The call is not in flight meanwhile, so the gate is settled.
TEST(GuestGate, ABlockingCallThatWaitsForTheHostIsNotInFlight) {
  for (const char* call : {"read", "write", "map"}) {
    FakeManager manager({});
    GuestChild guest(tenantOf(manager));
    ASSERT_EQ(guest.ask("init 2"), "ok") << guest.errors();
    EXPECT_EQ(guest.ask("user"), "ok");
    EXPECT_EQ(guest.ask(std::string("behinduser ") + call), "ok");
    // Long enough for the call to be in flight, if it were.
    EXPECT_FALSE(eventually([&] { return manager.inFlight() != 0; }, 30ms)) << call;
    manager.setGate(0);
    EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }, 1s)) << call;
    guest.send("touch");
    ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
    manager.setGate(QGPU_GATE_OPEN);
    EXPECT_EQ(guest.answer(), "0");
    std::uint64_t before = manager.slot(0).admitted;
    EXPECT_EQ(guest.ask("setuser"), "0");
    EXPECT_EQ(guest.ask("join"), "0") << call;
    EXPECT_EQ(manager.slot(0).admitted, before + 1) << call;
    EXPECT_EQ(guest.ask("finish"), "0");
    EXPECT_TRUE(retiresAll(manager));
  }
}

TEST(GuestGate, ABlockingCallBehindAFailedEventFailsAndLeavesNothingInFlight) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init 2"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("behinduser read"), "ok");
  EXPECT_EQ(guest.ask("failuser"), "0");
  EXPECT_EQ(guest.ask("join"), "-14");  // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
  EXPECT_TRUE(retiresAll(manager));
}

// A launch that waits for something else and then meets a shut gate was never told of there.
TEST(GuestGate, WhoWaitsAtTheWindowRingsWhenTheGateIsShut) {
  FakeManager::Options options;
  options.windowNs = 10'000'000'000;  // an unknown kernel fills any window, and waits 4 times it
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("touchuser"), "0");
  guest.send("touch");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  std::uint64_t rings = manager.rings();
  manager.setGate(0);
  EXPECT_TRUE(eventually([&] { return manager.rings() > rings; }, 5s));
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(retiresAll(manager));
}

// HAZARDS 5: the manager shuts the gate, meets nothing in flight and nobody waiting, and looks no
// more. A launch that saw the gate open a moment before and waits now must ring.
TEST(GuestGate, WhoWaitsAtAShutGateThatLookedQuietRings) {
  FakeManager::Options options;
  options.windowNs = 1;  // every launch goes the slow way
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
  std::uint64_t quiet = 0;
  std::int64_t round = 0;
  for (int i = 0; i < 40 && quiet < 100; ++i) {  // how often it looks quiet is the machine's
    guest.send("hammer 1 2000 1");
    while (!guest.answered()) {
      manager.setGate(0);
      const std::int64_t limit = monotonicNs() + 5'000'000'000;
      while (manager.inFlight() != 0 && monotonicNs() < limit) {  // closer than eventually() looks
      }
      const std::uint64_t rings = manager.rings();
      if (manager.inFlight() == 0 && manager.waiting() == 0) {
        ++quiet;
        ASSERT_TRUE(eventually([&] { return manager.rings() > rings || guest.answered(); }, 5s));
      }
      manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_CONTENDED);
      ASSERT_TRUE(eventually([&] { return manager.waiting() == 0 || guest.answered(); }));
      // Shut at another point of the launch in every round.
      const std::int64_t end = monotonicNs() + ++round * 7919 % 50'000;
      while (monotonicNs() < end) {
      }
    }
    EXPECT_EQ(guest.answer(), "0");
  }
  EXPECT_GT(quiet, 0u);
}

// HAZARDS 3: a callback runs on the driver's own thread.
TEST(GuestGate, ALaunchFromACallbackIsCountedAndNotBlocked) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("callback 1"), "0");
  std::uint64_t before = manager.slot(0).admitted;
  manager.setGate(0);
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_TRUE(eventually([&] { return guest.ask("callbacks") == "1 0"; }));
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.slot(0).admitted, before + 1);
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
}

TEST(GuestGate, ALaunchFromAContextsNotificationIsCountedAndNotBlocked) {
  FakeManager manager({});
  auto environment = tenantOf(manager);
  environment[0] = "OPENCL_LAYERS=" QGPU_GUEST_NOTIFY_LAYER ":" QGPU_GUEST_LIBRARY;
  GuestChild guest(environment);
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("notify"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(eventually([&] { return manager.inFlight() == 0; }));
  std::uint64_t before = manager.slot(0).admitted;
  manager.setGate(0);
  guest.send("flush");
  EXPECT_TRUE(eventually([&] { return guest.answered(); }, 5s));
  EXPECT_GT(manager.slot(0).admitted, before);
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_NE(guest.ask("callbacks").find(" 0"), std::string::npos);
  EXPECT_EQ(guest.ask("finish"), "0");
}

}  // namespace
}  // namespace qgpu::testing::guest_gate_test
