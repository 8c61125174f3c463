#pragma once
// The run dir of the simulated node: what one manager leaves for the next. A list of the processes
// that were attached (HAZARDS 8), and a record of each task for the case that the database is gone
// (D5). It survives crashes and power loss takes nothing of it, since guests live no longer.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/journal.h"
#include "services/attach/attached_list.h"

namespace qgpu::sim {

struct RunDir {
  std::vector<AttachedEntry> attached;          // in the order in which they came
  std::map<std::uint64_t, StoredRow> records;   // by task: its row as committed

  void add(const AttachedEntry& entry) { attached.push_back(entry); }
  void remove(const AttachedEntry& entry) {
    std::erase_if(attached, [&](const AttachedEntry& e) {
      return e.pid == entry.pid && e.start == entry.start;
    });
  }
};

}  // namespace qgpu::sim
