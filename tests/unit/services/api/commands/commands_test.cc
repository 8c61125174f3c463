#include "services/api/commands/commands.h"

#include <capnp/message.h>
#include <gtest/gtest.h>

#include "services/api/commands/cluster_render.h"
#include "services/api/commands/render.h"

namespace qgpu::commands_test {
namespace {

Result<AskedTask> asked(std::string_view json, Side side = Side::Node) {
  Result<SaidSpec> said = readSpec(json, side);
  if (!said) return said.error();
  return fillSpec(std::move(*said));
}

TEST(Commands, EveryCommandOfTheContractIsUnderstood) {
  const struct {
    const char* line;
    const char* name;
    Right right;
  } kLines[] = {
      {"help", "help", Right::Read},
      {"status", "status", Right::Read},
      {"cards", "cards", Right::Read},
      {"tasks", "tasks", Right::Read},
      {"events", "events", Right::Read},
      {"events 12", "events", Right::Read},
      {"watch", "watch", Right::Read},
      {"watch 3", "watch", Right::Read},
      {"trace sim-0", "trace", Right::Read},
      {"trace 0 12", "trace", Right::Read},
      {"policy all be", "policy", Right::Change},
      {"cordon sim-0", "cordon", Right::Change},
      {"uncordon 0", "uncordon", Right::Change},
      {"drain sim-0", "drain", Right::Change},
      {"evict 7", "evict", Right::Change},
      {"limits", "limits", Right::Read},
      {"snapshot", "snapshot", Right::Change},
      {"loglevel debug", "loglevel", Right::Change},
      {"report 0 /a/report.json", "report", Right::Change},
      {"run {}", "run", Right::OwnTasks},
      {"end 7", "end", Right::OwnTasks},
      {"  status \r", "status", Right::Read},
      {"evict\t7", "evict", Right::Change},
  };
  for (const auto& expected : kLines) {
    const Result<Command> command = parseCommand(expected.line, Side::Node);
    ASSERT_TRUE(command.ok()) << expected.line << ": " << command.error().message;
    EXPECT_EQ(command->row->name, expected.name) << expected.line;
    EXPECT_EQ(command->row->right, expected.right) << expected.line;
  }
  EXPECT_EQ(parseCommand("events 12", Side::Node)->given.number, 12u);
  EXPECT_EQ(parseCommand("trace 0 12", Side::Node)->given.card, "0");
  EXPECT_EQ(parseCommand("trace 0 12", Side::Node)->given.number, 12u);
  EXPECT_EQ(parseCommand("report 0 /a/report.json", Side::Node)->given.card, "0");
  EXPECT_EQ(parseCommand("report 0 /a/report.json", Side::Node)->given.path, "/a/report.json");
  EXPECT_EQ(parseCommand("policy sim-1 burst-share", Side::Node)->given.policy,
            schema::Policy::BURST_SHARE);
  EXPECT_EQ(parseCommand("policy sim-1 fs", Side::Node)->given.policy, schema::Policy::FIXED_SHARE);
  EXPECT_EQ(parseCommand("policy sim-1 fs", Side::Node)->given.card, "sim-1");
}

TEST(Commands, AnAnswerWithoutAViewOfItsOwnIsWrittenByTheNamesOfItsSchema) {
  const char* wanted =
      R"({"ok":true,"limits":[{"what":"tasks","now":3,"most":18446744073709551615,)"
      R"("beyond":"a \"bind\" is refused"}]})";
  const auto fill = [](auto limits) {
    limits[0].setWhat("tasks");
    limits[0].setNow(3);
    limits[0].setMost(UINT64_MAX);
    limits[0].setBeyond("a \"bind\" is refused");
  };
  capnp::MallocMessageBuilder message;
  auto node = message.initRoot<schema::Reply>();
  fill(node.initLimits(1));
  EXPECT_EQ(renderReply(node, "here", {}), wanted);
  capnp::MallocMessageBuilder other;
  auto cluster = other.initRoot<schema::ClusterReply>();
  fill(cluster.initLimits(1));
  EXPECT_EQ(renderClusterReply(cluster), wanted);

  JsonWriter json;
  node.initFailed().setMessage("no");
  EXPECT_FALSE(writeAsNamed(json, node.asReader()));
  json.beginObject();
  auto card = node.initCards(1)[0];
  card.setPolicy(static_cast<schema::Policy>(4711));
  card.setMemBound(5);
  ASSERT_TRUE(writeAsNamed(json, node.asReader()));
  const std::string text = json.endObject().take();
  EXPECT_NE(text.find(R"("policy":"unknown")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("mem_bound":5)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("state":"ready")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("online_active":false)"), std::string::npos) << text;
}

// The names by which RPC knows who may ask what.
TEST(Commands, EveryRequestOfACommandIsFoundAgainAndNoOther) {
  using Node = schema::Request;
  using Cluster = schema::ClusterRequest;
  EXPECT_EQ(rowOf(Node::EVICT)->name, "evict");
  EXPECT_EQ(rowOf(Node::BIND)->right, Right::OwnTasks);
  EXPECT_EQ(rowOf(Node::TRACE)->right, Right::Read);
  EXPECT_EQ(rowOf(Cluster::EXPLAIN), rowOf(Cluster::EXPLAIN_SPEC));
  EXPECT_EQ(rowOf(Cluster::LOG_LEVEL)->does, Does::LogLevel);
  for (const auto which :
       {Node::WATCH, Node::PLACE, Node::END, Node::CLUSTER_TERM, Node::STANDING}) {
    EXPECT_EQ(rowOf(which), nullptr) << "not for clients: " << which;
  }
  EXPECT_EQ(rowOf(Cluster::WATCH), nullptr);
  EXPECT_EQ(rowOf(Cluster::ADMIT), nullptr) << "the scheduler's own door asks it";
  EXPECT_EQ(rowOf(Cluster::INVITE)->right, Right::Change);
  EXPECT_EQ(rowOf(Cluster::TOKENS)->right, Right::Change);
  EXPECT_EQ(rowOf(Cluster::ASSIGNED), nullptr) << "says a token";
}

TEST(Commands, EachRowIsWhole) {
  for (const CommandRow& row : commandRows()) {
    EXPECT_FALSE(row.what.empty()) << row.name;
    EXPECT_TRUE(row.on(Side::Node) || row.on(Side::Cluster)) << row.name;
    for (const Argument& argument : row.arguments) {
      if (argument.name.empty()) continue;
      EXPECT_FALSE(argument.meaning.empty()) << row.name;
      EXPECT_EQ(argument.node.name.empty(), argument.node.read == nullptr) << row.name;
      EXPECT_EQ(argument.cluster.name.empty(), argument.cluster.read == nullptr) << row.name;
    }
  }
}

TEST(Commands, EverythingElseIsAnErrorThatSaysWhatIsRight) {
  const struct {
    std::string line;
    const char* says;
  } kLines[] = {
      {"", "help"},
      {"frobnicate", "unknown command \"frobnicate\""},
      {"STATUS", "unknown command"},
      {"status now", "usage: status"},
      {"events soon", "no sequence number"},
      {"events 1 2", "usage: events [SINCE]"},
      {"trace", "usage: trace CARD [SINCE]"},
      {"trace 0 soon", "no sequence number"},
      {"policy all", "usage: policy CARD NAME"},
      {"policy all fastest", "best-effort (be), fixed-share (fs) or burst-share (bs)"},
      {"evict", "usage: evict TASK"},
      {"evict -1", "no task id"},
      {"evict 0", "no task id"},
      {"evict 18446744073709551616", "no task id"},
      {"run", "usage: run SPEC"},
      {"run {", "no JSON"},
      {"run []", "one JSON object"},
      {"run {} {}", "no JSON"},
      {std::string("stat\0us", 7), "no text"},
      {"status\x01", "no text"},
      {"cordon \xFF\xFE", "no text"},
      {"cordon " + std::string(300, 'x'), "at most 256"},
  };
  for (const auto& expected : kLines) {
    const Result<Command> command = parseCommand(expected.line, Side::Node);
    ASSERT_FALSE(command.ok()) << expected.line;
    EXPECT_EQ(command.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(command.error().message.find(expected.says), std::string::npos)
        << expected.line << " -> " << command.error().message;
  }
}

TEST(AskedTask, DefaultsAreAnOrdinaryTaskOfOneGibAndTenPercent) {
  const Result<AskedTask> spec = asked("{}");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->spec.task.taskClass, TaskClass::Ordinary);
  EXPECT_EQ(spec->spec.task.mem, gibibytes(1));
  EXPECT_EQ(spec->spec.task.share, Permille(100));
  EXPECT_EQ(spec->spec.task.cards, 1u);
  EXPECT_TRUE(spec->owned);
}

TEST(AskedTask, ReadsEveryField) {
  const Result<AskedTask> spec = asked(
      R"({"name":"tr\u00e4in","class":"offline","memory_gib":3,"core_percent":25,"card":"sim-1",)"
      R"("cards":1,"request_id":"r","owner":"none"})");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->spec.task.name, "träin");
  EXPECT_EQ(spec->spec.task.taskClass, TaskClass::Offline);
  EXPECT_EQ(spec->spec.task.mem, gibibytes(3));
  EXPECT_EQ(spec->spec.task.share, Permille(250));
  EXPECT_EQ(spec->spec.task.card, "sim-1");
  EXPECT_EQ(spec->spec.task.requestId, "r");
  EXPECT_FALSE(spec->owned);
}

TEST(AskedTask, TakesSizesAsTextsAndAsNumbersOfGib) {
  const std::pair<const char*, Bytes> sizes[] = {
      {R"({"memory":2})", gibibytes(2)},           {R"({"memory":1.5})", mebibytes(1536)},
      {R"({"memory":"1.5GiB"})", mebibytes(1536)}, {R"({"memory":"700M"})", mebibytes(700)},
      {R"({"memory":"2"})", gibibytes(2)},         {R"({"memory_gib":3})", gibibytes(3)}};
  for (const auto& [json, size] : sizes) {
    const Result<AskedTask> spec = asked(json);
    ASSERT_TRUE(spec.ok()) << json << ": " << spec.error().message;
    EXPECT_EQ(spec->spec.task.mem, size) << json;
  }
}

TEST(AskedTask, TakesWhatAnOfflineTaskLends) {
  const Result<AskedTask> spec = asked(R"({"class":"offline","memory_gib":6,"pageable":"4.5GiB"})");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->spec.task.pageable, mebibytes(4608));
  EXPECT_EQ(asked("{}")->spec.task.pageable, Bytes(0));
}

TEST(AskedTask, WritesWholeGibAsOlderDaemonsKnowThem) {
  const auto written = [](const char* json) { return specJson(*readSpec(json, Side::Cluster)); };
  EXPECT_EQ(written(R"({"memory":"2GiB","host_memory":"0"})"),
            R"({"memory_gib":2,"host_memory_gib":0})");
  EXPECT_EQ(written(R"({"memory":1.5})"), R"({"memory":"1536MiB"})");
}

TEST(AskedTask, AnOnlineTaskAsksForNoShareUnlessItSaysSo) {
  EXPECT_EQ(asked(R"({"class":"online"})")->spec.task.share, Permille(0));
  EXPECT_EQ(asked(R"({"class":"online","core_percent":10})")->spec.task.share, Permille(100));
}

TEST(AskedTask, SeveralCardsAreWholeCards) {
  const Result<AskedTask> two = asked(R"({"cards":2})");
  EXPECT_EQ(two->spec.task.cards, 2u);
  EXPECT_EQ(two->spec.task.share, Permille(1000));
  const Result<AskedTask> three = asked(R"({"core_percent":300})");
  EXPECT_EQ(three->spec.task.cards, 3u);
  EXPECT_EQ(three->spec.task.share, Permille(1000));
}

TEST(AskedTask, AWrongFieldIsNamed) {
  const struct {
    const char* json;
    const char* says;
  } kSpecs[] = {
      {R"({"memory":"1.5Gi"})", "memory: expected a size such as \"1.5GiB\" or \"512MiB\""},
      {R"({"memory":0})", "from 1 MiB to 1048576 GiB"},
      {R"({"memory":true})", "memory"},
      {R"({"memory_gib":0})", "memory_gib"},
      {R"({"memory_gib":-1})", "memory_gib"},
      {R"({"memory_gib":1,"memory":2})", "twice"},
      {R"({"memory_gib":99999999999999})", "memory_gib"},
      {R"({"class":"fast"})", "class"},
      {R"({"name":7})", "name"},
      {R"({"name":"a\u0000b"})", "name"},
      {R"({"cards":0})", "cards"},
      {R"({"cards":17})", "cards"},
      {R"({"core_percent":1700})", "core_percent"},
      {R"({"core_percent":150})", "core_percent"},
      {R"({"core_percent":300,"cards":2})", "core_percent"},
      {R"({"owner":"me"})", "owner"},
  };
  for (const auto& expected : kSpecs) {
    const Result<AskedTask> spec = asked(expected.json);
    ASSERT_FALSE(spec.ok()) << expected.json;
    EXPECT_NE(spec.error().message.find(expected.says), std::string::npos)
        << expected.json << " -> " << spec.error().message;
  }
}

TEST(AskedTask, WhatWasSaidIsWrittenAsItWasRead) {
  const std::string json =
      R"({"name":"a\"b","class":"offline","memory_gib":4,"models":["A","B"],"preempt":true})";
  const Result<SaidSpec> said = readSpec(json, Side::Cluster);
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(specJson(*said), json);
  EXPECT_FALSE(readSpec(json, Side::Node).ok()) << "a node has no other models";
  EXPECT_FALSE(readSpec(R"({"cards":1,"cards":2})", Side::Node).ok()) << "which of the two?";
}

TEST(AskedTask, DeepNestingIsRefused) {
  EXPECT_FALSE(asked("{\"name\":" + std::string(60'000, '[') + "}").ok());
}

}  // namespace
}  // namespace qgpu::commands_test
