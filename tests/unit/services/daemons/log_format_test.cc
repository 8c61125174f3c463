// A log line as JSON: what a collector of logs reads.

#include "services/daemons/log_format.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace qgpu {
namespace {

constexpr std::int64_t kThen = 1'769'860'800'123;

TEST(LogFormat, SaysTimeLevelAndMessageAndEachFieldAsWhatItIs) {
  EXPECT_EQ(jsonLogLine(kThen, LogLevel::Info, "task-bound",
                        {{"task", 12u}, {"card", "sim-0"}, {"by", -3}, {"online", true}}),
            R"({"time":"2026-01-31T12:00:00.123000Z","level":"info","message":"task-bound",)"
            R"("task":12,"card":"sim-0","by":-3,"online":true})");
}

TEST(LogFormat, KeepsEveryBitOfAnInteger) {
  const std::string line =
      jsonLogLine(0, LogLevel::Warn, "n", {{"max", std::numeric_limits<std::uint64_t>::max()}});
  EXPECT_TRUE(line.ends_with(R"("max":18446744073709551615})")) << line;
}

// Whatever a task is called, a line stays one line and one document.
TEST(LogFormat, NoTextBreaksTheLineOrItsEncoding) {
  const std::string line =
      jsonLogLine(0, LogLevel::Error, "odd", {{"a", "x\"y\nz"}, {"b", "\xff\x01"}});
  EXPECT_TRUE(line.ends_with("\"a\":\"x\\\"y\\nz\",\"b\":\"\xef\xbf\xbd\\u0001\"}")) << line;
}

TEST(LogFormat, CutsATextThatIsTooLong) {
  const std::string line = jsonLogLine(0, LogLevel::Info, "a", {{"b", std::string(99'999, 'x')}});
  EXPECT_LT(line.size(), 9000u);
  EXPECT_TRUE(line.ends_with("x...\"}"));
}

TEST(LogFormat, NoNameStandsThereTwice) {
  EXPECT_EQ(jsonLogLine(0, LogLevel::Info, "changed", {{"level", "debug"}, {"time", 5}}),
            R"({"time":"1970-01-01T00:00:00.000000Z","level":"info","message":"changed",)"
            R"("level_":"debug","time_":5})");
}

TEST(LogFormat, IsChosenByName) {
  EXPECT_EQ(*parseLogFormat("json"), LogFormat::Json);
  EXPECT_EQ(*parseLogFormat("text"), LogFormat::Text);
  EXPECT_FALSE(parseLogFormat("JSON").ok());
  EXPECT_FALSE(logShape(LogFormat::Text));
}

TEST(LogFormat, ALogOfThisShapeWritesTheDocumentAlone) {
  Log log(LogLevel::Info, logShape(LogFormat::Json));
  ::testing::internal::CaptureStderr();
  log.debug("hidden");
  log.warn("shown", {{"n", 1}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("{\"time\":\"2")) << said;
  EXPECT_TRUE(said.ends_with("\"level\":\"warn\",\"message\":\"shown\",\"n\":1}\n")) << said;
}

}  // namespace
}  // namespace qgpu
