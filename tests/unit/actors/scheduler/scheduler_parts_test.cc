// The parts of the scheduler without the actor over them: each one's state, and what it does to
// the others, in rounds that the test begins, ends and undoes itself.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "actors/scheduler/drains.h"
#include "actors/scheduler/evictions.h"
#include "actors/scheduler/freed_room.h"

namespace qgpu::scheduler_parts_test {
namespace {

struct Parts {
  Parts() { rounds.begin(); }

  // A node of cards with 16 GiB each, which is alive.
  MemberId node(const std::string& name, std::size_t cards = 1) {
    MemberFacts facts;
    facts.ledger.name = name;
    facts.ledger.mixed = true;
    for (std::size_t i = 0; i < cards; ++i) {
      ClusterCard card;
      card.id = name + "-" + std::to_string(i);
      card.index = static_cast<std::uint32_t>(i);
      card.mem = gibibytes(16);
      facts.ledger.cards.push_back(card);
      facts.cards.emplace_back().facts.id = card.id;
    }
    const MemberId member = *members.memberFor(name, Nanos(0));
    const auto link = static_cast<std::uint32_t>(member) + 1;
    EXPECT_TRUE(members.membership().open(member, link, 1, Nanos(0)));
    members.takeFacts(member, facts);
    members.setLife(member, NodeLife::Alive);
    return member;
  }
  static Job job(TaskClass taskClass, int gib, std::int64_t percent) {
    Job job;
    job.spec.task.name = "t";
    job.spec.task.taskClass = taskClass;
    job.spec.task.mem = gibibytes(gib);
    job.spec.task.share = Permille(percent * 10);
    return job;
  }
  std::uint64_t admit(Job job) {
    const Result<std::uint64_t> task = tasks.admit(std::move(job));
    EXPECT_TRUE(task) << task.error().message;
    return task.ok() ? *task : 0;
  }
  // Its node holds it.
  void bind(std::uint64_t task) {
    Job job = tasks.at(task);
    job.state = PlaceState::Bound;
    job.boundUnixMs = 1;
    job.held = true;
    tasks.put(task, job, *ledger.spot(TaskId{task}));
  }
  std::uint64_t bound(Job job) {
    const std::uint64_t task = admit(std::move(job));
    bind(task);
    return task;
  }
  void nextRound() {
    rounds.end();
    rounds.begin();
  }
  // As the actor does it after a commit that failed.
  void undoRound() {
    const std::unique_ptr<Round> round = rounds.end();
    tasks.undo(*round);
    evictions.openClaims();
    members.undo(*round);
    rounds.begin();
  }

  SchedulerOptions options;
  DurableShell shell{options.probeEvery};
  EventSource feed{shell.outbox(), 64};
  Rounds rounds{options, shell, feed};
  ClusterLedger ledger{ClusterLedger::Options{}};
  FreedRoom freed;
  Members members{rounds, ledger, freed, ActorId{77}, options.times};
  Places places{ledger, members, freed};
  Groups groups;
  Waiting waiting{ledger, members, groups};
  Tasks tasks{options, rounds, ledger, members, freed, places, groups, waiting};
  Evictions evictions{rounds, ledger, members, freed, places, tasks};
  Drains drains{rounds, ledger, members, freed, tasks};
};

TEST(FreedRoom, OffersANodeAgainThatGainsWhileItIsTried) {
  FreedRoom freed;
  freed.gain(NodeId{3});
  EXPECT_TRUE(freed.takeChanged());
  EXPECT_FALSE(freed.takeChanged());
  freed.nodes().at(NodeId{3}).upTo = WaitQueue::Place{1, 5};
  freed.gain(NodeId{3});
  EXPECT_TRUE(freed.nodes().at(NodeId{3}).again);
}

TEST(FreedRoom, OffersLaterWhatRefused) {
  FreedRoom freed;
  freed.gainLater(NodeId{1}, millis(10));
  freed.gainLater(NodeId{2}, millis(20));
  freed.gainDue(millis(9));
  EXPECT_TRUE(freed.empty());
  freed.gainDue(millis(10));
  EXPECT_TRUE(freed.gained(NodeId{1}));
  EXPECT_FALSE(freed.gained(NodeId{2}));
}

TEST(Members, NameANodeOnceAndKnowWhatTheyMiss) {
  Parts parts;
  const MemberId member = *parts.members.memberFor("a", Nanos(0));
  EXPECT_EQ(*parts.members.memberFor("a", Nanos(0)), member);
  EXPECT_TRUE(parts.members.missing());
  EXPECT_EQ(parts.node("a"), member);
  EXPECT_FALSE(parts.members.missing());
  EXPECT_EQ(parts.members.find("a"), member);
  EXPECT_EQ(parts.members.find("b"), std::nullopt);
}

TEST(Members, P8_KeepMarksAndKeptCardsInTheLedgerAndUndoThem) {
  Parts parts;
  const MemberId a = parts.node("a", 2);
  const NodeId node = *parts.members.at(a).node;
  parts.members.keep(a, "a-1");
  parts.members.applyMarks(a);
  EXPECT_EQ(parts.ledger.room(node, 1).mark, CardMark::Cordoned);
  EXPECT_EQ(parts.ledger.room(node, 0).mark, CardMark::Ready);
  parts.members.touchMarks(a).cordoned = true;
  parts.members.applyMarks(a);
  EXPECT_TRUE(parts.ledger.cordoned(node));
  parts.undoRound();
  EXPECT_FALSE(parts.ledger.cordoned(node));
}

TEST(Members, TellNobodyWithoutASession) {
  Parts parts;
  const MemberId known = *parts.members.memberFor("a", Nanos(0));
  parts.members.tell(known, [](schema::ToMember::Builder) {});
  EXPECT_TRUE(parts.shell.outbox().empty());
  parts.members.tell(parts.node("b"), [](schema::ToMember::Builder) {});
  EXPECT_EQ(parts.shell.outbox().size(), 1u);
}

TEST(Places, P3_KeepATaskOffANodeThatHoldsAnEarlierEpoch) {
  Parts parts;
  const MemberId a = parts.node("a");
  HeldTask held;
  held.clusterTask = 9;
  held.epoch = 2;
  held.spec.mem = gibibytes(4);
  held.spec.share = Permille(500);
  held.cards = {"a-0"};
  parts.places.noteOlder(a, held);
  EXPECT_TRUE(parts.places.holdsOlder(a, 9));
  EXPECT_EQ(parts.ledger.room(*parts.members.at(a).node, 0).memBound, gibibytes(4));
  const ClusterAsk ask = askOf(Parts::job(TaskClass::Ordinary, 1, 10).spec);
  EXPECT_EQ(parts.places.place(9, ask).error().code, ErrorCode::NoRoom);
  EXPECT_TRUE(parts.places.place(8, ask)) << "another task may go there";
  parts.places.olderGone(a, 9, 1);
  EXPECT_TRUE(parts.places.anyOlder()) << "an earlier epoch than that has ended";
  parts.places.olderGone(a, 9, 2);
  EXPECT_FALSE(parts.places.anyOlder());
  EXPECT_TRUE(parts.places.place(9, ask));
  EXPECT_EQ(parts.ledger.room(*parts.members.at(a).node, 0).memBound, Bytes(0));
}

TEST(Waiting, SaysWhyATaskWaits) {
  Parts parts;
  parts.node("a");
  parts.bound(Parts::job(TaskClass::Ordinary, 12, 50));
  const std::uint64_t task = parts.admit(Parts::job(TaskClass::Ordinary, 8, 10));
  EXPECT_TRUE(parts.waiting.queue().contains(task));
  EXPECT_EQ(parts.waiting.why(task, parts.tasks.at(task)).reason, Reason::MemShort);
  EXPECT_NE(parts.waiting.reason(task, parts.tasks.at(task)).find("MemShort: nearest: node a"),
            std::string::npos);
}

TEST(Tasks, P9_UndoGivesBackWhatTheRoundTook) {
  Parts parts;
  const MemberId a = parts.node("a");
  const NodeId node = *parts.members.at(a).node;
  const std::uint64_t kept = parts.bound(Parts::job(TaskClass::Ordinary, 4, 20));
  parts.nextRound();
  const std::uint64_t added = parts.admit(Parts::job(TaskClass::Ordinary, 8, 20));
  parts.tasks.erase(kept, "deleted");
  EXPECT_EQ(parts.ledger.room(node, 0).memBound, gibibytes(8));
  parts.undoRound();
  EXPECT_EQ(parts.tasks.find(added), nullptr);
  EXPECT_EQ(parts.tasks.at(kept).state, PlaceState::Bound);
  EXPECT_EQ(parts.ledger.room(node, 0).memBound, gibibytes(4));
  EXPECT_TRUE(parts.members.at(a).jobs.contains(kept));
}

TEST(Tasks, P6_PlaceAgainUnderALaterEpochAndWakeWhenRoomIsFreed) {
  Parts parts;
  parts.node("a");
  const std::uint64_t first = parts.bound(Parts::job(TaskClass::Ordinary, 12, 50));
  const std::uint64_t second = parts.admit(Parts::job(TaskClass::Ordinary, 8, 10));
  EXPECT_EQ(parts.tasks.at(second).state, PlaceState::Waiting);
  parts.tasks.nodeEnded(first, "over");
  EXPECT_EQ(parts.tasks.find(first), nullptr);
  parts.tasks.wakeWaiting();
  EXPECT_EQ(parts.tasks.at(second).state, PlaceState::Assumed);
  parts.tasks.placeAgain(second, "refused", Tasks::Elsewhere::Later);
  EXPECT_EQ(parts.tasks.at(second).state, PlaceState::Waiting);
  EXPECT_EQ(parts.tasks.at(second).epoch, 2u);
}

TEST(Evictions, HandOverTheRoomInTheTurnInWhichTheLastVictimEnds) {
  Parts parts;
  const MemberId a = parts.node("a");
  const std::uint64_t victim = parts.bound(Parts::job(TaskClass::Offline, 12, 50));
  Job online = Parts::job(TaskClass::Online, 8, 0);
  online.spec.preempt = true;
  const std::uint64_t task = parts.admit(online);
  EXPECT_TRUE(parts.evictions.makesRoomFor(task));
  EXPECT_EQ(parts.tasks.at(victim).state, PlaceState::Ending);
  EXPECT_TRUE(parts.members.isKept(a, "a-0"));
  parts.tasks.nodeEnded(victim, "over");
  EXPECT_EQ(parts.tasks.at(task).state, PlaceState::Assumed);
  EXPECT_FALSE(parts.evictions.makesRoomFor(task));
  EXPECT_FALSE(parts.members.isKept(a, "a-0"));
  EXPECT_EQ(parts.tasks.at(victim).state, PlaceState::Waiting);
}

TEST(Evictions, AreUndoneWithTheirRound) {
  Parts parts;
  const MemberId a = parts.node("a");
  const std::uint64_t victim = parts.bound(Parts::job(TaskClass::Offline, 12, 50));
  parts.nextRound();
  Job online = Parts::job(TaskClass::Online, 8, 0);
  online.spec.preempt = true;
  parts.admit(online);
  EXPECT_EQ(parts.evictions.claims(), 1u);
  parts.undoRound();
  EXPECT_EQ(parts.evictions.claims(), 0u);
  EXPECT_FALSE(parts.members.isKept(a, "a-0"));
  EXPECT_EQ(parts.tasks.at(victim).state, PlaceState::Bound);
}

TEST(Drains, MoveWhatFitsElsewhereAndKeepItsNewRoom) {
  Parts parts;
  const MemberId a = parts.node("a");
  const std::uint64_t task = parts.bound(Parts::job(TaskClass::Ordinary, 12, 50));
  const MemberId b = parts.node("b");
  parts.members.touchMarks(a).drains[""] = UINT64_MAX;
  parts.members.applyMarks(a);
  parts.drains.look();
  EXPECT_EQ(parts.tasks.at(task).state, PlaceState::Ending);
  EXPECT_TRUE(parts.tasks.at(task).again);
  EXPECT_EQ(parts.ledger.room(*parts.members.at(b).node, 0).memBound, gibibytes(12));
  parts.tasks.nodeEnded(task, "over");
  EXPECT_EQ(parts.tasks.at(task).member, b);
  EXPECT_EQ(parts.ledger.room(*parts.members.at(b).node, 0).memBound, gibibytes(12));
  EXPECT_EQ(parts.ledger.room(*parts.members.at(a).node, 0).memBound, Bytes(0));
}

TEST(Drains, EndWhatIsLeftOnceTheirTimeIsOver) {
  Parts parts;
  const MemberId a = parts.node("a");
  const std::uint64_t task = parts.bound(Parts::job(TaskClass::Ordinary, 12, 50));
  parts.members.touchMarks(a).drains["a-0"] = 1;
  parts.members.applyMarks(a);
  parts.drains.look();
  EXPECT_EQ(parts.tasks.at(task).state, PlaceState::Bound) << "it fits nowhere else";
  parts.rounds.setNow(millis(2));
  parts.drains.look();
  EXPECT_EQ(parts.tasks.at(task).state, PlaceState::Ending);
}

}  // namespace
}  // namespace qgpu::scheduler_parts_test
