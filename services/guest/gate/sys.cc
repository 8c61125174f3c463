#include "services/guest/gate/sys.h"

#include <csignal>
#include <cstdarg>
#include <fcntl.h>
#include <sys/select.h>
#include <sys/stat.h>

namespace qgpu::guest {

bool startThread(void* (*body)(void*)) {
  const std::uint64_t all = ~0ull;  // the kernel's set: 64 signals, 8 bytes
  std::uint64_t before = 0;
  syscall(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &before, sizeof all);
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, body, nullptr) == 0;
  syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &before, nullptr, sizeof before);
  if (started) pthread_detach(thread);
  return started;
}

namespace {

bool fileOf(int fd, struct stat& file) {
  return syscall(SYS_newfstatat, fd, "", &file, AT_EMPTY_PATH) == 0;
}

bool sameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_rdev == b.st_rdev;
}

struct stat stderrAtLoad;
bool stderrKnown = false;

__attribute__((constructor)) void lookAtStderr() {
  const int saved = errno;
  stderrKnown = fileOf(STDERR_FILENO, stderrAtLoad);
  errno = saved;
}

// It is what it was when the program began, or a log that the program has put there; and no file of
// data that was opened when the number was free.
bool stderrIsForText() {
  struct stat now, output;
  if (!fileOf(STDERR_FILENO, now)) return false;
  if (stderrKnown && sameFile(now, stderrAtLoad)) return true;
  if (fileOf(STDOUT_FILENO, output) && sameFile(now, output)) return true;
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  return flags >= 0 && (flags & O_APPEND) != 0;
}

// Without waiting for a reader, and without SIGPIPE where there is none.
void writeToStderr(const char* line, std::size_t size) {
  fd_set ready;  // poll() refuses to look where a process may open nothing more
  FD_ZERO(&ready);
  FD_SET(STDERR_FILENO, &ready);
  timeval none{};
  if (select(STDERR_FILENO + 1, nullptr, &ready, nullptr, &none) != 1) return;
  const std::uint64_t pipe = 1ull << (SIGPIPE - 1);
  std::uint64_t before = 0, pending = 0;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &pipe, &before, sizeof pipe);
  syscall(SYS_rt_sigpending, &pending, sizeof pending);
  const bool broken = write(STDERR_FILENO, line, size) < 0 && errno == EPIPE;
  const timespec now{};
  if (broken && (pending & pipe) == 0) {
    syscall(SYS_rt_sigtimedwait, &pipe, nullptr, &now, sizeof pipe);
  }
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

}  // namespace

void say(const char* format, ...) {
  char line[512] = "qgpu: ";
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line + 6, sizeof line - 8, format, args);
  va_end(args);
  if (n < 0) return;
  std::size_t used = 6 + static_cast<std::size_t>(n);
  if (used > sizeof line - 2) used = sizeof line - 2;
  line[used++] = '\n';
  const int saved = errno;
  if (stderrIsForText()) writeToStderr(line, used);
  errno = saved;
}

}  // namespace qgpu::guest
