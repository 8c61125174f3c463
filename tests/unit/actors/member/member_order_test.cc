// What a member does with orders of the scheduler and with binds that somebody asks for here.
#include <gtest/gtest.h>

#include "tests/unit/actors/member/member_world.h"

namespace qgpu::member_order_test {
namespace {

using testing::MemberWorld;
using testing::World;
using testing::WorldOptions;
using enum TaskClass;
using Codes = std::vector<std::string>;
using Which = schema::FromMember::Which;

TaskSpec job(std::int64_t gib = 2, std::int64_t percent = 20) {
  return World::spec(Ordinary, gib, percent);
}

// --- orders to bind ---

TEST(MemberOrder, BindsOnTheCardThatTheSchedulerChoseAndAnswersWithTheToken) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(12, 3, job(), {"sim-1"}));
  ASSERT_EQ(m.bounds(12), 1u);
  const auto bound = m.said(Which::BOUND)[0].getBound();
  EXPECT_EQ(bound.getEpoch(), 3u);
  EXPECT_EQ(bound.getNodeTask(), 1u);
  EXPECT_EQ(bound.getToken().size(), 32u);
  ASSERT_EQ(bound.getCards().size(), 1u);
  EXPECT_STREQ(bound.getCards()[0].cStr(), "sim-1");
  const auto row = m.world.fixture.journal().row({RowKind::Task, 1}).getTask();
  EXPECT_EQ(row.getSpec().getClusterTask(), 12u);
  EXPECT_EQ(row.getSpec().getClusterEpoch(), 3u);
}

TEST(MemberOrder, P5_BindsExactlyTheWholeCardsThatWereChosen) {
  WorldOptions options;
  options.cards = 4;
  MemberWorld m(options);
  m.join();
  TaskSpec whole = job(0, 100);
  whole.cards = 2;
  m.tell(MemberWorld::bind(1, 1, whole, {"sim-3", "sim-1"}));
  ASSERT_EQ(m.bounds(1), 1u) << m.refusals(1).size();
  const auto cards = m.said(Which::BOUND)[0].getBound().getCards();
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_STREQ(cards[0].cStr(), "sim-1");
  EXPECT_STREQ(cards[1].cStr(), "sim-3");
  m.tell(MemberWorld::bind(2, 1, whole, {"sim-0", "sim-3"}));
  EXPECT_EQ(m.refusals(2), Codes{"no-room"}) << "sim-0 and sim-2 are free, but were not chosen";
  m.tell(MemberWorld::bind(3, 1, whole, {"sim-0", "sim-0"}));
  EXPECT_EQ(m.refusals(3), Codes{"invalid-argument"});
}

TEST(MemberOrder, P6_ARepeatedOrderHasOneEffectAndTheSameAnswer) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(m.world.node->tasks(), 1u);
  const auto bounds = m.said(Which::BOUND);
  ASSERT_EQ(bounds.size(), 2u);
  EXPECT_EQ(text(bounds[0].getBound().getToken()), text(bounds[1].getBound().getToken()));
}

TEST(MemberOrder, P6_ARepeatedOrderThatTheNodeStillWorksOnIsAnsweredOnce) {
  MemberWorld m;
  m.join();
  m.world.fixture.journal().holdCommits();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::bind(1, 1, job()));
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  EXPECT_EQ(m.world.node->tasks(), 1u);
  EXPECT_EQ(m.bounds(1), 1u);
}

TEST(MemberOrder, P6_AnOrderRepeatedAfterARestartGetsTheTokenOfBefore) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  const std::string token = text(m.said(Which::BOUND)[0].getBound().getToken());
  MemberWorld next(m.restarted());
  next.join(8);
  next.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(next.world.node->tasks(), 1u);
  ASSERT_EQ(next.bounds(1), 1u);
  EXPECT_EQ(text(next.said(Which::BOUND)[0].getBound().getToken()), token);
}

TEST(MemberOrder, P6_AStaleEpochChangesNothing) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 5, job()));
  m.tell(MemberWorld::bind(1, 4, job()));
  EXPECT_EQ(m.refusals(1), Codes{"conflict"});
  m.tell(MemberWorld::end(1, 4));
  EXPECT_EQ(m.world.node->tasks(), 1u);
  m.tell(MemberWorld::end(1, 5));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  m.tell(MemberWorld::bind(1, 5, job()));
  m.tell(MemberWorld::bind(1, 4, job()));
  EXPECT_EQ(m.world.node->tasks(), 0u) << "what ended stays ended";
  m.tell(MemberWorld::bind(1, 6, job()));
  EXPECT_EQ(m.bounds(1), 2u);
}

TEST(MemberOrder, P6_TheNodeItselfRefusesWhatHasEndedBeforeTheMemberKnows) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setEvict(1); }), "ok");
  const auto again = [](schema::Envelope::Builder envelope) {
    auto request = envelope.initRequest();
    request.setCorr(UINT64_MAX);
    auto place = request.initPlace();
    place.setTask(1);
    place.setEpoch(1);
    writeSpec(job(), place.initSpec());
  };
  EXPECT_EQ(m.world.fixture.tell(m.world.memberId, m.world.nodeId, again), SendResult::Sent);
  m.world.run();
  EXPECT_EQ(m.world.node->tasks(), 0u);
}

TEST(MemberOrder, P6_WhatWasRefusedStaysRefusedWhenRoomAppears) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job(8)));
  m.tell(MemberWorld::bind(2, 1, job(8)));
  EXPECT_EQ(m.refusals(2), Codes{"no-room"});
  m.tell(MemberWorld::end(1, 1));
  m.tell(MemberWorld::bind(2, 1, job(8)));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.refusals(2), (Codes{"no-room", "no-room"}));
  m.tell(MemberWorld::bind(2, 2, job(8)));
  EXPECT_EQ(m.bounds(2), 1u);
}

// A refused epoch may be bound elsewhere by then.
TEST(MemberOrder, P3_AnEpochRefusedBecauseAnOlderOneIsHereStaysRefusedWhenThatHasEnded) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 5, job()));
  m.tell(MemberWorld::bind(1, 7, job()));
  EXPECT_EQ(m.refusals(1), Codes{"conflict"});
  m.tell(MemberWorld::bind(1, 5, job()));
  EXPECT_EQ(m.bounds(1), 2u) << "what is held is answered for as before";
  m.tell(MemberWorld::end(1, 5));
  m.tell(MemberWorld::bind(1, 7, job()));
  m.tell(MemberWorld::bind(1, 6, job()));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.refusals(1).size(), 3u);
  m.tell(MemberWorld::bind(1, 8, job()));
  EXPECT_EQ(m.bounds(1), 3u);
}

TEST(MemberOrder, P3_AnEpochRefusedWhileAnOlderOneWasAtTheNodeStaysRefused) {
  MemberWorld m;
  m.join();
  m.world.fixture.journal().holdCommits();
  m.tell(MemberWorld::bind(1, 5, job()));
  m.tell(MemberWorld::bind(1, 7, job()));
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  EXPECT_EQ(m.bounds(1), 1u);
  m.tell(MemberWorld::end(1, 5));
  m.tell(MemberWorld::bind(1, 7, job()));
  EXPECT_EQ(m.world.node->tasks(), 0u);
}

TEST(MemberOrder, P3_AnEpochEndedBeforeItCameStaysEndedWhenAnOlderOneWasHere) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 5, job()));
  m.tell(MemberWorld::end(1, 6));
  EXPECT_EQ(m.world.node->tasks(), 0u) << "the end of an epoch is that of those before it";
  m.tell(MemberWorld::bind(1, 6, job()));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.refusals(1), Codes{"conflict"});
}

TEST(MemberOrder, P3_WhatWasRefusedLastIsRememberedAsLongAsThatOfOthers) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job(8)));
  m.tell(MemberWorld::bind(2, 1, job(8)));
  for (std::uint64_t task = 3; task < KnownTasks::kOverKept; ++task) {
    m.tell(MemberWorld::end(task, 1));
  }
  m.tell(MemberWorld::bind(2, 2, job(8)));
  m.tell(MemberWorld::end(1, 1));
  for (std::uint64_t task = 2'000; task < 2'010; ++task) m.tell(MemberWorld::end(task, 1));
  m.tell(MemberWorld::bind(2, 2, job(8)));
  EXPECT_EQ(m.world.node->tasks(), 0u) << "its first refusal is long ago, its last is not";
}

TEST(MemberOrder, CarriesOutMoreOrdersThanTheNodeTakesAtOnce) {
  WorldOptions options;
  options.slots = 128;
  options.cards = 2;
  options.gib = 128;
  options.tasksMax = 128;
  MemberWorld m(options);
  m.join();
  m.world.fixture.journal().holdCommits();
  for (std::uint64_t task = 1; task <= 90; ++task) {
    m.tell(MemberWorld::bind(task, 1, job(1, 1)));
  }
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  EXPECT_EQ(m.world.node->tasks(), 90u);
  EXPECT_EQ(m.said(Which::BOUND).size(), 90u);
}

TEST(MemberOrder, P3_SaysNoHelloWhileTheNodeStillWorksOnAnOrderOfBefore) {
  MemberWorld m;
  m.join();
  m.world.fixture.journal().holdCommits();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.down();
  m.up();
  EXPECT_TRUE(m.said(Which::HELLO).empty());
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  ASSERT_EQ(m.said(Which::HELLO).size(), 1u);
  ASSERT_EQ(m.hello().getTasks().size(), 1u);
  EXPECT_EQ(m.hello().getTasks()[0].getClusterTask(), 1u);
  EXPECT_EQ(m.bounds(1), 0u) << "an answer of the session before";
}

// --- orders to end ---

TEST(MemberOrder, TellsOfTheEndAtOnceWhereNobodyIsAttached) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::end(1, 1));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.heldAs(1), "ended");
}

TEST(MemberOrder, TellsOfTheEndOfATaskWithProcessesWhenTheyAreGone) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.world.attached(1);
  m.tell(MemberWorld::end(1, 1));
  m.tell(MemberWorld::end(1, 1));
  EXPECT_EQ(m.heldAs(1), "bound");
  m.world.gone(1);
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.heldAs(1), "ended");
}

TEST(MemberOrder, SaysOfWhatItDoesNotHoldThatItIsOver) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::end(9, 2));
  EXPECT_EQ(m.heldAs(9), "ended");
  m.tell(MemberWorld::bind(9, 2, job()));
  EXPECT_EQ(m.refusals(9), Codes{"conflict"}) << "it was ended before it came";
}

TEST(MemberOrder, EndsAnAdoptedTaskByItsNumberHere) {
  MemberWorld m;
  const std::uint64_t local = m.world.bound(job());
  m.join();
  m.tell(MemberWorld::end(33, 1, local));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  const auto last = m.said(Which::TASKS).back().getTasks();
  EXPECT_EQ(last[0].getNodeTask(), local);
  EXPECT_TRUE(last[0].getEnded());
}

TEST(MemberOrder, EndsNobodyElseWhoHasThatNumberHere) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::end(2, 1, 1));
  EXPECT_EQ(m.world.node->tasks(), 1u);
  EXPECT_EQ(m.heldAs(2), "ended");
}

TEST(MemberOrder, EndsATaskOnceStorageWorksAgain) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  m.tell(MemberWorld::end(1, 1));
  EXPECT_EQ(m.heldAs(1), "bound");
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.advance(seconds(4));
  EXPECT_EQ(m.heldAs(1), "ended");
}

TEST(MemberOrder, MarksCardsAsOrdered) {
  MemberWorld m;
  m.join();
  const auto mark = [](schema::OrderMark::Mark wanted) {
    return [wanted](schema::ToMember::Builder word) {
      word.initMark().setCard("sim-0");
      word.getMark().setMark(wanted);
    };
  };
  m.tell(mark(schema::OrderMark::Mark::CORDON));
  EXPECT_EQ(m.world.node->ledger().mark(0), CardMark::Cordoned);
  m.tell(mark(schema::OrderMark::Mark::DRAIN));
  EXPECT_EQ(m.world.node->ledger().mark(0), CardMark::Draining);
  m.tell(mark(schema::OrderMark::Mark::UNCORDON));
  EXPECT_EQ(m.world.node->ledger().mark(0), CardMark::Ready);
}

// --- local binds ---

TEST(MemberForward, ALocalBindGoesToTheSchedulerAndIsAnsweredAsTheNodeWould) {
  MemberWorld m;
  m.join();
  const std::uint64_t corr = m.forward(job(), {1000, false});
  ASSERT_EQ(m.said(Which::FORWARD).size(), 1u);
  const auto forward = m.said(Which::FORWARD)[0].getForward();
  EXPECT_EQ(forward.getUid(), 1000u);
  EXPECT_EQ(forward.getSpec().getTask().getOwnerUid(), 1000u);
  EXPECT_STREQ(forward.getSpec().getNode().cStr(), "here");
  m.tell(MemberWorld::bind(4, 1, readSpec(forward.getSpec().getTask())));
  EXPECT_FALSE(m.world.answered(corr));
  m.tell(MemberWorld::forwarded(forward.getCorr(), 4));
  ASSERT_EQ(m.world.answers(corr), 1u);
  const auto bound = m.world.reply(corr).getBound();
  EXPECT_EQ(bound.getTask(), 1u);
  EXPECT_EQ(text(bound.getToken()), text(m.said(Which::BOUND)[0].getBound().getToken()));
  EXPECT_STREQ(bound.getAttachSocket().cStr(), "/run/qgpu/attach.sock");
}

TEST(MemberForward, WaitsForTheNodeWhereTheSchedulerAnswersBeforeIt) {
  MemberWorld m;
  m.join();
  const std::uint64_t corr = m.forward(job());
  m.world.fixture.journal().holdCommits();
  m.tell(MemberWorld::bind(4, 1, job()));
  m.tell(MemberWorld::forwarded(1, 4));
  EXPECT_FALSE(m.world.answered(corr));
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  EXPECT_TRUE(m.world.reply(corr).isBound());
}

TEST(MemberForward, PassesRefusalsOnFromSchedulerAndNode) {
  MemberWorld m;
  m.join();
  const std::uint64_t first = m.forward(job());
  m.tell(MemberWorld::forwardFailed(1, "no-room"));
  EXPECT_EQ(m.world.code(first), "no-room");
  const std::uint64_t second = m.forward(job(8));
  m.tell(MemberWorld::bind(1, 1, job(8)));
  m.tell(MemberWorld::bind(2, 1, job(8)));
  m.tell(MemberWorld::forwarded(2, 2));
  EXPECT_EQ(m.world.code(second), "no-room");
  const std::uint64_t third = m.forward(job());
  m.tell(MemberWorld::forwarded(3, 77));
  EXPECT_EQ(m.world.code(third), "conflict") << "a repeated request whose task is elsewhere";
  EXPECT_EQ(m.world.code(m.forward(TaskSpec())), "invalid-argument");
  EXPECT_EQ(m.member.forwards(), 0u);
}

TEST(MemberForward, AnswersARepeatedRequestWithTheTokenAlsoAfterARestart) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(4, 1, job()));
  const std::string token = text(m.said(Which::BOUND)[0].getBound().getToken());
  MemberWorld next(m.restarted());
  next.join(8);
  const std::uint64_t corr = next.forward(job());
  next.tell(MemberWorld::forwarded(1, 4));
  EXPECT_EQ(text(next.world.reply(corr).getBound().getToken()), token);
}

TEST(MemberForward, C2_ASilentSchedulerIsAnAnswerToo) {
  MemberWorld m;
  m.join();
  const std::uint64_t first = m.forward(job());
  m.world.fixture.advance(seconds(2));
  const std::uint64_t second = m.forward(job());
  m.world.fixture.advance(millis(2'500));
  EXPECT_EQ(m.world.code(first), "unavailable");
  EXPECT_FALSE(m.world.answered(second));
  m.world.fixture.advance(seconds(2));
  EXPECT_EQ(m.world.code(second), "unavailable");
  m.tell(MemberWorld::forwardFailed(1, "no-room"));
  EXPECT_EQ(m.world.answers(first), 1u);
}

TEST(MemberForward, C2_TheEndOfTheSessionIsAnAnswerToo) {
  MemberWorld m;
  m.join();
  const std::uint64_t corr = m.forward(job());
  m.down();
  EXPECT_EQ(m.world.code(corr), "unavailable");
  EXPECT_EQ(m.world.code(m.forward(job())), "unavailable") << "and so it is without a session";
}

TEST(MemberForward, C5_RefusesMoreThanSoManyAtOnce) {
  MemberWorld m;
  m.join();
  for (std::size_t i = 0; i < Forwards::kForwardsMax; ++i) m.forward(job());
  EXPECT_EQ(m.world.code(m.forward(job())), "overloaded");
  m.down();
}

// --- who may speak for the scheduler ---

TEST(MemberForward, C7_NobodyButTheMemberNamesATaskOfTheScheduler) {
  MemberWorld m;
  m.join();
  TaskSpec liar = job();
  liar.clusterTask = 5;
  liar.clusterEpoch = 9;
  m.forward(liar);
  EXPECT_EQ(m.said(Which::FORWARD)[0].getForward().getSpec().getTask().getClusterTask(), 0u);
  const std::uint64_t task = m.world.bound(liar);
  const auto row = m.world.fixture.journal().row({RowKind::Task, task}).getTask();
  EXPECT_EQ(row.getSpec().getClusterTask(), 0u);
  EXPECT_EQ(row.getSpec().getClusterEpoch(), 0u);
}

TEST(MemberForward, C7_ADoorMayNotGiveTheOrdersOfAScheduler) {
  MemberWorld m;
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) {
    r.initPlace().setTask(1);
    writeSpec(job(), r.getPlace().initSpec());
  }),
            "unsupported");
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setClusterTerm(9); }), "unsupported");
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setStanding("joined"); }),
            "unsupported");
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.initEnd().setNodeTask(1); }),
            "unsupported");
  World alone;
  alone.start();
  EXPECT_EQ(alone.order([](schema::Request::Builder r) { r.setClusterTerm(9); }), "unsupported");
}

}  // namespace
}  // namespace qgpu::member_order_test
