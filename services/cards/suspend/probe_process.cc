#include "services/cards/suspend/probe_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace qgpu::suspend {

Nanos now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

void pass(Nanos time) {
  const timespec t{static_cast<time_t>(time.value / 1'000'000'000), time.value % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

ProbeProcess::ProbeProcess(const SelfTestOptions& what) : what_(what) {
  const int page = ::memfd_create("qgpu-suspend-probe", 0);  // the child's as well
  if (page < 0 || ::ftruncate(page, 4096) != 0) return;
  void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  if (at != MAP_FAILED) {
    page_ = static_cast<ProbePage*>(at);
    start(page);
  }
  ::close(page);
}

void ProbeProcess::start(int page) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return;
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return;
  }
  const std::string iterations = std::to_string(what_.iterations);
  const std::string descriptor = std::to_string(page);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::setenv("CUDA_VISIBLE_DEVICES", what_.uuid.c_str(), 1);
    for (const char* name : {"QGPU_TOKEN", "QGPU_TOKEN_FILE"}) ::unsetenv(name);
    ::execl(what_.probe.c_str(), what_.probe.c_str(), what_.driverVersion.c_str(),
            iterations.c_str(), descriptor.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  in_ = in[1];
  out_ = out[0];
  if (pid_ > 0) pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

ProbeProcess::~ProbeProcess() {
  kill();
  for (const int fd : {pidfd_, in_, out_}) {
    if (fd >= 0) ::close(fd);
  }
  if (page_) ::munmap(page_, 4096);
}

void ProbeProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// One line; empty where the probe ended or time is up.
std::string ProbeProcess::nextLine(Nanos until) {
  for (;;) {
    const std::size_t at = text_.find('\n');
    if (at != std::string::npos) {
      std::string line = text_.substr(0, at);
      text_.erase(0, at + 1);
      return line;
    }
    const Nanos left = until - now();
    pollfd ready{out_, POLLIN, 0};
    if (left <= Nanos(0) || ::poll(&ready, 1, static_cast<int>(left / millis(1)) + 1) <= 0) {
      return "";
    }
    char chunk[4096];
    const ssize_t n = ::read(out_, chunk, sizeof chunk);
    if (n <= 0) return "";
    text_.append(chunk, static_cast<std::size_t>(n));
  }
}

bool ProbeProcess::learn(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  Channel channel;
  words >> what >> channel.client >> channel.channel >> channel.group >> channel.engine >>
      channel.fd;
  if (what == "group") engines_[channel.channel] = channel.engine;
  if (what == "channel") {
    const auto group = engines_.find(channel.group);
    if (group != engines_.end()) channel.engine = group->second;
    if (group == engines_.end()) channel.group = 0;  // beneath a device
    channel.process = kProcess;
    channels_.push_back(channel);
  }
  return what == "spins";
}

std::string ProbeProcess::begin() {
  if (pidfd_ < 0) return "the probe " + what_.probe + " can't be started";
  const Nanos until = now() + what_.patience;
  for (;;) {
    const std::string line = nextLine(until);
    if (line.empty()) return "the probe " + what_.probe + " ended or hangs";
    if (line.starts_with("failed")) return "the probe " + line;
    if (learn(line)) break;
  }
  if (channels_.empty()) return "the probe's channels are not seen";
  return goesOnWithin(what_.patience) == Goes::On ? "" : "the probe's kernel does not count";
}

std::optional<std::uint64_t> ProbeProcess::count() const {
  if (!page_) return std::nullopt;
  const std::uint64_t enough = page_->rounds.load() + 2;
  const Nanos until = now() + what_.patience;
  while (page_->rounds.load() < enough) {
    if (now() > until) return std::nullopt;
    pass(micros(50));
  }
  return page_->count.load();
}

ProbeProcess::Goes ProbeProcess::goesOnWithin(Nanos limit) const {
  const auto before = count();
  const Nanos until = now() + limit;
  while (before) {
    const bool last = now() > until;  // asked before the look, which may take long
    const auto after = count();
    if (!after) break;
    if (*after != *before) return Goes::On;
    if (last) return Goes::Not;
  }
  return Goes::Unseen;
}

std::string ProbeProcess::end() {
  if (::write(in_, "\n", 1) != 1) return "the probe is gone";
  const std::string line = nextLine(now() + what_.patience);
  if (line == "exact") return "";
  return line.empty() ? "the probe did not end" : "the probe " + line;
}

}  // namespace qgpu::suspend
