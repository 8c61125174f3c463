#include "services/base/host.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <signal.h>
#include <string_view>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/check.h"

namespace qgpu {
namespace {

// Each note has a head, a name and what it says, the two filled up to 4 bytes.
std::string buildIdIn(std::string_view notes) {
  const auto whole = [](std::size_t size) { return (size + 3) / 4 * 4; };
  ElfW(Nhdr) head;
  while (notes.size() >= sizeof head) {
    std::memcpy(&head, notes.data(), sizeof head);
    const std::size_t said = sizeof head + whole(head.n_namesz);
    const std::size_t end = said + whole(head.n_descsz);
    if (end > notes.size()) break;
    if (head.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof head, 3) == "GNU") {
      std::string hex;
      for (const char byte : notes.substr(said, head.n_descsz)) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
        hex += digits;
      }
      return hex;
    }
    notes.remove_prefix(end);
  }
  return "";
}

sigset_t endSignals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  return ends;
}

// systemd's protocol of Type=notify: one datagram. Where nobody listens nothing is lost.
void tellServiceManager(std::string_view state) {
  const char* name = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = name == nullptr ? 0 : std::strlen(name);
  if (length == 0 || length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name, length);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  ::sendto(socket, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&address), size);
  ::close(socket);
}

}  // namespace

void blockEndSignals() {
  const sigset_t ends = endSignals();
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
}

void serveUntilEnded(Loop& loop, Log& log, const std::function<void()>& onSignal) {
  const sigset_t ends = endSignals();
  const int signals = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) fatal(ExitCode::Environment, "signalfd() fails");
  {
    const FdWatch watch = loop.fds().watchLevel(signals, EPOLLIN, [&](std::uint32_t) {
      signalfd_siginfo taken{};
      if (::read(signals, &taken, sizeof taken) != sizeof taken) return;
      log.info("stops", {{"signal", taken.ssi_signo}});
      tellServiceManager("STOPPING=1");
      if (onSignal)
        onSignal();
      else
        loop.stop();
    });
    tellServiceManager("READY=1");
    loop.run();
  }
  ::close(signals);
}

void feedWatchdog() {
  if (std::getenv("WATCHDOG_USEC") != nullptr) tellServiceManager("WATCHDOG=1");
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

std::filesystem::path folderOfBinaries() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string guestLibrary() {
  std::error_code error;
  const auto path = folderOfBinaries().parent_path() / "lib" / "libqgpu.so";
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

// The program itself is the first that is told.
std::string buildId() {
  std::string id;
  const auto look = [](dl_phdr_info* program, std::size_t, void* to) {
    for (int i = 0; i < program->dlpi_phnum; ++i) {
      const auto& part = program->dlpi_phdr[i];
      if (part.p_type == PT_NOTE) {
        const auto* notes = reinterpret_cast<const char*>(program->dlpi_addr + part.p_vaddr);
        *static_cast<std::string*>(to) += buildIdIn({notes, part.p_memsz});
      }
    }
    return 1;
  };
  ::dl_iterate_phdr(look, &id);
  return id;
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
