#include "services/ctl/task_guard.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "services/base/text.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/watch.h"
#include "services/ctl/server.h"
#include "services/ctl/submit.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kEndLimit = seconds(60);  // for a scheduler that is started again
constexpr Nanos kWaitLimit = seconds(2);  // of who ends: the guard goes on by itself
constexpr unsigned kWaitPauseUs = 2'000;

// The number in the last line, once nobody is at the other end; nothing where nothing was.
std::optional<std::uint64_t> learnt(int socket) {
  std::string text;
  char part[64];
  while (true) {
    const ssize_t n = ::read(socket, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(part, static_cast<std::size_t>(n));
  }
  if (!text.ends_with('\n')) return std::nullopt;
  text.pop_back();
  return parseUint(std::string_view(text).substr(text.rfind('\n') + 1));
}

// True where nothing is left to do.
bool endIt(const Options& options, const Ask& ask, std::optional<std::uint64_t>& task) {
  auto asker = reach(options);
  if (!asker) return false;
  if (!task) task = taskOf((*asker)->ask(ask, kClusterLimit));
  if (!task) return false;
  if (*task == 0) return true;
  return isSettled((*asker)->ask(askFor("delete", std::to_string(*task)), kClusterLimit));
}

// `socket` is all that stays open.
void closeOthers(int socket) {
  const auto fd = static_cast<unsigned>(socket);
  ::close_range(STDERR_FILENO + 1, fd - 1, 0);  // nothing, where it is the first
  ::close_range(fd + 1, ~0u, 0);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    ::dup2(nothing, standard);
  }
}

// With all signals blocked.
[[noreturn]] void guard(const Options& options, const Ask& ask, int socket) {
  ::setsid();
  closeOthers(socket);
  std::optional<std::uint64_t> task = learnt(socket);
  Options quick = options;
  quick.wait = false;
  Backoff backoff = newBackoff();
  for (const Nanos begun = now(); now() - begun < kEndLimit; rest(backoff)) {
    if (endIt(quick, ask, task)) break;
  }
  ::_exit(0);
}

// The same beside stdin, stdout and stderr: where we were started without one of these, it got its
// number. None: errno says why.
Fd besideStandard(Fd fd) {
  return fd.get() > STDERR_FILENO ? std::move(fd)
                                  : Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Error cannot(const char* what) {
  return fail(ErrorCode::Unavailable, std::string("can't ") + what + ": " + std::strerror(errno));
}

}  // namespace

Result<TaskGuard> TaskGuard::start(const Options& options, const Ask& ask) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return cannot("make a pair of sockets");
  }
  Fd first(ends[0]), second(ends[1]);
  Fd ours = besideStandard(std::move(first));
  Fd its = besideStandard(std::move(second));
  if (!ours || !its) return cannot("make a pair of sockets");
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);  // it has them blocked from its first moment
  const pid_t process = ::fork();
  if (process == 0) guard(options, ask, its.get());
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (process < 0) return cannot("start a process");
  return TaskGuard(process, std::move(ours));
}

TaskGuard::TaskGuard(pid_t process, Fd socket) : process_(process), socket_(std::move(socket)) {}

TaskGuard::TaskGuard(TaskGuard&& other) noexcept
    : process_(std::exchange(other.process_, -1)), socket_(std::move(other.socket_)) {}

// Where that fails it asks.
void TaskGuard::learn(std::uint64_t task) {
  const std::string text = std::to_string(task) + "\n";
  static_cast<void>(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL));
}

void TaskGuard::end() {
  if (process_ < 0) return;
  socket_.reset();
  const pid_t process = std::exchange(process_, -1);
  for (const Nanos begun = now(); now() - begun < kWaitLimit; ::usleep(kWaitPauseUs)) {
    const pid_t ended = ::waitpid(process, nullptr, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return;
  }
}

}  // namespace qgpu::ctl
