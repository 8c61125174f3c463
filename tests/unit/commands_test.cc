#include <gtest/gtest.h>

#include "services/admin/commands.h"

namespace qgpu {
namespace {

TEST(Commands, EveryCommandOfTheContractIsUnderstood) {
  const struct {
    const char* line;
    Verb verb;
    bool changes;
  } kLines[] = {
      {"help", Verb::Help, false},          {"status", Verb::Info, false},
      {"cards", Verb::Cards, false},        {"tasks", Verb::Tasks, false},
      {"events", Verb::Events, false},      {"events 12", Verb::Events, false},
      {"watch", Verb::Watch, false},        {"watch 3", Verb::Watch, false},
      {"policy all be", Verb::Policy, true}, {"cordon sim-0", Verb::Cordon, true},
      {"uncordon 0", Verb::Uncordon, true}, {"drain sim-0", Verb::Drain, true},
      {"evict 7", Verb::Evict, true},       {"snapshot", Verb::Snapshot, true},
      {"loglevel debug", Verb::LogLevel, true}, {"run {}", Verb::Run, false},
      {"end 7", Verb::End, false},          {"  status \r", Verb::Info, false},
      {"evict\t7", Verb::Evict, true},
  };
  for (const auto& expected : kLines) {
    const Result<Command> command = parseCommand(expected.line);
    ASSERT_TRUE(command.ok()) << expected.line << ": " << command.error().message;
    EXPECT_EQ(command->verb, expected.verb) << expected.line;
    EXPECT_EQ(command->changes, expected.changes) << expected.line;
  }
  EXPECT_EQ(parseCommand("events 12")->number, 12u);
  EXPECT_EQ(parseCommand("policy sim-1 burst-share")->policy, schema::Policy::BURST_SHARE);
  EXPECT_EQ(parseCommand("policy sim-1 fs")->policy, schema::Policy::FIXED_SHARE);
  EXPECT_EQ(parseCommand("policy sim-1 fs")->card, "sim-1");
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
      {"policy all", "usage: policy CARD NAME"},
      {"policy all fastest", "best-effort, fixed-share or burst-share"},
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
    const Result<Command> command = parseCommand(expected.line);
    ASSERT_FALSE(command.ok()) << expected.line;
    EXPECT_EQ(command.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(command.error().message.find(expected.says), std::string::npos)
        << expected.line << " -> " << command.error().message;
  }
}

TEST(RunSpec, DefaultsAreAnOrdinaryTaskOfOneGibAndTenPercent) {
  const Result<RunSpec> spec = parseRunSpec("{}");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->taskClass, schema::TaskClass::ORDINARY);
  EXPECT_EQ(spec->memBytes, 1ULL << 30U);
  EXPECT_EQ(spec->sharePermille, 100u);
  EXPECT_EQ(spec->cards, 1u);
  EXPECT_TRUE(spec->owned);
}

TEST(RunSpec, ReadsEveryField) {
  const Result<RunSpec> spec = parseRunSpec(
      R"({"name":"tr\u00e4in","class":"offline","memory_gib":3,"core_percent":25,"card":"sim-1",)"
      R"("cards":1,"request_id":"r","owner":"none"})");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->name, "träin");
  EXPECT_EQ(spec->taskClass, schema::TaskClass::OFFLINE);
  EXPECT_EQ(spec->memBytes, 3ULL << 30U);
  EXPECT_EQ(spec->sharePermille, 250u);
  EXPECT_EQ(spec->card, "sim-1");
  EXPECT_EQ(spec->requestId, "r");
  EXPECT_FALSE(spec->owned);
}

TEST(RunSpec, AnOnlineTaskAsksForNoShareUnlessItSaysSo) {
  EXPECT_EQ(parseRunSpec(R"({"class":"online"})")->sharePermille, 0u);
  EXPECT_EQ(parseRunSpec(R"({"class":"online","core_percent":10})")->sharePermille, 100u);
}

TEST(RunSpec, SeveralCardsAreWholeCards) {
  const Result<RunSpec> two = parseRunSpec(R"({"cards":2})");
  EXPECT_EQ(two->cards, 2u);
  EXPECT_EQ(two->sharePermille, 1000u);
  const Result<RunSpec> three = parseRunSpec(R"({"core_percent":300})");
  EXPECT_EQ(three->cards, 3u);
  EXPECT_EQ(three->sharePermille, 1000u);
}

TEST(RunSpec, AWrongFieldIsNamed) {
  const struct {
    const char* json;
    const char* says;
  } kSpecs[] = {
      {R"({"memory":1})", "memory"},          {R"({"memory_gib":"1"})", "memory_gib"},
      {R"({"memory_gib":0})", "memory_gib"},  {R"({"memory_gib":1.5})", "memory_gib"},
      {R"({"memory_gib":-1})", "memory_gib"}, {R"({"memory_gib":99999999999999})", "memory_gib"},
      {R"({"class":"fast"})", "class"},       {R"({"name":7})", "name"},
      {R"({"name":"a\u0000b"})", "name"},     {R"({"cards":0})", "cards"},
      {R"({"cards":17})", "cards"},           {R"({"core_percent":1700})", "core_percent"},
      {R"({"core_percent":150})", "core_percent"},
      {R"({"core_percent":300,"cards":2})", "core_percent"},
      {R"({"owner":"me"})", "owner"},
  };
  for (const auto& expected : kSpecs) {
    const Result<RunSpec> spec = parseRunSpec(expected.json);
    ASSERT_FALSE(spec.ok()) << expected.json;
    EXPECT_NE(spec.error().message.find(expected.says), std::string::npos)
        << expected.json << " -> " << spec.error().message;
  }
}

TEST(RunSpec, DeepNestingIsRefused) {
  EXPECT_FALSE(parseRunSpec("{\"name\":" + std::string(60'000, '[') + "}").ok());
}

}  // namespace
}  // namespace qgpu
