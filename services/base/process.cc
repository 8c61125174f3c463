#include "services/base/process.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

namespace qgpu {
namespace {

constexpr std::size_t kThreadsMax = 4096;  // of one process that are looked at
constexpr std::size_t kStatBytes = 1024;

// The beginning of a file of /proc as a string, or an empty one.
template <std::size_t N>
const char* readProc(const char* path, char (&text)[N]) {
  text[0] = 0;
  Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return text;
  const ssize_t n = ::read(fd.get(), text, N - 1);
  text[n > 0 ? n : 0] = 0;
  return text;
}

// Where a field of /proc/PID/stat begins, from the third one on; null: there is no such process.
const char* statField(std::uint32_t pid, int wanted, char (&text)[kStatBytes]) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  // The name in field 2 may hold anything, so fields are counted from its last parenthesis.
  const char* at = std::strrchr(readProc(path, text), ')');
  for (int field = 3; at != nullptr && field <= wanted; field++) {
    at = std::strchr(at, ' ');
    if (at != nullptr) at++;
  }
  return at;
}

// What a process or thread calls itself, by its file `status`; 0: there is none.
std::uint32_t ownNumber(const char* path) {
  char text[4096];
  const char* line = std::strstr(readProc(path, text), "\nNSpid:");
  if (line == nullptr) return 0;
  // One number per namespace; the last one is its own view.
  std::uint32_t own = 0;
  char* at = const_cast<char*>(line) + 7;
  while (*at == '\t' || *at == ' ') own = static_cast<std::uint32_t>(std::strtoul(at, &at, 10));
  return own;
}

}  // namespace

std::optional<std::uint64_t> processStart(std::uint32_t pid) {
  char text[kStatBytes];
  const char* at = statField(pid, 22, text);
  if (at == nullptr) return std::nullopt;
  return std::strtoull(at, nullptr, 10);
}

bool processStopped(std::uint32_t pid) {
  char path[64], text[kStatBytes];
  const char* state = statField(pid, 3, text);
  if (state == nullptr) return false;
  if (*state == 'T' || *state == 't') return true;
  // In a frozen cgroup it seems to sleep, in the function that delivers signals.
  if (*state != 'S') return false;
  std::snprintf(path, sizeof path, "/proc/%u/wchan", pid);
  const std::string_view where = readProc(path, text);
  return where == "get_signal" || where == "do_freezer_trap";
}

std::uint32_t ownPid(std::uint32_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/status", pid);
  return ownNumber(path);
}

Result<Fd> openProcess(std::uint32_t pid, std::uint64_t start) {
  const auto none = [](int why) -> Result<Fd> {
    if (why != EMFILE && why != ENFILE) return Fd();
    return fail(ErrorCode::Unavailable,
                "the manager is out of descriptors: raise its limit (ulimit -n)");
  };
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!pidfd) return none(errno);
  errno = 0;
  const std::optional<std::uint64_t> found = processStart(pid);
  if (!found) return none(errno);
  // Alive after /proc was read: so what was read belongs to the process of the pidfd.
  if (processDead(pidfd) || (start != 0 && start != *found)) return Fd();
  return pidfd;
}

bool processDead(const Fd& pidfd) {
  pollfd wait{pidfd.get(), POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

bool signalProcess(const Fd& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

std::uint32_t ThreadIds::host(std::uint32_t own, Nanos now) {
  if (hostPid_ == ownPid_) return own;
  auto found = known_.find(own);
  if (found == known_.end() && now - readAt_ >= kRereadEvery) {
    readAt_ = now;
    reread();
    found = known_.find(own);
  }
  return found == known_.end() ? 0 : found->second;
}

void ThreadIds::reread() {
  known_.clear();
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/task", hostPid_);
  DIR* tasks = ::opendir(path);
  if (tasks == nullptr) return;
  while (const dirent* entry = ::readdir(tasks)) {
    const auto host = static_cast<std::uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
    if (host == 0 || known_.size() == kThreadsMax) continue;
    std::snprintf(path, sizeof path, "/proc/%u/task/%u/status", hostPid_, host);
    if (const std::uint32_t own = ownNumber(path)) known_[own] = host;
  }
  ::closedir(tasks);
}

}  // namespace qgpu
