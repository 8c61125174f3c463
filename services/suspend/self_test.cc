#include "services/suspend/self_test.h"

#include <atomic>
#include <cstdio>
#include <cstring>
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

#include "services/suspend/driver_calls.h"

namespace qgpu::suspend {
namespace {

constexpr std::uint32_t kProcess = 1;  // the probe's, for DriverCalls

Nanos now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

void pass(Nanos time) {
  const timespec t{static_cast<time_t>(time.value / 1'000'000'000), time.value % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

// The program whose work is stopped. It ends with the object.
class Probe {
 public:
  explicit Probe(const SelfTestOptions& options);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Empty; or why it does not spin.
  std::string begin();
  // Empty; or why its count is not what it must be.
  std::string end();

  const std::vector<Channel>& channels() const { return channels_; }
  int pidfd() const { return pidfd_; }
  int driverFd() const { return driverFd_; }
  std::uint64_t count() const { return count_ ? count_->load() : 0; }
  bool movesWithin(Nanos limit) const;

 private:
  void start(int page);
  std::string nextLine(Nanos until);
  bool learn(const std::string& line);  // true: it spins

  const SelfTestOptions& options_;
  std::atomic<std::uint64_t>* count_ = nullptr;
  pid_t pid_ = -1;
  int pidfd_ = -1, in_ = -1, out_ = -1, driverFd_ = -1;
  std::string text_;
  std::vector<Channel> channels_;
};

Probe::Probe(const SelfTestOptions& options) : options_(options) {
  const int page = ::memfd_create("qgpu-suspend-probe", 0);  // the child's as well
  if (page < 0 || ::ftruncate(page, 4096) != 0) return;
  void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  if (at != MAP_FAILED) {
    count_ = static_cast<std::atomic<std::uint64_t>*>(at);
    start(page);
  }
  ::close(page);
}

void Probe::start(int page) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return;
  if (::pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return;
  }
  const std::string iterations = std::to_string(options_.iterations);
  const std::string descriptor = std::to_string(page);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::setenv("CUDA_VISIBLE_DEVICES", options_.uuid.c_str(), 1);
    for (const char* name : {"QGPU_TOKEN", "QGPU_TOKEN_FILE"}) ::unsetenv(name);
    ::execl(options_.probe.c_str(), options_.probe.c_str(), options_.driverVersion.c_str(),
            iterations.c_str(), descriptor.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  in_ = in[1];
  out_ = out[0];
  if (pid_ > 0) pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

Probe::~Probe() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {pidfd_, in_, out_}) {
    if (fd >= 0) ::close(fd);
  }
  if (count_) ::munmap(count_, 4096);
}

// One line; empty where the probe ended or time is up.
std::string Probe::nextLine(Nanos until) {
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

bool Probe::learn(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  Channel channel;
  std::uint32_t parent = 0;
  int fd = -1;
  words >> what >> channel.client >> channel.channel >> parent >> channel.engine >> fd;
  if (what == "channel") {
    channel.group = parent;
    channel.process = kProcess;
    driverFd_ = fd;
    channels_.push_back(channel);
  }
  return what == "spins";
}

std::string Probe::begin() {
  if (pidfd_ < 0) return "the probe " + options_.probe + " can't be started";
  const Nanos until = now() + options_.patience;
  for (;;) {
    const std::string line = nextLine(until);
    if (line.empty()) return "the probe " + options_.probe + " ended or hangs";
    if (line.starts_with("failed")) return "the probe " + line;
    if (learn(line)) break;
  }
  if (channels_.empty()) return "the probe's channels are not seen";
  return movesWithin(options_.patience) ? "" : "the probe's kernel does not count";
}

bool Probe::movesWithin(Nanos limit) const {
  const std::uint64_t before = count();
  const Nanos until = now() + limit;
  while (count() == before) {
    if (now() > until) return false;
    pass(micros(50));
  }
  return true;
}

std::string Probe::end() {
  if (::write(in_, "\n", 1) != 1) return "the probe is gone";
  const std::string line = nextLine(now() + options_.patience);
  if (line == "exact") return "";
  return line.empty() ? "the probe did not end" : "the probe " + line;
}

// --- one rung ---

class Trial {
 public:
  Trial(Probe& probe, DriverCalls& calls, const SelfTestOptions& options, Rung rung)
      : probe_(probe), calls_(calls), options_(options), ladder_(rung) {
    tried_.rung = rung;
    for (const Channel& channel : probe_.channels()) ladder_.made(channel);
  }

  RungTried go() {
    for (std::uint32_t i = 0; i < options_.toggles && tried_.why.empty(); i++) once();
    if (!putBack()) tried_.why = "what was taken off can't be put back: " + ladder_.why();
    tried_.works = tried_.why.empty();
    return std::move(tried_);
  }
  bool putBack();  // true: nothing is off any more

 private:
  void once();
  void callAll();
  bool standsStill() const;

  Probe& probe_;
  DriverCalls& calls_;
  const SelfTestOptions& options_;
  Ladder ladder_;
  RungTried tried_;
  std::uint32_t status_ = 0;
};

void Trial::callAll() {
  while (const auto order = ladder_.next(now())) {
    const DriverCalls::Outcome outcome = calls_.carryOut(*order, tried_.rung);
    if (outcome.answer != Answer::kDone) status_ = outcome.status;
    ladder_.answered(outcome.answer, outcome.gone, now());
  }
}

bool Trial::putBack() {
  ladder_.release(now());
  const Nanos until = now() + options_.patience;
  for (;;) {
    callAll();
    if (ladder_.free()) return true;
    if (now() > until) return false;
    pass(millis(1));
  }
}

bool Trial::standsStill() const {
  pass(options_.settle);
  const std::uint64_t before = probe_.count();
  pass(options_.watch);
  return probe_.count() == before;
}

void Trial::once() {
  const Nanos from = now();
  ladder_.hold(from);
  callAll();
  if (!ladder_.stopped()) {
    char status[16];
    std::snprintf(status, sizeof status, "0x%x", status_);
    tried_.why = (ladder_.doubted() ? ladder_.why() : std::string("the channels are gone")) +
                 " (status " + status + ")";
    return;
  }
  tried_.off.push_back(now() - from);
  const bool still = standsStill();
  const Nanos again = now();
  const bool back = putBack();
  tried_.on.push_back(now() - again);
  if (!still) {
    tried_.why = "the kernel went on while it was off";
  } else if (!back || !probe_.movesWithin(seconds(2))) {
    tried_.why = "the kernel did not go on after it was put back";
  }
}

std::string tryAll(const SelfTestOptions& options, Probe& probe, rm::Card& card, SelfTest& out) {
  if (const std::string why = probe.begin(); !why.empty()) return why;
  out.channels = probe.channels().size();
  DriverCalls calls(card);
  calls.process(kProcess, probe.pidfd(), probe.driverFd());
  for (const Rung rung : kRungs) {
    out.tried.push_back(Trial(probe, calls, options, rung).go());
    if (!out.tried.back().works) continue;
    const std::string wrong = probe.end();
    if (wrong.empty()) out.rung = rung;
    return wrong;
  }
  return out.tried.back().why;
}

}  // namespace

SelfTest testSuspend(const SelfTestOptions& options) {
  SelfTest found;
  const rm::Layout layout =
      rm::layoutOf(options.driverVersion.c_str(), options.driverVersion.size() + 1);
  if (layout != rm::Layout::kFrom535) {
    found.why = "the interface of driver " + options.driverVersion + " is not known";
    return found;
  }
  rm::Card card;
  const char* why =
      card.open(options.driverRoot.c_str(), options.minor, options.uuid.c_str(), layout);
  if (why != nullptr) {
    found.why = why;
    return found;
  }
  Probe probe(options);
  found.why = tryAll(options, probe, card, found);
  return found;
}

}  // namespace qgpu::suspend
