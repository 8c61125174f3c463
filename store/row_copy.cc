#include "store/row_copy.h"

#include <algorithm>
#include <capnp/message.h>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <unistd.h>
#include <utility>

#include "schema/rows.capnp.h"
#include "store/crc32c.h"
#include "store/little_endian.h"
#include "store/rows.h"

namespace qgpu {
namespace {

constexpr std::string_view kCopyMagic = "qgpu-snapshot ";
constexpr std::int64_t kCopyFormat = 1;
constexpr std::size_t kCopySum = 8;                 // characters at the end
constexpr std::size_t kCopyRowHead = 2 + 8 + 4;     // kind, id, length
constexpr std::size_t kCopyMax = 2UL << 30U;        // no store is near it
constexpr std::uint64_t kTasksPassed = 10'000;      // numbers of tasks of a node that may be given
constexpr std::uint64_t kEventsPassed = 1U << 20U;  // and of events

Error corrupt(const std::string& why) {
  return fail(ErrorCode::Corrupt, "is no whole snapshot: " + why + "; take another copy of it");
}

std::string sumOf(std::string_view text) {
  char sum[kCopySum + 1];
  std::snprintf(sum, sizeof sum, "%08x", crc32c(0, text.data(), text.size()));
  return sum;
}

// What stands behind `name ` on the next line; nothing where that is another line.
std::optional<std::string_view> takeLine(std::string_view& from, std::string_view name) {
  const std::size_t end = from.find('\n');
  if (end == std::string_view::npos || !from.starts_with(name)) return {};
  const std::string_view line = from.substr(name.size(), end - name.size());
  from.remove_prefix(end + 1);
  return line;
}

std::optional<std::int64_t> numberIn(std::string_view text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ptr != text.data() + text.size() || number < 0) return {};
  return number;
}

Result<std::vector<StoredRow>> decodeRows(std::string_view from, std::int64_t count) {
  std::vector<StoredRow> rows;
  while (!from.empty()) {
    if (from.size() < kCopyRowHead) return corrupt("its last row is cut");
    RowKey key;
    key.kind = static_cast<RowKind>(takeNumber<std::uint16_t>(from));
    key.id = takeNumber<std::uint64_t>(from);
    const auto length = takeNumber<std::uint32_t>(from);
    if (length > from.size()) return corrupt("its last row is cut");
    auto row = decodeRow(key, std::as_bytes(std::span(from.data(), length)));
    if (!row) return row.error();
    rows.push_back(std::move(*row));
    from.remove_prefix(length);
  }
  if (static_cast<std::int64_t>(rows.size()) != count) return corrupt("rows are missing");
  return rows;
}

// The same row, changed by `change`.
template <typename Change>
StoredRow changed(const StoredRow& row, Change change) {
  capnp::MallocMessageBuilder message(static_cast<kj::uint>(row.words.size() + 64));
  message.setRoot(capnp::readMessageUnchecked<schema::Row>(row.words.data()));
  change(message.getRoot<schema::Row>());
  // Once more, in one segment and without what was cut off.
  return {row.key, flatten(message.getRoot<schema::Row>().asReader())};
}

// Of a task that lives without a row its node asks whether the store gave out its number: then it
// had ended, and what is left of it is killed. Between the copy and its restore `next` and the
// numbers behind it may have been given, so these are unknown, up to where new ones begin; above
// that all are. The copy may have unknown numbers of its own, which lie below `next`: one range
// holds both, and with them numbers between that the copy knew to be over. A task of such a number
// that lives all the same is taken over, and not killed, which is the safe mistake. It goes no
// further than this start: the first row that the node writes has what it found living.
void restoreNode(schema::NodeRow::Builder node) {
  const std::uint64_t next = node.getNextTask();
  const bool had = node.getUnknownTo() != 0;
  node.setUnknownFrom(had ? std::min(node.getUnknownFrom(), next) : next);
  node.setNextTask(next + kTasksPassed);
  node.setUnknownTo(next + kTasksPassed);
  node.setNextEvent(node.getNextEvent() + kEventsPassed);
  node.setRestored(true);
}

void restoreCluster(schema::ClusterRow::Builder cluster, std::uint64_t unixMs) {
  const std::uint64_t next = std::max(cluster.getNextTask(), unixMs);
  cluster.setTerm(std::max(cluster.getTerm(), termAt(unixMs)));
  cluster.setFirstTask(next);
  cluster.setNextTask(next);
  cluster.setNextEvent(cluster.getNextEvent() + kEventsPassed);
  cluster.initTokens(0);
  cluster.setGathers(true);
}

void restoreRow(schema::Row::Builder row, std::uint64_t unixMs) {
  if (row.isNode()) return restoreNode(row.getNode());
  if (row.isCluster()) return restoreCluster(row.getCluster(), unixMs);
  if (row.isCard() && row.getCard().getDraining()) {
    row.getCard().setDraining(false);
    row.getCard().setCordoned(true);
  }
  if (!row.isClusterNode()) return;
  auto node = row.getClusterNode();
  if (node.getDrains().size() == 0 && !node.getDraining()) return;
  node.setCordoned(true);
  node.setDraining(false);
  node.initDrains(0);
}

Error cantWrite(const std::string& path) {
  return fail(ErrorCode::Unavailable, "can't write " + path + ": " + std::strerror(errno));
}

bool writeAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(fd) == 0;
}

// A name lasts once its folder is on disk; EINVAL: of a file system that knows no such thing.
bool keepName(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool kept = ::fsync(fd) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(fd);
  errno = error;
  return kept;
}

}  // namespace

std::string encodeCopy(const RowCopy& copy) {
  std::string file(kCopyMagic);
  file += std::to_string(kCopyFormat) + "\nreader " + std::to_string(kNeeds.number) + " " +
          kNeeds.since + "\ndaemon " + copy.daemon + "\nof " + copy.of + "\ntaken " +
          std::to_string(copy.takenUnixMs) + "\nversion " + copy.version + "\nrows " +
          std::to_string(copy.rows.size()) + "\n\n";
  for (const StoredRow& row : copy.rows) {
    const auto bytes = bytesOf(row);
    writeNumber(file, static_cast<std::uint16_t>(row.key.kind));
    writeNumber(file, row.key.id);
    writeNumber(file, static_cast<std::uint32_t>(bytes.size()));
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return file + sumOf(file);
}

// The first two lines tell a newer file from a damaged one, whatever stands behind them.
Result<RowCopy> decodeCopy(std::string_view file) {
  if (!file.starts_with(kCopyMagic)) {
    return fail(ErrorCode::Corrupt, "is no snapshot of qgpu");
  }
  std::string_view rest = file;
  const auto format = numberIn(takeLine(rest, kCopyMagic).value_or(""));
  if (!format) return corrupt("its head is damaged");
  const std::string_view reader = takeLine(rest, "reader ").value_or("");
  const std::size_t blank = reader.find(' ');
  const auto number = numberIn(reader.substr(0, blank));
  if (!number || blank == std::string_view::npos) return corrupt("its head is damaged");
  const std::string since(reader.substr(blank + 1));
  if (*format > kCopyFormat) return needsNewer(since);
  if (Status readable = checkReader(*number, since, kReads); !readable) return readable.error();
  if (file.size() < kCopySum ||
      sumOf(file.substr(0, file.size() - kCopySum)) != file.substr(file.size() - kCopySum)) {
    return corrupt("its checksum is another");
  }
  rest.remove_suffix(kCopySum);
  const auto daemon = takeLine(rest, "daemon "), of = takeLine(rest, "of "),
             taken = takeLine(rest, "taken "), version = takeLine(rest, "version "),
             rows = takeLine(rest, "rows "), end = takeLine(rest, "");
  const auto at = numberIn(taken.value_or("")), count = numberIn(rows.value_or(""));
  if (!daemon || !of || !at || !version || !count || !end || !end->empty()) {
    return corrupt("its head is damaged");
  }
  auto decoded = decodeRows(rest, *count);
  if (!decoded) return decoded.error();
  return RowCopy{std::string(*daemon), std::string(*of), *at, std::string(*version),
                 std::move(*decoded)};
}

Result<RowCopy> readCopy(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  if (size < 0 || static_cast<std::size_t>(size) > kCopyMax) {
    return fail(ErrorCode::NotFound, "can't read " + path + ": " +
                                         (size < 0 ? std::strerror(errno) : "it is too large"));
  }
  std::string file(static_cast<std::size_t>(size), '\0');
  in.seekg(0).read(file.data(), size);
  if (!in) return fail(ErrorCode::Unavailable, "can't read " + path);
  auto copy = decodeCopy(file);
  if (!copy) return fail(copy.error().code, path + " " + copy.error().message);
  return copy;
}

Status writeCopyFile(const std::string& path, std::string_view file) {
  const std::string beside = path + ".new";
  ::unlink(beside.c_str());  // of one that was interrupted
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return cantWrite(beside);
  const bool written = writeAll(fd, file);
  const Error error = written ? Error() : cantWrite(beside);
  ::close(fd);
  if (written && ::rename(beside.c_str(), path.c_str()) == 0) {
    return keepName(path) ? ok() : Status(cantWrite(path));
  }
  const Error why = written ? cantWrite(path) : error;
  ::unlink(beside.c_str());
  return why;
}

std::vector<StoredRow> asRestored(const std::vector<StoredRow>& rows, std::int64_t unixMs) {
  std::vector<StoredRow> restored;
  restored.reserve(rows.size());
  for (const StoredRow& row : rows) {
    restored.push_back(changed(row, [unixMs](schema::Row::Builder builder) {
      restoreRow(builder, static_cast<std::uint64_t>(unixMs));
    }));
  }
  return restored;
}

Status restoreInto(RowStore& store, const RowCopy& copy, std::int64_t unixMs,
                   const AskAgain& askAgain) {
  const auto there = store.load();
  if (!there) return there.error();
  if (!there->empty()) {
    return fail(ErrorCode::AlreadyExists, "it has " + std::to_string(there->size()) +
                                              " rows already: move it away, or choose another");
  }
  for (const StoredRow& row : asRestored(copy.rows, unixMs)) {
    if (Status added = store.add(row); !added) return added;
  }
  RowStore::Commit committed = store.commit();
  while (committed == RowStore::Commit::Unsure && store.why().code == ErrorCode::Unavailable &&
         askAgain && askAgain()) {
    committed = store.commit();
  }
  if (committed == RowStore::Commit::Unsure) {
    return fail(store.why().code, "nobody can tell whether the rows are stored (" +
                                      store.why().message +
                                      "): restore again, which says whether they are there");
  }
  if (committed != RowStore::Commit::Done) return store.why();
  // They are there. A journal that stays long is read all the same, and shortened by the daemon.
  static_cast<void>(store.snapshot());
  return ok();
}

}  // namespace qgpu
