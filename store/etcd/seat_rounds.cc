#include "store/etcd/seat_rounds.h"

#include <utility>

#include "runtime/planted.h"

namespace qgpu {

Nanos SeatRounds::round(Nanos now) {
  const Nanos again = seat_.step(now);
  const bool seated = seat_.state() == Seat::State::Seated;
  heldUntil_.store(seated ? seat_.heldUntil().value : 0, std::memory_order_release);
  tell();
  return again;
}

void SeatRounds::leave() {
  heldUntil_.store(0, std::memory_order_release);
  seat_.leave();
}

bool SeatRounds::holds(Nanos now) const {
  const std::int64_t until = heldUntil_.load(std::memory_order_acquire);
  if (QGPU_PLANTED(SeatBelieved)) return until != 0;
  return now.value < until;
}

void SeatRounds::tell() {
  const Status& health = seat_.health();
  if (health.ok() != toldHealth_) {
    toldHealth_ = health.ok();
    post_([this, health] { calls_.health(health); });
  }
  const SeatHolder other = seat_.other().value_or(SeatHolder{});
  if (seat_.state() == Seat::State::Waiting && health.ok() && toldOther_ != other) {
    toldOther_ = other;
    post_([this, other] { calls_.other(other); });
  }
  if (std::exchange(told_, seat_.state()) == seat_.state()) return;
  if (told_ == Seat::State::Seated) {
    post_([this, guard = seat_.guard()] { calls_.seated(guard); });
  } else if (told_ == Seat::State::Lost) {
    QGPU_MARK(SeatLost);
    post_([this, why = health.ok() ? std::string() : health.error().message] { calls_.lost(why); });
  }
}

}  // namespace qgpu
