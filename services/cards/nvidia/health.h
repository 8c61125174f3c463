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
#include <sys/types.h>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct HealthTimes {
  Nanos interval = seconds(30);   // between two rounds of questions
  Nanos patience = seconds(90);   // without a sign of life: three rounds
  Nanos again = seconds(1);       // before it is started anew, twice as long each time
  Nanos againMax = seconds(300);  // and no longer than this
};

// One thing that was seen of a card.
struct HealthReading {
  enum class Kind : std::uint8_t { Present, Lost, Xid, Errors };
  std::string uuid;
  Kind kind = Kind::Present;
  std::uint64_t number = 0;  // of the Xid; how many errors
};

// What there is to tell of a card. Ill: `why` it must not be used. Answers: it was lost, and is
// there again. ProgramFault: a program on it failed, the card is well. Note: for the log alone.
// Blind: nothing is known of any card from now on. Sees: it is again.
struct HealthChange {
  enum class Kind : std::uint8_t { Ill, Answers, ProgramFault, Note, Blind, Sees };
  std::string uuid;  // kEveryCard where it is of none in particular
  Kind kind = Kind::Ill;
  std::string why;
  bool operator==(const HealthChange&) const = default;
};

inline constexpr const char* kEveryCard = "*";

// Pure: turns readings into changes. A program's fault is told each time. The same Xid of a sick
// card, or one to note, is told again when kXidAgain has passed: a person may have uncordoned the
// card meanwhile.
class HealthJudge {
 public:
  static constexpr Nanos kXidAgain = seconds(60);
  std::optional<HealthChange> judge(const HealthReading& reading, Nanos now);

 private:
  struct Known {
    bool lost = false;
    std::uint64_t errors = 0;
    bool counted = false;
    std::map<std::uint64_t, Nanos> xids;  // told then; at most a few kinds exist
  };
  std::map<std::string, Known> cards_;
};

// The child. Its pipe gives one line a change (healthLine); its end means that the child died.
class HealthWatch {
 public:
  // Forks: to be called while the process has one thread. Unavailable: no pipe, no process.
  static Result<HealthWatch> start(const std::vector<std::string>& uuids,
                                   const HealthTimes& times = {});

  HealthWatch(HealthWatch&& other) noexcept;
  HealthWatch& operator=(HealthWatch&& other) noexcept;
  ~HealthWatch();  // ends the child

  int fd() const { return fd_; }  // to be read; ours

 private:
  HealthWatch(int fd, pid_t child) : fd_(fd), child_(child) {}
  int fd_ = -1;
  pid_t child_ = -1;
};

// "<uuid>\t<ill, answers, program, note, blind or sees>\t<why>"; and what such a line says, without
// its end. Nothing: it is none of ours.
std::string healthLine(const HealthChange& change);
std::optional<HealthChange> parseHealthLine(const std::string& line);

}  // namespace qgpu
