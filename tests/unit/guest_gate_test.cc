// The gate in a real program: what passes, what is held, and what the manager sees of it.

#include <gtest/gtest.h>

#include "tests/unit/guest_child.h"

namespace qgpu::testing {
namespace {

TEST(GuestGate, AnOpenGateLetsARealProgramThroughAndCountsItsLaunches) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.inFlight(), 0u);
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
  EXPECT_EQ(manager.inFlight(), 0u);
  EXPECT_EQ(manager.slot(0).admitted, before);
  EXPECT_FALSE(guest.answered());
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.waiting(), 0u);
}

}  // namespace
}  // namespace qgpu::testing
