// What the tests start is gone when they are done with it, with all that it started in turn.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/e2e/harness.h"

namespace qgpu::e2e::processes_test {
namespace {

class Processes : public ::testing::Test {
 protected:
  Processes() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }  // orphans become ours

  // The process that a child told the number of, once it told it.
  static pid_t told(const Child& child) {
    EXPECT_TRUE(eventually([&] { return child.output().ends_with('\n'); }));
    return std::stoi(child.output());
  }
  static void expectKilled(pid_t orphan) {
    int raw = 0;
    const bool ended = eventually([&] { return ::waitpid(orphan, &raw, WNOHANG) == orphan; });
    EXPECT_TRUE(ended && WIFSIGNALED(raw)) << orphan << " lives on";
    if (!ended) ::kill(orphan, SIGKILL);
  }
};

TEST_F(Processes, WhatQgpuctlRunsEndsWithItsChild) {
  Manager manager({"--cards=sim:1x8"});
  pid_t program = 0;
  {
    auto task = manager.runTask({"--name", "left", "--", "sh", "-c", "echo $$; exec sleep 1000"});
    program = told(*task);
  }
  expectKilled(program);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); })) << manager.tasks();
}

TEST_F(Processes, AProgramForACardDiesWithWhoeverStartedIt) {
  const std::string line =
      "sh -c 'echo $$; exec " + binary("qgpu-gpu-work") + " burn --iterations 1000' & wait";
  Child shell({"sh", "-c", line}, {{"LD_LIBRARY_PATH", QGPU_STAND_IN_DIR}});
  const pid_t program = told(shell);
  ASSERT_TRUE(eventually([&] { return shell.output().find("burns\n") != std::string::npos; }))
      << shell.output();
  shell.signal(SIGKILL);  // to it alone
  shell.wait();
  expectKilled(program);
}

// Not every file system gives files without a name (O_TMPFILE): a container's may not.
TEST_F(Processes, OutputNeedsNoFile) {
  const Finished run = testing::run({"readlink", "/proc/self/fd/1"});
  EXPECT_TRUE(run.output.starts_with("/memfd:")) << run.output;
}

}  // namespace
}  // namespace qgpu::e2e::processes_test
