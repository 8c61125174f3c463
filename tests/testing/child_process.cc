#include "tests/testing/child_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "tests/testing/eventually.h"

namespace qgpu::testing {
namespace {

constexpr auto kShellWithin = std::chrono::minutes(5);

// The cluster of whoever runs the tests is none of theirs.
constexpr std::string_view kNotInherited[] = {"KUBECONFIG", "KUBERNETES_SERVICE_HOST",
                                              "QGPU_SERVER"};

std::filesystem::path own() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

[[noreturn]] void refused(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<std::string> variablesWith(const Environment& extra) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string name(variable.substr(0, variable.find('=')));
    const bool left = std::find(std::begin(kNotInherited), std::end(kNotInherited), name) ==
                      std::end(kNotInherited);
    if (left && extra.count(name) == 0) all.emplace_back(variable);
  }
  for (const auto& [name, value] : extra) all.push_back(name + "=" + value);
  return all;
}

// Null ends it, as exec wants.
std::vector<char*> pointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string binary(const std::string& name) {
  return own().parent_path() / name;
}
std::string library() {
  return own().parent_path().parent_path() / "lib" / "libqgpu.so";
}

pid_t startProgram(const std::vector<std::string>& argv, const Environment& extra,
                   Streams streams) {
  const std::vector<std::string> variables = variablesWith(extra);
  const std::vector<char*> arguments = pointersTo(argv);
  std::vector<char*> environment = pointersTo(variables);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) refused("no process for " + argv[0]);
  if (child > 0) return child;
  // Nothing from here on allocates: another thread may have had the lock at the fork.
  if (streams.session) {
    ::setsid();
    ::ioctl(streams.in, TIOCSCTTY, 0);
  } else {
    ::setpgid(0, 0);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  if (streams.in >= 0) ::dup2(streams.in, STDIN_FILENO);
  if (streams.out >= 0) ::dup2(streams.out, STDOUT_FILENO);
  if (streams.err >= 0) ::dup2(streams.err, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);  // KJ ignores it, and programs would inherit that
  environ = environment.data();
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

int openOutput() {
  const int file = ::memfd_create("output", MFD_CLOEXEC);
  if (file < 0 || ::fcntl(file, F_SETFL, O_APPEND) != 0) refused("no memory for what is printed");
  return file;
}

int exitStatus(int raw) {
  return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
}

Child::Child(const std::vector<std::string>& argv, const Environment& extra) : out_(openOutput()) {
  try {
    pid_ = startProgram(argv, extra, {.out = out_, .err = out_});
  } catch (...) {
    ::close(out_);
    throw;
  }
}

Child::Child(const std::vector<std::string>& argv, const Environment& extra, int terminal)
    : pid_(startProgram(argv, extra,
                        {.in = terminal, .out = terminal, .err = terminal, .session = true})) {}

Child::~Child() {
  if (!status_) {
    // It has no group yet where it has not come that far, and nobody in it either.
    if (::kill(-pid_, SIGKILL) != 0) ::kill(pid_, SIGKILL);
    wait();
  }
  if (out_ >= 0) ::close(out_);
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

std::optional<int> Child::wait(std::chrono::milliseconds limit) {
  eventually(
      [this] {
        if (status_) return true;
        int raw = 0;
        if (::waitpid(pid_, &raw, WNOHANG) != pid_) return false;
        status_ = exitStatus(raw);
        return true;
      },
      limit);
  return status_;
}

bool Child::stopped() const {
  siginfo_t what{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &what, WSTOPPED | WNOHANG) == 0 &&
         what.si_pid == pid_;
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

Finished run(const std::vector<std::string>& argv, const Environment& extra,
             std::chrono::milliseconds limit) {
  Child child(argv, extra);
  const std::optional<int> status = child.wait(limit);
  return {status.value_or(-1), child.output()};
}

Finished shell(const std::string& line, const Environment& extra) {
  return run({"sh", "-c", line}, extra, kShellWithin);
}

}  // namespace qgpu::testing
