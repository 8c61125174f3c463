#pragma once
// Which of several schedulers a manager tries next, and after what pause: all of them in turn, and
// at once the one that acts where a scheduler that stands by names it. Pure: the link
// (scheduler_link.h) has the clock and the dice, and the simulator's network others.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "services/api/rpc/link_limits.h"
#include "services/api/rpc/standing_by.h"

namespace qgpu {

class AddressRound {
 public:
  AddressRound(std::vector<std::string> addresses, SchedulerLinkTimes times)
      : addresses_(std::move(addresses)), times_(times) {
    QGPU_CHECK(!addresses_.empty(), "a link has an address");
  }

  // Whom to try now.
  const std::string& address() const { return acting_.empty() ? addresses_[at_] : acting_; }

  // There was no connection, or none that lasted. What another scheduler named is tried once, and
  // is no failure.
  void failed(const std::string& why) {
    const std::string tried = std::exchange(acting_, {});
    if (tried.empty()) {
      acting_ = actingOf(why).value_or("");
      if (!acting_.empty()) return;
    }
    ++failures_;
    at_ = (at_ + 1) % addresses_.size();
  }

  // A connection is over by which a scheduler served us for `time`: one that took it and said
  // nothing, or turned us away, did not. Who did for long is tried again first.
  void ended(Nanos time, const std::string& why) {
    acting_.clear();
    if (time < times_.served) return failed(why);
    failures_ = 0;
  }

  // Over all addresses, in vain, since a connection last lived for long.
  std::size_t rounds() const { return failures_ / addresses_.size(); }

  // Before that, at most, of which a link takes half or more by its dice, so that nodes that lost
  // their scheduler together do not come back together; 0: at once.
  Nanos pause() const {
    if (!acting_.empty() || failures_ % addresses_.size() != 0) return Nanos(0);
    const std::size_t doublings = std::min(rounds(), kRoundsMax);
    return std::min(times_.pauseMax, times_.pauseMin * (std::int64_t{1} << doublings));
  }

 private:
  static constexpr std::size_t kRoundsMax = 16;  // that double the pause

  const std::vector<std::string> addresses_;
  const SchedulerLinkTimes times_;
  std::size_t at_ = 0;        // index of the address that is tried, or was before `acting_`
  std::string acting_;        // named by one that stands by; for one try
  std::size_t failures_ = 0;  // since a connection last lived for long
};

}  // namespace qgpu
