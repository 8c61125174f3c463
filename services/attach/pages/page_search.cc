#include "services/attach/pages/page_search.h"

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "services/base/process.h"

namespace qgpu {
namespace {

// Whether it is a file in memory of the size of a page. Only what the kernel has in its cache is
// asked for: a tenant's own file system would answer when it likes.
bool mayBePage(const Fd& place, const struct stat& ours) {
  struct statx facts {};
  const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return ::statx(place.get(), "", flags, STATX_TYPE | STATX_SIZE, &facts) == 0 &&
         makedev(facts.stx_dev_major, facts.stx_dev_minor) == ours.st_dev &&
         S_ISREG(facts.stx_mode) && facts.stx_size == kReportPageBytes;
}

// Looks at one descriptor of a process.
PageSearch adoptFrom(const Fd& folder, const char* name, TaskPages& pages,
                     const struct stat& ours) {
  const auto failed = [] { return errno == ENOENT ? PageSearch::None : PageSearch::Hidden; };
  const Fd place(::openat(folder.get(), name, O_PATH | O_CLOEXEC));
  if (!place) return failed();
  if (!mayBePage(place, ours)) return PageSearch::None;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", place.get());
  // A lease on it would be waited for, /proc/sys/fs/lease-break-time seconds long.
  Fd page(::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!page) return PageSearch::Hidden;
  const Status adopted = pages.adoptReport(std::move(page));
  return adopted && pages.adopted() ? PageSearch::Adopted : PageSearch::None;
}

}  // namespace

Nanos threadTimeNow() {
  struct timespec spent {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return Nanos(spent.tv_sec * 1'000'000'000 + spent.tv_nsec);
}

PageSearch adoptReportOf(std::uint32_t pid, const Fd& pidfd, TaskPages& pages, SearchBound& bound) {
  struct stat ours {};
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd", pid);
  const Fd folder(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Alive after its folder was opened: so the folder is not of another one with that pid.
  if (processDead(pidfd)) return PageSearch::None;
  if (!folder || ::fstat(pages.reportFd(), &ours) != 0) return PageSearch::Hidden;
  Fd listed(::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0));
  DIR* list = listed ? ::fdopendir(listed.get()) : nullptr;
  if (list == nullptr) return PageSearch::Hidden;
  listed.release();
  PageSearch found = PageSearch::None;
  while (const dirent* entry = found == PageSearch::Adopted ? nullptr : ::readdir(list)) {
    if (entry->d_name[0] == '.') continue;
    if (bound.looks == 0 || threadTimeNow() > bound.until) {
      found = PageSearch::Hidden;
      break;
    }
    bound.looks--;
    const PageSearch one = adoptFrom(folder, entry->d_name, pages, ours);
    if (one != PageSearch::None) found = one;
  }
  ::closedir(list);
  return found;
}

}  // namespace qgpu
