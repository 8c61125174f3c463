// The memory quota in real programs: over all processes, to the byte, without the manager.

#include <gtest/gtest.h>
#include <memory>

#include "tests/unit/services/guest/guest_child.h"

namespace qgpu::testing::guest_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kOwn = 512;  // what guest_program itself allocates in init

FakeManager::Options quota(std::uint64_t mebibytes) {
  FakeManager::Options options;
  options.quotaBytes = mebibytes * kMiB;
  return options;
}

std::string megabytes(int name, std::uint64_t n) {
  return "alloc " + std::to_string(name) + " " + std::to_string(n * kMiB);
}

TEST(GuestMemory, OverTheQuotaAnAllocationFailsAsTheApiSaysAndFreedBytesReturn) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(manager.bytes(), kOwn);
  EXPECT_EQ(guest.ask(megabytes(1, 40)), "0");
  EXPECT_EQ(guest.ask(megabytes(2, 40)), "-4");  // CL_MEM_OBJECT_ALLOCATION_FAILURE
  EXPECT_EQ(manager.bytes(), 40 * kMiB + kOwn);
  EXPECT_EQ(manager.slot(0).refused, 1u);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn; }));
  EXPECT_EQ(guest.ask(megabytes(2, 60)), "0");
  EXPECT_EQ(manager.slot(0).bytes_peak, 60 * kMiB + kOwn);
}

TEST(GuestMemory, TheFirstRefusalIsSaidOnStderrAndNoOther) {
  FakeManager manager(quota(1024));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask(megabytes(1, 512)), "0");
  EXPECT_EQ(guest.ask(megabytes(2, 700)), "-4");
  EXPECT_EQ(guest.errors(),
            "qgpu: 700 MiB refused: 512 of 1024 MiB in use; start with --memory 1213MiB\n");
  EXPECT_EQ(guest.ask(megabytes(2, 700)), "-4");
  EXPECT_EQ(guest.errors().find("refused", 20), std::string::npos) << guest.errors();
}

TEST(GuestMemory, NothingIsSaidIntoAFileThatHasTheNumberOfAClosedStderr) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("data2"), "0") << "another file is descriptor 2 now";
  EXPECT_EQ(guest.ask(megabytes(1, 70)), "-4");
  EXPECT_EQ(guest.ask("size2"), "0");
}

TEST(GuestMemory, NobodyWhoReadsStderrIsWaitedForOrNeeded) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("full2"), "0") << "a pipe that takes no more";
  EXPECT_EQ(guest.ask(megabytes(1, 70)), "-4");
  GuestChild other(tenantOf(manager));
  ASSERT_EQ(other.ask("init"), "ok") << other.errors();
  EXPECT_EQ(other.ask("broken2"), "0") << "a pipe that nobody reads";
  EXPECT_EQ(other.ask(megabytes(1, 70)), "-4");
}

TEST(GuestMemory, ImagesAndSharedVirtualMemoryCountToo) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("image 1 1024"), "0");  // 16 bytes a pixel: 16 MiB
  EXPECT_EQ(manager.bytes(), 16 * kMiB + kOwn);
  EXPECT_EQ(guest.ask("svm 1 33554432"), "ok");
  EXPECT_EQ(manager.bytes(), 48 * kMiB + kOwn);
  EXPECT_EQ(guest.ask("svm 2 33554432"), "null");
  EXPECT_EQ(guest.ask("image 2 2048"), "-4");
  EXPECT_EQ(guest.ask("svmfree 1"), "ok");
  EXPECT_EQ(guest.ask("svm 3 33554432"), "ok");
  EXPECT_EQ(guest.ask("svmqueue 3"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == 16 * kMiB + kOwn; }));
}

TEST(GuestMemory, A14_NoCallThatAllocatesGoesAroundTheQuota) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  for (const std::string call : {"buffer", "image", "image2d", "image3d"}) {
    EXPECT_EQ(guest.ask("allocby " + call + " 2 2048"), "-4") << call << ": 64 MiB are too much";
    EXPECT_EQ(manager.bytes(), kOwn) << call;
    const std::string made = guest.ask("allocby " + call + " 1 1024");
    if (made != "0") {  // the driver's own refusal costs nothing
      EXPECT_EQ(manager.bytes(), kOwn) << call;
      continue;
    }
    EXPECT_EQ(manager.bytes(), 16 * kMiB + kOwn) << call;
    EXPECT_EQ(guest.ask("free 1"), "0");
    EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn; })) << call;
  }
}

// HAZARDS 22: the same bytes under another name cost nothing, also in a full quota, and keep what
// they are a view of.
TEST(GuestMemory, ViewsOfABufferCostNothing) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask(megabytes(1, 63)), "0");
  const std::uint64_t full = 63 * kMiB + kOwn;
  EXPECT_EQ(guest.ask("sub 2 33554432"), "0");
  EXPECT_EQ(manager.bytes(), full);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_EQ(manager.bytes(), full);  // the view holds its buffer
  EXPECT_EQ(guest.ask("free 2"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn; }));
}

TEST(GuestMemory, AnImageOverABufferCostsNothing) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask(megabytes(1, 63)), "0");
  const std::uint64_t full = 63 * kMiB + kOwn;
  // 16 bytes a pixel: 2 MiB, more than what is left.
  const std::string made = guest.ask("view 2 131072");
  EXPECT_EQ(manager.bytes(), full);
  if (made != "0") GTEST_SKIP() << "this driver makes no image over a buffer: " << made;
  EXPECT_EQ(guest.ask("free 2"), "0");
  EXPECT_EQ(manager.bytes(), full);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn; }));
}

TEST(GuestMemory, PipesCount) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("pipe 2 8388608"), "-4");  // 128 MiB: refused before the driver is asked
  const std::string made = guest.ask("pipe 1 65536");
  if (made != "0") {
    EXPECT_EQ(manager.bytes(), kOwn);  // what the driver refuses is not charged
    GTEST_SKIP() << "this driver makes no pipes: " << made;
  }
  EXPECT_EQ(manager.bytes(), kMiB + kOwn);
  EXPECT_EQ(guest.ask("free 1"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn; }));
}

// HAZARDS 22: an object that a kernel still uses lives on after its release.
TEST(GuestMemory, BytesReturnAtDestructionNotAtRelease) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("user"), "ok");
  EXPECT_EQ(guest.ask("launchuser 1"), "0");
  EXPECT_EQ(guest.ask("dropout"), "0");
  EXPECT_EQ(manager.bytes(), kOwn);
  EXPECT_EQ(guest.ask("setuser"), "0");
  EXPECT_EQ(guest.ask("finish"), "0");
  EXPECT_TRUE(eventually([&] { return manager.bytes() == kOwn / 2; }));
}

TEST(GuestMemory, SizesShowTheQuota) {
  FakeManager manager(quota(64));
  GuestChild guest(tenantOf(manager));
  ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
  EXPECT_EQ(guest.ask("sizes"), "67108864 67108864");
  manager.setQuota(32 * kMiB);
  EXPECT_EQ(guest.ask("sizes"), "33554432 33554432");
}

// A14 and HAZARDS 6: the sum is looked at while four processes race, and never overshoots.
TEST(GuestMemory, A14_FourRacingProcessesNeverOvershoot) {
  FakeManager manager(quota(64));
  std::unique_ptr<GuestChild> guests[4];
  for (auto& guest : guests) {
    guest = std::make_unique<GuestChild>(tenantOf(manager));
    ASSERT_EQ(guest->ask("init"), "ok") << guest->errors();
  }
  for (auto& guest : guests) guest->send("keep 300 5000000");
  // A slot's bytes may pass the quota for an instant, before they are taken back: what counts is
  // what was accepted, and each process reports the most that it held.
  std::uint64_t accepted = 0;
  for (auto& guest : guests) accepted += std::stoull(guest->answer());
  EXPECT_LE(accepted + 4 * kOwn, 64 * kMiB);
  EXPECT_EQ(accepted + 4 * kOwn, manager.bytes());
  EXPECT_GE(accepted, 50 * kMiB);
}

// HAZARDS 6 and 7: what a killed process held is exactly its slot, and its death shows there.
TEST(GuestMemory, AKilledProcessLeaksNothingThatZeroingItsSlotDoesNotReturn) {
  FakeManager manager(quota(64));
  GuestChild other(tenantOf(manager));
  ASSERT_EQ(other.ask("init"), "ok") << other.errors();
  for (std::uint32_t i = 1; i <= 3; ++i) {
    GuestChild guest(tenantOf(manager));
    ASSERT_EQ(guest.ask("init"), "ok") << guest.errors();
    EXPECT_EQ(guest.ask(megabytes(1, 40)), "0");
    EXPECT_EQ(other.ask(megabytes(1, 40)), "-4");
    guest.kill();
    qgpu_slot& slot = manager.slot(i);
    constexpr std::uint32_t kOwnerDied = 0x40000000;  // FUTEX_OWNER_DIED
    EXPECT_TRUE(eventually([&] { return slot.owner & kOwnerDied; }));
    slot.bytes = 0;
    EXPECT_EQ(manager.bytes(), kOwn);
  }
  EXPECT_EQ(other.ask(megabytes(1, 40)), "0");
}

}  // namespace
}  // namespace qgpu::testing::guest_memory_test
