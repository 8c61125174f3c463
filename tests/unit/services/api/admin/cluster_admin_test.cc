// The admin socket of a scheduler: its commands, what they ask of the scheduler actor, and the JSON
// documents of the answers.

#include <gtest/gtest.h>
#include <simdjson.h>

#include "services/api/admin/admin_server.h"
#include "services/api/admin/cluster_handler.h"
#include "services/api/commands/cluster_render.h"
#include "tests/unit/services/api/actor_client_fixture.h"
#include "tests/unit/services/api/scripted_cluster.h"

namespace qgpu::cluster_admin_test {
namespace {

using testing::LineClient;
using testing::ScriptedCluster;

// --- the lines ---

TEST(ClusterCommands, EveryErrorSaysWhatWouldBeRight) {
  const struct {
    const char* line;
    const char* says;
  } kLines[] = {
      {"", "help"},
      {"policy all fs", "unknown command \"policy\""},
      {"nodes now", "usage: nodes"},
      {"submit", "usage: submit SPEC"},
      {"submit {\"memry\":1}", "\"memry\" is no field"},
      {"submit {\"owner\":\"none\"}", "\"owner\" is no field"},
      {"submit {\"node\":7}", "node: expected a text"},
      {"submit {\"models\":\"A100\"}", "models: expected an array"},
      {"submit {\"node_score\":\"best\"}", "binpack, spread, fgd, random or best-fit"},
      {"submit {\"node_score\":\"default\"}", "binpack, spread, fgd, random or best-fit"},
      {"submit {\"preempt\":1}", "preempt: expected true or false"},
      {"submit {\"memory_gib\":0}", "memory_gib: expected a size such as"},
      {"delete seven", "no task id"},
      {"explain", "usage: explain TASK|SPEC"},
      {"explain 1 2", "no task id"},
      {"whatif {}", "SPEC is {\"place\":SPEC"},
      {"whatif {\"place\":{},\"drain\":\"a\"}", "SPEC is {\"place\":SPEC"},
      {"whatif {\"place\":{},\"count\":0}", "SPEC is {\"place\":SPEC"},
      {"whatif {\"place\":{},\"times\":2}", "SPEC is {\"place\":SPEC"},
      {"whatif {\"place\":{\"memry\":1}}", "\"memry\" is no field"},
      {"whatif {\"drain\":\"/sim-0\"}", "names no node"},
      {"drain node-a/", "names no node"},
      {"drain node-a soon", "soon"},
      {"drain node-a 5m now", "usage: drain"},
      {"priority random", "binpack, spread or fgd"},
      {"events soon", "no sequence number"},
  };
  for (const auto& expected : kLines) {
    const Result<Command> command = parseCommand(expected.line, Side::Cluster);
    ASSERT_FALSE(command.ok()) << expected.line;
    EXPECT_EQ(command.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(command.error().message.find(expected.says), std::string::npos)
        << expected.line << ": " << command.error().message;
  }
}

TEST(ClusterCommands, ASpecSaysWhereATaskMayGo) {
  const Result<Command> command = parseCommand(
      R"(submit {"name":"a b","class":"offline","memory_gib":4,"core_percent":50,"node":"n-1",)"
      R"("models":["A","B"],"cpu_milli":1500,"host_memory_gib":2,"application":"web",)"
      R"("node_score":"spread","card_score":"best-fit","preempt":true,"request_id":"r1",)"
      R"("group":"train","group_size":4})",
      Side::Cluster);
  ASSERT_TRUE(command.ok()) << command.error().message;
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<schema::ClusterRequest>();
  fillRequest(request, *command);
  const auto spec = request.asReader().getSubmit();
  EXPECT_EQ(spec.getTask().getName(), "a b");
  EXPECT_EQ(spec.getTask().getClass(), schema::TaskClass::OFFLINE);
  EXPECT_EQ(spec.getTask().getMemBytes(), 4ULL << 30);
  EXPECT_EQ(spec.getTask().getSharePermille(), 500u);
  EXPECT_EQ(spec.getTask().getRequestId(), "r1");
  EXPECT_EQ(spec.getTask().getOwnerPid(), 0u);
  EXPECT_EQ(spec.getNode(), "n-1");
  ASSERT_EQ(spec.getModels().size(), 2u);
  EXPECT_EQ(spec.getModels()[1], "B");
  EXPECT_EQ(spec.getCpuMilli(), 1500u);
  EXPECT_EQ(spec.getHostMemBytes(), 2ULL << 30);
  EXPECT_EQ(spec.getApplication(), "web");
  EXPECT_EQ(spec.getNodeScore(), schema::Score::SPREAD);
  EXPECT_EQ(spec.getCardScore(), schema::Score::BEST_FIT);
  EXPECT_TRUE(spec.getPreempt());
  EXPECT_EQ(spec.getGroup(), "train");
  EXPECT_EQ(spec.getGroupSize(), 4u);
}

TEST(ClusterCommands, ATargetIsANodeOrOneOfItsCardsWhateverTheCardIsCalled) {
  const Result<Command> command = parseCommand("drain n-1/opencl-a/b-0 90s", Side::Cluster);
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->given.node, "n-1");
  EXPECT_EQ(command->given.card, "opencl-a/b-0");
  EXPECT_EQ(command->given.timeout, seconds(90));
  EXPECT_EQ(parseCommand("drain n-1", Side::Cluster)->given.timeout, kDrainTimeDefault);
}

// --- the socket ---

struct House final : Housekeeping {
  void snapshot(std::function<void(Status)> done) override {
    ++snapshots;
    done(ok());
  }
  Status setLogLevel(const std::string& l) override {
    level = l;
    return ok();
  }
  int snapshots = 0;
  std::string level;
};

struct ClusterAdmin : ::testing::Test {
  ~ClusterAdmin() noexcept override = default;

  void SetUp() override {
    cluster.actor = &actor;
    auto listener = UnixListener::open(path, 0666);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    server =
        std::make_unique<AdminServer>(handler, ChangeRule(::getuid()), AdminLimits{},
                                      *io.lowLevelProvider, bridge.timer(), std::move(*listener));
  }
  std::string ask(const std::string& line) { return LineClient(io, path).ask(line); }

  testing::TempFolder folder;
  std::string path = folder / "scheduler.sock";
  Loop loop;
  KjBridge bridge{loop};
  testing::LoopIo io{bridge};
  ScriptedCluster cluster;
  ClusterActorClient actor{cluster, bridge.timer()};
  House house;
  ClusterHandler handler{actor, house, launchVariables("/opt/libqgpu.so", "/run/here")};
  std::unique_ptr<AdminServer> server;
};

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ClusterAdmin, AnswersEachCommandWithOneDocument) {
  for (const char* line : {"help",
                           "status",
                           "nodes",
                           "cards",
                           "tasks",
                           "tasks 7",
                           "submit {}",
                           "delete 7",
                           "explain 7",
                           "explain {}",
                           "whatif {\"place\":{},\"count\":3}",
                           "whatif {\"drain\":\"node-a\"}",
                           "preempt 7",
                           "cordon node-a",
                           "uncordon node-a/sim-0",
                           "drain node-a 10s",
                           "priority fgd",
                           "events",
                           "events 3",
                           "snapshot",
                           "loglevel debug"}) {
    const std::string answer = ask(line);
    simdjson::dom::parser parser;
    bool good = false;
    ASSERT_EQ(parser.parse(answer)["ok"].get(good), simdjson::SUCCESS) << line << ": " << answer;
    EXPECT_TRUE(good) << line << ": " << answer;
  }
}

TEST_F(ClusterAdmin, HasTheFieldsOfTheContract) {
  const std::string tasks = ask("tasks");
  EXPECT_HOLDS(tasks, R"("id":7,"name":"train\n","class":"ordinary","node":"node-a")");
  EXPECT_HOLDS(tasks, R"("card":"sim-0,sim-1")");
  EXPECT_HOLDS(tasks, R"("state":"running","place":"bound","epoch":2)");
  EXPECT_HOLDS(ask("cards"), R"({"id":"sim-0","index":0,"node":"node-a")");
  EXPECT_HOLDS(ask("nodes"), R"("name":"node-a","state":"alive")");
  EXPECT_HOLDS(ask("status"), R"("role":"scheduler","version":"9.9")");
  EXPECT_HOLDS(ask("explain 7"), R"({"node":"node-a","card":"sim-0","reason":"MemShort")");
  EXPECT_HOLDS(ask("preempt 7"), R"("evicts":[3])");
}

TEST_F(ClusterAdmin, ASubmitAnswersWhatALauncherNeedsOrThatItWaits) {
  const std::string bound = ask("submit {}");
  EXPECT_HOLDS(bound, R"("task":7,"epoch":1,"waiting":false,"node":"node-a","cards":["sim-1"])");
  EXPECT_HOLDS(bound, R"("env":{"LD_PRELOAD":"/opt/libqgpu.so","OPENCL_LAYERS":"/opt/libqgpu.so",)"
                      R"("QGPU_SOCKET":"/run/here/attach.sock","POCL_DEVICES":"pthread",)"
                      R"("QGPU_TOKEN":"secret"})");
  EXPECT_EQ(cluster.last().getSubmit().getTask().getOwnerUid(), ::getuid());
  cluster.waits = true;
  const std::string waits = ask("submit {}");
  EXPECT_HOLDS(waits, R"("waiting":true)");
  EXPECT_HOLDS(waits, R"("reason":"MemShort: no card has 20 GiB free")");
}

TEST_F(ClusterAdmin, C5_AListIsAskedForPageByPageAndIsOneDocument) {
  const std::string one = ask("tasks");
  cluster.pages = 3;
  const std::size_t before = cluster.asked();
  const std::string all = ask("tasks");
  EXPECT_EQ(cluster.asked() - before, 3u);
  EXPECT_EQ(cluster.last().getPage().getAfter(), 2u);
  simdjson::dom::parser parser;
  simdjson::dom::array tasks;
  ASSERT_EQ(parser.parse(all)["tasks"].get(tasks), simdjson::SUCCESS) << all;
  EXPECT_EQ(tasks.size(), 3u);
  EXPECT_EQ(all.substr(0, one.size() - 2), one.substr(0, one.size() - 2)) << "as the whole list";
  EXPECT_HOLDS(ask("tasks 7"), "\"tasks\":[{");
  EXPECT_FALSE(cluster.last().hasPage());
}

TEST_F(ClusterAdmin, AListWhosePagesGoRoundOrFailSaysSo) {
  cluster.stuck = true;
  const std::size_t before = cluster.asked();
  EXPECT_HOLDS(ask("tasks"), "\"ok\":false");
  EXPECT_EQ(cluster.asked() - before, 2u);
  cluster.failNext = fail(ErrorCode::Overloaded, "too much");
  EXPECT_HOLDS(ask("tasks"), "too much");
}

TEST_F(ClusterAdmin, ARefusalOfTheSchedulerIsTheAnswer) {
  cluster.failNext = fail(ErrorCode::Infeasible, "no card is that big");
  const std::string answer = ask("submit {\"memory_gib\":4096}");
  EXPECT_HOLDS(answer, R"({"ok":false,"error":"no card is that big","code":")");
}

TEST_F(ClusterAdmin, C7_WhoMayNotChangeMayReadAndSubmitOnly) {
  Peer peer;
  peer.uid = 1000;
  const auto answer = [&](const std::string& line) {
    return handler.answer(peer, line).wait(io.waitScope).document;
  };
  EXPECT_HOLDS(answer("nodes"), "\"ok\":true");
  EXPECT_HOLDS(answer("submit {}"), "\"ok\":true");
  const std::size_t before = cluster.asked();
  EXPECT_HOLDS(answer("drain node-a"), "may change a cluster");
  EXPECT_EQ(cluster.asked(), before);
}

TEST_F(ClusterAdmin, TheDaemonActsOnceTheSchedulerHasPermittedIt) {
  cluster.failNext = fail(ErrorCode::Unavailable, "the disk is full");
  EXPECT_HOLDS(ask("snapshot"), "the disk is full");
  EXPECT_HOLDS(ask("loglevel debug"), "\"ok\":true");
  EXPECT_EQ(house.level, "debug");
}

}  // namespace
}  // namespace qgpu::cluster_admin_test
