#pragma once
// Whether cards are well, as a child process tells: each kind of cards that can be asked has such a
// watch (nvidia/health.h), and the daemon reads its lines.

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "runtime/result.h"
#include "runtime/units.h"
#include "services/base/child_probe.h"

namespace qgpu {

struct HealthTimes {
  Nanos interval = seconds(30);   // between two rounds of questions
  Nanos patience = seconds(90);   // without a sign of life: three rounds
  Nanos again = seconds(1);       // before it is started anew, twice as long each time
  Nanos againMax = seconds(300);  // and no longer than this
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

// The child. Its pipe gives one line a change (healthLine); its end means that the child died.
class HealthWatch {
 public:
  // Forks: to be called while the process has one thread. `run` is the child's whole life: it tells
  // on `out` until nobody reads any more. Unavailable: no pipe, no process.
  static Result<HealthWatch> start(const std::function<void(int out)>& run);

  int fd() const { return child_.fd(); }  // to be read; ours

 private:
  explicit HealthWatch(SideProcess child) : child_(std::move(child)) {}
  SideProcess child_;
};

// "<uuid>\t<ill, answers, program, note, blind or sees>\t<why>"; and what such a line says, without
// its end. Nothing: it is none of ours.
std::string healthLine(const HealthChange& change);
std::optional<HealthChange> parseHealthLine(const std::string& line);

}  // namespace qgpu
