#include "actors/arbiter/share_meter.h"

#include <algorithm>

#include "runtime/planted.h"

namespace qgpu {
namespace {

// One charge counts at most this much for shares, so that a clock that jumps by years overflows
// nothing. The accounts themselves take the full amount.
constexpr Nanos kChargeMax = seconds(100'000);

// A bucket that nobody limits, as under best-effort, fills for months: it counts no further than
// this, in ns x permille, and is cut to one slice when fixed-share begins.
constexpr std::int64_t kLevelMax = INT64_MAX / 4;

}  // namespace

void ShareMeter::charge(Nanos amount, Nanos now) {
  used_ += amount;
  weighIn(amount, now);
}

void ShareMeter::chargeDebt(Nanos amount, Nanos now) {
  overrun_ += amount;
  weighIn(amount, now);
}

void ShareMeter::weighIn(Nanos amount, Nanos now) {
  const Nanos counted = std::min(amount, kChargeMax);
  const std::int64_t scaled = counted.value * 1000 + remainder_;
  virtual_ += scaled / weight_.value;
  remainder_ = scaled % weight_.value;
  // The bucket (level_, in ns x permille) loses share_ permille of each ns that passes and gains
  // 1000 for each ns that is charged. It drains up to the start of the charge, and fills from
  // there.
  const Nanos start = std::max(levelAt_, now - counted);
  level_ = std::min(drained(start), kLevelMax) + counted.value * 1000;
  levelAt_ = start;
  level_ = drained(now);
  levelAt_ = std::max(levelAt_, now);
}

void ShareMeter::raiseVirtualTime(std::int64_t floor) {
  if (virtual_ >= floor) return;
  virtual_ = floor;
  remainder_ = 0;
}

void ShareMeter::reweigh(std::int64_t origin, Permille weight) {
  virtual_ = mulDiv(virtual_ - origin, weight_.value, weight.value);
  remainder_ = 0;
  weight_ = weight;
}

std::int64_t ShareMeter::drained(Nanos now) const {
  if (now <= levelAt_ || share_.value == 0) return level_;
  const std::int64_t elapsed = (now - levelAt_).value;
  if (elapsed > level_ / share_.value && !QGPU_PLANTED(UnusedCreditKept)) return 0;
  return level_ - share_.value * elapsed;
}

Nanos ShareMeter::level(Nanos now) const {
  return Nanos(drained(now) / 1000);
}

Nanos ShareMeter::room(Nanos cap, Nanos now) const {
  const std::int64_t left = cap.value * 1000 - drained(now);
  if (left <= 0) return Nanos(0);
  const std::int64_t rise = 1000 - share_.value;
  return rise <= 0 ? kNever : Nanos(left / rise);
}

Nanos ShareMeter::readyAt(Nanos cap, Nanos need, Nanos now) const {
  if (share_.value == 0) return kNever;
  const std::int64_t target = cap.value * 1000 - need.value * (1000 - share_.value);
  const std::int64_t excess = drained(now) - std::max<std::int64_t>(target, 0);
  if (excess <= 0) return now;
  return now + Nanos((excess + share_.value - 1) / share_.value);
}

void ShareMeter::limitLevel(Nanos cap, Nanos now) {
  level_ = std::min(drained(now), cap.value * 1000);
  levelAt_ = std::max(levelAt_, now);
}

void ShareMeter::beginHeld(Nanos now) {
  if (heldSince_ == kNever) heldSince_ = now;
}

void ShareMeter::endHeld(Nanos now) {
  held_ = held(now);
  heldSince_ = kNever;
}

Nanos ShareMeter::held(Nanos now) const {
  return heldSince_ == kNever ? held_ : held_ + std::max(now - heldSince_, Nanos(0));
}

void ShareMeter::noteGap(Nanos gap) {
  usualGap_ = usualGap_ == kNever ? gap : usualGap_ + (gap - usualGap_) / 4;
}

std::uint64_t ShareMeter::digest(std::int64_t origin, Nanos now) const {
  std::uint64_t d = mixDigest(0, static_cast<std::uint64_t>(virtual_ - origin));
  d = mixDigest(d, static_cast<std::uint64_t>(remainder_));
  d = mixDigest(d, static_cast<std::uint64_t>(drained(now)));
  d = mixDigest(d, static_cast<std::uint64_t>(share_.value << 32 | weight_.value));
  return mixDigest(d, static_cast<std::uint64_t>(usualGap_.value));
}

}  // namespace qgpu
