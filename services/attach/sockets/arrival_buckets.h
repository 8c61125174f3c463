#pragma once
// How often each comer may come: so many at once, and one more each so often (a token bucket for
// each key, as GCRA). Pure: times come from outside.
//
// The table is bounded. A key whose bucket is full again is forgotten, which changes nothing; where
// nobody is to be forgotten, all further keys share one bucket, so that making up keys gains
// nothing and costs those nothing that are known.

#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/units.h"

namespace qgpu {

class ArrivalBuckets {
 public:
  ArrivalBuckets(std::uint32_t atOnce, Nanos each, std::size_t keysMax)
      : slack_((atOnce - 1) * each.value), each_(each), keysMax_(keysMax) {}

  // One more of `key`. False: it has used its part up, and this one is not counted.
  bool take(std::uint64_t key, Nanos now) {
    Nanos& full = bucketOf(key, now);
    if (full > now + slack_) return false;
    full = (full > now ? full : now) + each_;
    return true;
  }

  // What take() counted was as it should be, and counts no longer.
  void giveBack(std::uint64_t key) {
    const auto found = fullAt_.find(key);
    Nanos& full = found == fullAt_.end() ? othersFullAt_ : found->second;
    full = full - each_;
  }

  std::size_t keys() const { return fullAt_.size(); }

 private:
  Nanos& bucketOf(std::uint64_t key, Nanos now) {
    const auto found = fullAt_.find(key);
    if (found != fullAt_.end()) return found->second;
    if (fullAt_.size() >= keysMax_) {
      std::erase_if(fullAt_, [now](const auto& bucket) { return bucket.second <= now; });
    }
    return fullAt_.size() < keysMax_ ? fullAt_[key] : othersFullAt_;
  }

  const Nanos slack_;
  const Nanos each_;
  const std::size_t keysMax_;
  std::map<std::uint64_t, Nanos> fullAt_;  // when the bucket of a key is full again
  Nanos othersFullAt_{0};
};

}  // namespace qgpu
