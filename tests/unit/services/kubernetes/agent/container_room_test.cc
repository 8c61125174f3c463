// Which container of a pod starts, by what kubelet tells.

#include "services/kubernetes/agent/container_room.h"

#include <gtest/gtest.h>

#include "services/kubernetes/pods/kube_objects.h"

namespace qgpu::container_room_test {
namespace {

ContainerPlan plan(const std::string& name, int percent, int gib, bool init = false,
                   const std::string& uses = "") {
  return {name, {"card"}, gibibytes(gib), Permille(percent * 10), uses, init};
}

struct ContainerRoom : ::testing::Test {
  PodPlan pod{"uid", "web", "train", TaskClass::Ordinary, {}};

  // The room's owner; "?": another resource says; else the refusal.
  std::string room(const std::string& listed, Resource resource, std::uint32_t count) const {
    const auto found = roomOf(pod, listed, resource, count, MemoryUnit::GiB);
    if (!found) return found.error().message;
    return *found == nullptr ? "?" : (*found)->name;
  }
};

TEST_F(ContainerRoom, AListedContainerHasItsOwn) {
  pod.containers = {plan("a", 30, 4), plan("b", 30, 4)};
  EXPECT_EQ(room("a", Resource::Core, 30), "a");
  EXPECT_EQ(room("b", Resource::Memory, 4), "b");
}

TEST_F(ContainerRoom, AnInitContainerUsesTheOneThatWasDecidedForIt) {
  pod.containers = {plan("warm", 20, 4, true, "main"), plan("main", 40, 6)};
  EXPECT_EQ(room("", Resource::Core, 20), "main");
  EXPECT_EQ(room("", Resource::Memory, 4), "main");
  EXPECT_EQ(room("main", Resource::Core, 40), "main");
}

TEST_F(ContainerRoom, WhereOneResourceStandsForTwoRoomsAnotherSays) {
  pod.containers = {plan("warm", 30, 8, true), plan("main", 30, 4)};
  EXPECT_EQ(room("main", Resource::Core, 30), "?");
  EXPECT_EQ(room("", Resource::Memory, 8), "warm");
  EXPECT_EQ(room("main", Resource::Memory, 4), "main");
}

TEST_F(ContainerRoom, AnAmountThatNoInitContainerAsksForIsRefused) {
  pod.containers = {plan("warm", 20, 4, true, "main"), plan("main", 40, 6)};
  EXPECT_NE(room("", Resource::Core, 21).find("21 of qgpu-core"), std::string::npos);
  EXPECT_NE(room("", Resource::Greedy, 20).find("web/train"), std::string::npos);
}

TEST_F(ContainerRoom, WhoeverNoResourceTellsApartIsRefusedByName) {
  pod.containers = {plan("large", 30, 8, true), plan("small", 30, 4, true, "one"),
                    plan("slow", 20, 8, true, "two"), plan("one", 30, 4), plan("two", 20, 8)};
  EXPECT_NE(room("one", Resource::Core, 30).find("'large'"), std::string::npos);
  EXPECT_NE(room("", Resource::Memory, 8).find("'large'"), std::string::npos);
}

TEST_F(ContainerRoom, WholeCardsTakeAnyMemory) {
  pod.containers = {plan("warm", 100, 0, true, "main"), plan("main", 100, 0)};
  EXPECT_EQ(room("", Resource::Memory, 16), "main");
  EXPECT_EQ(room("main", Resource::Core, 100), "main");
}

// A smaller init container runs in the room of a larger one, which may have ended.
TEST(RoomOver, WhenAllWhoUseItHaveEnded) {
  KubePod pod;
  for (const char* name : {"large", "small", "main"}) {
    ContainerDemand demand;
    demand.name = name;
    pod.demands.containers.push_back(demand);
  }
  pod.demands.containers[1].sharesWith = 0;
  pod.ended = {"large"};
  EXPECT_FALSE(isRoomOver(pod, 0)) << "the other one is yet to come";
  pod.ended = {"large", "small"};
  EXPECT_TRUE(isRoomOver(pod, 0));
  EXPECT_FALSE(isRoomOver(pod, 2));
}

}  // namespace
}  // namespace qgpu::container_room_test
