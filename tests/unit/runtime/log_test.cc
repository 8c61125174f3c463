// The shape of a log line, its levels, and the count of errors.

#include "runtime/log.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "runtime/fd.h"
#include "tests/testing/temp_folder.h"

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

// Where systemd has its sockets: a stream for lines, which is stderr of a daemon, and datagrams.
class JournalStandIn {
 public:
  JournalStandIn()
      : stream_(bound("/stdout", SOCK_STREAM)), entries_(bound("/socket", SOCK_DGRAM)) {
    EXPECT_EQ(::listen(stream_.get(), 1), 0);
    stderr_ = Fd(::dup(STDERR_FILENO));
    const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un to = addressOf("/stdout");
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    lines_ = Fd(::accept(stream_.get(), nullptr, nullptr));
    ::dup2(client.get(), STDERR_FILENO);
    struct stat info {};
    ::fstat(STDERR_FILENO, &info);
    const std::string stream = std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
    ::setenv("JOURNAL_STREAM", stream.c_str(), 1);
  }
  ~JournalStandIn() {
    ::unsetenv("JOURNAL_STREAM");
    ::dup2(stderr_.get(), STDERR_FILENO);
  }
  JournalStandIn(const JournalStandIn&) = delete;

  std::string entry() const { return nextOf(entries_); }
  std::string line() const { return nextOf(lines_); }
  void closeEntries() { entries_.reset(); }

 private:
  sockaddr_un addressOf(const std::string& name) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.path() + name;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
  }
  Fd bound(const std::string& name, int type) const {
    Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    const sockaddr_un address = addressOf(name);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  // What is there now: both kinds were written before a call of Log returned.
  static std::string nextOf(const Fd& fd) {
    char bytes[32'768];
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return n < 0 ? "" : std::string(bytes, static_cast<std::size_t>(n));
  }
  const testing::TempFolder folder_{"journal"};
  Fd stream_, entries_, lines_, stderr_;
};

TEST(LogToJournal, GivesTasksAndCardsAsFields) {
  JournalStandIn journal;
  Log log(LogLevel::Info);
  log.info("task-bound", {{"task", 12u}, {"name", "my train"}, {"card", "sim-0,sim-1"}});
  EXPECT_EQ(journal.entry(),
            "MESSAGE=info task-bound task=12 name=\"my train\" card=sim-0,sim-1\nPRIORITY=6\n"
            "SYSLOG_IDENTIFIER=" +
                std::string(program_invocation_short_name) +
                "\nEVENT=task-bound\nTASK=12\nTASK=my train\nCARD=sim-0\nCARD=sim-1\n");
  log.error("c", {{"name", "of no task"}});
  const std::string error = journal.entry();
  EXPECT_NE(error.find("\nPRIORITY=3\n"), std::string::npos) << error;
  EXPECT_EQ(error.find("TASK="), std::string::npos) << error;
  EXPECT_EQ(journal.line(), "") << "a line is said once";
}

// Nobody makes a field of another name by what a task is called.
TEST(LogToJournal, ALineEndInAValueStaysInItsValue) {
  JournalStandIn journal;
  Log log(LogLevel::Info);
  log.info("task-bound", {{"task", 1u}, {"name", "a\n_UID=0"}});
  const std::string said = journal.entry();
  EXPECT_TRUE(said.ends_with(std::string("TASK=1\nTASK\n\x08\0\0\0\0\0\0\0", 20) + "a\n_UID=0\n"))
      << said;
}

TEST(LogToJournal, WhatItDoesNotTakeGoesAsALine) {
  JournalStandIn journal;
  Log log(LogLevel::Info);
  journal.closeEntries();
  log.info("a", {{"task", 1u}});
  EXPECT_EQ(journal.line(), "<6>info a task=1\n");
}

// A collector that reads the journal has the document as the message, beside the fields.
TEST(LogToJournal, TakesALineOfAnotherShapeWithTheSameFields) {
  JournalStandIn journal;
  Log log(LogLevel::Info, [](LogLevel, std::string_view event, Log::Fields) {
    return "{" + std::string(event) + "}";
  });
  log.warn("card-cordoned", {{"card", "sim-0"}});
  const std::string said = journal.entry();
  EXPECT_TRUE(said.starts_with("MESSAGE={card-cordoned}\nPRIORITY=4\n")) << said;
  EXPECT_TRUE(said.ends_with("\nEVENT=card-cordoned\nCARD=sim-0\n")) << said;
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
