#include "services/api/commands/node_actor_client.h"

#include <gtest/gtest.h>

#include "services/api/commands/schema_names.h"
#include "tests/unit/services/api/scripted_node.h"

namespace qgpu::node_actor_client_test {
namespace {

using testing::ScriptedNode;
using testing::ScriptedSink;

// A client on a loop whose clock stands still until the test moves it.
struct NodeActorClientTest : ::testing::Test {
  NodeActorClientTest() : sink(node), actor(sink, timer, limits()) { sink.actor = &actor; }
  ~NodeActorClientTest() noexcept override = default;

  static NodeActorClient::Limits limits() {
    NodeActorClient::Limits l;
    l.outstandingMax = 2;
    l.watchersMax = 2;
    l.reserved = 0;
    l.watcherQueueMax = 3;
    return l;
  }
  kj::Promise<Result<Answer>> askInfo() {
    return actor.ask(Peer{5, 6, true}, [](schema::Request::Builder r) { r.setInfo(); });
  }
  kj::Own<NodeActorClient::Watcher> watch() { return actor.watch(Peer()).wait(scope).value(); }
  void pass(kj::Duration time) { timer.advanceTo(timer.now() + time); }

  kj::EventLoop loop;
  kj::WaitScope scope{loop};
  kj::TimerImpl timer{kj::origin<kj::TimePoint>()};
  ScriptedNode node;
  ScriptedSink sink;
  NodeActorClient actor;
};

TEST_F(NodeActorClientTest, GivesTheReplyToTheOneWhoAskedAndSaysWhoThatWas) {
  const Result<Answer> answer = askInfo().wait(scope);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(view(answer->reply().getInfo().getName()), "here");
  ASSERT_EQ(node.asked.size(), 1u);
  EXPECT_EQ(node.asked[0].uid, 5u);
  EXPECT_EQ(node.asked[0].pid, 6u);
  EXPECT_TRUE(node.asked[0].mayChange);
  EXPECT_EQ(actor.outstanding(), 0u);
}

TEST_F(NodeActorClientTest, AFailureKeepsItsCodeAndItsWords) {
  node.failNext = fail(ErrorCode::NoRoom, "no card has 9 GiB left");
  const Result<Answer> answer = askInfo().wait(scope);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::NoRoom);
  EXPECT_EQ(answer.error().message, "no card has 9 GiB left");
}

TEST_F(NodeActorClientTest, C5_AFullMailboxIsAnErrorForTheCaller) {
  sink.full = true;
  EXPECT_EQ(askInfo().wait(scope).error().code, ErrorCode::Overloaded);
  EXPECT_EQ(actor.outstanding(), 0u);
  EXPECT_EQ(actor.refused(), 1u);
}

TEST_F(NodeActorClientTest, C5_NoMoreCallsWaitThanTheLimit) {
  sink.silent = true;
  auto first = askInfo();
  auto second = askInfo();
  EXPECT_EQ(askInfo().wait(scope).error().code, ErrorCode::Overloaded);
  first = nullptr;  // the caller went away, so its place is free
  EXPECT_EQ(actor.outstanding(), 1u);
  auto third = askInfo();
  EXPECT_EQ(actor.outstanding(), 2u);
}

TEST(NodeActorClientLimits, PlacesAreKeptForThoseWhoMayChange) {
  kj::EventLoop loop;
  kj::WaitScope scope(loop);
  kj::TimerImpl timer(kj::origin<kj::TimePoint>());
  ScriptedNode node;
  ScriptedSink sink(node);
  NodeActorClient::Limits limits;
  limits.outstandingMax = 2;
  limits.reserved = 1;
  NodeActorClient actor(sink, timer, limits);
  sink.actor = &actor;
  const auto askAs = [&](const Peer& peer) {
    return actor.ask(peer, [](schema::Request::Builder r) { r.setInfo(); });
  };
  auto first = askAs(Peer{1000, 1, false});
  EXPECT_FALSE(askAs(Peer{1000, 1, false}).wait(scope).ok());
  EXPECT_TRUE(askAs(Peer{0, 1, true}).wait(scope).ok());
}

TEST_F(NodeActorClientTest, C2_ASilentNodeEndsTheCallAtItsDeadline) {
  sink.silent = true;
  auto call = askInfo();
  pass(4 * kj::SECONDS);
  EXPECT_FALSE(call.poll(scope));
  pass(2 * kj::SECONDS);
  EXPECT_EQ(call.wait(scope).error().code, ErrorCode::Unavailable);
  call = nullptr;
  EXPECT_EQ(actor.outstanding(), 0u);
}

TEST_F(NodeActorClientTest, AReplyThatNobodyWaitsForIsDropped) {
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<schema::Reply>();
  reply.setCorr(99);
  reply.setDone("late");
  actor.onReply(reply.asReader());
  EXPECT_EQ(actor.late(), 1u);
}

TEST_F(NodeActorClientTest, EachWatcherSeesEveryEventInOrder) {
  auto one = watch();
  auto other = watch();
  auto waiting = one->next();
  sink.tellEvent(1);
  sink.tellEvent(2);
  for (auto* watcher : {other.get()}) {
    for (std::uint64_t seq : {1u, 2u}) {
      auto event = watcher->next().wait(scope);
      EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), seq);
    }
  }
  auto event = waiting.wait(scope);
  EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), 1u);
  event = one->next().wait(scope);
  EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), 2u);
}

TEST_F(NodeActorClientTest, TheLastWatcherToLeaveEndsTheWatch) {
  auto one = watch();
  auto other = watch();
  EXPECT_EQ(actor.watch(Peer()).wait(scope).error().code, ErrorCode::Overloaded);
  one = nullptr;
  other = nullptr;
  scope.poll();
  ASSERT_EQ(node.asked.size(), 3u);
  EXPECT_EQ(node.asked[1].number, 1u);
  EXPECT_EQ(node.asked[2].number, 0u);
}

TEST_F(NodeActorClientTest, C5_ASlowWatcherGetsWhatItsQueueHeldAndThenTheEnd) {
  auto slow = watch();
  for (std::uint64_t seq = 1; seq <= 10; ++seq) sink.tellEvent(seq);
  for (std::uint64_t seq = 1; seq <= 3; ++seq) {
    auto event = slow->next().wait(scope);
    EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), seq);
  }
  EXPECT_TRUE(slow->next().wait(scope) == nullptr);
  EXPECT_TRUE(slow->next().wait(scope) == nullptr);
}

TEST_F(NodeActorClientTest, AReaderWhoGaveUpLosesNoEvent) {
  auto watcher = watch();
  { auto dropped = watcher->next(); }
  sink.tellEvent(1);
  auto event = watcher->next().wait(scope);
  EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), 1u);
}

TEST_F(NodeActorClientTest, AFeedTellsThePastThenThePresentAndEachEventOnce) {
  node.eventSeqs = {1, 2, 3, 4};
  auto feed = EventFeed::open(actor, Peer(), 2).wait(scope).value();
  sink.tellEvent(4);  // told while the past was being asked
  sink.tellEvent(5);
  for (std::uint64_t seq : {3u, 4u, 5u}) {
    auto event = feed->next().wait(scope);
    EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), seq);
  }
}

TEST_F(NodeActorClientTest, AFeedTellsAllOfAPastThatFillsSeveralReplies) {
  node.eventSeqs = {1, 2, 3, 4, 5, 6};
  node.eventsPerReply = 2;
  auto feed = EventFeed::open(actor, Peer(), 1).wait(scope).value();
  sink.tellEvent(7);
  for (std::uint64_t seq : {2u, 3u, 4u, 5u, 6u, 7u}) {
    auto event = feed->next().wait(scope);
    EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), seq);
  }
}

TEST_F(NodeActorClientTest, AFeedAsksForEventsThatWereNotToldToIt) {
  auto feed = EventFeed::open(actor, Peer(), 0).wait(scope).value();
  sink.tellEvent(1);
  sink.tellEvent(4);
  node.eventSeqs = {1, 2, 3, 4};
  for (std::uint64_t seq : {1u, 2u, 3u, 4u}) {
    auto event = feed->next().wait(scope);
    EXPECT_EQ(KJ_ASSERT_NONNULL(event)->getRoot<schema::Event>().getSeq(), seq);
  }
}

}  // namespace
}  // namespace qgpu::node_actor_client_test
