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
      post_(std::move(post)),
      calls_(std::move(calls)),
      seat_(*kv_, std::move(options)),
      thread_([this] { run(); }) {}

SeatKeeper::~SeatKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool SeatKeeper::holds() const {
  return bootNow().value < heldUntil_.load(std::memory_order_acquire);
}

void SeatKeeper::run() {
  while (true) {
    const Nanos again = seat_.step(bootNow());
    const bool seated = seat_.state() == Seat::State::Seated;
    heldUntil_.store(seated ? seat_.heldUntil().value : 0, std::memory_order_release);
    tell();
    std::unique_lock lock(mutex_);
    const auto rest = std::chrono::nanoseconds(std::min(again, kStepMax).value);
    if (wake_.wait_for(lock, rest, [this] { return stopping_; })) break;
    if (again == kNever) {
      wake_.wait(lock, [this] { return stopping_; });
      break;
    }
  }
  heldUntil_.store(0, std::memory_order_release);
  seat_.leave();
}

void SeatKeeper::tell() {
  const Status& health = seat_.health();
  if (health.ok() != toldHealth_) {
    toldHealth_ = health.ok();
    post_([this, health] { calls_.health(health); });
  }
  const std::string other = seat_.other() ? seat_.other()->address : "";
  if (seat_.state() == Seat::State::Waiting && health.ok() && toldOther_ != other) {
    toldOther_ = other;
    post_([this, other] { calls_.other(other); });
  }
  if (std::exchange(told_, seat_.state()) == seat_.state()) return;
  if (told_ == Seat::State::Seated) {
    post_([this, guard = seat_.guard()] { calls_.seated(guard); });
  } else if (told_ == Seat::State::Lost) {
    post_([this, why = health.ok() ? std::string() : health.error().message] { calls_.lost(why); });
  }
}

}  // namespace qgpu
