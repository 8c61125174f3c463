#include "tests/chaos/slow_sync.h"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace qgpu::chaos {
namespace {

// Answers until the program is gone.
[[noreturn]] void answer(int notes, const std::string& delayFile) {
  for (;;) {
    seccomp_notif note{};
    if (::ioctl(notes, SECCOMP_IOCTL_NOTIF_RECV, &note) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      ::_exit(0);
    }
    const int file = ::open(delayFile.c_str(), O_RDONLY | O_CLOEXEC);
    char text[16] = {};
    const long ms = ::read(file, text, sizeof text - 1) > 0 ? std::strtol(text, nullptr, 10) : 0;
    ::close(file);
    const timespec delay{ms / 1'000, ms % 1'000 * 1'000'000};
    ::nanosleep(&delay, nullptr);
    seccomp_notif_resp reply{};
    reply.id = note.id;
    reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ::ioctl(notes, SECCOMP_IOCTL_NOTIF_SEND, &reply);
  }
}

// The descriptor of the other process that `from` tells, in the one that answers.
[[noreturn]] void runAnswerer(pid_t program, int from, int to, const std::string& delayFile) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int theirs = -1;
  if (::read(from, &theirs, sizeof theirs) != sizeof theirs) ::_exit(1);
  const long pid = ::syscall(SYS_pidfd_open, program, 0);
  const long notes = ::syscall(SYS_pidfd_getfd, pid, theirs, 0);
  const bool taken = notes >= 0;
  if (::write(to, &taken, sizeof taken) != sizeof taken || !taken) ::_exit(1);
  ::close(to);
  answer(static_cast<int>(notes), delayFile);
}

int installFilter() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof rules / sizeof rules[0], rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

}  // namespace

std::string becomeSlowSyncing(const std::string& delayFile, char* const* argv) {
  int there[2], back[2];
  if (::pipe2(there, O_CLOEXEC) != 0 || ::pipe2(back, O_CLOEXEC) != 0) return std::strerror(errno);
  const pid_t program = ::getpid();
  const pid_t answerer = ::fork();
  if (answerer < 0) return std::strerror(errno);
  if (answerer == 0) {
    ::close(there[1]);  // else it would wait for itself
    runAnswerer(program, there[0], back[1], delayFile);
  }
  ::close(back[1]);
  const int notes = installFilter();
  if (notes < 0) return std::string("seccomp: ") + std::strerror(errno);
  bool taken = false;
  if (::write(there[1], &notes, sizeof notes) != sizeof notes ||
      ::read(back[0], &taken, sizeof taken) != sizeof taken || !taken) {
    return "the process that answers could not take over";
  }
  ::execvp(argv[0], argv);
  return std::string(argv[0]) + ": " + std::strerror(errno);
}

}  // namespace qgpu::chaos
