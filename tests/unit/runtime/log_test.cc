// The shape of a log line, its levels, and the count of errors.

#include "runtime/log.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace qgpu::log_test {
namespace {

class LogTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines_;
  Log log_{LogLevel::Info, [this](LogLevel level, const std::string& line) {
             lines_.push_back(std::string(logLevelName(level)) + " " + line);
           }};
};

TEST_F(LogTest, WritesTheEventAndItsFields) {
  const std::string card = "opencl-0";
  log_.info("task-bound", {{"task", 12u}, {"card", card}, {"share", Permille(-3)}, {"ok", true}});
  EXPECT_EQ(lines_,
            (std::vector<std::string>{"info task-bound task=12 card=opencl-0 share=-3 ok=true"}));
}

TEST_F(LogTest, KeepsEveryBitOfAnInteger) {
  log_.info("n", {{"max", std::numeric_limits<std::uint64_t>::max()},
                  {"min", std::numeric_limits<std::int64_t>::min()}});
  EXPECT_EQ(lines_[0], "info n max=18446744073709551615 min=-9223372036854775808");
}

TEST_F(LogTest, QuotesATextThatWouldBreakTheLine) {
  log_.warn("odd", {{"a", "two words"}, {"b", "x\"y\\z"}, {"c", "1\n2\x01"}, {"d", ""}});
  EXPECT_EQ(lines_[0], R"(warn odd a="two words" b="x\"y\\z" c="1\n2\x01" d="")");
}

TEST_F(LogTest, CutsATextThatIsTooLong) {
  log_.info("long", {{"text", std::string(100'000, 'x')}});
  EXPECT_LT(lines_[0].size(), 1100u);
  EXPECT_TRUE(lines_[0].ends_with("...\""));
}

TEST_F(LogTest, FollowsItsLevelAtOnce) {
  log_.debug("hidden");
  log_.setLevel(LogLevel::Debug);
  log_.debug("shown");
  log_.trace("hidden");
  log_.setLevel(LogLevel::Off);
  log_.error("hidden");
  EXPECT_EQ(lines_, (std::vector<std::string>{"debug shown"}));
}

TEST_F(LogTest, CountsErrorsEvenWhenTheyAreHidden) {
  log_.error("one");
  log_.setLevel(LogLevel::Off);
  log_.error("two");
  log_.warn("none");
  EXPECT_EQ(log_.errors(), 2u);
}

TEST(LogLevel, ReadsItsNames) {
  EXPECT_EQ(*parseLogLevel("warn"), LogLevel::Warn);
  const auto bad = parseLogLevel("loud");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message.find("'loud'"), std::string::npos);
}

TEST(LogToStderr, PutsTimeAndLevelInFront) {
  Log log(LogLevel::Info);
  ::testing::internal::CaptureStderr();
  log.info("started {}", {{"pid", 7}});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.ends_with("Z info started {} pid=7\n")) << text;
  EXPECT_EQ(text.find('T'), 10u) << text;
}

// As systemd starts a daemon; `changed` names another stream than stderr is.
std::string saidToJournal(bool changed) {
  ::testing::internal::CaptureStderr();
  struct stat info {};
  EXPECT_EQ(::fstat(STDERR_FILENO, &info), 0);
  const std::string stream =
      std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino + (changed ? 1 : 0));
  ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
  Log log(LogLevel::Trace);
  ::unsetenv("JOURNAL_STREAM");
  log.debug("a");
  log.info("task-bound", {{"task", 12u}});
  log.warn("b");
  log.error("c");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogToStderr, TellsTheJournalThePriorityAndNoTime) {
  EXPECT_EQ(saidToJournal(false),
            "<7>debug a\n<6>info task-bound task=12\n<4>warn b\n<3>error c\n");
  const std::string elsewhere = saidToJournal(true);
  EXPECT_TRUE(elsewhere.ends_with("Z error c\n")) << elsewhere;
  EXPECT_EQ(elsewhere.find('<'), std::string::npos) << elsewhere;
}

TEST(LogToStderr, WritesEveryLevelUnderItsNameFromTheChosenOneOn) {
  const std::vector<std::string> names = {"trace", "debug", "info", "warn", "error"};
  for (std::size_t least = 0; least <= names.size(); ++least) {
    Log log(static_cast<LogLevel>(least));  // the last one is `off`
    ::testing::internal::CaptureStderr();
    log.trace("said");
    log.debug("said");
    log.info("said");
    log.warn("said");
    log.error("said");
    const std::string text = ::testing::internal::GetCapturedStderr();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool shown = text.find("Z " + names[i] + " said\n") != std::string::npos;
      EXPECT_EQ(shown, i >= least) << names[i] << " from " << least << ": " << text;
    }
  }
}

}  // namespace
}  // namespace qgpu::log_test
