// What a card of a cluster did: asked of the scheduler, answered by the node over its link.

#include "services/api/rpc/node_traces.h"

#include "services/api/commands/command_handler.h"
#include "services/api/commands/commands.h"
#include "tests/unit/services/api/cluster_rpc_fixture.h"

namespace qgpu::node_traces_test {
namespace {

using testing::ClusterRpcFixture;
using testing::ScriptedActor;
using testing::ScriptedNode;

struct NodeTracesTest : ClusterRpcFixture {
  // A manager's node actor with its client, which its link asks.
  struct Node {
    explicit Node(ClusterRpcFixture& f)
        : actorId(f.dispatcher.add(scripted)),
          clientId(f.dispatcher.reserve()),
          sink(f.dispatcher, clientId, actorId),
          client(sink, f.bridge.timer()),
          dispatcher(f.dispatcher) {
      f.dispatcher.attach(clientId, client);
    }
    ~Node() {
      dispatcher.remove(clientId);
      dispatcher.remove(actorId);
    }
    ScriptedNode node;
    ScriptedActor scripted{node};
    ActorId actorId;
    ActorId clientId;
    testing::Gate sink;
    NodeActorClient client;
    Dispatcher& dispatcher;
  };
  ~NodeTracesTest() noexcept override { members.clear(); }

  Member& join(const std::string& name, kj::Maybe<NodeActorClient&> answers) {
    SchedulerLinkConfig config = quickConfig(unixAddress());
    config.node = answers;
    Member& member = addMember(std::move(config));
    member.actor.name = name;
    EXPECT_TRUE(served([&] { return member.actor.count(schema::Envelope::TO_MEMBER) > 0; }))
        << member.link.state();
    return member;
  }
  // As the admin socket and the web page do.
  kj::Promise<Result<ClusterAnswer>> ask(const std::string& line) {
    const Result<Command> command = parseCommand(line, Side::Cluster);
    EXPECT_TRUE(command.ok()) << line;
    return actor.ask(
        Peer{}, [&](schema::ClusterRequest::Builder request) { fillRequest(request, *command); });
  }
  Error errorOf(const std::string& line) {
    const Result<ClusterAnswer> answer = ask(line).wait(io.waitScope);
    EXPECT_FALSE(answer.ok()) << line;
    return answer.ok() ? fail(ErrorCode::Internal, "it was answered") : answer.error();
  }

  Node first{*this}, second{*this};
};

TEST_F(NodeTracesTest, AreAskedOfTheNodeThatHasTheCard) {
  startServer();
  join("n-1", first.client);
  join("n-2", second.client);
  const std::size_t heard = scheduler.heard.size();
  const Result<ClusterAnswer> answer = ask("trace n-2/sim-0 17").wait(io.waitScope);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_TRUE(answer->reply().isTrace());
  EXPECT_EQ(view(answer->reply().getTrace().getCard()), "sim-0");
  EXPECT_GT(answer->reply().getTrace().getEntries().size(), 0u);
  EXPECT_TRUE(first.node.asked.empty());
  ASSERT_EQ(second.node.asked.size(), 1u);
  EXPECT_EQ(second.node.asked[0].text, "sim-0");
  EXPECT_EQ(second.node.asked[0].number, 17u);
  EXPECT_EQ(scheduler.heard.size(), heard) << "the scheduler actor is not asked";
}

TEST_F(NodeTracesTest, EverythingElseIsAskedOfTheScheduler) {
  startServer();
  const Result<ClusterAnswer> answer = ask("status").wait(io.waitScope);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->reply().getInfo().getTerm(), 3u);
}

TEST_F(NodeTracesTest, SayWhyThereIsNone) {
  startServer();
  join("n-1", first.client);
  join("old", nullptr);
  EXPECT_EQ(errorOf("trace gone/sim-0").message, "node gone: it has no link to this scheduler");
  EXPECT_EQ(errorOf("trace gone/sim-0").code, ErrorCode::NotFound);
  EXPECT_NE(errorOf("trace old/sim-0").message.find("tells no trace"), std::string::npos);
  first.node.failNext = fail(ErrorCode::NotFound, "no card sim-9");
  const Error unknown = errorOf("trace n-1/sim-9");
  EXPECT_EQ(unknown.message, "node n-1: no card sim-9");
  EXPECT_EQ(unknown.code, ErrorCode::NotFound);
  const Result<Command> whole = parseCommand("trace n-1", Side::Cluster);
  ASSERT_FALSE(whole.ok());
  EXPECT_NE(whole.error().message.find("NODE/CARD"), std::string::npos);
}

TEST_F(NodeTracesTest, C2_ANodeThatDoesNotAnswerEndsInADeadline) {
  startServer();
  first.scripted.silent = true;
  join("n-1", first.client);
  const Error late = errorOf("trace n-1/sim-0");
  EXPECT_EQ(late.code, ErrorCode::Unavailable);
  EXPECT_EQ(late.message, "node n-1: no answer within 500 ms");
}

TEST_F(NodeTracesTest, C5_FewAreUnderWayAtOnce) {
  startServer();
  first.scripted.silent = true;
  join("n-1", first.client);
  std::vector<kj::Promise<Result<ClusterAnswer>>> open;
  for (int i = 0; i < 4; ++i) open.push_back(ask("trace n-1/sim-0"));
  EXPECT_EQ(errorOf("trace n-1/sim-0").code, ErrorCode::Overloaded);
  EXPECT_TRUE(ask("status").wait(io.waitScope).ok()) << "others are not held up";
  for (auto& one : open) EXPECT_FALSE(one.wait(io.waitScope).ok());
  EXPECT_EQ(errorOf("trace n-1/sim-0").code, ErrorCode::Unavailable) << "there is room again";
}

TEST_F(NodeTracesTest, ANodeThatComesBackIsAskedOverItsNewLink) {
  startServer();
  join("n-1", first.client);
  members.clear();
  join("n-1", second.client);
  const Result<ClusterAnswer> answer = ask("trace n-1/sim-0").wait(io.waitScope);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(second.node.asked.size(), 1u);
}

}  // namespace
}  // namespace qgpu::node_traces_test
