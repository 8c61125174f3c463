// Why tasks wait: one stable code in lists, explanations, events, counts and the audit.
#include <gtest/gtest.h>
#include <map>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_waiting_test {
namespace {

using testing::ClusterOptions;
using testing::ClusterWorld;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

ClusterSpec large() {
  return ClusterWorld::spec(Ordinary, 12, 25);
}

std::string reasonOf(ClusterWorld& world, std::uint64_t task) {
  const auto list = world.reply(world.ask([task](Request r) { r.initTasks(1).set(0, task); }));
  return text(list.getTasks()[0].getReason());
}

std::string codeOf(ClusterWorld& world, std::uint64_t task) {
  const std::string reason = reasonOf(world, task);
  return reason.substr(0, reason.find(':'));
}

// The texts of the events of this kind, by task.
std::multimap<std::uint64_t, std::string> events(ClusterWorld& world, const std::string& kind) {
  std::multimap<std::uint64_t, std::string> found;
  const auto reply = world.reply(world.ask([](Request r) { r.setEvents(0); }));
  for (const auto event : reply.getEvents()) {
    if (text(event.getKind()) == kind) found.emplace(event.getTask(), text(event.getText()));
  }
  return found;
}

using Counts = std::map<std::string, std::uint64_t>;
Counts pending(ClusterWorld& world) {
  Counts counts;
  const auto reply = world.reply(world.ask([](Request r) { r.setInfo(); }));
  for (const auto one : reply.getInfo().getPending()) {
    counts[text(one.getReason())] += one.getTasks();
  }
  return counts;
}
Counts decided(ClusterWorld& world, schema::ClusterInfo::Result result) {
  Counts counts;
  const auto reply = world.reply(world.ask([](Request r) { r.setInfo(); }));
  for (const auto one : reply.getInfo().getDecided()) {
    if (one.getResult() == result) counts[text(one.getReason())] += one.getCount();
  }
  return counts;
}

// Where reports are wanted, those of a day count here.
TEST(SchedulerWaiting, ACardTakesNothingNewWithoutAReportThatIsNewEnough) {
  ClusterOptions options;
  options.reportMsMax = 86'400'000;
  options.unixMsAtZero = [] { return std::int64_t{1'000'000'000'000}; };
  ClusterWorld world(options);
  world.start();
  world.add("a", 1);
  const std::uint64_t task = world.submitted(large());
  EXPECT_EQ(codeOf(world, task), "ReportNeeded");
  const auto cards = world.reply(world.ask([](Request r) { r.setCards(); })).getCards();
  EXPECT_EQ(cards[0].getStatus().getState(), schema::CardState::UNPROVEN);

  world.node("a").reportUnixMs = 1'000'000'000'000 - 86'000'000;
  world.disconnect("a");
  world.connect("a");
  world.run();
  EXPECT_EQ(world.state(task), PlaceState::Bound);

  world.pass(seconds(500));
  const std::uint64_t later = world.submitted(ClusterWorld::spec(Ordinary, 1, 5));
  EXPECT_EQ(codeOf(world, later), "ReportNeeded") << "it grew too old meanwhile";
  EXPECT_EQ(world.state(task), PlaceState::Bound) << "what is there stays";
}

TEST(SchedulerWaiting, ACodeAndASentenceSayWhyATaskWaitsInListEventAuditAndCounts) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(large());
  const std::uint64_t waits = world.submitted(large());
  EXPECT_EQ(reasonOf(world, waits),
            "MemShort: nearest: node a, sim-0: lacks 8 GiB: 4 GiB free of 16 GiB");
  const auto told = events(world, "task-waits");
  ASSERT_EQ(told.count(waits), 1u);
  EXPECT_EQ(told.find(waits)->second, reasonOf(world, waits));
  const auto audited = events(world, "task-submitted");
  EXPECT_NE(audited.find(waits)->second.find("; waits: MemShort"), std::string::npos)
      << audited.find(waits)->second;
  EXPECT_EQ(pending(world), (Counts{{"MemShort", 1}}));
  EXPECT_EQ(decided(world, schema::ClusterInfo::Result::WAITS), (Counts{{"MemShort", 1}}));
  EXPECT_EQ(decided(world, schema::ClusterInfo::Result::PLACED), (Counts{{"Fits", 1}}));
  const auto answer = world.reply(world.ask([waits](Request r) { r.setExplain(waits); }));
  EXPECT_EQ(text(answer.getExplanation().getText()), "waits: " + reasonOf(world, waits));
  EXPECT_EQ(text(answer.getExplanation().getNodes()[0].getReason()), "MemShort");
}

TEST(SchedulerWaiting, TheAnswerToASubmitSaysWhyItWaits) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(large());
  const auto answer = world.reply(world.ask(ClusterWorld::submit(large()))).getAssigned();
  EXPECT_TRUE(answer.getWaiting());
  EXPECT_EQ(text(answer.getReason()).substr(0, 9), "MemShort:");
}

TEST(SchedulerWaiting, ARefusalIsCountedByItsCode) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  EXPECT_EQ(world.order(ClusterWorld::submit(ClusterWorld::spec(Ordinary, 99, 25))), "infeasible");
  EXPECT_EQ(world.order(ClusterWorld::submit(ClusterWorld::spec(Ordinary, 1, 25, "zzz"))),
            "not-found");
  EXPECT_EQ(world.order(ClusterWorld::submit(ClusterWorld::spec(Online, 1, 25))),
            "invalid-argument");
  EXPECT_EQ(decided(world, schema::ClusterInfo::Result::REFUSED),
            (Counts{{"CardTooSmall", 1}, {"NoQgpuNode", 1}, {"InvalidRequest", 1}}));
}

TEST(SchedulerWaiting, WhatHappenedSinceIsSaidAfterTheNextLook) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  const std::uint64_t first = world.submitted(large());
  const std::uint64_t waits = world.submitted(large());
  EXPECT_EQ(codeOf(world, waits), "MemShort");
  world.order([](Request r) { r.initCordon().setNode("a"); });
  world.order([first](Request r) { r.setDelete(first); });
  world.pass(seconds(1));
  EXPECT_EQ(codeOf(world, waits), "NodeCordoned");
  EXPECT_EQ(pending(world), (Counts{{"NodeCordoned", 1}}));
  EXPECT_EQ(events(world, "task-waits").count(waits), 1u) << "it has not begun to wait again";
  world.order([](Request r) { r.initUncordon().setNode("a"); });
  EXPECT_EQ(world.state(waits), PlaceState::Bound);
  EXPECT_EQ(pending(world), Counts{});
  EXPECT_EQ(reasonOf(world, waits), "");
}

TEST(SchedulerWaiting, ATaskThatLostItsNodeSaysSoBesideItsCode) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.add("b", 1, 8);
  const std::uint64_t task = world.submitted(large());
  ASSERT_EQ(world.placeOf(task), "a");
  world.cut("a");
  world.pass(seconds(30));
  EXPECT_EQ(reasonOf(world, task), "NodeLost: its node is lost; nearest: node a is lost");
  EXPECT_EQ(events(world, "task-waits").count(task), 1u);
}

TEST(SchedulerWaiting, AfterARestartItWaitsForWhatIsNotHeardYetAndThenForRoom) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(large());
  const std::uint64_t waits = world.submitted(large());
  world.restart();
  EXPECT_EQ(codeOf(world, waits), "StaleState");
  EXPECT_EQ(pending(world), (Counts{{"StaleState", 1}}));
  world.connect("a");
  world.run();
  world.pass(seconds(1));
  EXPECT_EQ(codeOf(world, waits), "MemShort");
}

TEST(SchedulerWaiting, NothingIsLeftOfARoundThatWasUndone) {
  ClusterWorld world;
  world.start();
  world.add("a", 1);
  world.submitted(large());
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  EXPECT_EQ(world.order(ClusterWorld::submit(large())), "unavailable");
  EXPECT_EQ(pending(world), Counts{});
  EXPECT_EQ(decided(world, schema::ClusterInfo::Result::WAITS), Counts{});
}

}  // namespace
}  // namespace qgpu::scheduler_waiting_test
