#pragma once
// What a machine gives at most, to compare the rate of submits with: SQLite alone committing the
// rows that the submits left behind, and RPC alone.

#include <string>

#include "runtime/result.h"

namespace qgpu::bench {

struct DiskLimits {
  double tasksPerSecond = 0;    // four rows each, `batch` tasks in a commit with fsync
  double commitsPerSecond = 0;  // of one row each
  double rowBytes = 0;          // of a task's row, on the average
};

// Writes what the database `from` of a scheduler has of tasks into a new one in `folder`.
Result<DiskLimits> diskLimits(const std::string& from, const std::string& folder,
                              std::size_t batch);

// Submits per second to a server that answers at once.
double echoLimit(const std::string& folder, std::size_t connections, std::size_t window);

}  // namespace qgpu::bench
