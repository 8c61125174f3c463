// What the scheduler tries on a copy, and what it does to make room: what-if questions, remedies,
// and offline tasks that are evicted.
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_plans_test {
namespace {

using testing::ClusterOptions;
using testing::ClusterWorld;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

ClusterSpec offline(std::int64_t gib, std::int64_t percent = 10) {
  return ClusterWorld::spec(Offline, gib, percent);
}
ClusterSpec online(std::int64_t gib) {
  return ClusterWorld::spec(Online, gib, 0);
}
ClusterSpec ordinary(std::int64_t gib, std::int64_t percent = 25) {
  return ClusterWorld::spec(Ordinary, gib, percent);
}
ClusterSpec preempting(ClusterSpec spec) {
  spec.preempt = true;
  return spec;
}
ClusterWorld::Fill remove(std::uint64_t task) {
  return [task](Request r) { r.setDelete(task); };
}
ClusterWorld::Fill dryRun(std::uint64_t task) {
  return [task](Request r) { r.setPreempt(task); };
}
ClusterWorld::Fill place(const ClusterSpec& spec, std::uint32_t count) {
  return [=](Request r) {
    auto place = r.initWhatIf().initPlace();
    writeClusterSpec(spec, place.initSpec());
    place.setCount(count);
  };
}
ClusterWorld::Fill drain(const char* node, const char* card = "") {
  return [=](Request r) {
    auto target = r.initWhatIf().initDrain();
    target.setNode(node);
    target.setCard(card);
  };
}
ClusterWorld::Fill cordon(const char* node) {
  return [=](Request r) { r.initCordon().setNode(node); };
}
std::string reasonOf(const ClusterWorld& world, std::uint64_t task) {
  return world.scheduler->task(task)->reason;
}

// --- evictions ---

TEST(SchedulerPlans, ATaskThatMayEvictGetsTheRoomOfTheLeastSetWhichWaitsAgain) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::uint64_t large = world.submitted(offline(12, 40));
  const std::uint64_t small = world.submitted(offline(12, 10));
  const std::uint64_t task = world.submitted(preempting(online(8)));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(large), PlaceState::Bound);
  EXPECT_EQ(world.state(small), PlaceState::Waiting);
  EXPECT_EQ(world.holders(small), 0u);
  EXPECT_NE(reasonOf(world, small).find("evicted: task 3 gets its room"), std::string::npos);
  world.order(remove(task));
  EXPECT_EQ(world.state(small), PlaceState::Bound);
}

TEST(SchedulerPlans, OnlyWhoIsAllowedToEvictsAndOfflineTasksNever) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t held = world.submitted(offline(12));
  EXPECT_EQ(world.state(world.submitted(online(8))), PlaceState::Waiting);
  EXPECT_EQ(world.state(world.submitted(preempting(offline(8)))), PlaceState::Waiting);
  EXPECT_EQ(world.state(held), PlaceState::Bound);
}

TEST(SchedulerPlans, NobodyElseTakesTheRoomWhileItIsFreed) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  const std::uint64_t held = world.submitted(offline(4));
  const std::uint64_t task = world.submitted(preempting(ordinary(4)));
  EXPECT_EQ(world.state(held), PlaceState::Ending);
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  EXPECT_EQ(reasonOf(world, task), "room is made for it: task(s) 1 end");
  const std::uint64_t other = world.submitted(online(4));
  EXPECT_EQ(world.state(other), PlaceState::Waiting);
  world.node("a").ends = true;
  world.pass(seconds(31));  // the order is repeated
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(held), PlaceState::Waiting);
  EXPECT_EQ(world.state(other), PlaceState::Waiting);
}

TEST(SchedulerPlans, WhereTheTaskIsDeletedMeanwhileTheCardIsOpenAgain) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  world.submitted(offline(4));
  const std::uint64_t task = world.submitted(preempting(ordinary(4)));
  const std::uint64_t other = world.submitted(online(4));
  EXPECT_EQ(world.state(other), PlaceState::Waiting);
  EXPECT_EQ(world.order(remove(task)), "ok");
  EXPECT_EQ(world.state(other), PlaceState::Bound);
}

TEST(SchedulerPlans, D4_AnEvictionThatIsNotStoredIsUndone) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t held = world.submitted(offline(4));
  const std::uint64_t before = world.scheduler->ledger().digest();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Internal, "the disk is full"));
  EXPECT_EQ(world.order(ClusterWorld::submit(preempting(ordinary(4)))), "unavailable");
  EXPECT_EQ(world.state(held), PlaceState::Bound);
  EXPECT_EQ(world.scheduler->ledger().digest(), before);
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(world.submitted(online(4))), PlaceState::Bound);
}

TEST(SchedulerPlans, RoomsThatChangeLaterAreLookedAtAgain) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t first = world.submitted(online(4));
  const std::uint64_t second = world.submitted(offline(4));
  const std::uint64_t task = world.submitted(preempting(ordinary(4)));
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  world.order(remove(first));
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  world.pass(seconds(1));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(second), PlaceState::Waiting);
}

TEST(SchedulerPlans, P3_VictimsOfALostNodeWaitAgainAndTheTaskFindsAnotherPlace) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  const std::uint64_t held = world.submitted(offline(12));
  const std::uint64_t task = world.submitted(preempting(online(8)));
  world.cut("a");
  world.pass(seconds(30));
  EXPECT_EQ(world.state(held), PlaceState::Waiting);
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  world.add("b", 1);
  EXPECT_EQ(world.placeOf(task), "b");
  EXPECT_EQ(world.state(held), PlaceState::Waiting);
}

// The node ends nothing before the restart. Beside the victim's card there is one that another
// eviction could take.
TEST(SchedulerPlans, ARestartEvictsNobodyTwiceAndKeepsTheRoomForWhomItIsMade) {
  ClusterWorld world;
  world.start();
  world.add("a", 2).ends = false;
  const std::uint64_t small = world.submitted(offline(12, 10));
  const std::uint64_t large = world.submitted(offline(12, 40));
  const std::uint64_t task = world.submitted(preempting(online(8)));
  EXPECT_EQ(world.state(small), PlaceState::Ending);
  for (int i = 0; i < 2; ++i) {
    world.restart();
    world.connect("a");
    world.pass(seconds(2));
    EXPECT_EQ(world.state(task), PlaceState::Waiting);
    EXPECT_EQ(world.state(small), PlaceState::Ending);
    EXPECT_EQ(world.state(large), PlaceState::Bound) << "no second victim";
  }
  const std::uint64_t other = world.submitted(online(1));  // would fit beside the victim
  EXPECT_NE(world.scheduler->task(other)->cards, world.scheduler->task(small)->cards);
  world.node("a").ends = true;
  world.pass(seconds(31));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(large), PlaceState::Bound);
  EXPECT_EQ(world.state(small), PlaceState::Waiting);
}

TEST(SchedulerPlans, WhatEndedDuringARestartGivesItsRoomToWhomItWasMadeFor) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  const std::uint64_t held = world.submitted(offline(12));
  const std::uint64_t older = world.submitted(online(16));
  const std::uint64_t task = world.submitted(preempting(online(8)));
  EXPECT_EQ(world.state(held), PlaceState::Ending);
  world.node("a").tasks.clear();
  world.restart();
  world.connect("a");
  EXPECT_EQ(world.state(task), PlaceState::Bound) << "its place in the queue is behind";
  EXPECT_EQ(world.state(older), PlaceState::Waiting);
  EXPECT_EQ(world.state(held), PlaceState::Waiting);
}

TEST(SchedulerPlans, D4_AVictimWhoseEndIsNotStoredStillEndsForTheSame) {
  ClusterWorld world;
  world.start();
  world.add("a", 2).ends = false;
  const std::uint64_t small = world.submitted(offline(12, 10));
  const std::uint64_t large = world.submitted(offline(12, 40));
  const std::uint64_t task = world.submitted(preempting(online(8)));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  const std::uint64_t number = world.node("a").tasks.begin()->first;
  world.sayHeld("a", number, true);
  world.node("a").tasks.erase(number);
  world.run();
  EXPECT_EQ(world.state(small), PlaceState::Ending);
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(large), PlaceState::Bound);
}

TEST(SchedulerPlans, ProcessorsOfTheHostAreKeptToo) {
  ClusterWorld world;
  world.start();
  world.links.nodes["a"].cpuMilli = 4000;
  world.add("a", 2).ends = false;
  ClusterSpec spec = offline(12);
  spec.cpuMilli = 2000;
  const std::uint64_t held = world.submitted(spec);
  ClusterSpec whole = ordinary(16, 100);
  whole.cpuMilli = 4000;
  const std::uint64_t task = world.submitted(preempting(whole));
  EXPECT_EQ(world.state(held), PlaceState::Ending);
  ClusterSpec other = ordinary(4);
  other.cpuMilli = 1000;
  EXPECT_EQ(world.state(world.submitted(other)), PlaceState::Waiting);
  world.node("a").ends = true;
  world.pass(seconds(31));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
}

TEST(SchedulerPlans, ADryRunTellsWhoWouldGoAndChangesNothing) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1);
  const std::uint64_t one = world.submitted(offline(12));
  const std::uint64_t two = world.submitted(offline(12, 40));
  const std::uint64_t task = world.submitted(online(8));
  const std::uint64_t before = world.scheduler->ledger().digest();
  const auto answer = world.reply(world.ask(dryRun(task))).getWhatIf();
  ASSERT_EQ(answer.getLanded().size(), 1u);
  EXPECT_EQ(answer.getLanded()[0].getTask(), task);
  EXPECT_EQ(text(answer.getLanded()[0].getNode()), world.placeOf(one));
  ASSERT_EQ(answer.getLanded()[0].getEvicts().size(), 1u);
  EXPECT_EQ(answer.getLanded()[0].getEvicts()[0], one);
  ASSERT_EQ(answer.getStay().size(), 1u);
  EXPECT_EQ(answer.getStay()[0].getTask(), one);
  EXPECT_EQ(world.scheduler->ledger().digest(), before);
  EXPECT_EQ(world.state(one), PlaceState::Bound);
  EXPECT_EQ(world.order(dryRun(two)), "conflict");
  EXPECT_EQ(world.order(dryRun(99)), "not-found");
  EXPECT_EQ(world.order(dryRun(world.submitted(offline(8)))), "invalid-argument");
}

TEST(SchedulerPlans, ADryRunIsRefusedWhereNoSetOfOfflineTasksWouldDo) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(ordinary(12));
  EXPECT_EQ(world.order(dryRun(world.submitted(online(8)))), "no-room");
}

// --- what if ---

TEST(SchedulerPlans, TellsWhereSoManyWouldLandAndHowFullTheClusterIsThen) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.submitted(ordinary(8, 50));
  const auto answer = world.reply(world.ask(place(ordinary(8, 50), 200))).getWhatIf();
  EXPECT_EQ(answer.getLanded().size(), 3u);
  EXPECT_EQ(text(answer.getLanded()[0].getNode()), "a");
  EXPECT_EQ(answer.getLanded()[0].getCards().size(), 1u);
  ASSERT_EQ(answer.getStay().size(), 1u);
  EXPECT_EQ(text(answer.getStay()[0].getReason()).find("197 of 200: "), 0u);
  EXPECT_EQ(answer.getAllocatedBefore(), 250u);
  EXPECT_EQ(answer.getAllocatedAfter(), 1000u);
  EXPECT_EQ(world.scheduler->tasks(), 1u);
}

TEST(SchedulerPlans, TellsWhatADrainWouldMoveAndWhatItWouldNot) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1);
  const std::uint64_t pinned = world.submitted(ClusterWorld::spec(Ordinary, 4, 25, "a"));
  const std::uint64_t moves = world.submitted(ordinary(4));
  ASSERT_EQ(world.placeOf(moves), "a");
  const auto answer = world.reply(world.ask(drain("a"))).getWhatIf();
  ASSERT_EQ(answer.getLanded().size(), 1u);
  EXPECT_EQ(answer.getLanded()[0].getTask(), moves);
  EXPECT_EQ(text(answer.getLanded()[0].getNode()), "b");
  ASSERT_EQ(answer.getStay().size(), 1u);
  EXPECT_EQ(answer.getStay()[0].getTask(), pinned);
  EXPECT_EQ(text(answer.getStay()[0].getReason()), "it may run on node a only");
  EXPECT_EQ(world.reply(world.ask(drain("a", "sim-0"))).getWhatIf().getLanded().size(), 1u);
  EXPECT_EQ(world.placeOf(moves), "a");
  EXPECT_EQ(world.order(drain("c")), "not-found");
  EXPECT_EQ(world.order(drain("a", "sim-7")), "not-found");
}

TEST(SchedulerPlans, C5_HowManyAreTriedAndHowManyQuestionsWaitIsBounded) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  EXPECT_EQ(world.order(place(ordinary(4), 0)), "invalid-argument");
  EXPECT_EQ(world.order(place(ordinary(4), 10'001)), "invalid-argument");
  EXPECT_EQ(world.order(place(ordinary(4), 10'000)), "ok");
  EXPECT_EQ(world.order(place(offline(4, 200), 1)), "invalid-argument");
  std::vector<std::uint64_t> asked;
  for (int i = 0; i < 40; ++i) asked.push_back(world.send(place(ordinary(4), 1'000)));
  world.run();
  std::size_t refused = 0;
  for (const std::uint64_t corr : asked) {
    EXPECT_EQ(world.answers(corr), 1u);
    refused += world.code(corr) == "overloaded" ? 1 : 0;
  }
  EXPECT_GE(refused, 1u);
  EXPECT_LE(refused, 40u - Plans::kPlansMax);
}

// --- remedies ---

TEST(SchedulerPlans, ExplainsWithARemedyThatIsProven) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t held = world.submitted(offline(12));
  const std::uint64_t task = world.submitted(ordinary(8));
  const ClusterWorld::Fill explain = [task](Request r) { r.setExplain(task); };
  EXPECT_EQ(text(world.reply(world.ask(explain)).getExplanation().getRemedy())
                .find("evict offline task 1 (12 GiB) from a/0"),
            0u);
  world.order(remove(held));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(text(world.reply(world.ask(explain)).getExplanation().getRemedy()), "");
  world.order(cordon("a"));
  const auto spec =
      world.reply(world.ask([](Request r) { writeClusterSpec(ordinary(4), r.initExplainSpec()); }));
  EXPECT_EQ(text(spec.getExplanation().getRemedy()), "uncordon a: it fits there then");
}

TEST(SchedulerPlans, RoomThatIsMadeForSomebodyIsNoRemedyForOthers) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  world.submitted(offline(4));
  world.submitted(preempting(ordinary(4)));
  const std::uint64_t other = world.submitted(online(4));
  const auto explained = world.reply(world.ask([other](Request r) { r.setExplain(other); }));
  EXPECT_EQ(text(explained.getExplanation().getRemedy()), "");
}

}  // namespace
}  // namespace qgpu::scheduler_plans_test
