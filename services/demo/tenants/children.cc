#include "services/demo/tenants/children.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

// Set by a signal handler, which can reach nothing but a global.
std::atomic<bool> stopAsked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr std::int64_t kLookNs = 2'000'000;  // how often an ended child is looked for

std::vector<pid_t> childrenOf(pid_t pid) {
  std::istringstream text(
      readWhole("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> pids;
  for (pid_t child = 0; text >> child;) pids.push_back(child);
  return pids;
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* argv, int deathSignal, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, deathSignal);
  if (getppid() != parent) _exit(127);
  ::signal(SIGPIPE, SIG_DFL);
  execvp(argv[0], argv);
  _exit(127);
}

std::vector<char*> wordsOf(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  return words;
}

}  // namespace

void becomeKeeper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action = {};
  action.sa_handler = [](int) { stopAsked = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return stopAsked;
}

bool pauseFor(std::int64_t ns) {
  constexpr std::int64_t kSlice = 20'000'000;  // a signal before the sleep is seen within this
  const std::int64_t until = monotonicNs() + ns;
  for (std::int64_t left = ns; left > 0 && !interrupted(); left = until - monotonicNs()) {
    const timespec pause{0, static_cast<long>(std::min(left, kSlice))};
    nanosleep(&pause, nullptr);
  }
  return !interrupted();
}

void killDescendants() {
  constexpr int kRounds = 100;  // a killed child's children become ours and die in the next one
  for (int round = 0; round < kRounds; round++) {
    const std::vector<pid_t> pids = childrenOf(getpid());
    if (pids.empty()) return;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  }
}

std::string readWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Child::Child(const std::vector<std::string>& argv, const std::string& outputPath)
    : outputPath_(outputPath) {
  constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int in[2] = {-1, -1};
  const int out = open((outputPath + ".out").c_str(), kCreate, 0600);
  const int err = open((outputPath + ".err").c_str(), kCreate, 0600);
  if (out >= 0 && err >= 0 && pipe2(in, O_CLOEXEC) == 0) {
    const std::vector<char*> words = wordsOf(argv);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      dup2(in[0], STDIN_FILENO);
      dup2(out, STDOUT_FILENO);
      dup2(err, STDERR_FILENO);
      become(words.data(), SIGKILL, parent);
    }
  }
  if (pid_ < 0) status_ = 127;
  for (const int fd : {out, err, in[0]}) {
    if (fd >= 0) close(fd);
  }
  stdin_ = in[1];
}

Child::Child(const std::vector<std::string>& argv) {
  const std::vector<char*> words = wordsOf(argv);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(words.data(), SIGTERM, parent);
  if (pid_ < 0) status_ = 127;
}

Child::~Child() {
  if (!status_) {
    if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
    constexpr std::int64_t kDeathNs = 5'000'000'000;
    wait(kDeathNs);
  }
  if (stdin_ >= 0) close(stdin_);
}

void Child::say(const std::string& line) {
  const std::string text = line + "\n";
  // Best effort: a program that has ended needs no words.
  [[maybe_unused]] const ssize_t written = write(stdin_, text.data(), text.size());
}

void Child::signal(int number) const {
  if (!status_) kill(pid_, number);
}

std::optional<int> Child::wait(std::int64_t ns) {
  const std::int64_t until = monotonicNs() + ns;
  for (;;) {
    if (status_) return status_;
    int raw = 0;
    const pid_t ended = waitpid(pid_, &raw, WNOHANG);
    if (ended == pid_) status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    if (ended < 0) status_ = 127;
    if (status_ || monotonicNs() >= until) return status_;
    const timespec pause{0, kLookNs};
    nanosleep(&pause, nullptr);
  }
}

std::vector<pid_t> Child::children() const {
  return status_ ? std::vector<pid_t>() : childrenOf(pid_);
}

std::string Child::output() const {
  return readWhole(outputPath_ + ".out");
}
std::string Child::errors() const {
  return readWhole(outputPath_ + ".err");
}

}  // namespace qgpu::demo
