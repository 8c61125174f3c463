#include "services/etcd/seat_keeper.h"

#include <algorithm>
#include <chrono>
#include <time.h>
#include <utility>

namespace qgpu {
namespace {

constexpr Nanos kStepMax = seconds(1);

// It runs on while the machine sleeps.
Nanos bootNow() {
  timespec at{};
  ::clock_gettime(CLOCK_BOOTTIME, &at);
  return seconds(at.tv_sec) + Nanos(at.tv_nsec);
}

}  // namespace

SeatKeeper::SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls)
    : kv_(std::move(kv)),
      rounds_(*kv_, std::move(options), std::move(post), std::move(calls)),
      thread_([this] { run(); }) {}

SeatKeeper::~SeatKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SeatKeeper::ended(std::string identity) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(identity);
  }
  wake_.notify_one();
}

bool SeatKeeper::holds() const { return rounds_.holds(bootNow()); }

void SeatKeeper::run() {
  while (true) {
    const Nanos again = rounds_.round(bootNow());
    std::unique_lock lock(mutex_);
    const auto rest = std::chrono::nanoseconds(std::min(again, kStepMax).value);
    wake_.wait_for(lock, rest, [this] { return stopping_ || ended_; });
    if (stopping_) break;
    if (ended_) rounds_.ended(*std::exchange(ended_, {}));
    if (again == kNever) {
      wake_.wait(lock, [this] { return stopping_; });
      break;
    }
  }
  rounds_.leave();
}

}  // namespace qgpu
