// Whom a manager tries next, and how long it waits before.
#include "services/api/rpc/address_round.h"

#include <gtest/gtest.h>

namespace qgpu {
namespace {

const std::string kAway = "connection refused";

AddressRound roundOf(std::vector<std::string> addresses) {
  return {std::move(addresses), {}};
}

TEST(AddressRound, TriesAllInTurnAndWaitsAfterEachRoundForLonger) {
  AddressRound round = roundOf({"a:1", "b:1"});
  Nanos before(0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(round.address(), "a:1");
    round.failed(kAway);
    EXPECT_EQ(round.address(), "b:1");
    EXPECT_EQ(round.pause(), Nanos(0)) << "within a round";
    round.failed(kAway);
    EXPECT_GT(round.pause(), before);
    before = round.pause();
  }
  EXPECT_EQ(round.rounds(), 3u);
  for (int i = 0; i < 1000; ++i) round.failed(kAway);
  EXPECT_EQ(round.pause(), SchedulerLinkTimes{}.pauseMax);
}

TEST(AddressRound, WhomOneThatStandsByNamesIsTriedOnceAndAtOnce) {
  AddressRound round = roundOf({"a:1", "b:1"});
  round.failed(standsBy("c:1").message);
  EXPECT_EQ(round.address(), "c:1");
  EXPECT_EQ(round.pause(), Nanos(0));
  round.failed(standsBy("a:1").message);
  EXPECT_EQ(round.address(), "b:1") << "two that name each other are no way to go";
}

TEST(AddressRound, WhoKeptItForLongIsTriedAgainFirst) {
  AddressRound round = roundOf({"a:1", "b:1"});
  round.failed(kAway);
  round.failed(kAway);
  round.failed(kAway);
  round.ended(SchedulerLinkTimes{}.served, kAway);
  EXPECT_EQ(round.address(), "b:1");
  EXPECT_EQ(round.pause(), SchedulerLinkTimes{}.pauseMin);
  round.ended(SchedulerLinkTimes{}.served - Nanos(1), kAway);
  EXPECT_EQ(round.address(), "a:1");
}

}  // namespace
}  // namespace qgpu
