#include "tests/e2e/processes.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <system_error>
#include <time.h>
#include <unistd.h>

namespace qgpu::e2e {

namespace {
std::filesystem::path own() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

[[noreturn]] void refused(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}
}  // namespace

std::string binary(const std::string& name) {
  return own().parent_path() / name;
}
std::string library() {
  return own().parent_path().parent_path() / "lib" / "libqgpu.so";
}

std::int64_t monotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

bool eventually(const std::function<bool()>& probe, std::chrono::milliseconds limit) {
  const std::int64_t end = monotonicNs() + limit.count() * 1'000'000;
  while (!probe()) {
    if (monotonicNs() > end) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

Child::Child(std::vector<std::string> argv, const Environment& extra) {
  out_ = ::memfd_create("output", MFD_CLOEXEC);
  if (out_ < 0) refused("no memory for what " + argv[0] + " prints");
  std::vector<char*> arguments;
  for (std::string& a : argv) arguments.push_back(a.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ > 0) return;
  if (pid_ < 0) {
    ::close(out_);
    refused("no process for " + argv[0]);
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::dup2(out_, 1);
  ::dup2(out_, 2);
  // The cluster of whoever runs the tests is none of theirs.
  for (const char* name : {"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "QGPU_SERVER"}) {
    ::unsetenv(name);
  }
  for (const auto& [name, value] : extra) ::setenv(name.c_str(), value.c_str(), 1);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

Child::~Child() {
  if (!status_) {
    // It has no group yet where it has not come that far, and nobody in it either.
    if (::kill(-pid_, SIGKILL) != 0) ::kill(pid_, SIGKILL);
    wait();
  }
  ::close(out_);
}

void Child::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

void Child::signalChild(int number) const {
  const std::string self = std::to_string(pid_);
  std::ifstream children("/proc/" + self + "/task/" + self + "/children");
  pid_t first = 0;
  if (children >> first) ::kill(first, number);
}

bool Child::alive() {
  return !wait(std::chrono::milliseconds(0)).has_value();
}

std::optional<int> Child::wait(std::chrono::milliseconds limit) {
  eventually(
      [this] {
        if (status_) return true;
        int raw = 0;
        if (::waitpid(pid_, &raw, WNOHANG) != pid_) return false;
        status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
        return true;
      },
      limit);
  return status_;
}

std::string Child::output() const {
  std::string text;
  char chunk[4096];
  off_t at = 0;
  for (ssize_t n; (n = ::pread(out_, chunk, sizeof chunk, at)) > 0; at += n) {
    text.append(chunk, static_cast<std::size_t>(n));
  }
  return text;
}

Finished run(std::vector<std::string> argv, const Environment& extra,
             std::chrono::milliseconds limit) {
  Child child(std::move(argv), extra);
  const std::optional<int> status = child.wait(limit);
  return {status.value_or(-1), child.output()};
}

TempDir::TempDir() {
  char name[] = "/tmp/qgpu-e2e-XXXXXX";  // short: a socket's path has 107 characters
  if (::mkdtemp(name) == nullptr) refused("no folder could be made in /tmp: make room or rights");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string askSocket(const std::string& socket, const std::string& line,
                      std::chrono::milliseconds limit) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string text = line + "\n";
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
    const std::int64_t end = monotonicNs() + limit.count() * 1'000'000;
    while (answer.find('\n') == std::string::npos && monotonicNs() < end) {
      pollfd ready{fd, POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      char chunk[4096];
      const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
      if (n <= 0) break;
      answer.append(chunk, static_cast<std::size_t>(n));
    }
  }
  ::close(fd);
  return answer;
}

}  // namespace qgpu::e2e
