// The judge of histories, before histories that were made: long correct ones, and for each rule
// those that break it.

#include "tests/chaos/check_history.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "tests/chaos/generated_history.h"

namespace qgpu::chaos {
namespace {

std::string firstOf(const History& history) {
  const Findings found = checkHistory(history);
  return found.violations.empty() ? "" : found.violations.front().rule;
}
std::string told(const History& history) {
  std::string all;
  for (const Violation& one : checkHistory(history).violations) {
    all += one.rule + ": " + one.what + "\n";
  }
  return all;
}

Seen seen(std::uint32_t epoch = 1, const std::string& node = "n0", Phase phase = Phase::Lives) {
  return {"r", 7, epoch, phase, node};
}
// One task, acknowledged at 2.
History oneTask() {
  History history;
  history.submits = {{{1, 2}, "r", Outcome::Ok, 7}};
  return history;
}
History deletedTask(Outcome outcome) {
  History history = oneTask();
  history.deletes = {{{3, outcome == Outcome::Unknown ? kOpen : 4}, "r", outcome}};
  return history;
}

TEST(CheckHistory, LongCorrectOnesPassWithClientsThatOverlapAndOutcomesUnknown) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const History history = generatedHistory(seed, 2'000);
    EXPECT_GT(history.lists.size(), 150U);
    EXPECT_EQ(told(history), "") << seed;
  }
}

TEST(CheckHistory, ItsCostGrowsAsTheHistoryDoes) {
  const std::uint64_t once = checkHistory(generatedHistory(3, 2'000)).work;
  const std::uint64_t fourTimes = checkHistory(generatedHistory(3, 8'000)).work;
  EXPECT_GT(once, 2'000U);
  EXPECT_LT(fourTimes, 6 * once);
}

TEST(CheckHistory, D1_AnAcknowledgedSubmitThatALaterListLacksIsLost) {
  History history = oneTask();
  history.lists = {{{3, 4}, {}}};
  EXPECT_EQ(firstOf(history), "lost");
  history.lists[0].at = {1, 4};  // asked before the acknowledgement came
  EXPECT_EQ(told(history), "");
}

TEST(CheckHistory, D1_WhatWasReadOnceIsNotLostThoughNobodyWasToldOfIt) {
  History history;
  history.submits = {{{1, kOpen}, "r", Outcome::Unknown, 0}};
  history.lists = {{{3, 4}, {}}, {{5, 6}, {seen()}}};
  EXPECT_EQ(told(history), "");  // it happened late
  history.lists.push_back({{7, 8}, {}});
  EXPECT_EQ(firstOf(history), "lost");
}

TEST(CheckHistory, D1_ADeleteThatIsAnsweredWithNoSuchTaskMeansALoss) {
  EXPECT_EQ(firstOf(deletedTask(Outcome::Missing)), "lost");
}

TEST(CheckHistory, D1_AnAcknowledgedDeleteIsUndoneWhereTheTaskLivesLater) {
  History history = deletedTask(Outcome::Ok);
  history.lists = {{{5, 6}, {seen(1, "n0", Phase::Ending)}}, {{7, 8}, {}}};
  EXPECT_EQ(told(history), "");
  history.lists.push_back({{9, 10}, {seen()}});
  EXPECT_EQ(firstOf(history), "undone");
}

TEST(CheckHistory, ADeleteOfUnknownOutcomeHappensLateOrNever) {
  History history = deletedTask(Outcome::Unknown);
  history.lists = {{{5, 6}, {seen()}}};
  EXPECT_EQ(told(history), "");
  history.lists.push_back({{7, 8}, {}});
  EXPECT_EQ(told(history), "");
  history.lists.push_back({{9, 10}, {seen()}});
  EXPECT_EQ(firstOf(history), "order");
}

TEST(CheckHistory, ARefusedSubmitOrDeleteDidNothing) {
  History history = deletedTask(Outcome::Failed);
  history.lists = {{{5, 6}, {}}};
  EXPECT_EQ(firstOf(history), "lost");
  history.submits[0].outcome = Outcome::Failed;
  history.lists[0].tasks = {seen()};
  EXPECT_EQ(firstOf(history), "request");
}

TEST(CheckHistory, C1_AStaleListIsFoundThoughOthersOverlapIt) {
  History history = oneTask();
  history.submits.push_back({{3, 4}, "s", Outcome::Ok, 8});
  const Seen second{"s", 8, 1, Phase::Lives, "n1"};
  history.lists = {{{5, 20}, {seen(), second}}, {{6, 7}, {seen()}}};
  EXPECT_EQ(firstOf(history), "lost");
}

TEST(CheckHistory, C1_OfTwoReadsThatDoNotOverlapTheLaterOneIsNotOlder) {
  History history;
  history.submits = {{{1, 20}, "r", Outcome::Ok, 7}};
  history.gets = {{{2, 3}, "r", true, seen()}, {{4, 5}, "r", false, {}}};
  EXPECT_EQ(firstOf(history), "lost");
  history.gets[1].at.invoked = 2;
  EXPECT_EQ(told(history), "");
}

TEST(CheckHistory, C2_TwoTasksOfOneRequestAreFoundInAnswersAndInLists) {
  History history = oneTask();
  history.submits.push_back({{3, 4}, "r", Outcome::Ok, 8});
  EXPECT_EQ(firstOf(history), "request");
  history = oneTask();
  Seen other = seen();
  other.task = 8;
  history.lists = {{{3, 4}, {seen(), other}}};
  EXPECT_EQ(firstOf(history), "request");
}

TEST(CheckHistory, C2_AskedAgainTheSameTaskIsAnsweredAlsoAfterItEnded) {
  History history = deletedTask(Outcome::Ok);
  history.submits.push_back({{5, 6}, "r", Outcome::Ok, 7});
  EXPECT_EQ(told(history), "");
  history.lists = {{{7, 8}, {seen()}}};
  EXPECT_EQ(firstOf(history), "undone");
}

TEST(CheckHistory, P6_AnEpochNeitherFallsNorIsOnTwoNodes) {
  History history = oneTask();
  history.lists = {{{3, 4}, {seen(2)}}, {{5, 6}, {seen(1)}}};
  EXPECT_EQ(firstOf(history), "epoch");
  history.lists[1] = {{5, 6}, {seen(2, "n1")}};
  EXPECT_EQ(firstOf(history), "epoch");
  history.lists[1] = {{5, 6}, {seen(3, "n1")}};
  EXPECT_EQ(told(history), "");
}

TEST(CheckHistory, P3_TwoNodesDoNotHoldATaskAtTheSameEpochOrOneAtAnEarlierLater) {
  History history = oneTask();
  history.held = {{{3, 4}, "n0", {{7, 1}}}, {{5, 6}, "n1", {{7, 1}}}};
  EXPECT_EQ(firstOf(history), "epoch");
  history.held = {
      {{3, 4}, "n1", {}}, {{3, 4}, "n0", {{7, 2}}}, {{5, 6}, "n1", {}}, {{7, 8}, "n1", {{7, 1}}}};
  EXPECT_EQ(firstOf(history), "twice");
  // One that is cut off holds it on, and was not asked meanwhile.
  history.held = {{{3, 4}, "n0", {{7, 1}}}, {{5, 6}, "n1", {{7, 2}}}, {{7, 8}, "n0", {{7, 1}}}};
  EXPECT_EQ(told(history), "");
}

TEST(CheckHistory, C1_ATermNeitherFallsNorHasTwoSchedulers) {
  History history;
  history.terms = {{{1, 2}, 5, "a"}, {{3, 4}, 4, "b"}};
  EXPECT_EQ(firstOf(history), "term");
  history.terms[1] = {{2, 4}, 4, "b"};  // they overlap
  EXPECT_EQ(told(history), "");
  history.terms[1] = {{3, 4}, 5, "b"};
  EXPECT_EQ(firstOf(history), "term");
}

TEST(CheckHistory, ACordonIsARegister) {
  History history;
  history.cordons = {{{1, 2}, "n0", true, Outcome::Ok}};
  history.nodes = {{{3, 4}, {{"n0", false}, {"n1", false}}}};
  EXPECT_EQ(firstOf(history), "order");
  history.cordons.push_back({{2, kOpen}, "n0", false, Outcome::Unknown});
  EXPECT_EQ(told(history), "");
  history.nodes.push_back({{5, 6}, {{"n0", true}}});  // one unknown answer explains one change
  history.nodes.push_back({{7, 8}, {{"n0", false}}});
  EXPECT_EQ(firstOf(history), "order");
}

// In a long history with all that a run has, one word is changed.
TEST(CheckHistory, OneWrongWordInALongHistoryIsFound) {
  const History correct = generatedHistory(9, 8'000);
  History history = correct;
  std::set<std::string> settled;
  for (const Submit& one : correct.submits) {
    if (one.outcome == Outcome::Ok) settled.insert(one.request);
  }
  for (const Delete& one : correct.deletes) settled.erase(one.request);
  ASSERT_FALSE(settled.empty());
  auto& last = history.lists.back().tasks;
  const auto mine = std::find_if(last.begin(), last.end(),
                                 [&](const Seen& one) { return settled.contains(one.request); });
  ASSERT_NE(mine, last.end());
  last.erase(mine);
  EXPECT_EQ(firstOf(history), "lost");

  history = correct;
  history.nodes.back().cordoned[0].second = !history.nodes.back().cordoned[0].second;
  history.cordons.erase(
      std::remove_if(history.cordons.begin(), history.cordons.end(),
                     [](const Cordon& one) { return one.outcome == Outcome::Unknown; }),
      history.cordons.end());
  EXPECT_EQ(firstOf(history), "order");
}

}  // namespace
}  // namespace qgpu::chaos
