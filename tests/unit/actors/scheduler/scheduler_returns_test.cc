// Nodes that were lost and come back with what they held.
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_returns_test {
namespace {

using testing::ClusterWorld;
using testing::NodeDouble;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

ClusterSpec small(const std::string& node = "") {
  return ClusterWorld::spec(Ordinary, 4, 25, node);
}

std::size_t bindsOf(ClusterWorld& world, std::uint64_t task) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < world.links.heard.size(); ++i) {
    if (!world.links.heard[i].isToMember()) continue;
    const auto words = world.links.heard[i].getToMember();
    count += words.isBind() && words.getBind().getTask() == task ? 1 : 0;
  }
  return count;
}

// A node that does not end what it is told to, is lost and comes back.
std::uint64_t lostAndBack(ClusterWorld& world) {
  world.start();
  world.add("a", 1);
  const std::uint64_t task = world.submitted(small());
  world.node("a").ends = false;
  world.cut("a");
  world.pass(seconds(22));
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  world.connect("a");
  return task;
}

void endThere(ClusterWorld& world, const std::string& name) {
  NodeDouble& node = world.node(name);
  const std::uint64_t number = node.tasks.begin()->first;
  world.sayHeld(name, number, true);
  node.tasks.erase(number);
  world.run();
}

TEST(SchedulerReturns, NothingIsOrderedOntoANodeThatStillHoldsAnEarlierEpochOfIt) {
  ClusterWorld world;
  const std::uint64_t task = lostAndBack(world);
  world.pass(seconds(40));
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  EXPECT_EQ(bindsOf(world, task), 1u);
  EXPECT_EQ(world.scheduler->task(task)->epoch, 2u) << "no epoch is used up";
  world.node("a").ends = true;
  endThere(world, "a");
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  ASSERT_NE(world.node("a").find(task), nullptr);
  EXPECT_EQ(world.node("a").find(task)->epoch, 2u);
}

TEST(SchedulerReturns, AnotherNodeIsChosenMeanwhile) {
  ClusterWorld world;
  const std::uint64_t task = lostAndBack(world);
  world.add("b", 1);
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  ASSERT_NE(world.node("b").find(task), nullptr);
  EXPECT_EQ(world.node("b").find(task)->epoch, 2u);
}

TEST(SchedulerReturns, OthersThatAskForTheSameGoThereMeanwhileIfThereIsRoomBesideIt) {
  const ClusterSpec half = ClusterWorld::spec(Ordinary, 8, 50);
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t stays = world.submitted(half);
  const std::uint64_t gone = world.submitted(half);
  const std::uint64_t waits = world.submitted(half);
  world.node("a").ends = false;
  world.cut("a");
  world.pass(seconds(22));
  world.node("a").tasks.erase(2);
  world.connect("a");
  EXPECT_EQ(world.state(stays), PlaceState::Waiting);
  EXPECT_EQ(world.placeOf(gone), "a");
  EXPECT_EQ(world.state(waits), PlaceState::Waiting) << "what still runs there has its room";
  endThere(world, "a");
  EXPECT_EQ(world.placeOf(stays), "a");
  EXPECT_EQ(world.state(waits), PlaceState::Waiting);
}

TEST(SchedulerReturns, ATaskSubmittedMeanwhileGoesThereAlthoughOneThatAsksForTheSameWaits) {
  ClusterWorld world;
  const std::uint64_t task = lostAndBack(world);
  const std::uint64_t next = world.submitted(small());
  EXPECT_EQ(world.placeOf(next), "a");
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
}

TEST(SchedulerReturns, WhatTheNodeNamesNoMoreAtItsNextHelloIsInNobodysWay) {
  ClusterWorld world;
  const std::uint64_t task = lostAndBack(world);
  world.disconnect("a");
  world.node("a").tasks.clear();
  world.connect("a");
  EXPECT_EQ(world.placeOf(task), "a");
  EXPECT_EQ(world.scheduler->task(task)->epoch, 2u);
}

TEST(SchedulerReturns, ADeletedTaskLeavesNothingBehind) {
  ClusterWorld world;
  const std::uint64_t task = lostAndBack(world);
  EXPECT_EQ(world.order([=](Request r) { r.setDelete(task); }), "ok");
  endThere(world, "a");
  EXPECT_EQ(world.scheduler->tasks(), 0u);
  EXPECT_EQ(world.placeOf(world.submitted(small())), "a");
}

}  // namespace
}  // namespace qgpu::scheduler_returns_test
