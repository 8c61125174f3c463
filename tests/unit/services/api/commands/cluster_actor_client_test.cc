#include "services/api/commands/cluster_actor_client.h"

#include <gtest/gtest.h>

#include "services/api/commands/schema_names.h"

namespace qgpu::cluster_actor_client_test {
namespace {

// A scheduler that keeps what it was told and answers when the test says so.
struct ClusterActorClientTest : ::testing::Test {
  struct Sink final : RequestSink {
    SendResult send(Build build) override {
      asked.push_back(std::make_unique<capnp::MallocMessageBuilder>());
      build(asked.back()->initRoot<schema::Envelope>());
      return SendResult::Sent;
    }
    schema::ClusterRequest::Reader last() {
      return asked.back()->getRoot<schema::Envelope>().asReader().getClusterRequest();
    }
    std::vector<std::unique_ptr<capnp::MallocMessageBuilder>> asked;
  };
  ~ClusterActorClientTest() noexcept override = default;

  void pass(kj::Duration time) { timer.advanceTo(timer.now() + time); }

  kj::EventLoop loop;
  kj::WaitScope scope{loop};
  kj::TimerImpl timer{kj::origin<kj::TimePoint>()};
  Sink sink;
  ClusterActorClient actor{sink, timer};
};

TEST_F(ClusterActorClientTest, AsksTheSchedulerInThePeersNameAndGivesItsReply) {
  auto asked = actor.ask(Peer{7, 8, true, "node-3"},
                         [](schema::ClusterRequest::Builder request) { request.setDelete(42); });
  EXPECT_EQ(sink.last().getPeerUid(), 7u);
  EXPECT_EQ(sink.last().getPeerPid(), 8u);
  EXPECT_TRUE(sink.last().getMayChange());
  EXPECT_EQ(view(sink.last().getPeerName()), "node-3");
  EXPECT_EQ(sink.last().getDelete(), 42u);

  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<schema::ClusterReply>();
  reply.setCorr(sink.last().getCorr());
  reply.setDone("ended");
  actor.onReply(reply.asReader());
  const Result<ClusterAnswer> answer = asked.wait(scope);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(view(answer->reply().getDone()), "ended");
}

TEST_F(ClusterActorClientTest, C2_AnAnswerMayTakeAsLongAsANodeHasToConfirmAndNotForEver) {
  auto asked =
      actor.ask(Peer(), [](schema::ClusterRequest::Builder request) { request.initSubmit(); });
  pass(34 * kj::SECONDS);
  EXPECT_FALSE(asked.poll(scope));
  pass(2 * kj::SECONDS);
  const Result<ClusterAnswer> answer = asked.wait(scope);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::Unavailable);
  EXPECT_NE(answer.error().message.find("the scheduler did not answer"), std::string::npos);
}

TEST_F(ClusterActorClientTest, WhatItGaveOutMayBeDestroyedAfterIt) {
  auto brief = std::make_unique<ClusterActorClient>(sink, timer);
  auto asked = brief->ask(Peer(), [](schema::ClusterRequest::Builder r) { r.setInfo(); });
  auto watched = brief->watch(Peer());
  brief.reset();
}

}  // namespace
}  // namespace qgpu::cluster_actor_client_test
