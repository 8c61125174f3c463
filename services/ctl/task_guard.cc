#include "services/ctl/task_guard.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "services/base/text.h"
#include "services/ctl/answers/table.h"
#include "services/ctl/answers/watch.h"
#include "services/ctl/submit.h"
#include "services/ctl/server.h"

namespace qgpu::ctl {
namespace {

constexpr Nanos kEndLimit = seconds(60);  // for a scheduler that is started again
constexpr Nanos kWaitLimit = seconds(2);  // of who ends: the guard goes on by itself
constexpr unsigned kWaitPauseUs = 2'000;

// The number in the last line, once nobody is at the other end; nothing where nothing was.
std::optional<std::uint64_t> learnt(int pipe) {
  std::string text;
  char part[64];
  while (true) {
    const ssize_t n = ::read(pipe, part, sizeof part);
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
  if (!task) {
    const Result<Answer> answer = (*asker)->ask(ask, kClusterLimit);
    if (!answer) return false;
    task = answer->status() ? numberOf(answer->root(), "task") : 0;
  }
  return *task == 0 || (*asker)->ask(askFor("delete", std::to_string(*task)), kClusterLimit).ok();
}

[[noreturn]] void guard(const Options& options, const Ask& ask, int pipe) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, fd);
  std::optional<std::uint64_t> task = learnt(pipe);
  Options quick = options;
  quick.wait = false;
  Backoff backoff = newBackoff();
  for (const Nanos begun = now(); now() - begun < kEndLimit; rest(backoff)) {
    if (endIt(quick, ask, task)) break;
  }
  ::_exit(0);
}

}  // namespace

Result<TaskGuard> TaskGuard::start(const Options& options, const Ask& ask) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::Unavailable, std::string("can't make a pipe: ") + std::strerror(errno));
  }
  Fd reads(ends[0]), writes(ends[1]);
  const pid_t process = ::fork();
  if (process == 0) {
    writes.reset();
    guard(options, ask, reads.get());
  }
  if (process < 0) {
    return fail(ErrorCode::Unavailable,
                std::string("can't start a process: ") + std::strerror(errno));
  }
  return TaskGuard(process, std::move(writes));
}

TaskGuard::TaskGuard(pid_t process, Fd pipe) : process_(process), pipe_(std::move(pipe)) {}

TaskGuard::TaskGuard(TaskGuard&& other) noexcept
    : process_(std::exchange(other.process_, -1)), pipe_(std::move(other.pipe_)) {}

void TaskGuard::learn(std::uint64_t task) {
  const std::string text = std::to_string(task) + "\n";
  static_cast<void>(::write(pipe_.get(), text.data(), text.size()));  // it asks where it must
}

void TaskGuard::end() {
  if (process_ < 0) return;
  pipe_.reset();
  const pid_t process = std::exchange(process_, -1);
  for (const Nanos begun = now(); now() - begun < kWaitLimit; ::usleep(kWaitPauseUs)) {
    const pid_t ended = ::waitpid(process, nullptr, WNOHANG);
    if (ended != 0 && !(ended < 0 && errno == EINTR)) return;
  }
}

}  // namespace qgpu::ctl
