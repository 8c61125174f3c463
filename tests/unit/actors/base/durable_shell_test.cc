// The shell of durable changes and the feed of events that the node and the scheduler share, over
// an actor that stores one number a round.

#include "actors/base/durable_shell.h"

#include <gtest/gtest.h>

#include "actors/base/event_source.h"
#include "runtime/testing/fixture.h"
#include "schema/envelope.actor.h"

namespace qgpu::testing::durable_shell_test {
namespace {

// Each EventTold asks it to store one more number; what is stored it tells the listener.
class Counter final : public Actor, private DurableShell::Work {
 public:
  explicit Counter(ActorId listener) : listener_(listener) {}

  void handle(schema::Envelope::Reader message, Turn& turn) override {
    dispatch(*this, message, turn);
    shell.finishTurn(*this, turn);
  }
  void onEventTold(schema::Event::Reader, Turn&) { ++asked; }
  void onTick(schema::Tick::Reader tick, Turn&) { shell.onTick(tick.getKind()); }
  void onCommitted(schema::Committed::Reader committed, Turn&) {
    const DurableShell::Commit commit = shell.onCommitted(committed);
    if (commit == DurableShell::Commit::NotOurs) return;
    backs += commit == DurableShell::Commit::Back ? 1 : 0;
    ++stored;
    shell.outbox().put(listener_, [this](schema::Envelope::Builder envelope) {
      envelope.initEventTold().setSeq(stored);
    });
  }
  void onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
    if (health.getOk()) return;
    const DurableShell::Failure failure = shell.onFailed("the disk is full");
    lost += failure.wasInFlight ? 1 : 0;
    if (failure.wasInFlight) ++asked;  // undone: it is wanted still
    shell.armProbe(turn);
  }
  void onUnexpected(schema::Envelope::Which, Turn&) {}

  DurableShell shell{millis(100)};
  std::uint64_t asked = 0, stored = 0;
  int backs = 0, lost = 0;

 private:
  bool hasWork() const override {
    return shell.storageOk() ? asked > 0 : shell.probeDue() && asked > 0;
  }
  bool work(Turn& turn) override {
    shell.takeProbe();
    if (!shell.announce(turn)) return false;
    --asked;
    turn.persist({RowKind::Audit, stored + 1},
                 [&](schema::Row::Builder row) { row.initAudit().setSeq(stored + 1); });
    shell.persisted();
    return true;
  }
  const ActorId listener_;
};

struct World {
  World() { counterId = fixture.add(counter); }
  ~World() { fixture.dropPending(); }
  void ask() {
    EXPECT_EQ(fixture.tell(listenerId, counterId,
                           [](schema::Envelope::Builder e) { e.initEventTold().setSeq(1); }),
              SendResult::Sent);
  }
  Fixture fixture;
  Probe listener;
  ActorId listenerId = fixture.add(listener);
  Counter counter{listenerId};
  ActorId counterId{};
};

TEST(DurableShell, D2_TellsOnlyWhatIsCommitted) {
  World world;
  world.fixture.journal().holdCommits();
  world.ask();
  world.fixture.run();
  EXPECT_TRUE(world.counter.shell.inFlight());
  EXPECT_TRUE(world.listener.empty());
  world.fixture.journal().commitNext();
  world.fixture.run();
  EXPECT_FALSE(world.counter.shell.inFlight());
  EXPECT_EQ(world.listener.size(), 1u);
}

TEST(DurableShell, MakesOneCommitAtATime) {
  World world;
  world.fixture.journal().holdCommits();
  for (int i = 0; i < 3; ++i) world.ask();
  world.fixture.run();
  EXPECT_EQ(world.fixture.journal().waiting(), 1u);
  for (int i = 0; i < 3; ++i) {
    world.fixture.journal().commitNext();
    world.fixture.run();
  }
  EXPECT_EQ(world.counter.stored, 3u);
  EXPECT_EQ(world.listener.size(), 3u);
}

TEST(DurableShell, D4_ProbesAStorageThatFailedUntilItTakesRowsAgain) {
  World world;
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "full"));
  world.ask();
  world.fixture.run();
  EXPECT_EQ(world.counter.lost, 1);
  EXPECT_FALSE(world.counter.shell.storageOk());
  EXPECT_EQ(world.counter.shell.storageText(), "the disk is full");
  world.fixture.advance(millis(250));
  EXPECT_EQ(world.counter.lost, 3) << "one for each probe";
  world.fixture.journal().commitAutomatically();
  world.fixture.advance(millis(100));
  EXPECT_TRUE(world.counter.shell.storageOk());
  EXPECT_EQ(world.counter.shell.storageText(), "ok");
  EXPECT_EQ(world.counter.backs, 1);
  EXPECT_EQ(world.listener.size(), 1u);
}

TEST(DurableShell, C5_ComesBackWhereItsOwnMailboxWasFull) {
  World world;
  world.fixture.setMailboxMax(world.counterId, 0);
  world.fixture.tellUrgent(world.listenerId, world.counterId,
                           [](schema::Envelope::Builder e) { e.initEventTold().setSeq(1); });
  world.fixture.run();
  EXPECT_EQ(world.counter.asked, 1u) << "nothing is decided whose commit would not be heard of";
  world.fixture.setMailboxMax(world.counterId, 16);
  world.fixture.advance(DurableShell::kResend);
  EXPECT_EQ(world.counter.stored, 1u);
}

EventRecord event(const char* kind) {
  return {0, 5, kind, 0, "", "", "test"};
}

TEST(EventSource, NumbersWhatIsNotedAndTellsNoNumberThatARestartCouldGiveAgain) {
  Outbox outbox;
  EventSource feed(outbox, 4);
  feed.note(event("early"));
  feed.tellReservedNotes();
  EXPECT_TRUE(feed.after(0).empty()) << "no number is reserved before the first commit";
  EXPECT_TRUE(feed.rowDue());
  EXPECT_EQ(feed.toStore(), 5u);
  feed.stored();
  for (int i = 0; i < 6; ++i) feed.note(event("later"));
  feed.tellReservedNotes();
  ASSERT_EQ(feed.after(0).size(), 4u);
  EXPECT_EQ(feed.after(0).back().seq, 4u);
  EXPECT_TRUE(feed.rowDue());
}

TEST(EventSource, C5_BoundsItsWatchers) {
  Outbox outbox;
  EventSource feed(outbox, 4);
  for (std::size_t i = 0; i < EventSource::kWatchersMax; ++i) {
    EXPECT_TRUE(feed.watch(ActorId{100 + static_cast<std::uint32_t>(i)}, true));
  }
  EXPECT_EQ(feed.watch(ActorId{99}, true).error().code, ErrorCode::Overloaded);
  EXPECT_TRUE(feed.watch(ActorId{100}, true)) << "again is no other one";
  feed.tellNow(event("told"));
  EXPECT_EQ(outbox.size(), EventSource::kWatchersMax);
  EXPECT_TRUE(feed.watch(ActorId{100}, false));
  EXPECT_TRUE(feed.watch(ActorId{99}, true));
}

TEST(EventSource, GoesOnBehindWhatTheStoreHas) {
  Outbox outbox;
  EventSource feed(outbox, 4);
  feed.load({{7, 0, "b", 0, "", "", ""}, {3, 0, "a", 0, "", "", ""}});
  ASSERT_EQ(feed.after(0).size(), 2u);
  EXPECT_EQ(feed.after(0).front().kind, "a");
  EXPECT_EQ(feed.take(), 8u);
}

}  // namespace
}  // namespace qgpu::testing::durable_shell_test
