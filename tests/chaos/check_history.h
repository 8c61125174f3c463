#pragma once
// Judges a history of a cluster: whether it could be that of one scheduler that never loses or
// undoes what it acknowledged. Pure, and shares no code with the product. Judged:
//
//   lost      an acknowledged submit that nobody deleted is not there (D1)
//   undone    an acknowledged delete, and the task lives (D1)
//   order     what was read of a task, or of a cordon, fits no order of events (C1, C2)
//   request   two tasks of one request id (C2), or a task that nobody asked for
//   epoch     of a task goes back, or is on two nodes (P6)
//   twice     a node begins to hold a task that another one holds at its epoch or a later one (P3)
//   term      goes back, or two schedulers act in one (C1)
//
// A node that is cut off keeps what it holds while the task is placed again under a later epoch:
// that both hold it then is no violation.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/history.h"

namespace qgpu::chaos {

struct Violation {
  std::string rule;  // as above
  Time at = 0;       // of the answer that shows it
  std::string what;
};

struct Findings {
  std::vector<Violation> violations;  // by time
  std::uint64_t work = 0;             // ways that were looked at; grows as the history does
};

Findings checkHistory(const History& history);

}  // namespace qgpu::chaos
