// The deterministic fixture keeps the promises of the dispatcher, and the test decides the order.
#include "runtime/testing/fixture.h"

#include <functional>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <vector>

#include "schema/envelope.actor.h"

namespace qgpu::testing::fixture_test {
namespace {

using Envelope = schema::Envelope;

class Scripted final : public Actor {
 public:
  using Script = std::function<void(Envelope::Reader, Turn&)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}
  void handle(Envelope::Reader message, Turn& turn) override { script_(message, turn); }

 private:
  Script script_;
};

auto tick(std::uint64_t value) {
  return [value](Envelope::Builder m) { m.initTick().setValue(value); };
}
std::vector<std::uint64_t> ticksOf(Probe& probe) {
  std::vector<std::uint64_t> values;
  for (const auto& r : probe.received()) {
    if (r.message().isTick()) values.push_back(r.message().getTick().getValue());
  }
  return values;
}
using Values = std::vector<std::uint64_t>;

TEST(Fixture, DeliversControlFirstAndKeepsTheOrderOfAPair) {
  Fixture world;
  Probe probe;
  const ActorId to = world.add(probe);
  const ActorId from = world.reserve();
  (void)world.tell(from, to, tick(1));
  (void)world.tell(from, to, tick(2));
  world.tellUrgent(from, to, tick(3));
  EXPECT_EQ(world.pending().size(), 3U);
  EXPECT_EQ(world.run(), 3U);
  EXPECT_EQ(ticksOf(probe), (Values{3, 1, 2}));
}

TEST(Fixture, TheTestChoosesWhichPairIsNext) {
  Fixture world;
  Probe probe;
  const ActorId to = world.add(probe);
  const ActorId a = world.reserve();
  const ActorId b = world.reserve();
  (void)world.tell(a, to, tick(1));
  (void)world.tell(b, to, tick(2));
  EXPECT_TRUE(world.deliver(b, to));
  EXPECT_FALSE(world.deliver(b, to));
  EXPECT_TRUE(world.deliver(a, to));
  EXPECT_EQ(ticksOf(probe), (Values{2, 1}));
}

TEST(Fixture, TimersFireWhenTheClockMoves) {
  Fixture world;
  std::vector<std::pair<std::uint64_t, Nanos>> fired;
  const Nanos begin = world.now();
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    const std::uint64_t value = m.getTick().getValue();
    fired.emplace_back(value, turn.now() - begin);
    if (value == 0) {
      turn.after(millis(3), tick(3));
      turn.after(millis(1), tick(1));
      turn.cancel(turn.after(millis(2), tick(2)));
    }
    if (value == 1) turn.after(millis(1), tick(4));
  });
  world.tellUrgent(world.reserve(), world.add(actor), tick(0));
  world.run();
  EXPECT_EQ(*world.nextTimer(), begin + millis(1));
  world.advance(millis(10));
  EXPECT_EQ(world.now(), begin + millis(10));
  EXPECT_EQ(fired, (std::vector<std::pair<std::uint64_t, Nanos>>{
                       {0, Nanos(0)}, {1, millis(1)}, {4, millis(2)}, {3, millis(3)}}));
}

TEST(Fixture, ATimerThatIsDueButNotDeliveredCanStillBeCancelled) {
  Fixture world;
  TimerId timer{};
  std::vector<std::uint64_t> got;
  Scripted actor([&](Envelope::Reader m, Turn& turn) {
    got.push_back(m.getTick().getValue());
    if (got.back() == 0) timer = turn.after(millis(1), tick(1));
    if (got.back() == 2) turn.cancel(timer);
  });
  const ActorId id = world.add(actor);
  const ActorId other = world.reserve();
  world.tellUrgent(other, id, tick(0));
  world.run();
  world.advanceOnly(millis(1));
  world.tellUrgent(other, id, tick(2));
  EXPECT_TRUE(world.deliver(other, id));
  EXPECT_TRUE(world.quiet());
  EXPECT_EQ(got, (Values{0, 2}));
}

TEST(Fixture, C5_AFullMailboxRefusesTheSender) {
  Fixture world;
  Probe probe;
  const ActorId to = world.add(probe);
  world.setMailboxMax(to, 2);
  const ActorId from = world.reserve();
  EXPECT_EQ(world.tell(from, to, tick(1)), SendResult::Sent);
  EXPECT_EQ(world.tell(from, to, tick(2)), SendResult::Sent);
  EXPECT_EQ(world.tell(from, to, tick(3)), SendResult::Refused);
  world.tellUrgent(from, to, tick(4));
  world.run();
  EXPECT_EQ(ticksOf(probe), (Values{4, 1, 2}));
}

// Persists each value >= 100 and tells `peer` of every value.
struct Gated {
  Gated() {
    writerId = world.add(writer);
    peerId = world.add(peer);
    from = world.reserve();
  }
  void tell(std::uint64_t value) {
    ASSERT_EQ(world.tell(from, writerId, tick(value)), SendResult::Sent);
    world.run();
  }
  Fixture world;
  Probe peer;
  ActorId writerId{};
  ActorId peerId{};
  ActorId from{};
  std::string failure;
  Scripted writer{[this](Envelope::Reader m, Turn& turn) {
    if (m.isStorageHealth()) {
      failure = m.getStorageHealth().getText().cStr();
      return;
    }
    const std::uint64_t value = m.getTick().getValue();
    if (value >= 100) {
      turn.persist({RowKind::Node, 0},
                   [&](schema::Row::Builder row) { row.initNode().setNextTask(value); });
    }
    EXPECT_EQ(turn.send(peerId, tick(value)), SendResult::Sent);
  }};
};

TEST(Fixture, D2_CommitsDecideWhenOrdinarySendsLeave) {
  Gated one;
  one.world.journal().holdCommits();
  for (const std::uint64_t v : {1U, 100U, 2U, 101U}) one.tell(v);
  EXPECT_EQ(ticksOf(one.peer), (Values{1}));
  one.world.journal().commitNext();
  one.world.run();
  EXPECT_EQ(ticksOf(one.peer), (Values{1, 100, 2}));
  EXPECT_EQ(one.world.journal().row({RowKind::Node, 0}).getNode().getNextTask(), 100U);
  one.world.journal().failNext(fail(ErrorCode::Unavailable, "disk full"));
  one.world.run();
  EXPECT_EQ(ticksOf(one.peer), (Values{1, 100, 2}));
  EXPECT_EQ(one.failure, "disk full");
}

TEST(Fixture, CommitsAreDecidedRightAfterTheTurnUnlessTheyAreHeld) {
  Gated one;
  one.tell(100);
  EXPECT_EQ(ticksOf(one.peer), (Values{100}));
  one.world.journal().failAutomatically(fail(ErrorCode::Unavailable, "broken"));
  one.tell(101);
  EXPECT_EQ(ticksOf(one.peer), (Values{100}));
  EXPECT_EQ(one.failure, "broken");
}

// Three actors that pass random numbers around until each had its share.
std::uint64_t traceOf(std::uint64_t seed) {
  Fixture world(seed);
  std::vector<ActorId> ids;
  int left = 200;
  Scripted actor([&](Envelope::Reader, Turn& turn) {
    for (int i = 0; i < 2 && left > 0; ++i, --left) {
      (void)turn.send(ids[turn.random() % ids.size()], tick(turn.random()));
    }
    if (turn.random() % 4 == 0 && left > 0) turn.after(micros(5), tick(0));
  });
  for (int i = 0; i < 3; ++i) ids.push_back(world.add(actor));
  (void)world.tell(ids[0], ids[1], tick(0));
  while (world.deliverRandom() || world.nextTimer()) {
    if (world.quiet()) world.advanceOnly(micros(5));
  }
  return world.trace();
}

TEST(Fixture, EqualSeedsGiveEqualTracesAndOthersDoNot) {
  EXPECT_EQ(traceOf(3), traceOf(3));
  EXPECT_NE(traceOf(3), traceOf(4));
}

void leaveAMessage() {
  Fixture world;
  Probe probe;
  (void)world.tell(world.reserve(), world.add(probe), tick(1));
}
void leaveABatch() {
  Gated one;
  one.world.journal().holdCommits();
  one.tell(100);
}

TEST(Fixture, FailsATestThatLeavesMessagesOrBatchesBehind) {
  EXPECT_NONFATAL_FAILURE(leaveAMessage(), "left over");
  EXPECT_NONFATAL_FAILURE(leaveABatch(), "nobody decided");
}

}  // namespace
}  // namespace qgpu::testing::fixture_test
