// A child that asks a driver, and how its end is waited for.

#include "services/base/child_probe.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/testing/temp_folder.h"

namespace qgpu::child_probe_test {
namespace {

const std::string kLate = "it did not answer in time";

Result<std::string> ask(Nanos timeout, const std::function<void(int out)>& body) {
  return askInChild("it", "look", timeout, body);
}

[[noreturn]] void never() {
  for (;;) ::pause();
}

TEST(ChildProbe, WhatItWritesIsTheAnswerAndACrashIsNone) {
  const auto said = ask(seconds(60), [](int out) { EXPECT_EQ(::write(out, "yes", 3), 3); });
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(*said, "yes");
  const auto crashed = ask(seconds(60), [](int) { ::raise(SIGKILL); });
  ASSERT_FALSE(crashed.ok());
  EXPECT_EQ(crashed.error().message, "it crashed when asked; does `look` work?");
}

TEST(ChildProbe, OneThatHangsIsKilledEvenAfterItAnswered) {
  for (const bool answers : {false, true}) {
    const auto late = ask(millis(50), [&](int out) {
      if (answers) ::close(out);
      never();
    });
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().message, kLate + "; does `look` work?");
    EXPECT_EQ(::waitpid(-1, nullptr, 0), -1) << "nothing is left of it";
  }
}

// To its parent a traced process is not dead before its tracer lets go of it, as one is that is
// stuck in the kernel.
[[noreturn]] void trace(pid_t child, const std::string& until, int out) {
  ::signal(SIGPIPE, SIG_IGN);
  ::alarm(120);
  const int end = ::open(until.c_str(), O_RDWR);
  if (::ptrace(PTRACE_SEIZE, child, 0, 0) != 0) ::kill(child, SIGKILL);
  const std::string tooMuch(300 * 1024, 'x');  // so it is killed from now on
  char c = 0;
  const bool done = ::write(out, tooMuch.data(), tooMuch.size()) > 0 && ::read(end, &c, 1) == 1;
  ::_exit(done ? 0 : 1);
}

TEST(ChildProbe, OneThatCantBeKilledIsLeftBehind) {
  testing::TempFolder folder;
  const std::string until = folder.path() + "/until";
  ASSERT_EQ(::mkfifo(until.c_str(), 0600), 0);
  const auto stuck = ask(seconds(60), [&](int out) {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    const pid_t child = ::getpid();
    if (::fork() == 0) trace(child, until, out);
    never();
  });
  ASSERT_FALSE(stuck.ok());
  EXPECT_EQ(stuck.error().message,
            kLate + ", and what asks it can't be killed (see dmesg); does `look` work?");
  const int end = ::open(until.c_str(), O_WRONLY | O_NONBLOCK);
  ASSERT_GE(end, 0) << "it was waited for until it ended";
  EXPECT_EQ(::write(end, "x", 1), 1);
  ::close(end);
  EXPECT_GT(::waitpid(-1, nullptr, 0), 0);
}

TEST(ChildProbe, ItHoldsNothingThatIsOpenHere) {
  testing::TempFolder folder;
  const int below = ::open(folder.path().c_str(), O_RDONLY | O_CLOEXEC);
  const int above = ::fcntl(below, F_DUPFD_CLOEXEC, 100);
  ASSERT_GE(above, 100);
  const auto said = ask(seconds(60), [&](int out) {
    const auto holds = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0 || errno != EBADF; };
    const char* text = holds(below) || holds(above) ? "held" : "free";
    EXPECT_EQ(::write(out, text, 4), 4);
  });
  ASSERT_TRUE(said.ok()) << said.error().message;
  EXPECT_EQ(*said, "free");
  ::close(below);
  ::close(above);
}

}  // namespace
}  // namespace qgpu::child_probe_test
