#pragma once
// Who lives of an earlier manager's tasks, by what it left in the run dir, before anything serves.
//
// The rule (D5): what the store says is the truth wherever it has a node row, also where it is an
// older copy, and then the rows found here are not used. Only a manager whose store has never been
// written, because the database was deleted or replaced by an empty one, takes these tasks over as
// if they were stored. A task lives while a process that is listed as attached does, or the process
// that it was bound for. The numbers of living tasks are never given out again in either case.
// A task that lives though the store knows that it had ended is ended by the new manager: see
// NodeOptions::living.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"

namespace qgpu {

struct Survivors {
  std::vector<StoredRow> tasks;       // rows of tasks that live, by number
  std::vector<std::uint64_t> living;  // numbers of all tasks that live, in order
  std::uint64_t lastTask = 0;         // the highest number of one that lives; 0: none does
  std::vector<std::string> unusable;  // one line for each record that can't be believed, and why
};

// Removes the records of tasks that nobody lives of, and those that are damaged. Unavailable: the
// run dir can't be read, or there is no descriptor left to look at a process with.
Result<Survivors> findSurvivors(const std::string& runDir);

}  // namespace qgpu
