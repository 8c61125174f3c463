#include "services/guest/paging/host_room.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qgpu::guest {
namespace {

constexpr std::uint64_t kMargin = 32;  // one part of so many stays
constexpr int kPopulateWrite = 23;     // MADV_POPULATE_WRITE, since Linux 5.14
constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kPathMax = 1024;

// What a file of the kernel says, cut to fit. False: there is none.
bool readText(const char* path, char* text, std::size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t used = 0;
  for (;;) {
    const ssize_t n = read(fd, text + used, size - 1 - used);
    if (n <= 0) break;
    used += static_cast<std::size_t>(n);
  }
  close(fd);
  text[used] = 0;
  return true;
}

// The number behind a word at the beginning of a line; 0: the word is not there.
std::uint64_t numberAfter(const char* text, const char* word) {
  for (const char* at = text; (at = strstr(at, word)); ++at) {
    if (at == text || at[-1] == '\n') return strtoull(at + strlen(word), nullptr, 10);
  }
  return 0;
}

std::uint64_t lessMargin(std::uint64_t room, std::uint64_t whole) {
  const std::uint64_t margin = whole / kMargin;
  return room > margin ? room - margin : 0;
}

std::uint64_t machineRoom(const char* root) {
  char path[kPathMax], text[4096];
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (!readText(path, text, sizeof text)) return 0;
  const std::uint64_t kib = 1024;
  return lessMargin(numberAfter(text, "MemAvailable:") * kib, numberAfter(text, "MemTotal:") * kib);
}

// What the names of a version of cgroups are.
struct Controller {
  const char *folder, *limit, *used, *cache;
};
constexpr Controller kSecond = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
constexpr Controller kFirst = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                               "memory.usage_in_bytes", "total_inactive_file "};

// Of one cgroup; ~0: it has no limit. Pages of files that nobody used lately make room by
// themselves.
std::uint64_t roomIn(const char* root, const Controller& names, const char* group) {
  char path[kPathMax], text[8192];
  const auto read = [&](const char* file) {
    snprintf(path, sizeof path, "%s%s%s/%s", root, names.folder, group, file);
    return readText(path, text, sizeof text);
  };
  if (!read(names.limit) || strncmp(text, "max", 3) == 0) return ~0ull;
  const std::uint64_t limit = strtoull(text, nullptr, 10);
  if (!read(names.used)) return ~0ull;
  std::uint64_t used = strtoull(text, nullptr, 10);
  const std::uint64_t cache = read("memory.stat") ? numberAfter(text, names.cache) : 0;
  used -= cache < used ? cache : used;
  return lessMargin(limit > used ? limit - used : 0, limit);
}

// Of a cgroup and all above it. `group` is cut on the way.
std::uint64_t roomUpwards(const char* root, const Controller& names, char* group) {
  std::uint64_t least = ~0ull;
  for (;;) {
    const std::uint64_t room = roomIn(root, names, group);
    if (room < least) least = room;
    char* slash = strrchr(group, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

// Whether a list with commas has a name; none is in the empty one.
bool listed(const char* list, const char* name) {
  const std::size_t size = strlen(name);
  if (size == 0) return *list == 0;
  for (const char* at = list; (at = strstr(at, name)); ++at) {
    if ((at == list || at[-1] == ',') && (at[size] == 0 || at[size] == ',')) return true;
  }
  return false;
}

// By a line of /proc/self/cgroup, "number:controllers:path"; ~0 where it is of others.
std::uint64_t roomOfLine(const char* root, const char* line, const Controller& names,
                         const char* controllers) {
  char copy[kPathMax];
  snprintf(copy, sizeof copy, "%s", line);
  char* first = strchr(copy, ':');
  char* second = first ? strchr(first + 1, ':') : nullptr;
  if (!second) return ~0ull;
  *second = 0;
  return listed(first + 1, controllers) ? roomUpwards(root, names, second + 1) : ~0ull;
}

std::uint64_t cgroupRoom(const char* root) {
  char path[kPathMax], text[4096];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  if (!readText(path, text, sizeof text)) return ~0ull;
  std::uint64_t least = ~0ull;
  for (char* line = text; line && *line;) {
    char* end = strchr(line, '\n');
    if (end) *end = 0;
    const std::uint64_t second = roomOfLine(root, line, kSecond, "");
    const std::uint64_t first = roomOfLine(root, line, kFirst, "memory");
    if (second < least) least = second;
    if (first < least) least = first;
    line = end ? end + 1 : nullptr;
  }
  return least;
}

}  // namespace

std::uint64_t hostRoom(const char* root) {
  const std::uint64_t machine = machineRoom(root), cgroup = cgroupRoom(root);
  return machine < cgroup ? machine : cgroup;
}

void* takeHostMemory(std::uint64_t bytes) {
  if (hostRoom() < bytes) return nullptr;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_DONTFORK);  // pinned pages would be copied at once
  if (madvise(at, bytes, kPopulateWrite) != 0) {
    if (errno != EINVAL) {  // of an older kernel; others say that there is no memory
      munmap(at, bytes);
      return nullptr;
    }
    auto* page = static_cast<volatile char*>(at);
    for (std::uint64_t i = 0; i < bytes; i += kPage) page[i] = 0;
  }
  return at;
}

void giveHostMemory(void* at, std::uint64_t bytes) {
  munmap(at, bytes);
}

}  // namespace qgpu::guest
