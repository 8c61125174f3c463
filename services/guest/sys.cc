#include "services/guest/sys.h"

#include <cstdarg>

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
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line, used);
  errno = saved;
}

}  // namespace qgpu::guest
