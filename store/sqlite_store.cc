#include "store/sqlite_store.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr const char* kMoveInto = R"sql(
  INSERT INTO snapshot (kind, id, lsn, row, sum)
    SELECT kind, id, lsn, row, sum FROM journal WHERE true ORDER BY lsn
    ON CONFLICT (kind, id) DO UPDATE
      SET lsn = excluded.lsn, row = excluded.row, sum = excluded.sum;
  DELETE FROM snapshot WHERE length(row) = 0;
  DELETE FROM journal;
)sql";

std::int64_t asStored(std::uint64_t id) {
  return static_cast<std::int64_t>(id);
}
RowKey keyOf(std::int64_t kind, std::int64_t id) {
  // A kind beyond 16 bits is as unknown as 0 and fails in decodeRow.
  const bool fits = kind > 0 && kind <= UINT16_MAX;
  return RowKey{static_cast<RowKind>(fits ? kind : 0), static_cast<std::uint64_t>(id)};
}

// The file, owned by us and readable by nobody else, in a folder that exists.
Status createFile(const std::string& path) {
  std::error_code failed;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (failed) {
    return fail(ErrorCode::Unavailable, "can't create the folder " + folder.string() + ": " +
                                            failed.message() + "; choose another --dbfile");
  }
  // An existing file is only looked at: to close a descriptor of it would drop the lock that this
  // process may hold on it through SQLite.
  struct stat facts = {};
  std::string why;
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISREG(facts.st_mode)) return ok();
    why = "not a regular file";
  } else {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
      ::close(fd);
      return ok();
    }
    if (errno == EEXIST) return ok();  // another opener was faster; the lock decides between us
    why = std::strerror(errno);
  }
  return fail(ErrorCode::Unavailable,
              "can't open " + path + ": " + why + "; choose another --dbfile");
}

}  // namespace

Error SqliteStore::damaged(const std::string& what) const {
  return fail(ErrorCode::Corrupt, path_ + " is damaged: " + what + "; move it and " + path_ +
                                      "-wal away, or restore a copy, and start again");
}

Error SqliteStore::unusable(const char* table, const Error& row) const {
  const std::string what = std::string(table) + ": " + row.message;
  if (row.code != ErrorCode::Unsupported) return damaged(what);
  return fail(row.code, path_ + ": " + what + ": install that one, or choose another --dbfile");
}

Result<SqliteStore> SqliteStore::open(const std::string& path) {
  return open(path, Options());
}

Result<SqliteStore> SqliteStore::open(const std::string& path, Options options) {
  if (options.vfs == nullptr) {
    if (Status created = createFile(path); !created) return created.error();
  }
  auto db = Sqlite::open(path, options.vfs, std::move(options.syncFailed));
  if (!db) return db.error();
  SqliteStore store(std::move(*db), path);
  Status done = store.claim(*options.formats);
  if (done) done = store.prepareStatements();
  if (done) {
    auto table = store.readAll();
    if (table) store.recovered_ = std::move(*table);
    if (!table) done = table.error();
  }
  if (done) done = store.renewLog();
  if (done) return store;
  store.db_.keepLogOnClose(true);
  Error error = done.error();
  if (error.code == ErrorCode::Conflict) {
    error.message = path + " is in use by another process; stop it, or choose another --dbfile";
  } else if (error.code == ErrorCode::Corrupt && error.message.rfind(path, 0) != 0) {
    error = store.damaged(error.message);
  } else if (error.message.rfind(path, 0) != 0) {
    error.message = path + ": " + error.message;
  }
  return error;
}

// Takes the lock, looks before it changes anything, then brings the file to today's shape.
Status SqliteStore::claim(const Formats& formats) {
  db_.keepLogOnClose(true);
  if (Status locked = db_.exec("PRAGMA locking_mode = EXCLUSIVE"); !locked) return locked;
  if (Status known = checkFormat(db_, formats); !known) return known;
  auto healthy = db_.queryText("PRAGMA integrity_check(1)");
  if (!healthy) return healthy.error();
  if (*healthy != "ok") return damaged(*healthy);

  // To its end: it says "wal" before it has switched, and an fsync may fail after that.
  if (Status on = db_.exec("PRAGMA journal_mode = WAL"); !on) return on;
  auto mode = db_.queryText("PRAGMA journal_mode");
  if (!mode) return mode.error();
  if (*mode != "wal") {
    return fail(ErrorCode::Unavailable,
                "SQLite can't use write-ahead logging here; put the "
                "database on a local disk");
  }
  const char* sync = "PRAGMA synchronous = FULL";
  if (QGPU_PLANTED(SyncSkipped)) sync = "PRAGMA synchronous = OFF";
  for (const char* setting : {sync, "PRAGMA wal_autocheckpoint = 0",
                              "PRAGMA journal_size_limit = 4194304", "BEGIN EXCLUSIVE", "COMMIT"}) {
    if (Status set = db_.exec(setting); !set) return set;
  }
  db_.keepLogOnClose(false);
  return createOrMigrate(db_, formats);
}

// What was read may be in the memory of the machine alone, written by a process that was killed
// before its fsync. And behind the end of the log there may be the rest of an older one, torn by a
// power cut, which would count again behind a frame that is written anew with the same bytes. So
// the log is synced and copied out, and begins anew with another salt. Where a full or failing disk
// stops the copy, the log is synced already and all goes on; only a failed fsync is the end (D4).
Status SqliteStore::renewLog() {
  if (sqlite3_wal_checkpoint_v2(db_.handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                nullptr) == SQLITE_OK) {
    return ok();
  }
  const bool unsynced = db_.failedToSync();
  const Error why = db_.lastError("checkpoint");
  if (unsynced) return why;
  return ok();
}

Status SqliteStore::prepareStatements() {
  insert_ =
      db_.prepare("INSERT INTO journal (lsn, kind, id, row, sum) VALUES (?1, ?2, ?3, ?4, ?5)");
  begin_ = db_.prepare("BEGIN IMMEDIATE");
  commit_ = db_.prepare("COMMIT");
  if (!insert_.prepared() || !begin_.prepared() || !commit_.prepared()) {
    return db_.lastError("prepare");
  }
  return ok();
}

Result<std::vector<StoredRow>> SqliteStore::load() {
  if (recovered_) {
    const std::optional<RowTable> table = std::exchange(recovered_, std::nullopt);
    return table->rows();
  }
  const auto table = readAll();
  if (!table) return table.error();
  return table->rows();
}

Result<RowTable> SqliteStore::readAll() {
  auto from = db_.queryInteger("SELECT CAST(v AS INTEGER) FROM meta WHERE k = 'snapshotLsn'");
  if (!from) return from.error();
  RowTable table;
  if (Status read = readSnapshot(table, *from); !read) return read.error();
  if (Status read = readJournal(table, *from); !read) return read.error();
  return table;
}

Status SqliteStore::readSnapshot(RowTable& table, Lsn upTo) {
  Statement select = db_.prepare("SELECT lsn, kind, id, row, sum FROM snapshot");
  for (;;) {
    const auto step = select.step();
    if (step == Statement::Step::Done) return ok();
    if (step == Statement::Step::Failed) return db_.lastError("snapshot");
    const Lsn lsn = select.integer(0);
    const RowKey key = keyOf(select.integer(1), select.integer(2));
    if (lsn < 1 || lsn > upTo) return damaged("snapshot: " + describe(key) + " is out of place");
    auto row = checkedRow(key, lsn, select.blob(3), select.integer(4));
    if (!row) return unusable("snapshot", row.error());
    table.redo(lsn, std::move(*row));
  }
}

Status SqliteStore::readJournal(RowTable& table, Lsn from) {
  Statement select = db_.prepare("SELECT lsn, kind, id, row, sum FROM journal ORDER BY lsn");
  Lsn last = from;
  for (;;) {
    const auto step = select.step();
    if (step == Statement::Step::Done) break;
    if (step == Statement::Step::Failed) return db_.lastError("journal");
    const Lsn lsn = select.integer(0);
    if (lsn != last + 1) return damaged("journal: no row " + std::to_string(last + 1));
    auto row = checkedRow(keyOf(select.integer(1), select.integer(2)), lsn, select.blob(3),
                          select.integer(4));
    if (!row) return unusable("journal", row.error());
    table.redo(lsn, std::move(*row));
    last = lsn;
  }
  committedLsn_ = addedLsn_ = last;
  journalRows_ = static_cast<std::size_t>(last - from);
  return ok();
}

Status SqliteStore::undo(Error why) {
  // SQLite has rolled back by itself after some errors.
  if (db_.inTransaction()) static_cast<void>(db_.exec("ROLLBACK").ok());
  addedLsn_ = committedLsn_;
  return why;
}

Status SqliteStore::add(const StoredRow& row) {
  if (Status good = checkOwnRow(row); !good) return undo(good.error());
  if (!db_.inTransaction() && begin_.step() != Statement::Step::Done) {
    return undo(db_.lastError("begin"));
  }
  const auto bytes = isErased(row) ? std::span<const std::byte>() : bytesOf(row);
  const Lsn lsn = addedLsn_ + 1;
  insert_.bind(1, lsn)
      .bind(2, static_cast<std::int64_t>(row.key.kind))
      .bind(3, asStored(row.key.id))
      .bind(4, bytes)
      .bind(5, checksum(row.key, lsn, bytes));
  if (insert_.step() != Statement::Step::Done) return undo(db_.lastError("append"));
  addedLsn_ = lsn;
  return ok();
}

RowStore::Commit SqliteStore::commit() {
  if (!db_.inTransaction()) return Commit::Done;
  if (commit_.step() != Statement::Step::Done) {
    why_ = db_.lastError("commit");
    static_cast<void>(undo(why_).ok());
    return QGPU_PLANTED(FullDiskTakenForSuccess) ? Commit::Done : Commit::Undone;
  }
  journalRows_ += static_cast<std::size_t>(addedLsn_ - committedLsn_);
  committedLsn_ = addedLsn_;
  recovered_.reset();
  return Commit::Done;
}

Status SqliteStore::snapshot() {
  QGPU_CHECK(!db_.inTransaction(), "a snapshot is taken between transactions");
  const std::string audit = std::to_string(static_cast<int>(RowKind::Audit));
  // By count and not by number: a restart skips a thousand numbers.
  const std::string forget = "DELETE FROM snapshot WHERE kind = " + audit + " AND id <= (" +
                             "SELECT id FROM snapshot WHERE kind = " + audit +
                             " ORDER BY id DESC LIMIT 1 OFFSET " + std::to_string(kAuditRowsMax) +
                             ")";
  const std::string position =
      "UPDATE meta SET v = " + std::to_string(committedLsn_) + " WHERE k = 'snapshotLsn'";
  for (const char* part :
       {"BEGIN IMMEDIATE", kMoveInto, forget.c_str(), position.c_str(), "COMMIT"}) {
    if (Status done = db_.exec(part); !done) return undo(done.error());
  }
  journalRows_ = 0;
  QGPU_MARK(SnapshotTaken);
  return ok();
}

Status SqliteStore::checkpoint() {
  int inLog = 0;
  int copied = 0;
  if (sqlite3_wal_checkpoint_v2(db_.handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, &inLog,
                                &copied) != SQLITE_OK) {
    return db_.lastError("checkpoint");
  }
  return ok();
}

Status SqliteStore::probe() {
  // Where the disk is full, a log whose content was copied out has room to write into again.
  if (Status copied = checkpoint(); !copied) return copied;
  return db_.exec("INSERT OR REPLACE INTO meta VALUES ('probe', zeroblob(16384))");
}

}  // namespace qgpu
