#include "actors/placement/wait_queue.h"

#include <gtest/gtest.h>

namespace qgpu::wait_queue_test {
namespace {

using enum TaskClass;

ClusterAsk ask(TaskClass taskClass, std::int64_t gib, const std::string& node = "") {
  ClusterAsk wanted;
  wanted.task.taskClass = taskClass;
  wanted.task.mem = gibibytes(gib);
  wanted.task.share = taskClass == Online ? Permille(0) : Permille(100);
  wanted.node = node;
  return wanted;
}

// The order in which a node of this name would be offered to the shapes.
std::vector<std::uint64_t> order(const WaitQueue& queue, const std::string& node) {
  std::vector<std::uint64_t> tasks;
  std::optional<WaitQueue::Place> after;
  while (const auto next = queue.next(node, after)) {
    tasks.push_back(next->place.task);
    after = next->place;
  }
  return tasks;
}

TEST(WaitQueue, OnlineTasksComeFirstThenOrdinaryThenOfflineAndTheOldestOfEach) {
  WaitQueue queue;
  EXPECT_TRUE(queue.add(1, ask(Offline, 1)));
  EXPECT_TRUE(queue.add(2, ask(Ordinary, 2)));
  EXPECT_TRUE(queue.add(3, ask(Ordinary, 1)));
  EXPECT_TRUE(queue.add(4, ask(Online, 1)));
  EXPECT_EQ(order(queue, "a"), (std::vector<std::uint64_t>{4, 2, 3, 1}));
}

TEST(WaitQueue, TasksThatAskForTheSameAreLookedAtOnce) {
  WaitQueue queue;
  for (std::uint64_t task = 1; task <= 1000; ++task) queue.add(task, ask(Ordinary, 4));
  ClusterAsk alike = ask(Ordinary, 4);
  alike.application = "web";
  alike.nodeScore = Score::Spread;
  queue.add(1001, alike);
  EXPECT_EQ(queue.size(), 1001u);
  EXPECT_EQ(queue.shapes(), 1u);
  EXPECT_EQ(order(queue, "a"), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(queue.waitsAlike(alike));
  EXPECT_FALSE(queue.waitsAlike(ask(Ordinary, 5)));
}

TEST(WaitQueue, TheNextOldestOfAShapeFollowsWhenItsFirstHasLeft) {
  WaitQueue queue;
  queue.add(1, ask(Ordinary, 1));
  queue.add(2, ask(Ordinary, 2));
  queue.add(3, ask(Ordinary, 1));
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  EXPECT_EQ(order(queue, "a"), (std::vector<std::uint64_t>{2, 3}));
}

TEST(WaitQueue, WhoComesBackKeepsItsAge) {
  WaitQueue queue;
  queue.add(5, ask(Ordinary, 1));
  queue.add(6, ask(Ordinary, 2));
  queue.add(2, ask(Ordinary, 1));
  EXPECT_EQ(order(queue, "a"), (std::vector<std::uint64_t>{2, 6}));
  EXPECT_FALSE(queue.add(2, ask(Ordinary, 3)));
}

TEST(WaitQueue, ShapesThatNameANodeAreOfferedThatNodeAlone) {
  WaitQueue queue;
  queue.add(1, ask(Ordinary, 1, "a"));
  queue.add(2, ask(Ordinary, 1));
  queue.add(3, ask(Online, 1, "b"));
  EXPECT_EQ(order(queue, "a"), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(order(queue, "b"), (std::vector<std::uint64_t>{3, 2}));
  EXPECT_EQ(order(queue, "c"), std::vector<std::uint64_t>{2});
}

TEST(WaitQueue, C5_ItTakesNoMoreThanItsBound) {
  WaitQueue queue;
  for (std::uint64_t task = 1; task <= WaitQueue::kTasksMax; ++task) {
    ASSERT_TRUE(queue.add(task, ask(Ordinary, 1)));
  }
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.add(WaitQueue::kTasksMax + 1, ask(Ordinary, 1)));
  queue.remove(7);
  EXPECT_TRUE(queue.add(WaitQueue::kTasksMax + 1, ask(Ordinary, 1)));
}

TEST(WaitQueue, AnEmptyQueueKeepsNothing) {
  WaitQueue queue;
  queue.add(1, ask(Ordinary, 1, "a"));
  queue.remove(1);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.shapes(), 0u);
  EXPECT_TRUE(order(queue, "a").empty());
}

TEST(WaitQueue, KnowsWhyEachShapeWaitsAndCountsTasksByThat) {
  WaitQueue queue;
  queue.add(1, ask(Ordinary, 1));
  queue.add(2, ask(Ordinary, 1));
  queue.add(3, ask(Online, 1));
  EXPECT_FALSE(queue.hasWhy(1));
  EXPECT_EQ(queue.why(1)->reason, Reason::StaleState) << "nobody has judged it yet";
  queue.setWhy(ask(Ordinary, 1), {Reason::MemShort, "short"});
  EXPECT_TRUE(queue.hasWhy(2));
  EXPECT_EQ(queue.why(2)->text, "short");
  EXPECT_EQ(queue.waitingFor(Ordinary, Reason::MemShort), 2u);
  EXPECT_EQ(queue.waitingFor(Online, Reason::StaleState), 1u);
  queue.add(4, ask(Ordinary, 1));
  EXPECT_TRUE(queue.hasWhy(4)) << "as the others of its shape";
  EXPECT_EQ(queue.waitingFor(Ordinary, Reason::MemShort), 3u);
  queue.setWhy(ask(Ordinary, 1), {Reason::CoreShort, "full"});
  EXPECT_EQ(queue.waitingFor(Ordinary, Reason::MemShort), 0u);
  for (const std::uint64_t task : {1u, 2u, 4u}) queue.remove(task);
  EXPECT_EQ(queue.waitingFor(Ordinary, Reason::CoreShort), 0u);
  EXPECT_EQ(queue.why(1), nullptr);
  queue.setWhy(ask(Ordinary, 1), {Reason::MemShort, "nobody asks for that"});
  EXPECT_EQ(queue.waitingFor(Ordinary, Reason::MemShort), 0u);
}

TEST(WaitQueue, ShapesAreGoneThroughOnceAndThenFromTheBegin) {
  WaitQueue queue;
  queue.add(1, ask(Ordinary, 1));
  queue.add(2, ask(Ordinary, 1));
  queue.add(3, ask(Offline, 7, "a"));
  std::optional<WaitQueue::Key> cursor;
  for (int round = 0; round < 2; ++round) {
    std::set<std::int64_t> seen;
    while (const ClusterAsk* shape = queue.shapeAfter(cursor)) {
      EXPECT_TRUE(seen.insert(shape->task.mem / gibibytes(1)).second);
    }
    EXPECT_EQ(seen, (std::set<std::int64_t>{1, 7}));
    EXPECT_FALSE(cursor);
  }
}

}  // namespace
}  // namespace qgpu::wait_queue_test
