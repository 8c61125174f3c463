#pragma once
// How long to wait before the next try: twice as long each time up to a limit, of which a seeded
// half is chance, so that many that lost the same server do not come back as one.

#include <cstdint>

#include "runtime/actor.h"
#include "runtime/units.h"

namespace qgpu {

class Backoff {
 public:
  Backoff(Nanos first, Nanos most, std::uint64_t seed)
      : first_(first), most_(most), next_(first), prng_(seed) {}

  Nanos next() {
    const std::int64_t half = next_.value / 2;
    const auto chance = static_cast<std::int64_t>(prng_.next() >> 1) % (half + 1);
    next_ = next_ * 2 < most_ ? next_ * 2 : most_;
    return Nanos(half + chance);
  }
  void reset() { next_ = first_; }

 private:
  const Nanos first_;
  const Nanos most_;
  Nanos next_;
  Prng prng_;
};

}  // namespace qgpu
