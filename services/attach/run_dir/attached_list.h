#pragma once
// The memory of who was attached, for the manager that comes next (HAZARDS 8): one empty file per
// process in RUN_DIR/attached, whose name says it all, so that no crash leaves half a line.

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/fd.h"
#include "runtime/result.h"
#include "services/attach/roster/roster.h"

namespace qgpu {

class AttachedList {
 public:
  // Makes the folder where it is missing.
  Status open(const std::string& runDir);
  // What an earlier manager left. Names that make no sense are removed. At most kEntriesMax.
  std::vector<AttachedEntry> read();
  void add(const AttachedEntry& entry);
  void remove(const AttachedEntry& entry);

  static constexpr std::size_t kEntriesMax = 65'536;

 private:
  Fd folder_;
};

}  // namespace qgpu
