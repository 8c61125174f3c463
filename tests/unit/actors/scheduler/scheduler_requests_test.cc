// What clients ask of the scheduler: rights, limits, marks and drains, questions.
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_requests_test {
namespace {

using testing::ClusterWorld;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

ClusterSpec small(const std::string& node = "") {
  return ClusterWorld::spec(Ordinary, 4, 25, node);
}
ClusterSpec wholeCard(const std::string& node = "") {
  return ClusterWorld::spec(Ordinary, 16, 100, node);
}
ClusterWorld::Fill remove(std::uint64_t task) {
  return [task](Request r) { r.setDelete(task); };
}
ClusterWorld::Fill cordon(const char* node, const char* card = "") {
  return [=](Request r) {
    r.initCordon().setNode(node);
    r.getCordon().setCard(card);
  };
}
ClusterWorld::Fill uncordon(const char* node, const char* card = "") {
  return [=](Request r) {
    r.initUncordon().setNode(node);
    r.getUncordon().setCard(card);
  };
}
ClusterWorld::Fill drain(const char* node, Nanos timeout, const char* card = "") {
  return [=](Request r) {
    auto wanted = r.initDrain();
    wanted.initTarget().setNode(node);
    wanted.getTarget().setCard(card);
    wanted.setTimeoutNs(static_cast<std::uint64_t>(timeout.value));
  };
}
const ClusterWorld::Fill kInfo = [](Request r) { r.setInfo(); };
const ClusterWorld::Fill kNodes = [](Request r) { r.setNodes(); };
const ClusterWorld::Fill kCards = [](Request r) { r.setCards(); };
const ClusterWorld::Fill kTasks = [](Request r) { r.initTasks(0); };
const ClusterWorld::Fill kEvents = [](Request r) { r.setEvents(0); };
const ClusterWorld::Fill kSnapshot = [](Request r) { r.setSnapshot(); };

std::set<std::string> kinds(schema::ClusterReply::Reader reply) {
  std::set<std::string> found;
  for (const auto event : reply.getEvents()) found.insert(text(event.getKind()));
  return found;
}

TEST(SchedulerRequests, TellsHowNearItIsToItsBounds) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.submitted(small("a"));
  const auto reply = world.reply(world.ask([](Request r) { r.setLimits(); }));
  ASSERT_TRUE(reply.isLimits());
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> limits;
  for (const auto limit : reply.getLimits()) {
    EXPECT_LE(limit.getNow(), limit.getMost()) << text(limit.getWhat());
    EXPECT_NE(text(limit.getBeyond()), "");
    limits[text(limit.getWhat())] = {limit.getNow(), limit.getMost()};
  }
  EXPECT_EQ(limits.size(), 5u);
  EXPECT_EQ(limits["nodes"], std::pair(std::uint64_t{1}, std::uint64_t{Membership::kMembersMax}));
  EXPECT_EQ(limits["tasks"], std::pair(std::uint64_t{1}, std::uint64_t{Tasks::kTasksMax}));
  EXPECT_EQ(limits["tasks that wait"].first, 0u);
}

TEST(SchedulerRequests, QuestionsAreAnsweredFromTheIndex) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  world.add("b", 1);
  const std::uint64_t task = world.submitted(small("b"));
  const auto info = world.reply(world.ask(kInfo)).getInfo();
  EXPECT_EQ(info.getTerm(), 1u);
  EXPECT_EQ(info.getNodes(), 2u);
  EXPECT_EQ(info.getAlive(), 2u);
  EXPECT_EQ(info.getCards(), 3u);
  EXPECT_EQ(info.getTasks(), 1u);
  EXPECT_EQ(text(info.getStorage()), "ok");
  const auto nodes = world.reply(world.ask(kNodes)).getNodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].getState(), schema::ClusterNode::State::ALIVE);
  EXPECT_EQ(nodes[1].getShareBound(), 250u);
  EXPECT_EQ(nodes[1].getTasks(), 1u);
  const auto cards = world.reply(world.ask(kCards)).getCards();
  ASSERT_EQ(cards.size(), 3u);
  EXPECT_EQ(text(cards[2].getNode()), "b");
  EXPECT_EQ(cards[2].getStatus().getMemBound(), 4ull << 30);
  const auto tasks = world.reply(world.ask(kTasks)).getTasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].getId(), task);
  EXPECT_EQ(text(tasks[0].getNode()), "b");
  EXPECT_EQ(tasks[0].getState(), schema::PlaceState::BOUND);
}

TEST(SchedulerRequests, ATaskThatEndedCanBeAskedForByItsNumber) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  world.order(remove(task));
  const auto tasks =
      world.reply(world.ask([task](Request r) { r.initTasks(1).set(0, task); })).getTasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].getState(), schema::PlaceState::ENDED);
  EXPECT_EQ(text(tasks[0].getReason()), "deleted");
  EXPECT_EQ(world.order([](Request r) { r.initTasks(1).set(0, 99); }), "not-found");
}

TEST(SchedulerRequests, P7_WhatWouldFitNoEmptyClusterIsRefusedAndWhatMightFitLaterWaits) {
  ClusterWorld world;
  world.start();
  world.add("a", 1, 16);
  EXPECT_EQ(world.order(ClusterWorld::submit(ClusterWorld::spec(Ordinary, 64, 25))), "infeasible");
  EXPECT_EQ(world.order(ClusterWorld::submit(small("nowhere"))), "not-found");
  ClusterSpec wrong = small();
  wrong.task.share = Permille(1500);
  EXPECT_EQ(world.order(ClusterWorld::submit(wrong)), "invalid-argument");
  EXPECT_EQ(world.state(world.submitted(wholeCard())), PlaceState::Bound);
  EXPECT_EQ(world.state(world.submitted(wholeCard())), PlaceState::Waiting);
  EXPECT_EQ(world.scheduler->tasks(), 2u);
}

TEST(SchedulerRequests, PeersWithoutRightsReadAndSubmitAndEndTheirOwnTasks) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const ClusterWorld::As user{1000, false};
  ClusterSpec spec = small();
  spec.task.ownerUid = 0;
  const std::uint64_t own = world.submitted(spec, user);
  EXPECT_EQ(world.scheduler->task(own)->spec.task.ownerUid, 1000u);
  const std::uint64_t others = world.submitted(small());
  EXPECT_EQ(world.order(remove(others), user), "denied");
  EXPECT_EQ(world.order(remove(own), user), "ok");
  for (const auto& question : {kInfo, kNodes, kCards, kTasks, kEvents}) {
    EXPECT_EQ(world.order(question, user), "ok");
  }
  const ClusterWorld::Fill priority = [](Request r) { r.setPriority(schema::Score::SPREAD); };
  for (const auto& change :
       {cordon("a"), uncordon("a"), drain("a", seconds(1)), priority, kSnapshot}) {
    EXPECT_EQ(world.order(change, user), "denied");
  }
}

TEST(SchedulerRequests, OnlyWhoMayChangeThingsEvictsTasksOfOthers) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  ClusterSpec victim = small();
  victim.task.taskClass = TaskClass::Offline;
  victim.task.mem = gibibytes(10);
  const std::uint64_t others = world.submitted(victim);
  ClusterSpec evictor = victim;
  evictor.task.taskClass = TaskClass::Online;
  evictor.task.share = Permille(0);
  evictor.preempt = true;
  const ClusterWorld::As user{1000, false};
  const std::uint64_t refused = world.ask(ClusterWorld::submit(evictor), user);
  ASSERT_TRUE(world.reply(refused).isFailed());
  EXPECT_EQ(text(world.reply(refused).getFailed().getCode()), "denied");
  world.pass(seconds(2));
  EXPECT_EQ(world.state(others), PlaceState::Bound);
  evictor.preempt = false;
  const std::uint64_t patient = world.submitted(evictor, user);
  EXPECT_EQ(world.state(patient), PlaceState::Waiting);
  evictor.preempt = true;
  world.submitted(evictor);
  world.pass(seconds(2));
  EXPECT_EQ(world.state(others), PlaceState::Waiting);
}

TEST(SchedulerRequests, EventsAreDatedByTheClockAsItIsSet) {
  std::int64_t zero = 1'000'000;
  testing::ClusterOptions options;
  options.unixMsAtZero = [&zero] { return zero; };
  ClusterWorld world(options);
  world.start();
  world.add("a");
  zero += 3'600'000;  // somebody sets the clock, an hour on
  world.order(cordon("a"));
  const auto events = world.reply(world.ask(kEvents)).getEvents();
  EXPECT_GE(events[events.size() - 1].getUnixMs(), 4'600'000u);
  EXPECT_LT(events[0].getUnixMs(), 4'600'000u);
}

TEST(SchedulerRequests, WhatALauncherNeedsIsForTheOwnerOfATask) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const ClusterWorld::As user{1000, false};
  const auto assigned = [](std::uint64_t task) {
    return [task](schema::ClusterRequest::Builder request) { request.setAssigned(task); };
  };
  ClusterSpec spec = small();
  spec.task.ownerUid = 1000;
  const std::uint64_t task = world.submitted(spec, user);
  const auto own = world.reply(world.ask(assigned(task), user));
  ASSERT_TRUE(own.isAssigned());
  EXPECT_EQ(text(own.getAssigned().getNode()), "a");
  EXPECT_NE(own.getAssigned().getToken().size(), 0u);
  EXPECT_TRUE(world.reply(world.ask(assigned(task))).isAssigned()) << "root";
  EXPECT_EQ(world.order(assigned(task), {1001, false}), "denied");
  EXPECT_EQ(world.order(assigned(task + 99), user), "not-found");
}

TEST(SchedulerRequests, C7_ASpecThatIsTooLongOrForgedIsRefusedOrMadeHarmless) {
  ClusterWorld world;
  world.start();
  world.add("a");
  ClusterSpec spec = small();
  spec.application = std::string(100, 'x');
  EXPECT_EQ(world.order(ClusterWorld::submit(spec)), "invalid-argument");
  spec = small();
  spec.models.assign(kModelsMax + 1, "m");
  EXPECT_EQ(world.order(ClusterWorld::submit(spec)), "invalid-argument");
  spec = small();
  spec.task.card = "sim-0";
  EXPECT_EQ(world.order(ClusterWorld::submit(spec)), "invalid-argument");
  spec = small();
  spec.task.ownerPid = 7;
  EXPECT_EQ(world.order(ClusterWorld::submit(spec)), "invalid-argument");
  spec = small();
  spec.task.clusterTask = 999;
  spec.task.clusterEpoch = 9;
  const std::uint64_t task = world.submitted(spec);
  EXPECT_EQ(task, 1u);
  EXPECT_EQ(world.node("a").find(1)->epoch, 1u);
}

TEST(SchedulerRequests, EveryChangeIsAuditedAndToldToWatchers) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.ask([](Request r) { r.setWatch(true); });
  const std::uint64_t task = world.submitted(small());
  world.order(cordon("a"));
  world.order(uncordon("a"));
  world.order([](Request r) { r.setPriority(schema::Score::SPREAD); });
  world.order(kSnapshot);
  world.order(remove(task));
  const auto story = kinds(world.reply(world.ask(kEvents)));
  for (const char* kind :
       {"task-submitted", "task-bound", "cordoned", "uncordoned", "priority-changed", "permitted",
        "task-deleted", "task-ended", "scheduler-started", "node-joined"}) {
    EXPECT_TRUE(story.contains(kind)) << kind;
  }
  std::uint64_t last = 0;
  std::size_t told = 0;
  for (std::size_t i = 0; i < world.actor.size(); ++i) {
    if (!world.actor[i].isEventTold()) continue;
    EXPECT_GT(world.actor[i].getEventTold().getSeq(), last);
    last = world.actor[i].getEventTold().getSeq();
    ++told;
  }
  EXPECT_GE(told, 8u);
  EXPECT_EQ(world.fixture.journal().row({RowKind::Cluster, 0}).getCluster().getPriority(),
            schema::Score::SPREAD);
}

// --- pages ---

using Reply = schema::ClusterReply::Reader;

// All entries of a list, page by page, and of how many each page was.
template <typename Set, typename Get>
std::vector<std::size_t> pages(ClusterWorld& world, std::uint32_t most, Set set, Get get) {
  std::vector<std::size_t> sizes;
  std::uint64_t after = 0;
  do {
    const Reply reply = world.reply(world.ask([&](Request r) {
      set(r);
      r.initPage().setAfter(after);
      r.getPage().setMost(most);
    }));
    sizes.push_back(get(reply));
    after = reply.getNext();
  } while (after != 0 && sizes.size() < 100);
  return sizes;
}

TEST(SchedulerRequests, C5_ListsComeInPagesOfBoundedSize) {
  ClusterWorld world;
  world.start();
  for (int i = 0; i < 5; ++i) world.add("n" + std::to_string(i), 3);
  std::vector<std::uint64_t> submitted;
  for (int i = 0; i < 7; ++i) submitted.push_back(world.submitted(small()));
  using Sizes = std::vector<std::size_t>;
  std::vector<std::uint64_t> listed;
  const auto tasks = [&](Reply reply) {
    for (const auto task : reply.getTasks()) listed.push_back(task.getId());
    return std::size_t{reply.getTasks().size()};
  };
  EXPECT_EQ(pages(
                world, 3, [](Request r) { r.initTasks(0); }, tasks),
            (Sizes{3, 3, 1}));
  EXPECT_EQ(listed, submitted);
  EXPECT_EQ(pages(
                world, 7, [](Request r) { r.initTasks(0); }, tasks),
            Sizes{7});
  EXPECT_EQ(pages(
                world, 0, [](Request r) { r.initTasks(0); }, tasks),
            Sizes{7});
  std::set<std::string> cards;
  const auto ofCards = [&](Reply reply) {
    for (const auto card : reply.getCards()) {
      cards.insert(text(card.getNode()) + "/" + text(card.getStatus().getInfo().getId()));
    }
    return std::size_t{reply.getCards().size()};
  };
  EXPECT_EQ(pages(
                world, 4, [](Request r) { r.setCards(); }, ofCards),
            (Sizes{6, 6, 3}))
      << "those of one node stay together";
  EXPECT_EQ(cards.size(), 15u);
  const auto nodes = [](Reply reply) { return std::size_t{reply.getNodes().size()}; };
  EXPECT_EQ(pages(
                world, 2, [](Request r) { r.setNodes(); }, nodes),
            (Sizes{2, 2, 1}));
  EXPECT_EQ(world.reply(world.ask([](Request r) { r.initTasks(0); })).getTasks().size(), 7u)
      << "whole, where no page is named";
}

TEST(SchedulerRequests, C5_APageIsNeverLargerThanItsLimitWhateverIsAsked) {
  ClusterWorld world;
  world.start();
  const std::size_t all = Requests::kPageMost + 10;
  world.add("a", 1);
  for (std::size_t i = 0; i < all; ++i) world.ask(ClusterWorld::submit(wholeCard("a")));
  const auto tasks = [](Reply reply) { return std::size_t{reply.getTasks().size()}; };
  for (const std::uint32_t most : {0u, UINT32_MAX}) {
    EXPECT_EQ(pages(
                  world, most, [](Request r) { r.initTasks(0); }, tasks),
              (std::vector<std::size_t>{Requests::kPageMost, 10}));
  }
}

TEST(SchedulerRequests, ExplainSaysWhereATaskIsOrWhatIsMissing) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t first = world.submitted(wholeCard());
  const std::uint64_t second = world.submitted(small());
  const auto explain = [&](std::uint64_t task) {
    return world.reply(world.ask([task](Request r) { r.setExplain(task); })).getExplanation();
  };
  EXPECT_EQ(text(explain(first).getText()), "runs on node a, card sim-0");
  const auto waits = explain(second);
  EXPECT_FALSE(waits.getFits());
  EXPECT_EQ(text(waits.getText()).substr(0, 7), "waits: ");
  ASSERT_EQ(waits.getNodes().size(), 1u);
  EXPECT_EQ(text(waits.getNodes()[0].getNode()), "a");
  ASSERT_EQ(waits.getCounts().size(), 1u);
  EXPECT_EQ(waits.getConsidered(), 1u);
  const auto spec =
      world.reply(world.ask([](Request r) { writeClusterSpec(small(), r.initExplainSpec()); }))
          .getExplanation();
  EXPECT_EQ(text(spec.getText()).substr(0, 11), "would wait:");
}

TEST(SchedulerRequests, ACordonedNodeGetsNothingNewAndKeepsWhatItHas) {
  ClusterWorld world;
  world.start();
  world.add("a");
  const std::uint64_t task = world.submitted(small());
  EXPECT_EQ(world.order(cordon("a")), "ok");
  EXPECT_EQ(world.order(cordon("zzz")), "not-found");
  const std::uint64_t next = world.submitted(small());
  EXPECT_EQ(world.state(task), PlaceState::Bound);
  EXPECT_EQ(world.state(next), PlaceState::Waiting);
  EXPECT_EQ(world.order(uncordon("a")), "ok");
  EXPECT_EQ(world.state(next), PlaceState::Bound);
}

TEST(SchedulerRequests, ACardIsMarkedByItsNodeAndGetsNothingNew) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.links.heard.clear();
  EXPECT_EQ(world.order(cordon("a", "0")), "ok");
  const auto mark = world.links.heard.last().getToMember().getMark();
  EXPECT_EQ(text(mark.getCard()), "sim-0");
  EXPECT_EQ(mark.getMark(), schema::OrderMark::Mark::CORDON);
  EXPECT_EQ(world.state(world.submitted(small())), PlaceState::Waiting);
  EXPECT_EQ(world.order(cordon("a", "7")), "not-found");
  world.disconnect("a");
  EXPECT_EQ(world.order(uncordon("a", "0")), "unavailable");
}

TEST(SchedulerRequests, ADrainMovesWhatFitsElsewhereAndEndsTheRestWhenItsTimeIsOver) {
  ClusterWorld world;
  world.start();
  world.add("a", 2);
  const std::uint64_t moves = world.submitted(small());
  const std::uint64_t pinned = world.submitted(small("a"));
  const std::uint64_t whole = world.submitted(wholeCard());
  world.add("b", 1);
  EXPECT_EQ(world.order(drain("a", seconds(10))), "ok");
  world.pass(seconds(2));
  EXPECT_EQ(world.placeOf(moves), "b");
  EXPECT_EQ(world.placeOf(pinned), "a");
  EXPECT_EQ(world.placeOf(whole), "a");
  EXPECT_FALSE(kinds(world.reply(world.ask(kEvents))).contains("drain-timed-out"));
  world.pass(seconds(10));
  EXPECT_EQ(world.state(pinned), PlaceState::Ended);
  EXPECT_EQ(world.state(whole), PlaceState::Waiting);
  EXPECT_TRUE(world.node("a").tasks.empty());
  EXPECT_TRUE(kinds(world.reply(world.ask(kEvents))).contains("drained"));
  EXPECT_TRUE(kinds(world.reply(world.ask(kEvents))).contains("drain-timed-out"));
}

TEST(SchedulerRequests, P3_ATaskThatADrainMovesIsNeverHeldTwiceAndItsNewRoomIsKept) {
  ClusterWorld world;
  world.start();
  world.add("a", 1).ends = false;
  const std::uint64_t task = world.submitted(wholeCard());
  world.add("b", 1);
  world.order(drain("a", seconds(60)));
  world.pass(seconds(2));
  EXPECT_EQ(world.state(task), PlaceState::Ending);
  EXPECT_EQ(world.placeOf(task), "a");
  const std::uint64_t other = world.submitted(wholeCard());  // the room of b is spoken for
  EXPECT_EQ(world.state(other), PlaceState::Waiting);
  world.node("a").ends = true;
  world.sayHeld("a", 1, true);
  EXPECT_EQ(world.placeOf(task), "b");
  EXPECT_EQ(world.state(other), PlaceState::Waiting);
  EXPECT_EQ(world.scheduler->ledger().tasks(), 1u);
}

TEST(SchedulerRequests, ADrainMovesOnlineTasksFirst) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t offline = world.submitted(ClusterWorld::spec(Offline, 4, 10));
  const std::uint64_t online = world.submitted(ClusterWorld::spec(Online, 4, 0));
  world.add("b", 1, 4);  // room for one of them
  world.order(drain("a", seconds(60)));
  world.pass(seconds(2));
  EXPECT_EQ(world.placeOf(online), "b");
  EXPECT_EQ(world.placeOf(offline), "a");
}

TEST(SchedulerRequests, C5_WhatIsAskedDuringACommitIsBoundedAndRefusedVisibly) {
  ClusterWorld world;
  world.start();
  world.add("a");
  world.fixture.journal().holdCommits();
  world.ask(ClusterWorld::submit(small()));
  std::vector<std::uint64_t> corrs;
  for (std::size_t i = 0; i < Requests::kRequestsMax + 5; ++i) {
    corrs.push_back(world.ask(kInfo));
  }
  world.fixture.journal().commitAutomatically();
  world.fixture.journal().commitNext();
  world.run();
  std::size_t refused = 0;
  for (const std::uint64_t corr : corrs) {
    // A client that lags by more than its share of answers has a deadline of its own.
    if (world.answers(corr) == 1 && world.reply(corr).isFailed()) ++refused;
  }
  EXPECT_GE(refused, 5u);
}

}  // namespace
}  // namespace qgpu::scheduler_requests_test
