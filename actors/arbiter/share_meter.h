#pragma once
// The account of one task on one card: what it used, what it owes, how far its share has brought
// it (virtual time), how full its bucket is under fixed-share, how long it was held, and its usual
// gap between two pieces of work. It exists apart from the arbiter so that the arithmetic of
// shares is tested by itself.
//
// Kept here: A4 (the bucket: level() is D - min(D) of its O(1) check, exact to the nanosecond),
// A9 (nothing negative), A13 (pure). Levels are kept in ns x permille and virtual time keeps its
// remainder, so that nothing is rounded away however small the charges are.

#include <cstdint>

#include "runtime/units.h"

namespace qgpu {

class ShareMeter {
 public:
  ShareMeter() = default;
  // share: of the card, 0..1000, the rate at which the bucket drains. weight: permille, at least 1,
  // the divisor of virtual time.
  ShareMeter(Permille share, Permille weight, Nanos now)
      : share_(share), weight_(weight), levelAt_(now) {}

  // --- charging: `amount` of card time that ended at `now` ---
  void charge(Nanos amount, Nanos now);      // labelled `used` on the card
  void chargeDebt(Nanos amount, Nanos now);  // beyond what the card gave: paid back later
  Nanos used() const { return used_; }
  Nanos overrun() const { return overrun_; }

  // --- virtual time: charged time x 1000 / weight, in ns ---
  std::int64_t virtualTime() const { return virtual_; }
  void raiseVirtualTime(std::int64_t floor);
  // Keeps what the task is ahead of (or behind) `origin` as card time, and counts it anew from 0
  // with another weight.
  void reweigh(std::int64_t origin, Permille weight);

  // --- the bucket of fixed-share: level = charged - share x elapsed, never below 0 ---
  Nanos level(Nanos now) const;
  // How long the task may run from `now` until its level is `cap`; kNever with the whole card.
  Nanos room(Nanos cap, Nanos now) const;
  // The earliest time, not before `now`, with room for `need`; kNever if the share is 0.
  Nanos readyAt(Nanos cap, Nanos need, Nanos now) const;
  void limitLevel(Nanos cap, Nanos now);

  // --- time in which the task wanted the card and had no open gate ---
  void beginHeld(Nanos now);
  void endHeld(Nanos now);
  Nanos held(Nanos now) const;

  // --- the usual gap between quiet and busy, a moving average; kNever before the first ---
  void noteGap(Nanos gap);
  Nanos usualGap() const { return usualGap_; }

  // What decides later: all but the accounts, relative to `origin` and `now`.
  std::uint64_t digest(std::int64_t origin, Nanos now) const;

 private:
  std::int64_t drained(Nanos now) const;  // level in ns x permille as it is at `now`
  void weighIn(Nanos amount, Nanos now);  // into virtual time and the bucket

  Permille share_{0};
  Permille weight_{1000};
  Nanos used_{0};
  Nanos overrun_{0};
  Nanos held_{0};
  Nanos heldSince_ = kNever;  // kNever: not held
  Nanos usualGap_ = kNever;
  Nanos levelAt_{0};            // the time for which level_ holds
  std::int64_t level_ = 0;      // ns x permille
  std::int64_t virtual_ = 0;    // ns
  std::int64_t remainder_ = 0;  // of virtual_, in ns x permille, 0 <= remainder_ < weight_
};

// Folds one value into a digest.
constexpr std::uint64_t mixDigest(std::uint64_t digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15ull;
  return digest ^ (digest >> 29);
}

}  // namespace qgpu
