// What the arbiter promises, one promise per test.

#include "actors/arbiter.h"

#include <gtest/gtest.h>

#include <string>

namespace qgpu {
namespace {

constexpr TaskId kA{1}, kB{2}, kC{3}, kOn{9};

// A card at a chosen time; every call gives the orders as text, such as "hold 1, open 2 contended".
class ArbiterCase : public testing::Test {
 protected:
  explicit ArbiterCase(ArbiterConfig config = {}) : arbiter(config, now) {}

  std::string join(TaskId id, TaskClass taskClass, std::int64_t share = 300) {
    ArbiterTask task;
    task.id = id;
    task.taskClass = taskClass;
    task.share = Permille(share);
    return take([&] { arbiter.join(task, now, out); });
  }
  std::string busy(TaskId id) {
    return take([&] { arbiter.busy(id, now, now, out); });
  }
  std::string quiet(TaskId id) {
    return take([&] { arbiter.quiet(id, now, now, out); });
  }
  std::string settle(TaskId id) {
    return take([&] { arbiter.settled(id, lastHold, now, now, out); });
  }
  std::string settleEpoch(TaskId id, std::uint32_t epoch) {
    return take([&] { arbiter.settled(id, epoch, now, now, out); });
  }
  std::string died(TaskId id) {
    return take([&] { arbiter.died(id, now, out); });
  }
  std::string leave(TaskId id) {
    return take([&] { arbiter.leave(id, now, out); });
  }
  std::string retired(TaskId id) {
    return take([&] { arbiter.retired(id, now, out); });
  }
  std::string policy(Policy next) {
    return take([&] { arbiter.setPolicy(next, now, out); });
  }
  // Lets time pass with all deadlines kept.
  std::string after(Nanos span) {
    const Nanos end = now + span;
    std::string all;
    while (arbiter.nextDeadline() <= end) {
      now = std::max(now, arbiter.nextDeadline());
      const std::string orders = take([&] { arbiter.expire(now, out); });
      if (!orders.empty()) all += (all.empty() ? "" : ", ") + orders;
    }
    now = end;
    return all;
  }
  // Whether the last call noted this about the task.
  bool noted(ArbiterNote::Kind kind, TaskId id) const {
    for (const ArbiterNote& note : out.notes) {
      if (note.kind == kind && note.task == id) return true;
    }
    return false;
  }
  Arbiter::TaskView view(TaskId id) const { return *arbiter.task(id, now); }

  Nanos now = seconds(1);
  Decisions out;
  std::uint32_t lastHold = 0;
  Arbiter arbiter;

 private:
  template <typename Call>
  std::string take(Call call) {
    out.clear();
    call();
    std::string text;
    for (const GateDecision& order : out.gates) {
      const bool opens = order.kind == GateDecision::Kind::Open;
      if (!opens) lastHold = order.epoch;
      text += (text.empty() ? "" : ", ") + std::string(opens ? "open " : "hold ");
      text += std::to_string(static_cast<std::uint64_t>(order.task));
      if (order.notify) text += " notify";
      if (order.contended) text += " contended";
    }
    return text;
  }
};

TEST_F(ArbiterCase, A7_GrantsAnIdleCardInTheTurnInWhichATaskWantsIt) {
  EXPECT_EQ(join(kA, TaskClass::Ordinary), "");
  EXPECT_EQ(busy(kA), "open 1");
}

TEST_F(ArbiterCase, A1_GrantsTheNextOnlyWhenTheHolderHasSettled) {
  join(kA, TaskClass::Ordinary);
  join(kB, TaskClass::Ordinary);
  busy(kA);
  now += millis(5);
  EXPECT_EQ(busy(kB), "hold 1");
  now += millis(1);
  EXPECT_EQ(settle(kA), "open 2 contended");
}

TEST_F(ArbiterCase, A3_HoldsTheOfflineTaskInTheTurnThatOnlineArrives) {
  EXPECT_EQ(join(kOn, TaskClass::Online), "open 9 notify");
  join(kA, TaskClass::Offline);
  EXPECT_EQ(busy(kA), "open 1 contended");
  now += micros(10);
  EXPECT_EQ(busy(kOn), "hold 1, open 9");
  EXPECT_EQ(settle(kA), "");
}

TEST_F(ArbiterCase, A3_ResumesTheOfflineTaskWhenOnlineWasIdleLongEnough) {
  join(kOn, TaskClass::Online);
  join(kA, TaskClass::Offline);
  busy(kA);
  busy(kOn);
  settle(kA);
  now += millis(3);
  EXPECT_EQ(quiet(kOn), "");
  EXPECT_EQ(after(millis(100) - Nanos(1)), "");
  EXPECT_EQ(after(Nanos(1)), "open 9 notify, open 1 contended");
}

TEST_F(ArbiterCase, ALoneTaskThatWantsNothingIsParkedAndResumesWithoutAHold) {
  join(kA, TaskClass::Ordinary);
  busy(kA);
  now += millis(1);
  EXPECT_EQ(quiet(kA), "");
  EXPECT_EQ(after(millis(1)), "open 1 notify");
  EXPECT_EQ(view(kA).used, millis(1) + micros(500));
  EXPECT_EQ(busy(kA), "open 1");
}

}  // namespace
}  // namespace qgpu
