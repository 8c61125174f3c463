#include "services/base/child_probe.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace qgpu {
namespace {

constexpr std::size_t kAnswerMax = 256 * 1024;  // bytes from the child
constexpr std::int64_t kEndNs = 1'000'000'000;  // for a child that was killed

std::int64_t nowNs() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// All that the child writes until it closes its end. False: too late or too much.
bool readAll(int fd, std::int64_t deadline, std::string& text) {
  char chunk[4096];
  while (text.size() <= kAnswerMax) {
    const std::int64_t leftMs = (deadline - nowNs()) / 1'000'000;
    pollfd wait{fd, POLLIN, 0};
    if (leftMs <= 0) return false;
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(leftMs, 1'000'000)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return true;
    if (n > 0) text.append(chunk, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return false;
  }
  return false;
}

// False: it is there yet. One that is stuck in the kernel stays, whatever it was sent.
bool endsBy(std::int64_t deadline, pid_t child, int& status) {
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    if (nowNs() >= deadline) return false;
    ::poll(nullptr, 0, 1);
  }
}

// A child that can't be ended must not keep the daemon's locks and sockets.
void closeAllBut(int kept) {
  const auto fd = static_cast<unsigned>(std::max(kept, STDERR_FILENO));
  ::close_range(STDERR_FILENO + 1, fd - 1, 0);  // nothing, where it is the first
  ::close_range(fd + 1, ~0u, 0);
}

}  // namespace

void becomeProbe() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::unsetenv("OPENCL_LAYERS");
  ::unsetenv("QGPU_TOKEN");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDOUT_FILENO);
}

Result<SideProcess> SideProcess::start(const int (&ends)[2],
                                       const std::function<void(int end)>& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    becomeProbe();
    run(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::Unavailable, std::string("fork: ") + std::strerror(errno));
  }
  return SideProcess(ends[0], child);
}

SideProcess::SideProcess(SideProcess&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), child_(std::exchange(other.child_, -1)) {}

SideProcess& SideProcess::operator=(SideProcess&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(child_, other.child_);
  return *this;
}

SideProcess::~SideProcess() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (fd_ >= 0) ::close(fd_);
}

void cleanField(char* text) {
  for (; *text != 0; text++) {
    if (*text == '\t' || *text == '\n') *text = ' ';
  }
}

Result<std::string> askInChild(const std::string& whom, const std::string& check, Nanos timeout,
                               const std::function<void(int out)>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, std::string("pipe: ") + std::strerror(errno));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    becomeProbe();
    closeAllBut(ends[1]);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::Unavailable, std::string("fork: ") + std::strerror(errno));
  }
  std::string text;
  const std::int64_t deadline = nowNs() + timeout.value;
  const bool complete = readAll(ends[0], deadline, text);
  ::close(ends[0]);
  int status = 0;
  if (!complete || !endsBy(deadline, child, status)) {
    ::kill(child, SIGKILL);
    const bool ended = endsBy(nowNs() + kEndNs, child, status);
    return fail(ErrorCode::Unavailable,
                whom + " did not answer in time" +
                    (ended ? "" : ", and what asks it can't be killed (see dmesg)") + "; does `" +
                    check + "` work?");
  }
  if (status != 0) {
    return fail(ErrorCode::Unavailable, whom + " crashed when asked; does `" + check + "` work?");
  }
  return text;
}

}  // namespace qgpu
