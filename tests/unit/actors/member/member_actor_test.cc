// The session of a member with its scheduler: hello, welcome, terms, beats and the lease.
#include <gtest/gtest.h>

#include "tests/unit/actors/member/member_world.h"

namespace qgpu::member_actor_test {
namespace {

using testing::MemberWorld;
using testing::World;
using enum TaskClass;
using Which = schema::FromMember::Which;

TaskSpec job(std::int64_t gib = 2, std::int64_t percent = 20) {
  return World::spec(Ordinary, gib, percent);
}

TEST(Member, SaysWhatTheNodeIsAndHoldsAsSoonAsTheLinkIsUp) {
  MemberWorld m;
  const std::uint64_t local = m.world.bound(job());
  m.up();
  const auto hello = m.hello();
  EXPECT_STREQ(hello.getFacts().getName().cStr(), "here");
  EXPECT_EQ(hello.getFacts().getCards().size(), 2u);
  EXPECT_EQ(hello.getFacts().getCpuMilli(), 4'000u);
  EXPECT_EQ(hello.getFacts().getHostMemBytes(), std::uint64_t{64} << 30);
  EXPECT_STREQ(hello.getFacts().getEnvironment()[0].cStr(), "POCL_DEVICES=cpu");
  ASSERT_EQ(hello.getTasks().size(), 1u);
  EXPECT_EQ(hello.getTasks()[0].getNodeTask(), local);
  EXPECT_EQ(hello.getTasks()[0].getClusterTask(), 0u) << "the scheduler adopts it";
  EXPECT_STREQ(hello.getTasks()[0].getCards()[0].cStr(), "sim-0");
  EXPECT_EQ(m.cluster(), "joining");
}

TEST(Member, JoinsWithTheWelcomeThatRepeatsItsNonceAndBeatsFromThenOn) {
  MemberWorld m;
  m.up();
  m.tellAs(7, 1, [&](schema::ToMember::Builder word) {
    word.initWelcome().setNonce(m.hello().getNonce() + 1);
  });
  EXPECT_EQ(m.member.state(), MemberState::Greeting);
  m.welcome(7, 1);
  EXPECT_EQ(m.member.state(), MemberState::Member);
  EXPECT_EQ(m.cluster(), "joined: term 1");
  ASSERT_EQ(m.said(Which::BEAT).size(), 1u);
  m.world.fixture.advance(seconds(5));
  ASSERT_EQ(m.said(Which::BEAT).size(), 2u);
  EXPECT_EQ(m.said(Which::BEAT)[1].getBeat(),
            static_cast<std::uint64_t>(m.world.fixture.now().value));
}

TEST(Member, NumbersItsWordsFromOneWithoutGaps) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::bind(2, 1, job(64)));
  m.world.fixture.advance(seconds(11));
  std::uint64_t expected = 0;
  for (const auto word : m.said()) {
    if (word.isHello()) continue;
    EXPECT_EQ(word.getSession(), 7u);
    EXPECT_EQ(word.getSeq(), ++expected);
  }
  EXPECT_GE(expected, 5u);
}

TEST(Member, DropsTheLinkWhereAWordCannotLeaveAndCountsAnewInTheNextSession) {
  MemberWorld m;
  m.join();
  m.world.fixture.setMailboxMax(m.linkId, 0);
  m.world.fixture.advance(seconds(5));
  EXPECT_EQ(m.member.state(), MemberState::Down);
  EXPECT_TRUE(m.dropped());
  m.world.fixture.setMailboxMax(m.linkId, 64);
  m.join(8);
  EXPECT_EQ(m.said(Which::BEAT).front().getSeq(), 1u);
  EXPECT_EQ(m.said(Which::BEAT).front().getSession(), 8u);
}

TEST(Member, SaysHelloAgainWithAllItHoldsAfterTheLinkWasDown) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(5, 3, job()));
  m.down("reset by peer");
  EXPECT_EQ(m.cluster(), "no scheduler: reset by peer");
  m.up();
  ASSERT_EQ(m.hello().getTasks().size(), 1u);
  EXPECT_EQ(m.hello().getTasks()[0].getClusterTask(), 5u);
  EXPECT_EQ(m.hello().getTasks()[0].getEpoch(), 3u);
  m.welcome(8, 1);
  EXPECT_EQ(m.member.state(), MemberState::Member);
}

TEST(Member, DropsTheLinkThatBringsNoWelcome) {
  MemberWorld m;
  m.up();
  m.world.fixture.advance(seconds(10));
  EXPECT_TRUE(m.dropped());
  EXPECT_EQ(m.member.state(), MemberState::Down);
}

TEST(Member, AsksASchedulerThatTurnedItAwayAgainLater) {
  MemberWorld m;
  m.up();
  m.tellAs(0, 1, [](schema::ToMember::Builder word) {
    word.initTurnedAway().setCode("already-exists");
    word.getTurnedAway().setMessage("another node has this name");
  });
  EXPECT_EQ(m.cluster(), "turned away: another node has this name");
  EXPECT_FALSE(m.dropped());
  m.world.fixture.advance(seconds(5));
  EXPECT_TRUE(m.dropped());
  EXPECT_EQ(m.member.state(), MemberState::Down);
}

TEST(Member, StartsAnewWhereTheSchedulerGaveUpItsSession) {
  MemberWorld m;
  m.join(7);
  const auto turnedAway = [](schema::ToMember::Builder word) {
    word.initTurnedAway().setCode("unavailable");
    word.getTurnedAway().setMessage("say hello again");
  };
  m.tellAs(6, 1, turnedAway);
  EXPECT_EQ(m.member.state(), MemberState::Member);
  m.tellAs(7, 1, turnedAway);
  EXPECT_EQ(m.member.state(), MemberState::Down);
  EXPECT_TRUE(m.dropped());
}

TEST(Member, StartsAnewWhereItsConnectionWasGivenUpForALaterOne) {
  for (const bool joined : {false, true}) {
    MemberWorld m;
    if (joined) m.join(7);
    if (!joined) m.world.fixture.journal().holdCommits();
    if (!joined) m.up();
    if (!joined) m.welcome(7, 1);  // its term is not stored yet
    m.tellAs(0, 2, [](schema::ToMember::Builder word) {
      word.initTurnedAway().setCode("conflict");
      word.getTurnedAway().setMessage("a later session took over");
    });
    EXPECT_EQ(m.member.state(), MemberState::Down);
    EXPECT_TRUE(m.dropped());
    m.world.fixture.journal().commitAutomatically();
    if (!joined) m.world.fixture.journal().commitNext();
    m.world.run();
  }
}

TEST(Member, A10_DropsWordsOfAnotherSession) {
  MemberWorld m;
  m.join(7);
  m.tellAs(6, 1, MemberWorld::bind(1, 1, job()));
  m.down();
  m.tellAs(7, 1, MemberWorld::bind(2, 1, job()));
  m.join(8);
  m.tellAs(7, 1, MemberWorld::bind(3, 1, job()));
  EXPECT_EQ(m.world.node->tasks(), 0u);
  EXPECT_EQ(m.member.dropped(), 3u);
}

// --- terms ---

TEST(Member, C1_RefusesASchedulerOfALowerTermThanItHasSeen) {
  MemberWorld m;
  m.join(7, 4);
  m.down();
  m.up();
  EXPECT_EQ(m.hello().getTermSeen(), 4u);
  m.welcome(9, 3);
  EXPECT_EQ(m.member.state(), MemberState::Down);
  EXPECT_TRUE(m.dropped());
  EXPECT_NE(m.cluster().find("its term is 3"), std::string::npos) << m.cluster();
}

TEST(Member, C1_RemembersTheHighestTermOverARestart) {
  MemberWorld m;
  m.join(7, 4);
  MemberWorld next(m.restarted());
  next.up();
  EXPECT_EQ(next.hello().getTermSeen(), 4u);
  next.welcome(9, 3);
  EXPECT_EQ(next.member.state(), MemberState::Down);
}

TEST(Member, C1_StoresAHigherTermBeforeItObeysIt) {
  MemberWorld m;
  m.up();
  m.world.fixture.journal().holdCommits();
  m.welcome(7, 2);
  m.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(m.member.state(), MemberState::Admitting);
  EXPECT_TRUE(m.said(Which::BEAT).empty());
  m.world.fixture.journal().commitAutomatically();
  m.world.fixture.journal().commitNext();
  m.world.run();
  EXPECT_EQ(m.member.state(), MemberState::Member);
  EXPECT_EQ(m.bounds(1), 1u) << "an order right after the welcome is not lost";
}

TEST(Member, C1_DoesNotJoinWhereTheTermCannotBeStored) {
  MemberWorld m;
  m.up();
  m.world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  m.welcome(7, 2);
  EXPECT_EQ(m.member.state(), MemberState::Down);
  EXPECT_TRUE(m.dropped());
}

// --- the lease ---

TEST(Member, C1_BindsNothingNewOnceItsLeaseIsOverWhileItsTasksRunOn) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.world.fixture.advance(seconds(15));
  EXPECT_EQ(m.member.state(), MemberState::LeaseOver);
  EXPECT_EQ(m.cluster().substr(0, 11), "lease over:");
  m.tell(MemberWorld::bind(2, 1, job()));
  EXPECT_EQ(m.refusals(2), std::vector<std::string>{"unavailable"});
  EXPECT_EQ(m.world.code(m.forward(job())), "unavailable");
  EXPECT_EQ(m.world.node->tasks(), 1u);
  m.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(m.bounds(1), 2u) << "what it holds it does not deny";
}

TEST(Member, C1_TheLeaseRunsFromTheTimeWhenTheSeenBeatLeft) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(5));
  m.world.fixture.advance(millis(4'900));
  m.beatSeen();  // which left 4.9 s ago
  m.world.fixture.advance(seconds(10));
  EXPECT_EQ(m.member.state(), MemberState::Member);
  m.world.fixture.advance(millis(200));
  EXPECT_EQ(m.member.state(), MemberState::LeaseOver);
}

TEST(Member, C1_TheClockEndsTheLeaseAlsoWhereItsTimerIsLate) {
  MemberWorld m;
  m.join();
  m.world.fixture.advanceOnly(seconds(16));
  EXPECT_EQ(m.member.state(), MemberState::Member);
  EXPECT_EQ(m.world.fixture.tell(m.linkId, m.world.memberId,
                                 [&](schema::Envelope::Builder envelope) {
                                   auto word = envelope.initToMember();
                                   word.setSession(7);
                                   word.setTerm(1);
                                   MemberWorld::bind(2, 1, job())(word);
                                 }),
            SendResult::Sent);
  ASSERT_TRUE(m.world.fixture.deliver(m.linkId, m.world.memberId));
  m.world.run();
  EXPECT_EQ(m.refusals(2), std::vector<std::string>{"unavailable"});
  EXPECT_EQ(m.world.node->tasks(), 0u);
}

TEST(Member, ABeatThatIsSeenLateRenewsTheLease) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(16));
  EXPECT_EQ(m.member.state(), MemberState::LeaseOver);
  m.beatSeen();
  EXPECT_EQ(m.member.state(), MemberState::Member);
  m.tell(MemberWorld::bind(2, 1, job()));
  EXPECT_EQ(m.bounds(2), 1u);
}

TEST(Member, C1_AStampThatItNeverSaidRenewsNothing) {
  MemberWorld m;
  m.join();
  m.tell([](schema::ToMember::Builder word) { word.setBeatSeen(UINT64_MAX); });
  m.tell([](schema::ToMember::Builder word) { word.setBeatSeen(1); });
  m.world.fixture.advance(seconds(15));
  EXPECT_EQ(m.member.state(), MemberState::LeaseOver);
}

TEST(Member, DropsALinkOnWhichNoBeatIsSeenForLongAfterTheLease) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(21));
  EXPECT_EQ(m.member.state(), MemberState::Down);
  EXPECT_TRUE(m.dropped());
}

// --- what it tells of the node ---

TEST(Member, TellsOfMarksAndPoliciesThatChangeHere) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(1));
  const std::size_t before = m.said(Which::FACTS).size();
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setCordon("sim-1"); }), "ok");
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::FACTS).size(), before + 1);
  EXPECT_EQ(m.said(Which::FACTS).back().getFacts().getCards()[1].getState(),
            schema::CardState::CORDONED);
}

TEST(Member, TellsOfTheReportOfACard) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(1));
  const std::size_t before = m.said(Which::FACTS).size();
  m.world.fixture.tellUrgent(m.world.clientId, m.world.nodeId, [](schema::Envelope::Builder e) {
    auto read = e.initReportRead();
    read.setCard("sim-1");
    read.setMadeUnixMs(1'000);
  });
  m.world.run();
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::FACTS).size(), before + 1);
  EXPECT_EQ(m.said(Which::FACTS).back().getFacts().getCards()[1].getReportUnixMs(), 1'000u);
}

TEST(Member, TellsOfACardThatLostItsSuspend) {
  testing::WorldOptions options;
  options.suspend = schema::Suspend::RM;
  MemberWorld m(options);
  m.join();
  m.world.fixture.advance(seconds(1));
  const std::size_t before = m.said(Which::FACTS).size();
  m.world.fixture.tellUrgent(m.world.attachId, m.world.nodeId, [](schema::Envelope::Builder e) {
    e.initSuspendLost().setCard(1);
    e.getSuspendLost().setWhy("it was refused");
  });
  m.world.run();
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::FACTS).size(), before + 1);
  const auto info = m.said(Which::FACTS).back().getFacts().getCards()[1].getInfo();
  EXPECT_EQ(info.getSuspend(), schema::Suspend::GATE);
  EXPECT_STREQ(info.getSuspendWhy().cStr(), "it was refused");
}

TEST(Member, C4_TellsItsCardsAsTheyAreWhereAMarkThatWasOrderedCouldNotBeStored) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(1));
  const std::size_t before = m.said(Which::FACTS).size();
  m.world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  m.tell([](schema::ToMember::Builder word) {
    word.initMark().setCard("sim-1");
    word.getMark().setMark(schema::OrderMark::Mark::CORDON);
  });
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::FACTS).size(), before + 1);
  EXPECT_EQ(m.said(Which::FACTS).back().getFacts().getCards()[1].getState(),
            schema::CardState::READY);
}

// Cluster seed 11556: the scheduler believed for ever in a cordon that was taken back here.
TEST(Member, C4_TellsItsCardsWhereAMarkThatWasOrderedIsTakenBackHereAtOnce) {
  MemberWorld m;
  m.join();
  m.world.fixture.advance(seconds(1));
  const std::size_t before = m.said(Which::FACTS).size();
  m.tell([](schema::ToMember::Builder word) {
    word.initMark().setCard("sim-1");
    word.getMark().setMark(schema::OrderMark::Mark::CORDON);
  });
  EXPECT_EQ(m.world.node->ledger().mark(1), CardMark::Cordoned);
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setUncordon("sim-1"); }), "ok");
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::FACTS).size(), before + 1);
  EXPECT_EQ(m.said(Which::FACTS).back().getFacts().getCards()[1].getState(),
            schema::CardState::READY);
}

TEST(Member, TellsOfProcessesInOneWordForManyEventsAndIsSilentWhereNothingHappens) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  m.tell(MemberWorld::bind(2, 1, job()));
  m.world.fixture.advance(seconds(11));
  m.beatSeen();
  const std::size_t before = m.said(Which::TASKS).size();
  const std::size_t facts = m.said(Which::FACTS).size();
  m.world.attached(1, 0);
  m.world.attached(2, 0);
  m.world.fixture.advance(seconds(1));
  ASSERT_EQ(m.said(Which::TASKS).size(), before + 1);
  EXPECT_EQ(m.said(Which::TASKS).back().getTasks().size(), 2u);
  EXPECT_EQ(m.heldAs(2), "attached");
  EXPECT_EQ(m.said(Which::FACTS).size(), facts);
}

TEST(Member, SaysInTheNextHelloWhatEndedWhileNobodyHeard) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 2, job()));
  m.down();
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setEvict(1); }), "ok");
  m.join(8);
  ASSERT_EQ(m.hello().getTasks().size(), 1u);
  EXPECT_TRUE(m.hello().getTasks()[0].getEnded());
  EXPECT_EQ(m.hello().getTasks()[0].getClusterTask(), 1u);
  EXPECT_EQ(m.hello().getTasks()[0].getEpoch(), 2u);
}

TEST(Member, RepeatsAnEndInTheHelloUntilABeatShowsThatItArrived) {
  MemberWorld m;
  m.join();
  m.tell(MemberWorld::bind(1, 1, job()));
  EXPECT_EQ(m.world.order([](schema::Request::Builder r) { r.setEvict(1); }), "ok");
  EXPECT_EQ(m.heldAs(1), "ended");
  m.join(8);
  EXPECT_EQ(m.heldAs(1), "ended") << "nothing shows that the scheduler heard of it";
  m.world.fixture.advance(seconds(5));
  m.beatSeen();
  m.join(9);
  EXPECT_EQ(m.heldAs(1), "never said");
}

}  // namespace
}  // namespace qgpu::member_actor_test
