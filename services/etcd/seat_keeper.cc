#include "services/etcd/seat_keeper.h"

#include <algorithm>
#include <chrono>
#include <time.h>
#include <utility>

#include "runtime/check.h"

namespace qgpu {
namespace {

constexpr Nanos kStepMax = seconds(1);
constexpr int kLooks = 10;  // at a round, before it is known to take too long

// It runs on while the machine sleeps.
Nanos bootNow() {
  timespec at{};
  ::clock_gettime(CLOCK_BOOTTIME, &at);
  return seconds(at.tv_sec) + Nanos(at.tv_nsec);
}

}  // namespace

SeatKeeper::SeatKeeper(std::unique_ptr<Kv> kv, SeatOptions options, Post post, Calls calls,
                       Nanos roundMax)
    : kv_(std::move(kv)),
      rounds_(*kv_, std::move(options), std::move(post), std::move(calls)),
      thread_([this] { run(); }),
      watcher_([this, roundMax] { watch(roundMax); }) {}

SeatKeeper::~SeatKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  watcher_.join();
}

void SeatKeeper::ended(std::string identity) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(identity);
  }
  wake_.notify_all();
}

bool SeatKeeper::holds() const {
  return rounds_.holds(bootNow());
}

void SeatKeeper::run() {
  while (true) {
    ++turns_;
    const Nanos again = rounds_.round(bootNow());
    ++turns_;
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

// By its own looks, of which a process that stands still makes none.
void SeatKeeper::watch(Nanos roundMax) {
  const auto pause = std::chrono::nanoseconds(roundMax.value / kLooks);
  std::uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return stopping_; })) {
    const std::uint64_t turns = turns_;
    looks = turns == seen && turns % 2 == 1 ? looks + 1 : 0;
    seen = turns;
    if (looks < kLooks) continue;
    fatal(ExitCode::Environment,
          "a call to etcd outlived its deadline, as where the wall clock stepped back");
  }
}

}  // namespace qgpu
