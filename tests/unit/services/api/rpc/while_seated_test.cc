// What a scheduler says that may have lost its seat is no answer.
#include "services/api/rpc/while_seated.h"

#include <gtest/gtest.h>

#include "runtime/dispatcher.h"
#include "runtime/kj/bridge.h"

namespace qgpu::while_seated_test {
namespace {

struct WhileSeatedTest : ::testing::Test {
  struct Sink final : RequestSink {
    SendResult send(Build build) override {
      capnp::MallocMessageBuilder message;
      auto envelope = message.initRoot<schema::Envelope>();
      build(envelope);
      corr = envelope.asReader().getClusterRequest().getCorr();
      ++sent;
      return SendResult::Sent;
    }
    std::uint64_t corr = 0;
    int sent = 0;
  };
  ~WhileSeatedTest() noexcept override = default;

  // What a client hears of "no task 42".
  Result<ClusterAnswer> deleted() {
    auto asked =
        client.ask(Peer(), [](schema::ClusterRequest::Builder request) { request.setDelete(42); });
    Outlet(dispatcher, schedulerId).sendUrgent(answersId, [&](schema::Envelope::Builder envelope) {
      auto reply = envelope.initClusterReply();
      reply.setCorr(sink.corr);
      reply.initFailed().setCode(errorName(ErrorCode::NotFound));
    });
    return asked.wait(bridge.waitScope());
  }

  Loop loop;
  ActorSystem system;
  Dispatcher dispatcher{system, loop};
  KjBridge bridge{loop};
  Sink sink;
  bool seated = true;
  ClusterActorClient client{sink, bridge.timer()};
  AnswersWhileSeated answers{client, [this] { return seated; }};
  ActorId schedulerId = dispatcher.reserve();
  ActorId answersId = dispatcher.add(answers);
};

TEST_F(WhileSeatedTest, C1_WhoMayHaveLostItsSeatAnswersNoClient) {
  EXPECT_EQ(deleted().error().code, ErrorCode::NotFound);
  seated = false;
  EXPECT_EQ(deleted().error().code, ErrorCode::Unavailable);
}

TEST_F(WhileSeatedTest, C1_AndHearsNoNode) {
  WordsWhileSeated words(sink, [this] { return seated; });
  const auto said = [&] {
    return words.send([](schema::Envelope::Builder envelope) { envelope.initClusterRequest(); });
  };
  EXPECT_EQ(said(), SendResult::Sent);
  seated = false;
  EXPECT_EQ(said(), SendResult::Refused);
  EXPECT_EQ(sink.sent, 1);
}

}  // namespace
}  // namespace qgpu::while_seated_test
