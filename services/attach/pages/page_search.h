#pragma once
// Finds the report page of a task with a process that an earlier manager had attached. The bytes
// of a task are counted in one page for as long as somebody lives of it: who comes after a restart
// of the manager, while the others are stopped or slow, is counted in the same page (A14, C9).
//
// A page has no name that outlives its manager: a file that could be opened by one could not be
// sealed, and who has it would cut it off below us (HAZARDS 9). So it is looked for among the
// descriptors of the process. Nothing there makes us wait: only files in memory of a page's size
// are opened at all, so no file system of a tenant is asked, and those are opened without waiting
// for a lease that the tenant holds on them. A page that is kept from us so is a hidden one, which
// holds up its own task alone.

#include <cstddef>
#include <cstdint>

#include "runtime/fd.h"
#include "runtime/loop.h"
#include "services/attach/pages/task_pages.h"

namespace qgpu {

enum class PageSearch : std::uint8_t {
  Adopted,  // the process had the task's page, and `pages` has it now
  None,     // it has none, so that no bytes of it are counted anywhere, or it is dead
  Hidden,   // we may not look (CAP_SYS_PTRACE), it is kept from us, or the search took too long
};

// What the search for one task may cost, so that tenants can't make a restart long: descriptors
// that are looked at, some 3 us each, and the time of this thread on a processor for it all.
// Nothing is waited for, and what others do on a busy machine hides no page.
inline constexpr std::size_t kPageLooksMax = 8'192;
inline constexpr Nanos kPageSearchMax = millis(10);

Nanos threadTimeNow();  // on a processor

struct SearchBound {
  std::size_t looks = kPageLooksMax;  // left
  Nanos until = threadTimeNow() + kPageSearchMax;
};

// `pidfd` is of the process with that `pid` in our namespace. `bound` is counted down.
PageSearch adoptReportOf(std::uint32_t pid, const Fd& pidfd, TaskPages& pages, SearchBound& bound);

}  // namespace qgpu
