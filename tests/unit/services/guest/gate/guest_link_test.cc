// The tie to the manager: attach, refusal, loss, return, fork. Invariant C9.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing::guest_link_test {
namespace {

using namespace std::chrono_literals;

FakeManager::Options grace(std::uint64_t ms) {
  FakeManager::Options options;
  options.orphanGraceNs = ms * 1'000'000;
  return options;
}

TEST(GuestLink, WithoutATokenTheLibraryDoesNothing) {
  GuestChild guest({"OPENCL_LAYERS=" QGPU_GUEST_LIBRARY});
  ASSERT_EQ(guest.ask("init"), "ok");
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.errors(), "");
}

TEST(GuestLink, WithoutAManagerThereIsNoDeviceAndOneClearLine) {
  GuestChild guest({"OPENCL_LAYERS=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=/nonexistent/attach.sock",
                    "QGPU_TOKEN=" + FakeManager::token(), "QGPU_ATTACH_TIMEOUT_MS=100"});
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001");
  EXPECT_EQ(guest.errors(),
            "qgpu: no manager at /nonexistent/attach.sock; no device (is qgpu-manager running?)\n");
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001");
}

std::vector<std::string> tenantWithFiles(const FakeManager& manager, const std::string& files) {
  return {"OPENCL_LAYERS=" QGPU_GUEST_LIBRARY, "QGPU_SOCKET=" + manager.socketPath(),
          "QGPU_TOKEN_FILE=" + files};
}

TEST(GuestLink, TheTokenMayStandInTheFirstFileThatIsThere) {
  FakeManager manager({});
  const TempFolder folder;
  const std::string file = folder.write("token", FakeManager::token() + "\n");
  GuestChild guest(tenantWithFiles(manager, "/nonexistent/token:" + file + ":/nonexistent/other"));
  EXPECT_EQ(guest.ask("devices"), "1 1") << guest.errors();
  EXPECT_EQ(std::string(manager.lastHello().token, QGPU_TOKEN_LEN), FakeManager::token());
}

TEST(GuestLink, WithoutAFileThatHasATokenThereIsNoDeviceAndOneClearLine) {
  FakeManager manager({});
  GuestChild none(tenantWithFiles(manager, "/nonexistent/a:/nonexistent/b"));
  EXPECT_EQ(none.ask("devices"), "no-platform -1001");
  EXPECT_EQ(none.errors(),
            "qgpu: no token in QGPU_TOKEN_FILE=/nonexistent/a:/nonexistent/b; no device\n");
  const TempFolder folder;
  const std::string file = folder.write("token", "abc\n");
  GuestChild shortOne(tenantWithFiles(manager, file));
  EXPECT_EQ(shortOne.ask("devices"), "no-platform -1001");
  EXPECT_NE(shortOne.errors().find("has 3 characters, wanted 32"), std::string::npos);
}

TEST(GuestLink, ARefusalIsSaidInOneLine) {
  FakeManager::Options options;
  options.refusal = "no free slot";
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("devices"), "no-platform -1001");
  EXPECT_EQ(guest.errors(), "qgpu: the manager refused this process: no free slot; no device\n");
}

// HAZARDS 18: a program that never calls the device never attaches, and one that waits for its
// manager gets its device when the manager comes.
TEST(GuestLink, AttachesAtTheFirstDeviceCallAndWaitsForALateManager) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  EXPECT_EQ(guest.ask("nothing"), "unknown nothing");
  EXPECT_EQ(manager.attaches(), 0u);
  manager.die();
  guest.send("devices");
  EXPECT_FALSE(eventually([&] { return guest.answered(); }, 100ms));
  manager.restart(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "1 1");
  EXPECT_EQ(manager.attaches(), 1u);
}

TEST(GuestLink, C9_AnOpenGateStaysOpenWithoutAManager) {
  FakeManager manager(grace(100));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.die();
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(guest.ask("alloc 1 1048576"), "0");  // and the quota still holds
  EXPECT_EQ(guest.ask("alloc 2 2000000000"), "-4");
}

TEST(GuestLink, C9_AHeldTaskRunsOnAfterTheGraceAndObeysTheNextManager) {
  FakeManager manager(grace(1000));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(0);
  guest.send("launch 1");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  manager.die();
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_GE(monotonicNs() - manager.heartbeatNs(), 1'000'000'000u);
  EXPECT_EQ(guest.ask("finish"), "0");
  std::uint64_t admitted = manager.slot(0).admitted;
  manager.restart(0);
  ASSERT_TRUE(eventually([&] { return manager.slot(0).obeys == 2; }));
  EXPECT_EQ(manager.reattaches(), 1u);
  EXPECT_EQ(manager.slot(0).admitted, admitted);
  EXPECT_EQ(manager.lastHello().incarnation_seen, 1u);
  guest.send("launch 1");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
}

// A waiter of the old page must not sleep on when the new page is open.
TEST(GuestLink, AHeldLaunchGoesOnWithTheOpenPageOfANewManager) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(0);
  guest.send("launch 1");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  manager.die();
  manager.restart(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(manager.reattaches(), 1u);
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(retiresAll(manager));
}

// A manager that knows nothing of the task may never do: that is said once, and it is asked ever
// less often.
TEST(GuestLink, C9_ARefusedReturnIsSaidOnceAndTriedEverMoreSeldom) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.die();
  manager.refuse("no task has this token");
  manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return manager.refusals().size() >= 9; }));
  EXPECT_EQ(guest.errors(),
            "qgpu: the manager does not take this process back: no task has this "
            "token; it runs on without turns and asks again\n");
  const std::vector<std::uint64_t> at = manager.refusals();
  EXPECT_GE(at[8] - at[7], 600'000'000u) << "5 ms, doubled each time, past the 200 ms of a silence";
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  manager.refuse("");
  ASSERT_TRUE(eventually([&] { return manager.reattaches() == 1; }));
  manager.die();  // a new story: the patience is as short as at first
  const std::size_t before = at.size();
  manager.refuse("no free slot");
  manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return manager.refusals().size() >= before + 3; }));
  EXPECT_NE(guest.errors().find("no free slot"), std::string::npos);
}

// HAZARDS 23: a new incarnation counts its epochs from 1, so its page repeats words that the old
// page had. Whether a word was rung for ends with its page.
TEST(GuestLink, AGateWordOfANewManagerIsRungForEvenIfTheOldPageHadTheSame) {
  FakeManager::Options options;
  options.taskClass = QGPU_ONLINE;
  FakeManager manager(options);
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  const std::uint32_t old = manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_NOTIFY);
  std::uint64_t rings = manager.rings();
  EXPECT_EQ(guest.ask("touch"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  ASSERT_EQ(manager.rings(), rings + 1);
  manager.die();
  rings = manager.rings();
  manager.restart(QGPU_GATE_OPEN);
  ASSERT_TRUE(eventually([&] { return manager.slot(0).obeys == 2; }));
  ASSERT_TRUE(eventually([&] { return manager.rings() == rings + 1; }));  // of the attach itself
  ASSERT_EQ(manager.setGate(QGPU_GATE_OPEN | QGPU_GATE_NOTIFY), old);
  EXPECT_EQ(guest.ask("touch"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_EQ(manager.rings(), rings + 2);
}

// HAZARDS 20: a hung manager closes nothing; its heartbeat grows old, and then it may come back.
TEST(GuestLink, AHungManagerIsLostAndFoundAgain) {
  FakeManager manager(grace(200));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.stopBeating();
  manager.setGate(0);
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  manager.goOnBeating();
  ASSERT_TRUE(eventually([&] {
    guest.send("launch 1");
    bool held = eventually([&] { return manager.waiting() == 1; }, 100ms);
    if (!held) guest.answer();
    return held;
  }));
  manager.setGate(QGPU_GATE_OPEN);
  EXPECT_EQ(guest.answer(), "0");
  EXPECT_EQ(manager.reattaches(), 0u);
}

// HAZARDS 7: the child has the parent's descriptors closed and attaches by itself.
TEST(GuestLink, AForkedChildIsUnattachedAndAttachesByItself) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("alloc 1 1048576"), "0");
  std::uint64_t bytes = manager.slot(0).bytes;
  EXPECT_EQ(guest.ask("fork"), "0") << guest.errors();
  EXPECT_EQ(manager.attaches(), 2u);
  EXPECT_EQ(manager.slot(0).bytes, bytes);
  EXPECT_EQ(guest.ask("launch 1"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
}

// A new program image in the same process: the old slot's owner is dead, the new one has its own.
TEST(GuestLink, AnExecutedProgramAttachesAnewAndTheOldSlotShowsItsEnd) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  guest.send("exec");
  EXPECT_TRUE(eventually([&] { return manager.slot(0).owner & 0x40000000u; }));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.attaches(), 2u);
  EXPECT_EQ(manager.slot(1).pid, manager.slot(0).pid);
  EXPECT_EQ(manager.slot(1).bytes, 512u);
}

// HAZARDS 7: the slice passes on by the robust futex, whatever the process holds.
TEST(GuestLink, TheOwnerWordShowsDeathAndTheSlotNamesTheProcess) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.slot(0).pid, static_cast<std::uint32_t>(guest.pid()));
  EXPECT_NE(manager.slot(0).start_time, 0u);
  EXPECT_NE(manager.slot(0).owner & 0x3fffffffu, 0u);
  guest.kill();
  EXPECT_TRUE(eventually([&] { return manager.slot(0).owner & 0x40000000u; }));
}

TEST(GuestLink, AClosedTaskFailsItsLaunches) {
  FakeManager manager({});
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  manager.setGate(0);
  guest.send("launch 1");
  ASSERT_TRUE(eventually([&] { return manager.waiting() == 1; }));
  manager.close();
  EXPECT_EQ(guest.answer(), "-5");  // CL_OUT_OF_RESOURCES
  EXPECT_EQ(guest.ask("launch 1"), "-5");
  EXPECT_TRUE(retiresAll(manager));
}

}  // namespace
}  // namespace qgpu::testing::guest_link_test
