#pragma once
// What a card did between two times: the entries of its trace, as the manager tells them part by
// part, become stretches of time that a person or a tool can look at. Pure: answers in, history
// out. Times are those of the card actor, CLOCK_MONOTONIC of its machine.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/units.h"
#include "schema/types.capnp.h"
#include "services/ctl/answers/client.h"

namespace qgpu::ctl {

struct Span {
  enum class Kind : std::uint8_t {
    Slice,   // its gate is open, and it has work
    Hold,    // held, until nothing of it ran any more
    Wait,    // wants the card and has no slice
    Work,    // of an online task, from the submit that woke it to its last retired work
    Online,  // of the card: nobody else gets a slice
  };
  Kind kind = Kind::Slice;
  std::uint64_t task = 0;  // 0: of the card
  Nanos from{0};
  Nanos to{0};
};

struct Moment {
  schema::TraceKind kind = schema::TraceKind::JOINED;
  std::uint64_t task = 0;
  Nanos at{0};
};

// An online task's submit, and the gate that was shut for it.
struct Preemption {
  std::uint64_t online = 0;
  std::uint64_t held = 0;
  Nanos submit{0};
  Nanos shut{0};
};

struct CardHistory {
  struct Task {
    std::string name;
    schema::TaskClass taskClass = schema::TaskClass::ORDINARY;
  };
  std::string card;
  Nanos from{0};
  Nanos to{0};
  std::uint64_t lost = 0;               // entries that were overwritten before they were read
  std::map<std::uint64_t, Task> tasks;  // those that the rest names
  std::vector<Span> spans;              // within from..to, each task's in order
  std::vector<Moment> moments;          // all that is no span
  std::vector<Preemption> preemptions;
  std::map<std::uint64_t, std::uint64_t> refused;  // of memory, by task: ever since the first entry
};

// One card's trace, read from its oldest entry on.
class TraceReader {
 public:
  // Its id or index.
  explicit TraceReader(std::string card) : card_(std::move(card)) {}

  // Its id, once the manager has told it.
  const std::string& card() const { return card_; }
  // What to ask next: everything after this number.
  std::uint64_t since() const { return last_; }
  // Whether the answer that was added last had the newest entry.
  bool caughtUp() const { return last_ == newest_; }
  // The card's clock in that answer.
  Nanos now() const { return now_; }
  std::size_t entries() const { return entries_.size(); }

  // An answer to `trace`, also of a manager that was started anew.
  void add(Value trace);

  // What lies before the oldest entry that is known is left out.
  CardHistory between(Nanos from, Nanos to) const;
  // No history is asked for any more that begins before. For one who reads on and on.
  void forget(Nanos before);

 private:
  struct Entry {
    schema::TraceKind kind;
    std::uint64_t task;
    Nanos at;
    Nanos since;
  };
  // What goes on: since when, of each task.
  using Since = std::optional<Nanos>;  // nothing: not under way
  struct Underway {
    struct Task {
      Since slice, hold, wait, work;
    };
    std::map<std::uint64_t, Task> tasks;
    Since online;
    std::uint64_t waker = 0;  // the online task that the others were last held for
  };
  friend class HistoryMaker;

  std::string card_;
  std::uint64_t last_ = 0;
  std::uint64_t newest_ = 0;
  std::uint64_t lost_ = 0;
  bool asked_ = false;
  Nanos knownFrom_{0};  // of the oldest entry, where others came before it
  Nanos now_{0};
  Underway underway_;  // after what was forgotten
  std::vector<Entry> entries_;
  std::map<std::uint64_t, std::uint64_t> refused_;
  std::map<std::uint64_t, CardHistory::Task> tasks_;
};

}  // namespace qgpu::ctl
