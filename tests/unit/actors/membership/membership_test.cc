#include "actors/membership/membership.h"

#include <gtest/gtest.h>

namespace qgpu::membership_test {
namespace {

constexpr Nanos kStart = seconds(100);

struct Members {
  Members() { membership.setTerm(3); }
  std::uint64_t open(MemberId member, std::uint32_t link, Nanos now, std::uint32_t life = 1) {
    const Result<std::uint64_t> session = membership.open(member, link, life, now);
    EXPECT_TRUE(session.ok());
    return session.ok() ? *session : 0;
  }
  // Looks each second, as its user does.
  std::vector<Membership::Moved> look(Nanos until) {
    std::vector<Membership::Moved> all;
    for (; looked <= until; looked += seconds(1)) {
      for (const auto& moved : membership.due(looked, 100)) all.push_back(moved);
    }
    return all;
  }
  Membership membership{Membership::Times{}};
  Nanos looked = kStart;
};

TEST(Membership, C3_ASilentNodeIsSuspectAtTheEndOfItsLeaseAndLostOnlyAfterTheFence) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  m.open(node, 1, kStart);
  m.look(kStart + seconds(14));
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
  m.look(kStart + seconds(15));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
  m.look(kStart + seconds(19));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
  m.look(kStart + seconds(20));
  EXPECT_EQ(m.membership.life(node), NodeLife::Lost);
}

TEST(Membership, ABeatBeginsTheLeaseAnewAndEndsASuspicion) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  m.open(node, 1, kStart);
  m.look(kStart + seconds(10));
  EXPECT_FALSE(m.membership.beat(1, kStart + seconds(10)));
  m.look(kStart + seconds(24));
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
  m.look(kStart + seconds(26));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
  EXPECT_TRUE(m.membership.beat(1, kStart + seconds(27)));
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
  m.look(kStart + seconds(41));
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
}

TEST(Membership, ANodeThatIsKnownAndUnseenIsLostAfterTheFence) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  EXPECT_EQ(m.membership.life(node), NodeLife::Joining);
  EXPECT_TRUE(m.look(kStart + seconds(19)).empty());
  EXPECT_EQ(m.look(kStart + seconds(21)).size(), 1u);
  EXPECT_EQ(m.membership.life(node), NodeLife::Lost);
  m.open(node, 1, kStart + seconds(30));
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
  m.look(kStart + seconds(46));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
}

TEST(Membership, MessagesOfASessionAreTakenInOrderAndOnlyOnce) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  const std::uint64_t session = m.open(node, 1, kStart);
  EXPECT_EQ(m.membership.arrived(1, session, 1), Membership::Arrival::Taken);
  EXPECT_EQ(m.membership.arrived(1, session, 1), Membership::Arrival::Stale);
  EXPECT_EQ(m.membership.arrived(1, session, 2), Membership::Arrival::Taken);
  EXPECT_EQ(m.membership.arrived(1, session, 4), Membership::Arrival::Gap);
  EXPECT_EQ(m.membership.arrived(1, session + 1, 3), Membership::Arrival::Stale);
  EXPECT_EQ(m.membership.arrived(2, session, 3), Membership::Arrival::Stale);
}

TEST(Membership, A10_SessionsAreNeverNumberedTwiceNotEvenOverTerms) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  const std::uint64_t first = m.open(node, 1, kStart);
  m.membership.close(1);
  const std::uint64_t second = m.open(node, 2, kStart);
  m.membership.close(2);
  m.membership.setTerm(4);
  const std::uint64_t third = m.open(node, 3, kStart);
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
}

TEST(Membership, TwoLivingNodesOfOneNameDoNotTakeEachOthersPlace) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  const std::uint64_t session = m.open(node, 1, kStart);
  EXPECT_EQ(m.membership.open(node, 2, 1, kStart + seconds(1)).error().code,
            ErrorCode::AlreadyExists);
  EXPECT_EQ(m.membership.session(node), session);
  // A later manager of that node is no second node, nor is one whose old connection is silent.
  EXPECT_NE(m.open(node, 3, kStart + seconds(1), 2), session);
  EXPECT_TRUE(m.membership.open(node, 4, 2, kStart + seconds(12)).ok());
  EXPECT_EQ(m.membership.memberOf(3), std::nullopt);
}

TEST(Membership, AClosedConnectionMakesANodeSuspectAndTheFenceStillRunsFromItsLastBeat) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  m.open(node, 1, kStart);
  m.look(kStart + seconds(4));
  EXPECT_EQ(m.membership.close(1), node);
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
  EXPECT_EQ(m.membership.alive(), 0u);
  m.look(kStart + seconds(19));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
  m.look(kStart + seconds(20));
  EXPECT_EQ(m.membership.life(node), NodeLife::Lost);
}

TEST(Membership, C3_WhoeverSleptBlamesNobodyForBeatsThatItDidNotRead) {
  Members m;
  const MemberId node = m.membership.add(kStart);
  m.open(node, 1, kStart);
  m.look(kStart + seconds(2));
  m.looked = kStart + seconds(60);
  EXPECT_TRUE(m.look(kStart + seconds(60)).empty());
  EXPECT_EQ(m.membership.life(node), NodeLife::Alive);
  m.look(kStart + seconds(75));
  EXPECT_EQ(m.membership.life(node), NodeLife::Suspect);
}

TEST(Membership, ALookMovesAtMostAsManyAsItIsTold) {
  Members m;
  for (std::uint32_t link = 1; link <= 10; ++link) {
    m.open(m.membership.add(kStart), link, kStart);
  }
  EXPECT_TRUE(m.membership.due(kStart + seconds(14), 4).empty());
  EXPECT_EQ(m.membership.due(kStart + seconds(16), 4).size(), 4u);
  EXPECT_EQ(m.membership.due(kStart + seconds(16), 100).size(), 6u);
  EXPECT_EQ(m.membership.alive(), 0u);
}

}  // namespace
}  // namespace qgpu::membership_test
