#include "services/kubernetes/agent/plugin_process.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace qgpu {
namespace {

// The child takes no part in what systemd is told of the manager.
std::vector<char*> environmentForChild() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "NOTIFY_SOCKET=", 14) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

int spawn(const std::vector<std::string>& argv, pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = environmentForChild();
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error =
      ::posix_spawn(&pid, arguments[0], nullptr, &attributes, arguments.data(), environment.data());
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

PluginProcess::PluginProcess(Loop& loop, Log& log, std::vector<std::string> argv)
    : loop_(loop), log_(log), argv_(std::move(argv)) {
  argv_.push_back("--parent=" + std::to_string(::getpid()));
}

void PluginProcess::start() {
  timer_ = 0;
  startedAt_ = loop_.now();
  if (const int error = spawn(argv_, pid_); error != 0) {
    log_.error("plugin-not-started", {{"program", argv_[0]}, {"why", std::strerror(error)}});
    pid_ = -1;
    return startLater();
  }
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) fatal(ExitCode::Environment, "pidfd_open() fails");
  log_.info("plugin-started", {{"pid", pid_}});
  death_ = loop_.fds().watchLevel(pidfd_, EPOLLIN, [this](std::uint32_t) { onDeath(); });
}

void PluginProcess::onDeath() {
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return;
  log_.warn("plugin-ended", {{"pid", pid_}, {"how", describe(status)}});
  pid_ = -1;
  death_.reset();
  ::close(pidfd_);
  if (loop_.now() - startedAt_ >= kLasted) pause_ = kPauseMin;
  startLater();
}

void PluginProcess::startLater() {
  timer_ = loop_.after(pause_, [this] { start(); });
  pause_ = std::min(kPauseMax, pause_ * 2);
}

PluginProcess::~PluginProcess() {
  if (timer_ != 0) loop_.cancel(timer_);
  if (pid_ < 0) return;
  death_.reset();
  ::kill(pid_, SIGTERM);
  pollfd gone{pidfd_, POLLIN, 0};
  if (::poll(&gone, 1, static_cast<int>(kGrace / millis(1))) == 0) ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(pidfd_);
}

}  // namespace qgpu
