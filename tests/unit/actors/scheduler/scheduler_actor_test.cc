// The life of a binding in a cluster: assume, confirm, expire; nodes that come and go.
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_actor_test {
namespace {

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
ClusterWorld::Fill remove(std::uint64_t task) {
  return [task](schema::ClusterRequest::Builder r) { r.setDelete(task); };
}

TEST(Scheduler, ASubmittedTaskIsBoundByItsNodeAndTheAnswerHasAllThatALauncherNeeds) {
  ClusterWorld world;
  world.start();
  world.links.nodes["a"].cardStart = "GPU-";
  world.add("a");
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  ASSERT_TRUE(world.reply(corr).isAssigned());
  const auto assigned = world.reply(corr).getAssigned();
  EXPECT_FALSE(assigned.getWaiting());
  EXPECT_EQ(text(assigned.getNode()), "a");
  EXPECT_EQ(assigned.getCards().size(), 1u);
  EXPECT_EQ(text(assigned.getToken()), "token-a-1");
  EXPECT_FALSE(assigned.hasAttachSocket()) << "a launcher knows where it lies";
  std::set<std::string> environment;
  for (const auto variable : assigned.getEnvironment()) environment.insert(text(variable));
  EXPECT_TRUE(environment.contains("QGPU_TOKEN=token-a-1"));
  EXPECT_TRUE(environment.contains("POCL_DEVICES=cpu"));
  for (const std::string& variable : environment) {
    EXPECT_FALSE(variable.starts_with("LD_") || variable.starts_with("QGPU_SOCKET")) << variable;
  }
  const std::string card = text(assigned.getCards()[0]);
  EXPECT_TRUE(environment.contains("CUDA_VISIBLE_DEVICES=" + card));
  EXPECT_TRUE(environment.contains("NVIDIA_VISIBLE_DEVICES=" + card));
  EXPECT_EQ(world.state(assigned.getTask()), PlaceState::Bound);
  EXPECT_EQ(world.node("a").find(assigned.getTask())->spec.clusterEpoch, 1u);
}

TEST(Scheduler, D2_NoNodeHearsOfATaskBeforeItsCommitAndNobodyIsAnswered) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.fixture.journal().holdCommits();
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  EXPECT_EQ(world.answers(corr), 0u);
  EXPECT_TRUE(world.node("a").tasks.empty());
  world.fixture.journal().commitNext();  // assumed
  world.run();
  EXPECT_EQ(world.node("a").tasks.size(), 1u);
  EXPECT_EQ(world.answers(corr), 0u);
  world.fixture.journal().commitNext();  // bound
  world.run();
  EXPECT_TRUE(world.reply(corr).isAssigned());
}

TEST(Scheduler, RequestsThatComeDuringACommitShareTheNextOne) {
  ClusterWorld world;
  world.start();
  world.add("a", 8);
  world.fixture.journal().holdCommits();
  world.ask(ClusterWorld::submit(small()));
  std::vector<std::uint64_t> corrs;
  for (int i = 0; i < 20; ++i) corrs.push_back(world.send(ClusterWorld::submit(small())));
  world.run();
  const std::uint64_t before = world.fixture.journal().commits();
  world.fixture.journal().commitNext();
  world.run();
  world.fixture.journal().commitNext();
  world.run();
  EXPECT_EQ(world.fixture.journal().commits(), before + 2);
  EXPECT_EQ(world.node("a").tasks.size(), 21u);
  world.fixture.journal().commitAutomatically();
  world.fixture.journal().commitNext();
  world.run();
  for (const std::uint64_t corr : corrs) EXPECT_TRUE(world.reply(corr).isAssigned());
}

TEST(Scheduler, P6_ARepeatedRequestIsTheSameTaskAndTheSameAnswer) {
  ClusterWorld world;
  world.start();
  world.add("a");
  ClusterSpec spec = small();
  spec.task.requestId = "r1";
  const std::uint64_t first = world.ask(ClusterWorld::submit(spec));
  const std::uint64_t again = world.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(world.reply(again).getAssigned().getTask(), world.reply(first).getAssigned().getTask());
  EXPECT_EQ(text(world.reply(again).getAssigned().getToken()),
            text(world.reply(first).getAssigned().getToken()));
  EXPECT_EQ(world.node("a").tasks.size(), 1u);
  spec.task.mem = gibibytes(8);
  EXPECT_EQ(world.order(ClusterWorld::submit(spec)), "conflict");
}

TEST(Scheduler, C2_WhoRepeatsItsRequestDuringTheBindIsAnsweredOnceForEach) {
  ClusterWorld world;
  world.start();
  world.add("a").answers = false;
  ClusterSpec spec = small();
  spec.task.requestId = "r1";
  const std::uint64_t first = world.ask(ClusterWorld::submit(spec));
  const std::uint64_t again = world.ask(ClusterWorld::submit(spec));
  EXPECT_EQ(world.answers(first) + world.answers(again), 0u);
  world.node("a").answers = true;
  world.disconnect("a");
  world.connect("a");
  EXPECT_EQ(world.answers(first), 1u);
  EXPECT_EQ(world.answers(again), 1u);
  EXPECT_EQ(world.scheduler->tasks(), 1u);
}

TEST(Scheduler, ATaskThatANodeRefusesIsBoundElsewhereUnderTheNextEpoch) {
  ClusterWorld world;
  world.start();
  world.add("a").refuses = "no room after all";
  world.add("b");
  const std::uint64_t task = world.submitted(small());
  EXPECT_EQ(world.placeOf(task), "b");
  EXPECT_EQ(world.node("b").find(task)->epoch, 2u);
  EXPECT_EQ(world.state(task), PlaceState::Bound);
}

TEST(Scheduler, ATaskThatEveryNodeRefusesWaitsAndIsNotOfferedThemAllTheTime) {
  ClusterWorld world;
  world.start();
  world.add("a").refuses = "no room after all";
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  EXPECT_TRUE(world.reply(corr).getAssigned().getWaiting());
  const std::uint64_t task = world.reply(corr).getAssigned().getTask();
  const std::size_t before = world.links.heard.count(schema::Envelope::TO_MEMBER);
  world.pass(millis(900));
  EXPECT_LE(world.links.heard.count(schema::Envelope::TO_MEMBER), before + 1);  // beatSeen
  world.node("a").refuses.clear();
  world.pass(seconds(2));
  EXPECT_EQ(world.placeOf(task), "a");
}

TEST(Scheduler, NodesThatAllRefuseATaskAreNotAskedInTurnForEver) {
  ClusterWorld world;
  world.start();
  world.add("a").refuses = "no";
  world.add("b").refuses = "no";
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  EXPECT_TRUE(world.reply(corr).getAssigned().getWaiting());
  world.node("b").refuses.clear();
  world.pass(seconds(4));
  EXPECT_EQ(world.placeOf(1), "b");
}

TEST(Scheduler, P3_AnAssumedTaskThatIsNotConfirmedInTimeIsEndedThereBeforeItGoesElsewhere) {
  ClusterWorld world;
  world.start();
  NodeDouble& a = world.add("a");
  a.answers = a.ends = false;
  const std::uint64_t corr = world.ask(ClusterWorld::submit(wholeCard("")));
  world.add("b");
  world.pass(seconds(29));
  EXPECT_EQ(world.answers(corr), 0u);
  world.pass(seconds(3));
  ASSERT_TRUE(world.reply(corr).isAssigned());  // the asker need not wait for a silent node
  EXPECT_TRUE(world.reply(corr).getAssigned().getWaiting());
  const std::uint64_t task = world.reply(corr).getAssigned().getTask();
  EXPECT_EQ(world.state(task), PlaceState::Ending);
  EXPECT_EQ(world.placeOf(task), "");
  a.ends = a.answers = true;
  world.pass(seconds(31));  // the order is repeated
  EXPECT_EQ(world.holders(task), 1u);
  EXPECT_GE(world.scheduler->task(task)->epoch, 2u);
}

TEST(Scheduler, ADeletedTaskEndsOnItsNodeAndGivesItsRoomBack) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t task = world.submitted(wholeCard());
  EXPECT_EQ(world.order(remove(task)), "ok");
  EXPECT_EQ(world.state(task), PlaceState::Ended);
  EXPECT_TRUE(world.node("a").tasks.empty());
  EXPECT_EQ(world.taskRows(), 0u);
  EXPECT_EQ(world.scheduler->ledger().tasks(), 0u);
  EXPECT_EQ(world.order(remove(task)), "not-found");
}

TEST(Scheduler, ATaskThatItsNodeEndsIsOverAndWakesWhoWaits) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t first = world.submitted(wholeCard());
  const std::uint64_t second = world.submitted(wholeCard());
  EXPECT_EQ(world.state(second), PlaceState::Waiting);
  world.sayHeld("a", 1, true);
  EXPECT_EQ(world.state(first), PlaceState::Ended);
  EXPECT_EQ(world.state(second), PlaceState::Bound);
}

TEST(Scheduler, RoomGoesToOnlineThenOrdinaryThenOfflineTasksAndToTheOldestOfEach) {
  ClusterWorld world;
  world.start();
  world.add("a", 1, 16);
  const std::uint64_t holder = world.submitted(wholeCard());
  const std::uint64_t offline = world.submitted(ClusterWorld::spec(Offline, 16, 50));
  const std::uint64_t ordinary = world.submitted(ClusterWorld::spec(Ordinary, 16, 50));
  const std::uint64_t younger = world.submitted(ClusterWorld::spec(Ordinary, 16, 60));
  const std::uint64_t online = world.submitted(ClusterWorld::spec(Online, 16, 0));
  std::vector<std::uint64_t> order;
  for (const std::uint64_t next : {holder, online, ordinary, younger, offline}) {
    EXPECT_EQ(world.state(next), PlaceState::Bound) << next;
    EXPECT_EQ(world.order(remove(next)), "ok");
  }
  EXPECT_EQ(world.scheduler->waiting(), 0u);
}

// --- nodes that come and go ---

TEST(Scheduler, C3_TasksOfASuspectNodeStayWhereTheyAre) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.add("b");
  world.cut("a");
  world.pass(seconds(18));
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.holders(task), 1u);
  const std::uint64_t next = world.submitted(small());  // nothing new for a suspect
  EXPECT_EQ(world.placeOf(next), "b");
}

TEST(Scheduler, P3_TasksOfALostNodeAreBoundElsewhereAndEndedThereWhenItComesBack) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.add("b");
  world.cut("a");
  world.pass(seconds(22));
  ASSERT_NE(world.node("b").find(task), nullptr);
  EXPECT_EQ(world.node("b").find(task)->epoch, 2u);
  EXPECT_EQ(world.node("a").find(task)->epoch, 1u);  // it can't be reached
  world.connect("a");
  EXPECT_EQ(world.holders(task), 1u);
  EXPECT_EQ(world.placeOf(task), "b");
  EXPECT_EQ(world.state(task), PlaceState::Bound);
}

TEST(Scheduler, ATaskThatNamedItsNodeIsLostWithItAndComesBackWithIt) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.add("b");
  const std::uint64_t task = world.submitted(small("a"));
  world.cut("a");
  world.pass(seconds(22));
  EXPECT_EQ(world.state(task), PlaceState::Lost);
  EXPECT_EQ(world.node("b").find(task), nullptr);
  world.connect("a");
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.holders(task), 1u);
  EXPECT_EQ(world.scheduler->ledger().tasks(), 1u);
}

TEST(Scheduler, WhatANodeDoesNotNameAtItsHelloIsOver) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.disconnect("a");
  world.node("a").tasks.clear();
  world.connect("a");
  EXPECT_EQ(world.state(task), PlaceState::Ended);
  EXPECT_EQ(world.taskRows(), 0u);
}

TEST(Scheduler, WhatWasNeverConfirmedIsPlacedAgainWhenItsNodeComesBackWithoutIt) {
  ClusterWorld world;
  world.start();
  world.add("a").answers = false;
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  world.disconnect("a");
  world.node("a").answers = true;
  world.connect("a");
  ASSERT_TRUE(world.reply(corr).isAssigned());
  EXPECT_EQ(world.reply(corr).getAssigned().getEpoch(), 2u);
}

TEST(Scheduler, AnAnswerThatWasLostOnTheWayIsAskedForAgain) {
  ClusterWorld world;
  world.start();
  NodeDouble& a = world.add("a");
  a.answers = false;
  const std::uint64_t corr = world.ask(ClusterWorld::submit(small()));
  NodeDouble::Task& held = a.tasks[++a.lastTask];  // it holds it, and could not say so
  held.clusterTask = 1;
  held.epoch = 1;
  held.spec = small().task;
  held.cards = world.scheduler->task(1)->cards;
  world.disconnect("a");
  a.answers = true;
  world.connect("a");
  ASSERT_TRUE(world.reply(corr).isAssigned());
  EXPECT_EQ(text(world.reply(corr).getAssigned().getToken()), "token-a-1");
  EXPECT_EQ(world.reply(corr).getAssigned().getEpoch(), 1u);
}

TEST(Scheduler, ATaskOfAnEarlierEpochThatANodeStillHoldsIsEnded) {
  ClusterWorld world;
  world.start();
  world.add("a").refuses = "not now";
  NodeDouble& b = world.add("b");
  const std::uint64_t task = world.submitted(small());
  EXPECT_EQ(world.placeOf(task), "b");
  NodeDouble::Task stale = *b.find(task);
  stale.epoch = 1;
  world.node("a").tasks[9] = stale;
  world.disconnect("a");
  world.connect("a");
  EXPECT_EQ(world.placeOf(task), "b");
  EXPECT_EQ(world.holders(task), 1u);
}

TEST(Scheduler, ATaskThatTheSchedulerHasEndedIsEndedOnANodeThatStillHoldsIt) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.cut("a");
  world.pass(seconds(16));
  EXPECT_EQ(world.order(remove(task)), "ok");
  world.pass(seconds(8));
  EXPECT_EQ(world.state(task), PlaceState::Ended);
  world.connect("a");
  EXPECT_EQ(world.holders(task), 0u);
}

TEST(Scheduler, LocalTasksOfAJoiningNodeAreCountedAndCanBeEndedByTheirNewNumber) {
  ClusterWorld world;
  world.start();
  NodeDouble& a = world.links.nodes["a"];
  a.name = "a";
  a.cards = 1;
  a.lastTask = 5;
  a.tasks[5].spec = wholeCard().task;
  a.tasks[5].cards = {"sim-0"};
  world.connect("a");
  ASSERT_EQ(world.scheduler->tasks(), 1u);
  EXPECT_EQ(world.scheduler->ledger().tasks(), 1u);
  EXPECT_EQ(world.state(world.submitted(wholeCard())), PlaceState::Waiting);
  world.disconnect("a");
  world.connect("a");
  EXPECT_EQ(world.scheduler->tasks(), 2u);  // the same as before
  EXPECT_EQ(world.order(remove(1)), "ok");
  EXPECT_EQ(world.state(1), PlaceState::Ended);
  EXPECT_EQ(world.state(2), PlaceState::Bound);
  EXPECT_FALSE(a.tasks.contains(5));
}

TEST(Scheduler, ALocalBindIsForwardedToItsOwnNodeAndTheOrderComesBeforeTheAnswer) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.add("b");
  world.links.heard.clear();
  world.say("b", [](schema::FromMember::Builder words) {
    auto forward = words.initForward();
    forward.setCorr(77);
    forward.setUid(1000);
    ClusterSpec evictor = small();
    evictor.preempt = true;
    writeClusterSpec(evictor, forward.initSpec());
  });
  world.run();
  std::vector<schema::ToMember::Which> order;
  for (std::size_t i = 0; i < world.links.heard.size(); ++i) {
    order.push_back(world.links.heard[i].getToMember().which());
  }
  ASSERT_EQ(order.size(), 2u);
  EXPECT_EQ(order[0], schema::ToMember::BIND);
  EXPECT_EQ(order[1], schema::ToMember::FORWARDED);
  EXPECT_EQ(world.links.heard[1].getToMember().getForwarded().getTask(), 1u);
  EXPECT_EQ(world.placeOf(1), "b");
  EXPECT_EQ(world.scheduler->task(1)->spec.task.ownerUid, 1000u);
  EXPECT_FALSE(world.scheduler->task(1)->spec.preempt) << "a node gives nobody that right";
}

TEST(Scheduler, ALocalBindThatDoesNotFitHereIsRefusedWithWhereItWouldFit) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(wholeCard());
  world.add("b", 1);
  world.links.heard.clear();
  world.say("a", [](schema::FromMember::Builder words) {
    auto forward = words.initForward();
    forward.setCorr(78);
    writeClusterSpec(wholeCard(), forward.initSpec());
  });
  world.run();
  const auto forwarded = world.links.heard.last().getToMember().getForwarded();
  ASSERT_TRUE(forwarded.isFailed());
  EXPECT_NE(text(forwarded.getFailed().getMessage()).find("node b (sim-0)"), std::string::npos);
  EXPECT_EQ(world.scheduler->waiting(), 0u);
}

TEST(Scheduler, WordsOfAnOldSessionChangeNothing) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  const std::uint64_t old = world.node("a").session;
  const NodeDouble::Task held = *world.node("a").find(task);
  world.disconnect("a");
  world.connect("a");
  const std::uint64_t now = std::exchange(world.node("a").session, old);
  const std::uint64_t seq = std::exchange(world.node("a").seq, 10);
  world.node("a").tasks[1] = held;
  world.sayHeld("a", 1, true);
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  world.node("a").tasks[1] = held;
  world.node("a").session = now;
  world.node("a").seq = seq;
  world.sayHeld("a", 1, true);
  EXPECT_EQ(world.state(task), PlaceState::Ended);
}

TEST(Scheduler, AGapInTheWordsOfASessionEndsItAndTheNextHelloHeals) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.node("a").seq += 1;  // one was lost
  world.node("a").tasks.clear();
  world.say("a", [](schema::FromMember::Builder words) { words.setBeat(1); });
  world.run();
  EXPECT_EQ(world.node("a").turnedAway, "conflict");
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  world.connect("a");
  EXPECT_EQ(world.state(task), PlaceState::Ended);
}

TEST(Scheduler, ASecondNodeOfALivingNameIsTurnedAway) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  NodeDouble& twin = world.links.nodes["twin"];
  twin.name = "a";
  world.connect("twin");
  EXPECT_EQ(twin.turnedAway, "already-exists");
  EXPECT_EQ(world.state(task), PlaceState::Bound);
}

TEST(Scheduler, C1_ALaterTermThatANodeHasSeenIsPassedBeforeAnybodyIsServed) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t term = world.node("a").term;
  NodeDouble& b = world.links.nodes["b"];
  b.name = "b";
  b.termSeen = term + 5;
  world.connect("b");
  EXPECT_EQ(b.session, 0u);
  EXPECT_EQ(world.node("a").turnedAway, "conflict");
  world.connect("a");
  world.connect("b");
  EXPECT_EQ(world.node("a").term, term + 6);
  EXPECT_EQ(b.term, term + 6);
  EXPECT_EQ(world.fixture.journal().row({RowKind::Cluster, 0}).getCluster().getTerm(), term + 6);
}

TEST(Scheduler, MalformedFactsAreRefusedAndChangeNothing) {
  ClusterWorld world;
  world.start();
  world.add("a");
  for (const std::string& name : {std::string(), std::string(254, 'x'), std::string("a\nb")}) {
    NodeDouble& bad = world.links.nodes["bad"];
    bad.name = name;
    world.connect("bad");
    EXPECT_EQ(bad.turnedAway, "invalid-argument");
  }
  NodeDouble& bad = world.links.nodes["bad"];
  bad.name = "many";
  bad.cards = kNodeCardsMax + 1;
  world.connect("bad");
  EXPECT_EQ(bad.turnedAway, "invalid-argument");
  EXPECT_EQ(world.scheduler->membership().size(), 1u);
}

TEST(Scheduler, ANodeMayHaveAsLongANameAsKubernetesGives) {
  const std::string name = std::string(200, 'n') + "." + std::string(52, 'd');
  ClusterWorld world;
  world.start();
  world.add(name, 1);
  EXPECT_EQ(world.node(name).turnedAway, "");
  const std::uint64_t task = world.submitted(small(name));
  EXPECT_EQ(world.placeOf(task), name);
  EXPECT_EQ(world.order([&](Request r) { r.initCordon().setNode(name); }), "ok");
  EXPECT_EQ(world.order(ClusterWorld::submit(small(std::string(254, 'n')))), "invalid-argument");
  world.restart();
  world.connect(name);
  EXPECT_EQ(world.placeOf(task), name);
}

// Its own limit of tasks on each card, as --max-tasks-per-card gave it.
TEST(Scheduler, P8_NoCardGetsMoreTasksThanItsNodeAllows) {
  ClusterWorld world;
  world.start();
  NodeDouble& node = world.links.nodes["a"];
  node.name = "a";
  node.cards = 1;
  node.maxTasksPerCard = 2;
  world.connect("a");
  const ClusterSpec tiny = ClusterWorld::spec(Ordinary, 1, 5);
  world.submitted(tiny);
  world.submitted(tiny);
  const std::uint64_t third = world.submitted(tiny);
  EXPECT_EQ(world.state(third), PlaceState::Waiting);
  node.maxTasksPerCard = 3;
  world.disconnect("a");
  world.connect("a");
  EXPECT_EQ(world.placeOf(third), "a");
}

TEST(Scheduler, EveryOrderOfDeliveryEndsWithOneHolderForEachTask) {
  for (std::uint64_t seed = 2; seed < 40; ++seed) {
    testing::ClusterOptions options;
    options.seed = seed;
    ClusterWorld world(options);
    world.start();
    world.add("a", 2);
    world.add("b", 2);
    std::vector<std::uint64_t> corrs;
    for (int i = 0; i < 12; ++i) corrs.push_back(world.send(ClusterWorld::submit(small())));
    world.run();
    world.cut("a");
    world.pass(seconds(22));
    world.connect("a");
    world.run();
    for (const std::uint64_t corr : corrs) {
      ASSERT_EQ(world.answers(corr), 1u) << seed;
      const std::uint64_t task = world.reply(corr).getAssigned().getTask();
      EXPECT_EQ(world.state(task) == PlaceState::Bound ? 1u : 0u, world.holders(task)) << seed;
    }
    EXPECT_EQ(world.scheduler->waiting() + world.scheduler->ledger().tasks(), 12u) << seed;
  }
}

}  // namespace
}  // namespace qgpu::scheduler_actor_test
