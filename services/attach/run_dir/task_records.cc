#include "services/attach/run_dir/task_records.h"

#include <algorithm>
#include <array>
#include <capnp/message.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "services/wire/gate_abi.h"
#include "store/rows.h"

namespace qgpu {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::array<char, 8> kMagic = {'q', 'g', 'p', 'u', 't', 'a', 's', 'k'};
constexpr std::size_t kRootWords = 8;  // of a row beside its task

// In front of the row's bytes. The checksum is over task, version and row.
struct Head {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bytes = 0;
  std::int64_t sum = 0;
};
static_assert(sizeof(Head) == 24, "what is in the file has no padding");

// The store has ids as signed numbers.
std::optional<std::uint64_t> parseTask(const std::string& name) {
  std::uint64_t task = 0;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data(), end, task);
  const bool good = error == std::errc() && at == end && task != 0 && task <= INT64_MAX &&
                    name == std::to_string(task);
  return good ? std::optional(task) : std::nullopt;
}

std::int64_t sumOf(std::uint64_t task, std::span<const std::byte> row) {
  return checksum({RowKind::Task, task}, kVersion, row);
}

bool writeWhole(int fd, const Head& head, std::span<const std::byte> row) {
  const iovec parts[] = {{const_cast<Head*>(&head), sizeof head},
                         {const_cast<std::byte*>(row.data()), row.size()}};
  return ::writev(fd, parts, 2) == static_cast<ssize_t>(sizeof head + row.size());
}

// All of a file, or nothing where it is longer than a record may be.
std::optional<std::vector<std::byte>> readWhole(int fd) {
  std::vector<std::byte> bytes(sizeof(Head) + kRowBytesMax + 1);
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  if (got == bytes.size()) return std::nullopt;
  bytes.resize(got);
  return bytes;
}

}  // namespace

Status TaskRecords::open(const std::string& runDir) {
  path_ = runDir + "/tasks";
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(ErrorCode::Unavailable, path_ + ": " + std::strerror(errno));
  }
  folder_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) return fail(ErrorCode::Unavailable, path_ + ": " + std::strerror(errno));
  return ok();
}

void TaskRecords::write(schema::TaskRow::Reader row) {
  capnp::MallocMessageBuilder message(
      static_cast<unsigned>(row.totalSize().wordCount + kRootWords));
  message.initRoot<schema::Row>().setTask(row);
  const auto segments = message.getSegmentsForOutput();
  QGPU_CHECK(segments.size() == 1, "the first segment has room for the whole row");
  const auto bytes = std::as_bytes(std::span(segments[0].begin(), segments[0].size()));
  if (bytes.size() > kRowBytesMax) return;

  Head head;
  head.bytes = static_cast<std::uint32_t>(bytes.size());
  head.sum = sumOf(row.getId(), bytes);
  const std::string name = std::to_string(row.getId());
  const std::string fresh = name + ".new";
  const int flags = O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
  const Fd file(::openat(folder_.get(), fresh.c_str(), flags, 0600));
  // The run dir needs no fsync: what a power cut takes from it, it takes from the guests as well.
  const bool written = file && writeWhole(file.get(), head, bytes) &&
                       ::renameat(folder_.get(), fresh.c_str(), folder_.get(), name.c_str()) == 0;
  if (!written) ::unlinkat(folder_.get(), fresh.c_str(), 0);
}

void TaskRecords::markEvicting(std::uint64_t task) {
  const Result<StoredRow> found = read(task);
  if (!found) return;
  capnp::MallocMessageBuilder message;
  message.setRoot(capnp::readMessageUnchecked<schema::Row>(found->words.data()));
  auto row = message.getRoot<schema::Row>().getTask();
  if (row.getEvicting()) return;
  row.setEvicting(true);
  write(row.asReader());
}

void TaskRecords::remove(std::uint64_t task) {
  ::unlinkat(folder_.get(), std::to_string(task).c_str(), 0);
}

std::vector<std::uint64_t> TaskRecords::list() {
  std::vector<std::uint64_t> tasks;
  DIR* folder = ::fdopendir(::fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0));
  if (folder == nullptr) return tasks;
  ::rewinddir(folder);
  while (const dirent* found = ::readdir(folder)) {
    if (found->d_name[0] == '.') continue;
    const std::optional<std::uint64_t> task = parseTask(found->d_name);
    if (task && tasks.size() < kRecordsMax) {
      tasks.push_back(*task);
    } else {
      ::unlinkat(folder_.get(), found->d_name, 0);
    }
  }
  ::closedir(folder);
  std::sort(tasks.begin(), tasks.end());
  return tasks;
}

Error TaskRecords::unusable(std::uint64_t task, ErrorCode code, const std::string& why) const {
  return fail(code, path_ + "/" + std::to_string(task) + " " + why);
}

Result<StoredRow> TaskRecords::read(std::uint64_t task) const {
  const auto corrupt = [&](const std::string& why) {
    return unusable(task, ErrorCode::Corrupt, why);
  };
  const Fd file(::openat(folder_.get(), std::to_string(task).c_str(),
                         O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return unusable(task, ErrorCode::NotFound, "does not exist");
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return corrupt("can't be read as a file");
  }
  const auto bytes = readWhole(file.get());
  if (!bytes) return corrupt("is longer than a record may be, or can't be read");
  Head head;
  if (bytes->size() < sizeof head) return corrupt("is cut off");
  std::memcpy(&head, bytes->data(), sizeof head);
  if (head.magic != kMagic) return corrupt("is no record of a task");
  if (head.version > kVersion) {
    return unusable(task, ErrorCode::Unsupported,
                    "is of version " + std::to_string(head.version) +
                        ", which a newer qgpu-manager wrote; this one reads up to " +
                        std::to_string(kVersion));
  }
  const auto row = std::span(*bytes).subspan(sizeof head);
  if (row.size() != head.bytes) return corrupt("is cut off");
  if (head.sum != sumOf(task, row)) return corrupt("fails its checksum");
  Result<StoredRow> stored = decodeRow({RowKind::Task, task}, row);
  if (!stored) return corrupt("does not decode: " + stored.error().message);
  const auto read = capnp::readMessageUnchecked<schema::Row>(stored->words.data());
  const bool whole = read.isTask() && read.getTask().getId() == task &&
                     read.getTask().getToken().size() == QGPU_TOKEN_LEN;
  if (!whole) return corrupt("is not of this task");
  return stored;
}

}  // namespace qgpu
