// What the kernel says of a process that somebody has stopped, in each of the ways there are.

#include "services/base/process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <signal.h>
#include <sstream>
#include <string>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/testing/eventually.h"
#include "tests/testing/forked_process.h"

namespace qgpu::process_test {
namespace {

class ProcessStoppedTest : public ::testing::Test {
 protected:
  bool stopped() const { return processStopped(static_cast<std::uint32_t>(pid_)); }

  testing::ForkedProcess process_{[]() -> int {
    for (;;) ::pause();
  }};
  const pid_t pid_ = process_.pid();
};

TEST_F(ProcessStoppedTest, ByASignal) {
  EXPECT_FALSE(stopped());
  ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(pid_, nullptr, WUNTRACED), pid_);
  EXPECT_TRUE(stopped());
  ASSERT_EQ(::kill(pid_, SIGCONT), 0);
  ASSERT_EQ(::waitpid(pid_, nullptr, WCONTINUED), pid_);
  EXPECT_FALSE(stopped());
}

TEST_F(ProcessStoppedTest, ByADebugger) {
  if (::ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "this machine lets nobody debug";
  }
  EXPECT_FALSE(stopped());
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(pid_, nullptr, __WALL), pid_);
  EXPECT_TRUE(stopped());
}

TEST_F(ProcessStoppedTest, WhoIsNoProcessIsNotStopped) {
  EXPECT_FALSE(processStopped(0));
}

// A cgroup of version 2 with one process in it; gone with it.
class Cgroup {
 public:
  explicit Cgroup(pid_t pid) : path_(root()) {
    if (path_.empty()) return;
    path_ += "/qgpu-test-" + std::to_string(pid);
    std::error_code refused;
    there_ = std::filesystem::create_directory(path_, refused) &&
             write("cgroup.procs", std::to_string(pid)) && write("cgroup.freeze", "0");
  }
  ~Cgroup() {
    if (path_.empty()) return;
    write("cgroup.freeze", "0");
    std::ifstream in(path_ + "/cgroup.procs");
    pid_t pid = 0;
    while (in >> pid) ::kill(pid, SIGKILL);
    std::error_code busy;  // until the process is torn down
    while (std::filesystem::exists(path_) && !std::filesystem::remove(path_, busy)) {
      std::this_thread::yield();
    }
  }
  explicit operator bool() const { return there_; }

  // Returns once it is so.
  void freeze(bool frozen) {
    ASSERT_TRUE(write("cgroup.freeze", frozen ? "1" : "0"));
    const std::string wanted = frozen ? "frozen 1" : "frozen 0";
    for (;;) {
      std::ifstream in(path_ + "/cgroup.events");
      const std::string events{std::istreambuf_iterator<char>(in), {}};
      if (events.find(wanted) != std::string::npos) return;
      std::this_thread::yield();
    }
  }

 private:
  static std::string root() {
    std::ifstream mounts("/proc/mounts");
    for (std::string line; std::getline(mounts, line);) {
      std::istringstream fields(line);
      std::string device, at, kind;
      if (fields >> device >> at >> kind && kind == "cgroup2") return at;
    }
    return "";
  }
  bool write(const char* file, const std::string& text) {
    std::ofstream out(path_ + "/" + file);
    return static_cast<bool>(out << text << std::flush);
  }

  std::string path_;
  bool there_ = false;
};

TEST_F(ProcessStoppedTest, WithItsCgroup) {
  Cgroup group(pid_);
  if (!group) GTEST_SKIP() << "no cgroup of version 2 can be made here";
  EXPECT_FALSE(stopped());
  // The kernel says that the group is frozen just before the process sleeps in it.
  group.freeze(true);
  EXPECT_TRUE(testing::eventually([this] { return stopped(); }));
  group.freeze(false);
  EXPECT_TRUE(testing::eventually([this] { return !stopped(); }));
}

}  // namespace
}  // namespace qgpu::process_test
