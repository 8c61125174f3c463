#include "services/cards/suspend/card_check.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/cards/suspend/detached.h"

namespace qgpu::suspend {
namespace {

constexpr std::size_t kAnswerMax = 512;

Verdict unclear(std::string why) {
  return {Verdict::Says::kUnclear, std::move(why)};
}

Verdict parse(const std::string& line) {
  for (std::size_t i = 0; i < std::size(kVerdictWords); i++) {
    const std::string word = kVerdictWords[i];
    if (!line.starts_with(word + " ") || line.back() != '\n') continue;
    return {static_cast<Verdict::Says>(i),
            line.substr(word.size() + 1, line.size() - word.size() - 2)};
  }
  return unclear("the check ended without a word");
}

// A child's signals are its own again, whatever this thread blocks.
class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ~Attributes() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  void standardOutput(int fd) { ::posix_spawn_file_actions_adddup2(&files_, fd, STDOUT_FILENO); }
  const posix_spawnattr_t* attributes() const { return &attributes_; }
  const posix_spawn_file_actions_t* files() const { return &files_; }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t files_;
};

}  // namespace

std::string ProbeCheck::spawn() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return std::strerror(errno);
  out_.reset(ends[0]);
  const Fd in(ends[1]);
  Attributes how;
  how.standardOutput(in.get());
  const std::string minor = std::to_string(card_.minor);
  const std::string method = std::to_string(static_cast<int>(method_));
  const std::string parent = std::to_string(::getpid());
  const char* words[] = {
      probe_.c_str(), "check",        card_.uuid.c_str(), card_.driverVersion.c_str(),
      minor.c_str(),  method.c_str(), parent.c_str(),     nullptr};
  const int error = ::posix_spawn(&pid_, probe_.c_str(), how.files(), how.attributes(),
                                  const_cast<char* const*>(words), environ);
  if (error != 0) {
    pid_ = -1;
    return std::strerror(error);
  }
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  return pidfd_ ? "" : std::strerror(errno);
}

void ProbeCheck::start(Loop& loop, std::function<void(Verdict)> done) {
  loop_ = &loop;
  done_ = std::move(done);
  if (const std::string why = spawn(); !why.empty()) {
    deadline_ = loop.after(Nanos(0), [this, why] { finish(unclear(probe_ + ": " + why)); });
    return;
  }
  deadline_ = loop.after(kPatience, [this] { ::kill(pid_, SIGKILL); });
  exit_ = loop.fds().watchLevel(pidfd_.get(), EPOLLIN, [this](std::uint32_t) {
    char text[kAnswerMax];
    const ssize_t n = ::read(out_.get(), text, sizeof text);
    finish(parse(std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0)));
  });
}

void ProbeCheck::finish(Verdict verdict) {
  end();
  const std::function<void(Verdict)> done = std::move(done_);
  done(std::move(verdict));
}

// One that does not die at once is waited for by nobody who has more to do.
void ProbeCheck::end() {
  exit_.reset();
  if (loop_ != nullptr) loop_->cancel(std::exchange(deadline_, 0));
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    const pid_t pid = std::exchange(pid_, -1);
    const bool reaped = ::waitpid(pid, nullptr, WNOHANG) == pid;
    if (!reaped) runDetached([pid] { ::waitpid(pid, nullptr, 0); });
  }
  pidfd_.reset();
  out_.reset();
}

}  // namespace qgpu::suspend
