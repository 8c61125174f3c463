// Groups: all of their tasks get a place at once or none, nobody is told a token before all are
// bound, and a part of a group holds no room.
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_groups_test {
namespace {

using testing::ClusterWorld;
using testing::NodeDouble;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

// A task that has a card of 16 GiB to itself.
ClusterSpec of(const std::string& group, std::uint32_t size, std::int64_t gib = 12) {
  ClusterSpec spec = ClusterWorld::spec(Ordinary, gib, 50);
  spec.group = group;
  spec.groupSize = size;
  return spec;
}

std::vector<std::uint64_t> submitted(ClusterWorld& world, std::size_t count,
                                     const ClusterSpec& spec) {
  std::vector<std::uint64_t> tasks;
  for (std::size_t i = 0; i < count; ++i) tasks.push_back(world.submitted(spec));
  return tasks;
}

std::size_t inState(const ClusterWorld& world, const std::vector<std::uint64_t>& tasks,
                    PlaceState state) {
  std::size_t count = 0;
  for (const std::uint64_t task : tasks) {
    if (world.scheduler->task(task) != nullptr && world.state(task) == state) ++count;
  }
  return count;
}

std::string explained(ClusterWorld& world, std::uint64_t task) {
  return text(
      world.reply(world.ask([task](Request r) { r.setExplain(task); })).getExplanation().getText());
}

void remove(ClusterWorld& world, std::uint64_t task) {
  ASSERT_EQ(world.order([task](Request r) { r.setDelete(task); }), "ok");
}

std::size_t boundOn(ClusterWorld& world) {
  std::size_t count = 0;
  for (const auto& [name, node] : world.links.nodes) count += node.tasks.size();
  return count;
}

TEST(SchedulerGroups, P11_NobodyIsBoundBeforeTheLastOneIsHereAndThenAllAre) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.add("b", 2);
  std::vector<std::uint64_t> tasks = submitted(world, 3, of("train", 4));
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 3u);
  EXPECT_EQ(boundOn(world), 0u);
  EXPECT_EQ(explained(world, tasks[0]), "waits: GroupWaits: 3 of 4 members of its group are here");
  tasks.push_back(world.submitted(of("train", 4)));
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 4u);
  EXPECT_EQ(boundOn(world), 4u);
}

TEST(SchedulerGroups, P11_AGroupThatDoesNotFitHoldsNothingAndSaysHowManyFit) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.add("b", 1);
  const std::vector<std::uint64_t> tasks = submitted(world, 4, of("train", 4));
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 4u);
  EXPECT_EQ(explained(world, tasks[3]),
            "waits: GroupWaits: 4 members of its group are to start at once, and 3 fit");
  EXPECT_FALSE(world.reply(world.ask([&](Request r) { r.setExplain(tasks[0]); }))
                   .getExplanation()
                   .getFits());
  const std::uint64_t single = world.submitted(ClusterWorld::spec(Ordinary, 12, 50));
  EXPECT_EQ(world.state(single), PlaceState::Bound) << "the group keeps nobody from free room";
  remove(world, single);
  world.add("c", 1);
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 4u);
}

TEST(SchedulerGroups, P11_OfTwoThatFitAloneAndNotTogetherOneRunsAndThenTheOther) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.add("b", 2);
  // Their tasks come in turn, as two launchers ask at once.
  std::vector<std::uint64_t> first, second;
  for (int i = 0; i < 3; ++i) {
    first.push_back(world.submitted(of("one", 3)));
    second.push_back(world.submitted(of("two", 3)));
  }
  EXPECT_EQ(inState(world, first, PlaceState::Bound), 3u);
  EXPECT_EQ(inState(world, second, PlaceState::Waiting), 3u);
  remove(world, first[0]);
  EXPECT_EQ(inState(world, second, PlaceState::Waiting), 3u) << "two cards do not do";
  remove(world, first[1]);
  EXPECT_EQ(inState(world, second, PlaceState::Bound), 3u);
  EXPECT_EQ(world.state(first[2]), PlaceState::Bound);
}

TEST(SchedulerGroups, P11_ATokenIsToldOnceAllAreBound) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1).answers = false;
  const std::uint64_t one = world.submitted(of("train", 2));
  const std::uint64_t two = world.send(ClusterWorld::submit(of("train", 2)));
  world.run();
  ASSERT_EQ(world.state(one), PlaceState::Bound) << "by its node";
  const auto assigned = [&] {
    return world.reply(world.ask([one](Request r) { r.setAssigned(one); })).getAssigned();
  };
  const auto told = [&] {
    std::vector<std::uint64_t> tasks;
    for (const auto event : world.reply(world.ask([](Request r) { r.setEvents(0); })).getEvents()) {
      if (text(event.getKind()) == "task-bound") tasks.push_back(event.getTask());
    }
    return tasks;
  };
  EXPECT_EQ(told(), std::vector<std::uint64_t>{});
  EXPECT_TRUE(assigned().getWaiting());
  EXPECT_EQ(text(assigned().getToken()), "");
  EXPECT_EQ(text(assigned().getReason()), "GroupWaits: 1 of 2 members of its group are bound");
  EXPECT_EQ(explained(world, one),
            "waits on node a: GroupWaits: 1 of 2 members of its group are bound");
  EXPECT_EQ(world.answers(two), 0u);
  world.node("b").answers = true;
  world.disconnect("b");
  world.connect("b");
  EXPECT_EQ(world.answers(two), 1u);
  EXPECT_FALSE(world.reply(two).getAssigned().getWaiting());
  EXPECT_FALSE(assigned().getWaiting());
  EXPECT_NE(text(assigned().getToken()), "");
  EXPECT_EQ(told(), (std::vector<std::uint64_t>{one, one + 1}));
}

TEST(SchedulerGroups, P11_ARefusalThatFindsNoOtherPlaceGivesAllBackAndTheGroupIsTriedAgain) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1).refuses = "not now";
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 2));
  world.run();
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 2u);
  EXPECT_EQ(boundOn(world), 0u);
  const std::uint32_t before = world.scheduler->task(tasks[1])->epoch;
  EXPECT_LE(before, 3u) << "it is not tried in a circle";
  world.node("b").refuses.clear();
  world.pass(seconds(2));
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 2u);
}

TEST(SchedulerGroups, ARefusalThatFindsAnotherPlaceGivesNothingBack) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1).refuses = "not now";
  world.add("c", 1);
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 2));
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 2u);
  EXPECT_EQ(world.node("a").tasks.size() + world.node("c").tasks.size(), 2u);
  std::uint32_t epochs = 0;
  for (const std::uint64_t task : tasks) epochs += world.scheduler->task(task)->epoch;
  EXPECT_LE(epochs, 3u) << "one of them alone was placed again";
}

TEST(SchedulerGroups, P11_ANodeThatIsLostBeforeAllAreBoundGivesAllBack) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1).answers = false;
  const std::uint64_t one = world.submitted(of("train", 2));
  world.ask(ClusterWorld::submit(of("train", 2)));
  const std::vector<std::uint64_t> tasks = {one, one + 1};
  ASSERT_EQ(inState(world, tasks, PlaceState::Bound), 1u);
  world.cut("b");
  world.pass(seconds(25));
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 2u);
  EXPECT_EQ(world.node("a").tasks.size(), 0u);
  world.add("c", 1);
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 2u);
}

TEST(SchedulerGroups, OnceItHasStartedALostTaskGoesAloneAndTheOthersRunOn) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1);
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 2));
  ASSERT_EQ(inState(world, tasks, PlaceState::Bound), 2u);
  const std::uint64_t lost = world.placeOf(tasks[0]) == "b" ? tasks[0] : tasks[1];
  const std::uint64_t stays = lost == tasks[0] ? tasks[1] : tasks[0];
  world.cut("b");
  world.pass(seconds(25));
  EXPECT_EQ(world.state(lost), PlaceState::Waiting);
  EXPECT_EQ(world.state(stays), PlaceState::Bound);
  EXPECT_EQ(world.scheduler->task(stays)->epoch, 1u);
  const NodeDouble& other = world.add("c", 1);
  EXPECT_EQ(world.state(lost), PlaceState::Bound);
  EXPECT_NE(other.find(lost), nullptr);
}

TEST(SchedulerGroups, TasksBeyondItsSizeFollowOneByOne) {
  ClusterWorld world;
  world.start();
  world.add("a", 3);
  const std::vector<std::uint64_t> tasks = submitted(world, 5, of("train", 2));
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 3u);
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 2u);
  remove(world, tasks[0]);
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 3u);
}

TEST(SchedulerGroups, ATaskIsPlacedAgainThoughOthersOfItsGroupHaveEnded) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1);
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 2));
  remove(world, tasks[0]);
  world.cut(world.placeOf(tasks[1]));
  world.pass(seconds(25));
  EXPECT_EQ(world.state(tasks[1]), PlaceState::Bound);
}

TEST(SchedulerGroups, AnotherSizeIsRefusedWhileTheGroupLives) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::uint64_t task = world.submitted(of("train", 2));
  const std::uint64_t other = world.ask(ClusterWorld::submit(of("train", 3)));
  EXPECT_EQ(world.code(other), "conflict");
  EXPECT_EQ(world.message(other),
            "group 'train' is of 2 tasks, not of 3: ask for that size, or wait until its tasks "
            "have ended");
  remove(world, task);
  EXPECT_EQ(world.order(ClusterWorld::submit(of("train", 3))), "ok");
}

TEST(SchedulerGroups, ATaskThatIsDeletedWhileItWaitsIsNoMemberAnyMore) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 3));
  remove(world, tasks[0]);
  EXPECT_EQ(explained(world, tasks[1]), "waits: GroupWaits: 1 of 3 members of its group are here");
  submitted(world, 1, of("train", 3));
  EXPECT_EQ(boundOn(world), 0u);
  world.add("b", 1);
  submitted(world, 1, of("train", 3));
  EXPECT_EQ(boundOn(world), 3u);
}

TEST(SchedulerGroups, ANameThatIsUsedAgainIsANewGroup) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  for (const std::uint64_t task : submitted(world, 2, of("train", 2))) remove(world, task);
  const std::uint64_t alone = world.submitted(of("train", 2));
  EXPECT_EQ(world.state(alone), PlaceState::Waiting);
  EXPECT_EQ(boundOn(world), 0u);
}

TEST(SchedulerGroups, P11_ANameIsNewAsSoonAsItsTasksAreToldToEnd) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  world.add("b", 1).ends = false;
  world.add("c", 1);
  for (const std::uint64_t task : submitted(world, 2, of("train", 2))) remove(world, task);
  ASSERT_EQ(world.scheduler->tasks(), 2u) << "they still end";
  const std::vector<std::uint64_t> again = submitted(world, 2, of("train", 2));
  EXPECT_EQ(inState(world, again, PlaceState::Waiting), 2u) << "one card is no room for two";
  world.add("d", 1);
  EXPECT_EQ(inState(world, again, PlaceState::Bound), 2u);
}

TEST(SchedulerGroups, GroupsOfTwoOwnersAreTwoGroups) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::uint64_t mine = world.submitted(of("train", 2), {1001, false});
  const std::uint64_t theirs = world.submitted(of("train", 2), {1002, false});
  EXPECT_EQ(world.state(mine), PlaceState::Waiting);
  EXPECT_EQ(world.state(theirs), PlaceState::Waiting);
}

TEST(SchedulerGroups, P11_ACrashBetweenCommitAndOrdersPlacesAllOrNone) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1);
  world.node("a").answers = world.node("b").answers = false;
  const std::uint64_t one = world.submitted(of("train", 2));
  world.send(ClusterWorld::submit(of("train", 2)));
  world.run();
  const std::vector<std::uint64_t> tasks = {one, one + 1};
  ASSERT_EQ(inState(world, tasks, PlaceState::Assumed), 2u);
  world.restart();
  EXPECT_EQ(inState(world, tasks, PlaceState::Assumed), 2u);
  world.node("a").answers = true;
  world.connect("a");
  world.run();
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 1u);
  world.pass(seconds(60));  // the other node never comes
  EXPECT_EQ(inState(world, tasks, PlaceState::Waiting), 2u);
  EXPECT_EQ(boundOn(world), 0u);
  world.node("b").answers = true;
  world.connect("b");
  world.run();
  EXPECT_EQ(inState(world, tasks, PlaceState::Bound), 2u);
}

TEST(SchedulerGroups, AGroupThatHasStartedIsKnownAfterARestart) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::vector<std::uint64_t> tasks = submitted(world, 2, of("train", 2));
  remove(world, tasks[0]);
  world.restart();
  world.connect("a");
  world.run();
  EXPECT_EQ(world.state(tasks[1]), PlaceState::Bound);
  const std::uint64_t late = world.submitted(of("train", 2));
  EXPECT_EQ(world.state(late), PlaceState::Bound);
}

TEST(SchedulerGroups, P11_ARoundThatIsUndoneLeavesNothingOfAGroup) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::uint64_t one = world.submitted(of("train", 2));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  EXPECT_EQ(world.order(ClusterWorld::submit(of("train", 2))), "unavailable");
  EXPECT_EQ(world.state(one), PlaceState::Waiting);
  EXPECT_EQ(boundOn(world), 0u);
}

TEST(SchedulerGroups, WhatAGroupMayNotBeIsSaid) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const auto refused = [&](ClusterSpec spec) {
    const std::uint64_t corr = world.ask(ClusterWorld::submit(spec));
    EXPECT_EQ(world.code(corr), "invalid-argument");
    return world.message(corr);
  };
  EXPECT_EQ(refused(of("", 2)), "a group of 2 has no name: name both");
  EXPECT_EQ(refused(of("train", 0)), "group 'train' is of 0 tasks: from 1 to 256 make one");
  EXPECT_EQ(refused(of("train", 257)), "group 'train' is of 257 tasks: from 1 to 256 make one");
  ClusterSpec evicts = of("train", 2);
  evicts.preempt = true;
  EXPECT_EQ(refused(evicts), "a task of group 'train' evicts nobody: ask without preempt");
}

}  // namespace
}  // namespace qgpu::scheduler_groups_test
