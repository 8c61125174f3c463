// Everything at once, chosen by a seed: nodes that are cut off, come back, refuse and keep silent,
// storage that fails, schedulers that start again. Then all is well for a while, and the views of
// scheduler and nodes must be one.
#include <gtest/gtest.h>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::scheduler_chaos_test {
namespace {

using testing::ClusterOptions;
using testing::ClusterWorld;
using testing::NodeDouble;
using enum TaskClass;
using Request = schema::ClusterRequest::Builder;

class Chaos {
 public:
  explicit Chaos(std::uint64_t seed)
      : random_(seed), world_(ClusterOptions{{}, seed + 1, Score::Binpack}) {
    world_.start();
    for (const char* name : kNames) {
      world_.add(name, 1 + random_.next() % 3);
      world_.node(name).mixed = below(3) != 0;
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      world_.run();
      checkHolders();
    }
    heal();
    checkViews();
  }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c", "d"};

  std::uint64_t below(std::uint64_t n) { return random_.next() % n; }
  NodeDouble& anyNode() { return world_.node(kNames[below(4)]); }

  void step() {
    NodeDouble& node = anyNode();
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return submit();
      case 4:
        return remove();
      case 5:
        return world_.cut(node.name);
      case 6:
        if (node.link != 0) world_.disconnect(node.name);
        return;
      case 7:
      case 8:
        return reconnect(node);
      case 9:
        node.answers = !node.answers;
        return;
      case 10:
        node.ends = !node.ends;
        return;
      case 11:
        node.refuses = node.refuses.empty() ? "no" : "";
        return;
      case 12:
        return endOne(node);
      case 13:
        return mark(node);
      case 14:
        return trouble();
      default:
        return world_.pass(millis(static_cast<std::int64_t>(below(15'000))));
    }
  }

  void submit() {
    const TaskClass classes[] = {Online, Offline, Ordinary};
    ClusterSpec spec =
        ClusterWorld::spec(classes[below(3)], static_cast<std::int64_t>(1 + below(10)),
                           static_cast<std::int64_t>(10 + below(50)));
    if (spec.task.taskClass == Online) spec.task.share = Permille(0);
    spec.preempt = submits_ % 2 == 0;
    if (below(5) == 0) spec.node = kNames[below(4)];
    if (below(3) == 0) spec.task.requestId = "r" + std::to_string(below(20));
    world_.send(ClusterWorld::submit(spec));
    ++submits_;
  }

  void remove() {
    const std::uint64_t task = 1 + below(submits_ + 1);
    world_.send([task](Request r) { r.setDelete(task); });
  }

  void reconnect(NodeDouble& node) {
    if (node.link != 0) world_.disconnect(node.name);
    node.incarnation += below(2) == 0 ? 1 : 0;
    world_.connect(node.name);
  }

  void endOne(NodeDouble& node) {
    if (node.tasks.empty()) return;
    if (node.link == 0 || node.session == 0) {
      node.tasks.erase(node.tasks.begin());
    } else {
      world_.sayHeld(node.name, node.tasks.begin()->first, true);
    }
  }

  void mark(NodeDouble& node) {
    const std::uint64_t what = below(4);
    world_.send([&](Request r) {
      if (what == 0) return r.initCordon().setNode(node.name);
      if (what > 1) return r.initUncordon().setNode(node.name);
      r.initDrain().initTarget().setNode(node.name);
      r.getDrain().setTimeoutNs(below(20) * 1'000'000'000);
    });
  }

  void trouble() {
    switch (below(4)) {
      case 0:
        return world_.restart();
      case 1:
        return world_.fixture.journal().failAutomatically(
            fail(ErrorCode::Unavailable, "disk full"));
      default:
        return world_.fixture.journal().commitAutomatically();
    }
  }

  // P3: no two nodes hold a task under one epoch.
  void checkHolders() {
    std::set<std::pair<std::uint64_t, std::uint32_t>> held;
    for (const auto& [name, node] : world_.links.nodes) {
      for (const auto& [id, task] : node.tasks) {
        EXPECT_TRUE(held.emplace(task.clusterTask, task.epoch).second)
            << "task " << task.clusterTask << " is held twice under epoch " << task.epoch;
      }
    }
  }

  void heal() {
    world_.fixture.journal().commitAutomatically();
    world_.pass(seconds(3));
    for (const char* name : kNames) {
      NodeDouble& node = world_.node(name);
      node.answers = node.ends = true;
      node.refuses.clear();
      if (node.link != 0) world_.disconnect(name);
      world_.connect(name);
      world_.ask([&](Request r) { r.initUncordon().setNode(name); });
    }
    world_.pass(seconds(11));
    for (const char* name : kNames) {  // whose old connection was not known to be over
      if (world_.node(name).session == 0) world_.connect(name);
    }
    world_.pass(seconds(65));  // orders that nobody answered are given again
  }

  void checkViews() {
    const SchedulerActor& scheduler = *world_.scheduler;
    std::size_t bound = 0;
    for (std::uint64_t id = 1; id <= submits_ + 64; ++id) {
      const Job* job = scheduler.task(id);
      if (job == nullptr) {
        EXPECT_EQ(world_.holders(id), 0u) << "orphan " << id;
        continue;
      }
      if (job->state == PlaceState::Waiting) {
        EXPECT_EQ(world_.holders(id), 0u) << id;
        continue;
      }
      ASSERT_EQ(job->state, PlaceState::Bound) << id << ": " << job->reason;
      ++bound;
      ASSERT_EQ(world_.holders(id), 1u) << id;
      const NodeDouble& node = world_.node(world_.placeOf(id));
      EXPECT_EQ(node.find(id)->epoch, job->epoch) << id;
      EXPECT_EQ(node.find(id)->cards, job->cards) << id;
    }
    EXPECT_EQ(scheduler.ledger().tasks(), bound);
    EXPECT_EQ(scheduler.tasks(), bound + scheduler.waiting());
    EXPECT_EQ(world_.taskRows(), scheduler.tasks());
  }

  Prng random_;
  ClusterWorld world_;
  std::uint64_t submits_ = 0;
};

TEST(SchedulerChaos, C4_AfterHealingEachTaskIsHeldOnceOrWaitsAndTheViewsAgree) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos(seed).run(120);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace qgpu::scheduler_chaos_test
