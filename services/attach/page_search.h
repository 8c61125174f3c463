#pragma once
// Finds the report page of a task with a process that an earlier manager had attached. The bytes
// of a task are counted in one page for as long as somebody lives of it: who comes after a restart
// of the manager, while the others are stopped or slow, is counted in the same page (A14, C9).
//
// A page has no name that outlives its manager: a file that could be opened by one could not be
// sealed, and who has it would cut it off below us (HAZARDS 9). So it is looked for among the
// descriptors of the process. What else is there is neither opened nor asked for its attributes,
// so no file system of a tenant can make us wait.

#include <cstddef>
#include <cstdint>

#include "runtime/fd.h"
#include "services/attach/task_pages.h"

namespace qgpu {

enum class PageSearch : std::uint8_t {
  Adopted,   // the process had the task's page, and `pages` has it now
  None,      // it has none, so that no bytes of it are counted anywhere, or it is dead
  Hidden,    // we may not look (CAP_SYS_PTRACE), or there are more descriptors than looks left
};

// Descriptors that are looked at for one task, some 3 us each: tenants can't make a restart long.
inline constexpr std::size_t kPageLooksMax = 8'192;

// `pidfd` is of the process with that `pid` in our namespace. `looks` is how many descriptors may
// still be looked at, and is counted down.
PageSearch adoptReportOf(std::uint32_t pid, const Fd& pidfd, TaskPages& pages, std::size_t& looks);

}  // namespace qgpu
