#include "services/daemons/host.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/check.h"

namespace qgpu {
namespace {

sigset_t endSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  return ends;
}

}  // namespace

void blockEndSignals() {
  const sigset_t ends = endSignals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

void serveUntilEnded(Loop& loop, Log& log) {
  const sigset_t ends = endSignals();
  const int signals = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) fatal(ExitCode::Environment, "signalfd() fails");
  {
    const FdWatch watch = loop.fds().watchLevel(signals, EPOLLIN, [&](std::uint32_t) {
      signalfd_siginfo taken{};
      if (::read(signals, &taken, sizeof taken) != sizeof taken) return;
      log.info("stops", {{"signal", taken.ssi_signo}});
      loop.stop();
    });
    loop.run();
  }
  ::close(signals);
}

void raiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

HostRoom hostRoom() {
  const auto amount = [](int name) { return std::max<std::int64_t>(0, ::sysconf(name)); };
  return {amount(_SC_NPROCESSORS_ONLN) * 1'000,
          Bytes(amount(_SC_PHYS_PAGES) * amount(_SC_PAGESIZE))};
}

std::int64_t unixMsAtZero() {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return wall.tv_sec * 1'000 + wall.tv_nsec / 1'000'000 - monotonicNow() / millis(1);
}

std::uint64_t randomWord() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) {
    fatal(ExitCode::Environment, "getrandom() gives nothing");
  }
  return word;
}

}  // namespace qgpu
