// Tokens by which machines join: the decisions, and what the scheduler keeps and tells of them.
#include "actors/join/join_tokens.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

#include "tests/unit/actors/scheduler/scheduler_world.h"

namespace qgpu::join_tokens_test {
namespace {

using testing::ClusterWorld;
using JoinState = JoinTokens::State;
using JoinRequest = schema::ClusterRequest::Builder;

constexpr std::uint64_t kHour = 3'600'000;
const std::string kRight(JoinTokens::kHashDigits, 'a');
const std::string kWrong(JoinTokens::kHashDigits, 'b');

JoinToken tokenFor(const std::string& id, const std::string& node = "node-7") {
  return {id, node, kRight};
}

TEST(JoinTokens, OneIsGoodOnceForItsNodeWithinItsTime) {
  JoinTokens tokens;
  ASSERT_TRUE(tokens.make(tokenFor("t"), kHour, 1000));
  EXPECT_EQ(tokens.stateOf(*tokens.find("t"), 1000 + kHour - 1), JoinState::OPEN);
  EXPECT_TRUE(tokens.use("t", kRight, "node-7", 1000 + kHour - 1));
  const Status again = tokens.use("t", kRight, "node-7", 1000);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::Conflict);
  EXPECT_NE(again.error().message.find("used already"), std::string::npos);
  EXPECT_EQ(tokens.stateOf(*tokens.find("t"), 1000), JoinState::USED);
}

TEST(JoinTokens, WhoKnowsTheSecretIsToldWhatIsWrong) {
  JoinTokens tokens;
  ASSERT_TRUE(tokens.make(tokenFor("late"), kHour, 0));
  const Status late = tokens.use("late", kRight, "node-7", kHour + 12 * 60'000);
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("over 12 minutes ago"), std::string::npos)
      << late.error().message;
  ASSERT_TRUE(tokens.make(tokenFor("t"), kHour, 0));
  const Status other = tokens.use("t", kRight, "node-8", 1);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("for the node \"node-7\""), std::string::npos);
  EXPECT_EQ(tokens.find("t")->triesLeft, JoinTokens::kTries - 1);
  EXPECT_TRUE(tokens.use("t", kRight, "node-7", 1)) << "a mistake costs a try, not the token";
}

TEST(JoinTokens, WhoDoesNotKnowTheSecretLearnsNothingAndHasFewTries) {
  JoinTokens tokens;
  ASSERT_TRUE(tokens.make(tokenFor("t"), kHour, 0));
  const std::string unknown = tokens.use("none", kWrong, "node-7", 1).error().message;
  for (std::uint32_t i = 0; i < 2 * JoinTokens::kTries; ++i) {
    const Status guessed = tokens.use("t", kWrong, "node-7", 1);
    ASSERT_FALSE(guessed);
    EXPECT_EQ(guessed.error().message, unknown) << "of try " << i;
    EXPECT_EQ(guessed.error().code, ErrorCode::NotFound);
  }
  EXPECT_EQ(tokens.stateOf(*tokens.find("t"), 1), JoinState::SPENT);
  const Status right = tokens.use("t", kRight, "node-7", 1);
  ASSERT_FALSE(right);
  EXPECT_NE(right.error().message.find("tried too often"), std::string::npos);
  // Also of one that was used, or is over.
  ASSERT_TRUE(tokens.make(tokenFor("used"), kHour, 0));
  ASSERT_TRUE(tokens.use("used", kRight, "node-7", 1));
  EXPECT_EQ(tokens.use("used", kWrong, "node-7", 1).error().message, unknown);
  EXPECT_EQ(tokens.use("used", kWrong, "node-7", 2 * kHour).error().message, unknown);
  EXPECT_EQ(tokens.use("t", kRight.substr(1), "node-7", 1).error().message, unknown);
  EXPECT_EQ(tokens.use("t", "", "node-7", 1).error().message, unknown);
}

TEST(JoinTokens, AreBoundedInNumberTimeAndLength) {
  JoinTokens tokens;
  for (std::size_t i = 0; i < JoinTokens::kTokensMax; ++i) {
    ASSERT_TRUE(tokens.make(tokenFor("t" + std::to_string(i)), kHour, 0));
  }
  EXPECT_EQ(tokens.make(tokenFor("more"), kHour, 0).error().code, ErrorCode::Overloaded);
  ASSERT_TRUE(tokens.use("t3", kRight, "node-7", 1));
  EXPECT_TRUE(tokens.make(tokenFor("more"), kHour, 1)) << "what is over gives way";
  EXPECT_EQ(tokens.find("t3"), nullptr);
  EXPECT_EQ(tokens.make(tokenFor("more"), kHour, 1).error().code, ErrorCode::Conflict);
  EXPECT_TRUE(tokens.make(tokenFor("later"), kHour, kHour + JoinTokens::kKeptMs));
  EXPECT_EQ(tokens.all().size(), 2u) << "those that are over for long are forgotten";

  const std::uint64_t now = 3 * JoinTokens::kKeptMs;
  for (const std::uint64_t ttl :
       {std::uint64_t{0}, JoinTokens::kTtlMsMin - 1, JoinTokens::kTtlMsMax + 1, UINT64_MAX}) {
    EXPECT_EQ(tokens.make(tokenFor("x"), ttl, now).error().code, ErrorCode::InvalidArgument);
  }
  EXPECT_FALSE(tokens.make({"", "n", kRight}, kHour, now));
  EXPECT_FALSE(tokens.make({std::string(JoinTokens::kIdMax + 1, '1'), "n", kRight}, kHour, now));
  EXPECT_FALSE(tokens.make({"x", "", kRight}, kHour, now));
  EXPECT_FALSE(tokens.make({"x", std::string(kNodeNameMax + 1, 'n'), kRight}, kHour, now));
  EXPECT_FALSE(tokens.make({"x", "n", "short"}, kHour, now));
}

// --- the scheduler ---

ClusterWorld::Fill invites(const std::string& id, const std::string& node = "node-7") {
  return [=](JoinRequest r) {
    auto invite = r.initInvite();
    invite.setId(id);
    invite.setNode(node);
    invite.setHash(kRight);
    invite.setTtlNs(kHour * 1'000'000);
  };
}
ClusterWorld::Fill shows(const std::string& id, const std::string& hash = kRight) {
  return [=](JoinRequest r) {
    auto shown = r.initAdmit();
    shown.setId(id);
    shown.setNode("node-7");
    shown.setHash(hash);
  };
}
const ClusterWorld::Fill kTokens = [](JoinRequest r) { r.setTokens(); };

std::map<std::string, JoinState> tokensOf(ClusterWorld& world) {
  std::map<std::string, JoinState> found;
  for (const auto token : world.reply(world.ask(kTokens)).getTokens()) {
    found[text(token.getId())] = token.getState();
  }
  return found;
}
std::map<std::string, std::size_t> eventsOf(ClusterWorld& world) {
  std::map<std::string, std::size_t> found;
  const auto asked = world.ask([](JoinRequest r) { r.setEvents(0); });
  for (const auto event : world.reply(asked).getEvents()) ++found[text(event.getKind())];
  return found;
}

TEST(SchedulerTokens, AreMadeUsedAndRevokedByWhoMayChangeAndTheEventsTellIt) {
  ClusterWorld world;
  world.start();
  EXPECT_EQ(world.order(invites("t"), {1000, false}), "denied");
  EXPECT_EQ(world.order(shows("t"), {1000, false}), "denied");
  const auto made = world.reply(world.ask(invites("t"))).getTokens();
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(text(made[0].getNode()), "node-7");
  EXPECT_EQ(made[0].getTriesLeft(), JoinTokens::kTries);
  EXPECT_EQ(world.order(invites("t")), "conflict");
  EXPECT_EQ(world.order(invites("u")), "ok");
  EXPECT_EQ(world.order(shows("t", kWrong)), "not-found");
  EXPECT_EQ(world.order(shows("t")), "ok");
  EXPECT_EQ(world.order(shows("t")), "conflict");
  EXPECT_EQ(world.order([](JoinRequest r) { r.setRevoke("u"); }), "ok");
  EXPECT_EQ(world.order([](JoinRequest r) { r.setRevoke("u"); }), "not-found");
  EXPECT_EQ(world.order(shows("u")), "not-found");
  EXPECT_EQ(tokensOf(world), (std::map<std::string, JoinState>{{"t", JoinState::USED}}));
  auto events = eventsOf(world);
  EXPECT_EQ(events["token-created"], 2u);
  EXPECT_EQ(events["token-revoked"], 1u);
  EXPECT_EQ(events["join-granted"], 1u);
}

TEST(SchedulerTokens, OutliveARestartWithWhatIsLeftOfThem) {
  ClusterWorld world;
  world.start();
  ASSERT_EQ(world.order(invites("used")), "ok");
  ASSERT_EQ(world.order(invites("open")), "ok");
  ASSERT_EQ(world.order(shows("used")), "ok");
  ASSERT_EQ(world.order(shows("open", kWrong)), "not-found");
  world.restart();
  EXPECT_EQ(world.order(shows("used")), "conflict");
  const auto tokens = world.reply(world.ask(kTokens)).getTokens();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[1].getTriesLeft(), JoinTokens::kTries - 1);
  EXPECT_EQ(world.order(shows("open")), "ok");
}

// Who guesses fills neither the disk nor the list of events.
TEST(SchedulerTokens, AGuessStoresNothingAndIsToldNowAndThen) {
  ClusterWorld world;
  world.start();
  const std::uint64_t commits = world.fixture.journal().commits();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(world.order(shows("none", kWrong)), "not-found");
  EXPECT_EQ(world.fixture.journal().commits(), commits);
  EXPECT_EQ(eventsOf(world)["join-refused"], 1u);
  world.pass(Requests::kGuessesToldEvery);
  world.order(shows("none", kWrong));
  EXPECT_EQ(eventsOf(world)["join-refused"], 2u);
}

}  // namespace
}  // namespace qgpu::join_tokens_test
