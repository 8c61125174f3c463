#include "services/demo/workload/work_control.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <poll.h>
#include <signal.h>
#include <string>
#include <unistd.h>

#include "services/demo/workload/clock.h"

namespace qgpu::demo {
namespace {

// Set by SIGTERM and SIGINT; a handler can reach nothing but a global.
std::atomic<bool> signalled{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr std::int64_t kSignalLookNs = 20'000'000;  // a signal ends a sleep within this

}  // namespace

void WorkControl::takeSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { signalled = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

WorkControl::WorkControl(bool readStdin, std::int64_t untilNs) : untilNs_(untilNs) {
  if (readStdin && pipe(wake_) == 0) reader_ = std::thread([this] { readWords(); });
}

WorkControl::~WorkControl() {
  if (!reader_.joinable()) return;
  close(wake_[1]);
  reader_.join();
  close(wake_[0]);
}

void WorkControl::readWords() {
  std::string line;
  for (;;) {
    pollfd ready[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) continue;
    if (ready[1].revents != 0) return;
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) != 1) return say(Word::End);
    if (byte != '\n') {
      line += byte;
      continue;
    }
    if (line == "pause") say(Word::Pause);
    if (line == "go") say(Word::Go);
    if (line == "mark") mark();
    if (line == "end") return say(Word::End);
    line.clear();
  }
}

void WorkControl::finished(std::uint64_t loops) {
  if (loops_.fetch_add(loops) == 0 && reader_.joinable()) std::fputs("ready\n", stderr);
}

void WorkControl::mark() {
  const std::lock_guard guard(lock_);
  marks_.push_back({monotonicNs(), loops_});
}

std::vector<Mark> WorkControl::marks() const {
  const std::lock_guard guard(lock_);
  return marks_;
}

void WorkControl::say(Word word) {
  {
    const std::lock_guard guard(lock_);
    word_ = word;
  }
  changed_.notify_all();
}

bool WorkControl::ended() const {
  const std::lock_guard guard(lock_);
  return word_ == Word::End || signalled || monotonicNs() >= untilNs_;
}

bool WorkControl::paused() const {
  const std::lock_guard guard(lock_);
  return word_ == Word::Pause;
}

bool WorkControl::sleep(std::int64_t ns) {
  const std::int64_t until = monotonicNs() + ns;
  for (;;) {
    if (ended()) return false;
    const std::int64_t now = monotonicNs();
    if (now >= until) return true;
    const std::int64_t chunk = std::min({until - now, untilNs_ - now, kSignalLookNs});
    std::unique_lock guard(lock_);
    changed_.wait_for(guard, std::chrono::nanoseconds(chunk),
                      [this] { return word_ == Word::End; });
  }
}

bool WorkControl::awaitGo() {
  while (!ended()) {
    if (!paused()) return true;
    std::unique_lock guard(lock_);
    changed_.wait_for(guard, std::chrono::nanoseconds(kSignalLookNs),
                      [this] { return word_ != Word::Pause; });
  }
  return false;
}

}  // namespace qgpu::demo
