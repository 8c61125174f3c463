// What a scheduler keeps: over a restart, and over a storage that fails.
#include <gtest/gtest.h>

#include "store/row_copy.h"
#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_restart_test {
namespace {

using testing::ClusterOptions;
using testing::ClusterWorld;
using testing::NodeDouble;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

ClusterSpec small(const std::string& node = "") {
  return ClusterWorld::spec(Ordinary, 4, 25, node);
}
ClusterSpec wholeCard(const std::string& node = "") {
  return ClusterWorld::spec(Ordinary, 16, 100, node);
}

ClusterSpec withRequest(ClusterSpec spec, const std::string& id) {
  spec.task.requestId = id;
  return spec;
}

ClusterOptions restarted(ClusterWorld& world) {
  ClusterOptions options;
  options.rows = world.rows();
  return options;
}

// The node as it was at the end of another world, connected to this one.
void carryOver(ClusterWorld& from, ClusterWorld& to, const std::string& name) {
  NodeDouble node = from.node(name);
  node.session = 0;
  node.link = 0;
  to.links.nodes[name] = node;
  to.connect(name);
}

TEST(SchedulerRestart, C1_TheTermGrowsAndIsCommittedBeforeAnybodyIsServed) {
  ClusterWorld first;
  first.start();
  first.add("a");
  EXPECT_EQ(first.node("a").term, 1u);
  ClusterWorld second(restarted(first));
  second.fixture.journal().holdCommits();
  second.start();
  carryOver(first, second, "a");
  EXPECT_EQ(second.node("a").session, 0u);
  second.fixture.journal().commitAutomatically();
  second.fixture.journal().commitNext();
  second.run();
  EXPECT_EQ(second.node("a").term, 2u);
  EXPECT_NE(second.node("a").session, 0u);
}

// Its name is stored and its cards are not, so nobody can say that they would not do.
TEST(SchedulerRestart, P7_NothingIsInfeasibleWhileANodeIsLostThatSaidNoHelloSince) {
  ClusterWorld first;
  first.start();
  first.add("a");
  ClusterWorld second(restarted(first));
  second.start();
  second.pass(seconds(60));
  const std::uint64_t task = second.submitted(small());
  EXPECT_EQ(second.state(task), PlaceState::Waiting);
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.order(ClusterWorld::submit(ClusterWorld::spec(Ordinary, 64, 25))), "infeasible");
}

TEST(SchedulerRestart, BoundTasksAreBelievedUntilTheirNodeSaysHelloAndThenBoundWithoutAnOrder) {
  ClusterWorld first;
  first.start();
  first.add("a");
  const std::uint64_t task = first.submitted(small());
  ClusterWorld second(restarted(first));
  second.start();
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  const std::uint64_t before = second.fixture.journal().commits();
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.scheduler->ledger().tasks(), 1u);
  EXPECT_EQ(second.holders(task), 1u);
  EXPECT_EQ(second.fixture.journal().commits(), before);  // nothing new to store
  EXPECT_GT(second.submitted(small()), task);
}

TEST(SchedulerRestart, TasksOfANodeThatNeverComesBackAreBoundElsewhereAfterTheFence) {
  ClusterWorld first;
  first.start();
  first.add("a");
  const std::uint64_t task = first.submitted(small());
  ClusterWorld second(restarted(first));
  second.start();
  second.add("b");
  second.pass(seconds(18));
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.placeOf(task), "");
  second.pass(seconds(4));
  EXPECT_EQ(second.placeOf(task), "b");
  carryOver(first, second, "a");
  EXPECT_EQ(second.holders(task), 1u);
}

// A store that is older than what nodes hold, as a copy of it is once it is restored.
ClusterOptions restored(std::vector<StoredRow> copy) {
  ClusterOptions options;
  options.rows = asRestored(copy, 100'000);
  options.firstTask = 100'000;
  return options;
}

TEST(SchedulerRestart, P3_ARestoredStorePlacesNothingBeforeNodesSaidWhatTheyHold) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::uint64_t older = first.submitted(wholeCard());
  const std::uint64_t waited = first.submitted(wholeCard());
  const std::vector<StoredRow> copy = first.rows();
  first.add("b", 1);  // of which the copy knows nothing: it takes the one that waits
  ASSERT_EQ(first.placeOf(waited), "b");
  first.add("c", 1);
  const std::uint64_t newer = first.submitted(wholeCard());
  ASSERT_EQ(first.placeOf(newer), "c");

  ClusterWorld second(restored(copy));
  second.start();
  second.add("d", 1);
  carryOver(first, second, "a");
  EXPECT_EQ(second.placeOf(waited), "") << "it may run anywhere";
  const std::uint64_t fresh = second.submitted(wholeCard());
  EXPECT_GE(fresh, 100'000U);
  EXPECT_EQ(second.state(fresh), PlaceState::Waiting);
  second.pass(seconds(5));
  carryOver(first, second, "b");
  carryOver(first, second, "c");
  EXPECT_EQ(second.placeOf(waited), "b");
  EXPECT_EQ(second.placeOf(newer), "c");
  EXPECT_EQ(second.placeOf(older), "a");
  EXPECT_EQ(second.state(fresh), PlaceState::Waiting);
  second.pass(seconds(20));
  EXPECT_EQ(second.placeOf(fresh), "d");
  for (const std::uint64_t task : {older, waited, newer, fresh}) {
    EXPECT_EQ(second.holders(task), 1U) << task;
  }
  ClusterWorld third(restarted(second));
  EXPECT_FALSE(third.scheduler->gathers()) << "it is over, and stored";
}

TEST(SchedulerRestart, C2_ARequestThatRunsIsNoSecondTaskWhereItIsAskedAgainBeforeItsNodeSaysSo) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::vector<StoredRow> copy = first.rows();
  ClusterSpec spec = wholeCard();
  spec.task.requestId = "r1";
  const std::uint64_t runs = first.submitted(spec);

  ClusterWorld second(restored(copy));
  second.start();
  second.add("d", 1);
  const std::uint64_t again = second.submitted(spec);
  EXPECT_EQ(second.state(again), PlaceState::Waiting);
  carryOver(first, second, "a");
  second.pass(seconds(30));
  EXPECT_EQ(second.placeOf(runs), "a");
  EXPECT_EQ(second.state(again), PlaceState::Ended);
  EXPECT_EQ(second.holders(runs), 1U);
  EXPECT_EQ(second.holders(again), 0U);
  const std::uint64_t late = second.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(second.reply(late).getAssigned().getTask(), runs);
  EXPECT_EQ(text(second.reply(late).getAssigned().getToken()), "token-a-1");
}

// The node said it too long before the storage was back, so it is not taken up again.
TEST(SchedulerRestart, C2_ARequestKeepsItsTaskWhereWhatANodeSaidOfItWasNotStored) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::vector<StoredRow> copy = first.rows();
  const ClusterSpec spec = withRequest(wholeCard(), "r1");
  first.submitted(spec);

  ClusterWorld second(restored(copy));
  second.start();
  second.add("d", 1);
  const std::uint64_t again = second.submitted(spec);
  second.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  carryOver(first, second, "a");
  second.pass(seconds(16));
  second.fixture.journal().commitAutomatically();
  second.pass(seconds(2));
  EXPECT_EQ(second.node("a").turnedAway, "unavailable");
  EXPECT_EQ(second.submitted(spec), again);
}

TEST(SchedulerRestart, P3_WhatTheCopyKnowsToBeOverIsEndedOnItsNode) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::uint64_t task = first.submitted(withRequest(small(), "r"));
  first.cut("a");
  first.order([=](Request r) { r.setDelete(task); });
  first.pass(seconds(22));
  ASSERT_EQ(first.scheduler->tasks(), 0U);
  ASSERT_EQ(first.node("a").tasks.size(), 1U) << "which has not heard of it";

  ClusterWorld second(restored(first.rows()));
  second.start();
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(task), PlaceState::Ended);
  EXPECT_EQ(second.node("a").tasks.size(), 0U);
}

TEST(SchedulerRestart, P3_ATaskOfWhichTwoNodesSpeakInOneRoundLivesByTheLaterDecision) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const ClusterSpec spec = withRequest(wholeCard(), "r");
  const std::uint64_t task = first.submitted(spec);
  const std::vector<StoredRow> copy = first.rows();
  first.add("b", 1);
  first.cut("a");
  first.pass(seconds(22));
  first.node("a").tasks.clear();
  ASSERT_EQ(first.placeOf(task), "b");

  ClusterOptions options = restored(copy);
  options.endedKept = 1;
  ClusterWorld second(options);
  second.start();
  auto& journal = second.fixture.journal();
  journal.holdCommits();
  second.ask(ClusterWorld::submit(small()));  // in flight, so that both nodes wait for it
  carryOver(first, second, "a");              // where it is over
  carryOver(first, second, "b");
  journal.commitAutomatically();
  journal.commitNext();
  second.run();
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.holders(task), 1U);
  second.pass(seconds(20));
  const std::uint64_t other = second.submitted(withRequest(small(), "other"));
  EXPECT_EQ(second.order([=](Request r) { r.setDelete(other); }), "ok");
  EXPECT_EQ(second.taskRows(), 1U) << "it is not one of the ended, which are forgotten";
  EXPECT_EQ(second.submitted(spec), task);
}

TEST(SchedulerRestart, P3_WhoTookItsPlaceSinceTheCopyIsNotToldOfWhatItWaitedFor) {
  ClusterWorld first;
  first.start();
  first.add("a", 1).ends = false;
  first.submitted(ClusterWorld::spec(Offline, 16, 100));
  ClusterSpec evictor = wholeCard();
  evictor.preempt = true;
  const std::uint64_t task = first.submitted(evictor);
  ASSERT_TRUE(first.scheduler->task(task)->making);
  const std::vector<StoredRow> copy = first.rows();
  first.node("a").ends = true;
  first.pass(seconds(31));
  ASSERT_EQ(first.placeOf(task), "a");

  ClusterWorld second(restored(copy));
  second.start();
  ASSERT_EQ(second.state(task), PlaceState::Waiting);
  carryOver(first, second, "a");
  const Job& job = *second.scheduler->task(task);
  EXPECT_EQ(job.state, PlaceState::Bound);
  EXPECT_FALSE(job.making);
  EXPECT_EQ(job.reason, "");
  EXPECT_EQ(job.phase, TaskPhase::Bound);
}

TEST(SchedulerRestart, C2_TheTokenOfATaskThatIsTakenOverIsAskedForUntilItIsThere) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::vector<StoredRow> copy = first.rows();
  const ClusterSpec spec = withRequest(wholeCard(), "r");
  const std::uint64_t task = first.submitted(spec);

  ClusterWorld second(restored(copy));
  second.start();
  first.node("a").answers = false;
  carryOver(first, second, "a");
  ASSERT_EQ(second.state(task), PlaceState::Bound);
  const std::uint64_t asked = second.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(second.answers(asked), 0U) << "nobody can attach without it";
  ClusterWorld third(restarted(second));
  second.disconnect("a");
  second.node("a").answers = true;
  second.connect("a");
  EXPECT_EQ(text(second.reply(asked).getAssigned().getToken()), "token-a-1");
  EXPECT_EQ(second.answers(asked), 1U);

  third.start();
  carryOver(second, third, "a");
  const std::uint64_t late = third.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(third.reply(late).getAssigned().getTask(), task);
  EXPECT_EQ(text(third.reply(late).getAssigned().getToken()), "token-a-1");
}

TEST(SchedulerRestart, WhoAsksOnANodeWhileNodesAreWaitedForIsToldToTryAgain) {
  ClusterWorld first;
  first.start();
  ClusterWorld second(restored(first.rows()));
  second.start();
  second.add("a");
  const auto forward = [&] {
    second.say("a", [](schema::FromMember::Builder words) {
      auto asked = words.initForward();
      asked.setCorr(7);
      writeClusterSpec(small(), asked.initSpec());
    });
    second.run();
    return second.links.heard.last().getToMember().getForwarded();
  };
  const auto told = forward();
  ASSERT_TRUE(told.isFailed());
  EXPECT_EQ(text(told.getFailed().getCode()), "unavailable");
  second.pass(seconds(21));
  EXPECT_FALSE(forward().isFailed());
}

TEST(SchedulerRestart, D5_WithoutAStoreTasksOfNodesAreTakenOverAndNothingIsPlacedBefore) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  first.add("b", 1);
  const std::uint64_t one = first.submitted(wholeCard());
  const std::uint64_t two = first.submitted(wholeCard());
  ClusterOptions options;
  options.firstTask = 100'000;
  options.rebuilds = true;
  ClusterWorld second(options);
  second.start();
  second.add("d", 1);
  const std::uint64_t fresh = second.submitted(wholeCard());
  EXPECT_EQ(second.state(fresh), PlaceState::Waiting);
  carryOver(first, second, "a");
  carryOver(first, second, "b");
  EXPECT_GT(second.node("a").term, first.node("a").term);
  second.pass(seconds(10));
  ClusterWorld third(restarted(second));  // which goes on gathering, from its store
  EXPECT_TRUE(third.scheduler->gathers());
  second.pass(seconds(20));
  for (const std::uint64_t task : {one, two, fresh}) EXPECT_EQ(second.holders(task), 1U) << task;
  EXPECT_EQ(second.placeOf(fresh), "d");
}

TEST(SchedulerRestart, WaitingTasksWaitAgainAndRequestsAreRemembered) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  ClusterSpec spec = wholeCard();
  spec.task.requestId = "r1";
  const std::uint64_t holder = first.submitted(spec);
  const std::uint64_t waits = first.submitted(wholeCard());
  ClusterWorld second(restarted(first));
  second.start();
  EXPECT_EQ(second.state(waits), PlaceState::Waiting);
  carryOver(first, second, "a");
  const std::uint64_t again = second.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(second.reply(again).getAssigned().getTask(), holder);
  EXPECT_EQ(text(second.reply(again).getAssigned().getToken()), "token-a-1");
  EXPECT_EQ(second.order([=](Request r) { r.setDelete(holder); }), "ok");
  EXPECT_EQ(second.placeOf(waits), "a");
}

TEST(SchedulerRestart, WhatFitsNoNodeYetWaitsWhileNodesAreStillToCome) {
  ClusterWorld first;
  first.start();
  first.add("a");
  ClusterWorld second(restarted(first));
  second.start();
  const std::uint64_t task = second.submitted(small());
  EXPECT_EQ(second.state(task), PlaceState::Waiting);
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(task), PlaceState::Bound);
}

TEST(SchedulerRestart, AnAssumedTaskThatItsNodeHasIsConfirmedAndOneThatItHasNotIsPlacedAgain) {
  ClusterWorld first;
  first.start();
  first.add("a").answers = false;
  first.ask(ClusterWorld::submit(small()));
  first.ask(ClusterWorld::submit(small()));
  NodeDouble& a = first.node("a");
  NodeDouble::Task& held = a.tasks[++a.lastTask];
  held.clusterTask = 1;
  held.epoch = 1;
  held.spec = small().task;
  held.cards = first.scheduler->task(1)->cards;
  a.answers = true;
  ClusterWorld second(restarted(first));
  second.start();
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(1), PlaceState::Bound);
  EXPECT_EQ(second.node("a").find(1)->epoch, 1u);
  EXPECT_EQ(second.node("a").find(2)->epoch, 2u);
}

TEST(SchedulerRestart, MarksAndDrainsGoOn) {
  ClusterWorld first;
  first.start();
  first.add("a", 1).ends = false;
  const std::uint64_t task = first.submitted(small());
  first.order([](Request r) {
    r.initDrain().initTarget().setNode("a");
    r.getDrain().setTimeoutNs(60'000'000'000);
  });
  ClusterWorld second(restarted(first));
  second.start();
  first.node("a").ends = true;
  carryOver(first, second, "a");
  second.add("b", 1);
  second.pass(seconds(2));
  EXPECT_EQ(second.placeOf(task), "b");
  EXPECT_TRUE(second.scheduler->ledger().cordoned(NodeId{0}));
}

TEST(SchedulerRestart, ATaskThatWasMovingWaitsAgainOnceItsNodeHasEndedIt) {
  ClusterWorld first;
  first.start();
  first.add("a", 1).ends = false;
  const std::uint64_t task = first.submitted(small());
  first.add("b", 1);
  first.order([](Request r) {
    r.initDrain().initTarget().setNode("a");
    r.getDrain().setTimeoutNs(60'000'000'000);
  });
  first.pass(seconds(2));
  EXPECT_EQ(first.state(task), PlaceState::Ending);
  ClusterWorld second(restarted(first));
  second.start();
  carryOver(first, second, "b");
  first.node("a").ends = true;
  carryOver(first, second, "a");
  EXPECT_EQ(second.placeOf(task), "b");
  EXPECT_EQ(second.holders(task), 1u);
}

TEST(SchedulerRestart, P3_OnAnOlderStoreTheTasksThatItNeverNumberedAreKept) {
  ClusterWorld first;
  first.start();
  first.add("a");
  const std::vector<StoredRow> old = first.rows();
  const std::uint64_t task = first.submitted(small());
  ClusterOptions options;
  options.rows = old;
  ClusterWorld second(options);
  second.start();
  carryOver(first, second, "a");
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.holders(task), 1u);
  EXPECT_GT(second.submitted(small()), task);
}

TEST(SchedulerRestart, P3_TheyAreKeptAlsoWhereThatIsStoredAtTheSecondTryAlone) {
  ClusterWorld first;
  first.start();
  first.add("a");
  ClusterOptions options;
  options.rows = first.rows();
  const std::uint64_t task = first.submitted(small());
  ClusterWorld second(options);
  second.start();
  second.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  carryOver(first, second, "a");
  second.fixture.journal().commitAutomatically();
  second.pass(seconds(2));
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.holders(task), 1U);
}

TEST(SchedulerRestart, P3_ANewStoreGivesNoNumberThatASilentNodeMayHold) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const std::uint64_t task = first.submitted(wholeCard());
  ClusterOptions options;
  options.firstTask = 1'000'000;
  ClusterWorld second(options);
  second.start();
  second.add("b", 1);
  const std::uint64_t other = second.submitted(small());
  EXPECT_GE(other, options.firstTask);
  ASSERT_EQ(second.node("b").term, 1U);
  carryOver(first, second, "a");
  EXPECT_EQ(second.node("a").turnedAway, "unavailable") << "C1: it met another one of this term";
  second.connect("a");
  second.connect("b");
  EXPECT_EQ(second.node("a").term, 2U);
  EXPECT_EQ(second.placeOf(other), "b");
  EXPECT_EQ(second.holders(other), 1u);
  EXPECT_EQ(second.placeOf(task), "a") << "it is taken over under its number";
  EXPECT_EQ(second.state(task), PlaceState::Bound);
  EXPECT_EQ(second.scheduler->ledger().tasks(), 2u);
}

TEST(SchedulerRestart, P3_AStoreThatGoesOnNeitherSkipsNumbersNorTakesBackWhatHasEnded) {
  ClusterWorld first;
  first.start();
  first.add("a", 1).ends = false;
  const std::uint64_t task = first.submitted(small());
  first.cut("a");
  first.order([=](Request r) { r.setDelete(task); });
  first.pass(seconds(22));
  EXPECT_EQ(first.scheduler->tasks(), 0u);
  ClusterOptions options = restarted(first);
  options.firstTask = 1'000'000;
  ClusterWorld second(options);
  second.start();
  first.node("a").ends = true;
  carryOver(first, second, "a");
  EXPECT_EQ(second.scheduler->tasks(), 0u);
  EXPECT_EQ(second.node("a").tasks.size(), 0u) << "it is ended there";
  EXPECT_EQ(second.submitted(small()), task + 1);
}

// --- requests of tasks that ended ---

TEST(SchedulerRestart, C2_ALateRetryOfASubmitWhoseTaskHasEndedMakesNoSecondTask) {
  ClusterWorld first;
  first.start();
  first.add("a", 1);
  const ClusterSpec ran = withRequest(small(), "ran");
  const ClusterSpec neverRan = withRequest(wholeCard(), "never ran");
  const std::uint64_t task = first.submitted(ran);
  const std::uint64_t waited = first.submitted(neverRan);
  EXPECT_EQ(first.order([=](Request r) { r.setDelete(waited); }), "ok");
  EXPECT_EQ(first.order([=](Request r) { r.setDelete(task); }), "ok");
  EXPECT_EQ(first.scheduler->tasks(), 0u);
  for (int i = 0; i < 2; ++i) {
    ClusterWorld second(restarted(first));
    second.start();
    carryOver(first, second, "a");
    const std::uint64_t again = second.ask(ClusterWorld::submit(ran));
    EXPECT_EQ(second.reply(again).getAssigned().getTask(), task);
    EXPECT_EQ(second.order(ClusterWorld::submit(neverRan)), "conflict");
    EXPECT_EQ(second.order(ClusterWorld::submit(withRequest(wholeCard(), "ran"))), "conflict");
    EXPECT_EQ(second.scheduler->tasks(), 0u);
    EXPECT_EQ(second.node("a").tasks.size(), 0u);
    EXPECT_GT(second.submitted(small()), waited);
  }
}

TEST(SchedulerRestart, C5_OnlySoManyEndedRequestsAreKeptAndOnlyThoseThatHaveAnId) {
  ClusterOptions few;
  few.endedKept = 3;
  ClusterWorld first(few);
  first.start();
  first.add("a", 1);
  for (int i = 0; i < 6; ++i) {
    const std::string id = i == 4 ? "" : "r" + std::to_string(i);
    const std::uint64_t task = first.submitted(withRequest(small(), id));
    EXPECT_EQ(first.order([=](Request r) { r.setDelete(task); }), "ok");
  }
  EXPECT_EQ(first.endedRows(), 2u) << "of r3 and r5; the one between has no id";
  ClusterOptions again = restarted(first);
  again.endedKept = 3;
  ClusterWorld second(again);
  second.start();
  carryOver(first, second, "a");
  EXPECT_EQ(second.reply(second.ask(ClusterWorld::submit(withRequest(small(), "r3"))))
                .getAssigned()
                .getTask(),
            4u);
  EXPECT_EQ(second.submitted(withRequest(small(), "r0")), 7u) << "forgotten, so it is a new one";
}

TEST(SchedulerRestart, D4_ATaskWhoseEndIsNotStoredLivesOnWithItsRequest) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const ClusterSpec spec = withRequest(wholeCard(), "r");
  world.submitted(wholeCard());
  const std::uint64_t task = world.submitted(spec);
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  EXPECT_EQ(world.order([=](Request r) { r.setDelete(task); }), "unavailable");
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
  EXPECT_EQ(world.submitted(spec), task);
}

// --- storage that fails ---

TEST(SchedulerRestart, D4_AFailedCommitUndoesExactlyItsRound) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t holder = world.submitted(small());
  const std::uint64_t digest = world.scheduler->ledger().digest();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  EXPECT_EQ(world.code(corr), "unavailable");
  EXPECT_EQ(world.scheduler->ledger().digest(), digest);
  EXPECT_EQ(world.scheduler->tasks(), 1u);
  EXPECT_EQ(world.node("a").tasks.size(), 1u);
  EXPECT_EQ(world.order([=](Request r) { r.setDelete(holder); }), "unavailable");
  EXPECT_EQ(world.state(holder), PlaceState::Bound);
  EXPECT_EQ(world.order([](Request r) { r.setInfo(); }), "ok");
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(world.submitted(small())), PlaceState::Bound);
}

// What refuses a change may be of the very round that is undone: that a task is gone is no answer
// to who asked for its end then, since the task lives on.
TEST(SchedulerRestart, D4_NobodyIsToldOfWhatWasUndone) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(wholeCard());
  const std::uint64_t task = world.submitted(wholeCard());
  ASSERT_EQ(world.state(task), PlaceState::Waiting);
  auto& journal = world.fixture.journal();
  journal.holdCommits();
  world.ask(ClusterWorld::submit(small()));  // in flight, so that what is asked now waits
  const std::uint64_t first = world.ask([=](Request r) { r.setDelete(task); });
  const std::uint64_t second = world.ask([=](Request r) { r.setDelete(task); });
  journal.commitNext();
  world.run();
  EXPECT_EQ(world.answers(first) + world.answers(second), 0u) << "its commit is in flight";
  journal.failNext(fail(ErrorCode::Unavailable, "disk full"));
  world.run();
  EXPECT_EQ(world.code(first), "unavailable");
  EXPECT_EQ(world.code(second), "unavailable");
  EXPECT_EQ(world.answers(second), 1u);
  EXPECT_EQ(world.state(task), PlaceState::Waiting);
}

TEST(SchedulerRestart, D4_LeasesGoOnWhileNothingCanBeStored) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.ask(ClusterWorld::submit(small()));
  world.pass(seconds(60));
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
}

TEST(SchedulerRestart, P8_ANodeThatFallsSilentWhileNothingCanBeStoredIsNotForgivenForIt) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.add("b");
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.ask(ClusterWorld::submit(small()));
  world.cut("a");
  world.pass(seconds(18));
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
  EXPECT_EQ(world.placeOf(world.submitted(small())), "b");
}

// Cluster seed 4584: it was taken for one that had just said hello, and got tasks.
TEST(SchedulerRestart, P8_AHelloThatWaitedForTheStorageLongerThanALeaseHasToBeSaidAgain) {
  ClusterWorld world;
  world.start();
  world.add("b");
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.add("a");
  world.pass(seconds(18));
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.node("a").turnedAway, "unavailable");
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
  world.connect("a");
  EXPECT_EQ(world.scheduler->membership().alive(), 2u);
}

// Cluster seed 36985: a gap in the numbers of nodes hid all behind it from the next scheduler.
TEST(SchedulerRestart, P3_ANodeWhoseRowWasNotStoredHidesNoneThatCameLater) {
  ClusterWorld world;
  world.start();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.add("a");
  world.cut("a");
  world.pass(seconds(18));
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  world.add("b");
  const std::uint64_t task = world.submitted(small());
  ASSERT_EQ(world.placeOf(task), "b");
  world.restart();
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.placeOf(task), "b");
}

TEST(SchedulerRestart, P8_TheLeaseOfANodeRunsFromItsHelloHoweverLongThatWaited) {
  ClusterWorld world;
  world.start();
  world.add("b");
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.add("a");
  world.cut("a");
  world.pass(seconds(10));
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.scheduler->membership().alive(), 2u);
  world.pass(seconds(4));
  EXPECT_EQ(world.scheduler->membership().alive(), 1u);
}

TEST(SchedulerRestart, D4_WhatNodesSaidDuringAFailureIsTakenUpAfterIt) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).answers = false;
  const std::uint64_t corr = world.ask(ClusterWorld::submit(wholeCard()));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.node("a").tasks[1].clusterTask = 1;
  world.say("a", [](schema::FromMember::Builder words) {
    auto bound = words.initBound();
    bound.setTask(1);
    bound.setEpoch(1);
    bound.setNodeTask(1);
    bound.setToken("t");
  });
  world.run();
  EXPECT_EQ(world.state(1), PlaceState::Assumed);
  EXPECT_EQ(world.answers(corr), 0u);
  world.add("b");  // its hello waits too
  EXPECT_EQ(world.node("b").session, 0u);
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(1), PlaceState::Bound);
  EXPECT_TRUE(world.reply(corr).isAssigned());
  EXPECT_NE(world.node("b").session, 0u);
}

TEST(SchedulerRestart, D4_MarksAndThePriorityAreUndoneToo) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  EXPECT_EQ(world.order([](Request r) { r.initCordon().setNode("a"); }), "unavailable");
  EXPECT_FALSE(world.scheduler->ledger().cordoned(NodeId{0}));
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(2));
  EXPECT_EQ(world.state(world.submitted(small())), PlaceState::Bound);
}

TEST(SchedulerRestart, D4_TasksOfANodeThatIsLostDuringAFailureAreMovedAfterIt) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.add("b");
  world.cut("a");
  world.pass(seconds(19));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.pass(seconds(4));
  world.fixture.journal().commitAutomatically();
  world.pass(seconds(3));
  EXPECT_EQ(world.placeOf(task), "a");  // whom nobody reaches
  EXPECT_NE(world.node("b").find(task), nullptr);
  EXPECT_EQ(world.state(task), PlaceState::Bound);
}

}  // namespace
}  // namespace qgpu::scheduler_restart_test
