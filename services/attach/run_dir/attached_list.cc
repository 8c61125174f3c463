#include "services/attach/run_dir/attached_list.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace qgpu {
namespace {

// "PID.START.TASK.CARD.CARD..."
std::string nameOf(const AttachedEntry& entry) {
  std::string name = std::to_string(entry.pid) + "." + std::to_string(entry.start) + "." +
                     std::to_string(entry.task);
  for (const std::uint32_t card : entry.cards) name += "." + std::to_string(card);
  return name;
}

std::optional<AttachedEntry> parse(const char* name) {
  std::vector<std::uint64_t> numbers;
  for (const char* at = name;; at++) {
    char* end = nullptr;
    if (*at < '0' || *at > '9') return std::nullopt;
    numbers.push_back(std::strtoull(at, &end, 10));
    at = end;
    if (*at == 0) break;
    if (*at != '.') return std::nullopt;
  }
  if (numbers.size() < 4 || numbers[0] == 0 || numbers[0] > INT32_MAX) return std::nullopt;
  AttachedEntry entry;
  entry.pid = static_cast<std::uint32_t>(numbers[0]);
  entry.start = numbers[1];
  entry.task = numbers[2];
  for (std::size_t i = 3; i < numbers.size(); i++) {
    entry.cards.push_back(static_cast<std::uint32_t>(numbers[i]));
  }
  return entry;
}

}  // namespace

Status AttachedList::open(const std::string& runDir) {
  const std::string path = runDir + "/attached";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(ErrorCode::Unavailable, path + ": " + std::strerror(errno));
  }
  folder_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) return fail(ErrorCode::Unavailable, path + ": " + std::strerror(errno));
  return ok();
}

std::vector<AttachedEntry> AttachedList::read() {
  std::vector<AttachedEntry> entries;
  DIR* folder = ::fdopendir(::fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0));
  if (folder == nullptr) return entries;
  ::rewinddir(folder);
  while (const dirent* found = ::readdir(folder)) {
    if (found->d_name[0] == '.') continue;
    std::optional<AttachedEntry> entry = parse(found->d_name);
    if (entry && entries.size() < kEntriesMax) {
      entries.push_back(std::move(*entry));
    } else {
      ::unlinkat(folder_.get(), found->d_name, 0);
    }
  }
  ::closedir(folder);
  return entries;
}

void AttachedList::add(const AttachedEntry& entry) {
  // A full or broken run dir costs the next manager its patience, not this one its tenants.
  Fd made(::openat(folder_.get(), nameOf(entry).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

void AttachedList::remove(const AttachedEntry& entry) {
  ::unlinkat(folder_.get(), nameOf(entry).c_str(), 0);
}

}  // namespace qgpu
