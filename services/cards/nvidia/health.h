#pragma once
// Whether NVIDIA cards are well, told by a child process that asks NVML: Xid errors as they come,
// and each `interval` whether the card is still there and whether its memory counted uncorrected
// errors. Rarely, since each question takes locks of the driver that suspending needs.
//
// Two processes: one asks, and may hang or die in the driver; the other never touches the driver,
// judges what is read, says so when nothing is read any more, and starts the first one anew. What
// is known of a card outlives the one that asks, so no error is told twice or missed for it.
//
// What counts as the card's own illness and not as a program's fault is decided here, by the class
// of an Xid (xid.h).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/cards/health.h"

namespace qgpu {

// One thing that was seen of a card.
struct HealthReading {
  enum class Kind : std::uint8_t { Present, Lost, Xid, Errors };
  std::string uuid;
  Kind kind = Kind::Present;
  std::uint64_t number = 0;  // of the Xid; how many errors
};

// Pure: turns readings into changes. A program's fault is told each time. The same Xid of a sick
// card, or one to note, is told again when kXidAgain has passed: a person may have uncordoned the
// card meanwhile.
class HealthTracker {
 public:
  static constexpr Nanos kXidAgain = seconds(60);
  std::optional<HealthChange> take(const HealthReading& reading, Nanos now);

 private:
  struct Known {
    bool lost = false;
    std::uint64_t errors = 0;
    bool counted = false;
    std::map<std::uint64_t, Nanos> xids;  // told then; at most a few kinds exist
  };
  std::map<std::string, Known> cards_;
};

// Forks: to be called while the process has one thread. Unavailable: no pipe, no process.
Result<HealthWatch> watchNvidiaCards(const std::vector<std::string>& uuids,
                                     const HealthTimes& times = {});

}  // namespace qgpu
