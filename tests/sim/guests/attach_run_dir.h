#pragma once
// The run dir of the simulated node: what one manager leaves for the next. A list of the processes
// that were attached (HAZARDS 8), and a record of each task for the case that the database is gone
// (D5). It survives crashes and power loss takes nothing of it, since guests live no longer.

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/journal.h"
#include "schema/rows.capnp.h"
#include "services/attach/run_dir/attached_list.h"

namespace qgpu::sim {

struct RunDir {
  std::vector<AttachedEntry> attached;         // in the order in which they came
  std::map<std::uint64_t, StoredRow> records;  // by task: its row as committed

  void add(const AttachedEntry& entry) { attached.push_back(entry); }
  void remove(const AttachedEntry& entry);
  void record(schema::TaskRow::Reader row);
  // It ends as soon as its processes are gone.
  void recordEvicting(std::uint64_t task);
};

}  // namespace qgpu::sim
