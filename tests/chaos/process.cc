#include "tests/chaos/process.h"

#include <csignal>
#include <fstream>

namespace qgpu::chaos {
namespace {

constexpr std::int64_t kRestNs = 1'000'000'000;

}  // namespace

void Process::launch() {
  end();
  child_ = std::make_unique<testing::Child>(argv_, environment_);
  endedAt_ = 0;
}

void Process::end() {
  if (!child_) return;
  const bool ran = child_->alive();
  child_->signal(SIGKILL);
  child_->wait();
  std::ofstream(logFile_, std::ios::app)
      << child_->output() << "-- " << (ran ? "killed" : "ended by itself, status ")
      << (ran ? "" : std::to_string(child_->status().value_or(-1))) << " --\n";
  child_.reset();
}

void Process::kill() {
  end();
}
void Process::pause() {
  if (child_) child_->signal(SIGSTOP);
}
void Process::resume() {
  if (child_) child_->signal(SIGCONT);
}

void Process::keepUp(std::int64_t now) {
  if (heldDown_ || alive()) return;
  if (endedAt_ == 0) {
    endedAt_ = now;
    ++ownEnds_;
  } else if (now - endedAt_ > kRestNs) {
    launch();
  }
}

}  // namespace qgpu::chaos
