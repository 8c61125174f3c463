#pragma once
// What clients of a cluster asked, what each was answered, and when, as they saw it; and what nodes
// said that they hold. Who records it is chaos_clients.h, who judges it check_history.h.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace qgpu::chaos {

using Time = std::int64_t;  // ns, of one clock that never steps
inline constexpr Time kOpen = std::numeric_limits<Time>::max();

// From before the question left until after its answer came.
struct Span {
  Time invoked = 0;
  Time completed = kOpen;
};

enum class Outcome : std::uint8_t {
  Ok,
  Failed,   // it did nothing, for certain
  Missing,  // there is no such task
  Unknown,  // it happened at any time since it was invoked, or happens yet, or never does
};

enum class Phase : std::uint8_t {
  Lives,   // it waits, or has a place
  Ending,  // its node was told to end it: it was deleted, or waits again after that
  Ended,
};

// A task is known by the request id of its submit; several submits may have one.
struct Submit {
  Span at;
  std::string request;
  Outcome outcome = Outcome::Unknown;
  std::uint64_t task = 0;  // its number, where Ok
};
struct Delete {
  Span at;
  std::string request;
  Outcome outcome = Outcome::Unknown;
};
struct Seen {
  std::string request;
  std::uint64_t task = 0;
  std::uint32_t epoch = 0;
  Phase phase = Phase::Lives;
  std::string node;  // empty: none
};
// Every task that lives. Lists without an answer are left out, here and below.
struct List {
  Span at;
  std::vector<Seen> tasks;
};
// One task, also one that ended.
struct Get {
  Span at;
  std::string request;
  bool found = false;
  Seen seen;
};

struct Cordon {
  Span at;
  std::string node;
  bool cordoned = false;  // from then on
  Outcome outcome = Outcome::Unknown;
};
struct Nodes {
  Span at;
  std::vector<std::pair<std::string, bool>> cordoned;
};

// What a node itself says that it holds of the cluster's tasks.
struct Held {
  struct Task {
    std::uint64_t task = 0;
    std::uint32_t epoch = 0;
  };
  Span at;
  std::string node;
  std::vector<Task> tasks;
};

// Who said that it acts, and under which term.
struct Term {
  Span at;
  std::uint64_t term = 0;
  std::string who;
};

struct History {
  std::vector<Submit> submits;
  std::vector<Delete> deletes;
  std::vector<List> lists;
  std::vector<Get> gets;
  std::vector<Cordon> cordons;
  std::vector<Nodes> nodes;
  std::vector<Held> held;
  std::vector<Term> terms;

  std::size_t operations() const {
    return submits.size() + deletes.size() + lists.size() + gets.size() + cordons.size() +
           nodes.size() + held.size() + terms.size();
  }
  std::size_t unknown() const {
    const auto of = [](const auto& all) {
      return std::count_if(all.begin(), all.end(),
                           [](const auto& one) { return one.outcome == Outcome::Unknown; });
    };
    return static_cast<std::size_t>(of(submits) + of(deletes) + of(cordons));
  }
};

}  // namespace qgpu::chaos
