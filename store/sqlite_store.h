#pragma once
// The durable facts of a daemon in one SQLite file: a journal of rows in commit order, and a
// snapshot that holds the newest row of each key up to some position. The newest state is the
// snapshot with the journal redone over it. Everything here is synchronous; StoreJournal puts it
// on a thread of its own.
//
// Kept here: D1 (a transaction is whole or absent), D3 (redo is idempotent; a torn tail is cut by
// the checksums of SQLite's log), D5 (integrity check, a checksum per row, no holes in the
// journal), D6 (an older format is migrated, a newer one is refused and left as it was), and one
// owner per file: the file stays locked as long as the store lives, without a shared-memory file.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"
#include "store/format.h"
#include "store/row_store.h"
#include "store/rows.h"
#include "store/sqlite.h"

namespace qgpu {

class SqliteStore final : public RowStore {
 public:
  struct Options {
    const char* vfs = nullptr;  // SQLite's name of an operating-system layer; for tests
    const Formats* formats = &kFormats;
    Sqlite::SyncFailed syncFailed = {};  // empty: a failed fsync ends the process
  };

  // Opens or creates the database at `path` (folders on the way included, file mode 0600: rows
  // hold tokens) and reads it once in full; what it has read is durable. Errors, each naming the
  // path and the fix, the file left as it was: Conflict (somebody else has it open), Unsupported (a
  // newer format, or a database of another program), Corrupt, Unavailable (no permission, no space,
  // I/O).
  static Result<SqliteStore> open(const std::string& path);
  static Result<SqliteStore> open(const std::string& path, Options options);

  SqliteStore(SqliteStore&&) = default;
  SqliteStore& operator=(SqliteStore&&) = delete;

  // Right after open() it costs nothing: that has read everything already.
  Result<std::vector<StoredRow>> load() override;
  Status add(const StoredRow& row) override;
  // Never Unsure: a file is written or is not.
  Commit commit() override;
  const Error& why() const override { return why_; }

  // Moves the journal into the snapshot, in a transaction of its own.
  Status snapshot() override;
  // Copies SQLite's log into its main file, so that the log can be used anew.
  Status checkpoint() override;
  // Commits some bytes that mean nothing.
  Status probe() override;
  std::string_view remedy() const override { return "free space or mend the disk"; }

  // Rows in the journal, committed ones.
  std::size_t journalRows() const override { return journalRows_; }
  Lsn lastLsn() const { return committedLsn_; }

 private:
  SqliteStore(Sqlite db, std::string path) : db_(std::move(db)), path_(std::move(path)) {}

  Status claim(const Formats& formats);
  Status renewLog();
  Status prepareStatements();
  Result<RowTable> readAll();
  Status readSnapshot(RowTable& table, Lsn upTo);
  Status readJournal(RowTable& table, Lsn from);
  Status undo(Error why);
  Error damaged(const std::string& what) const;
  // Of a row in `table` that can't be taken.
  Error unusable(const char* table, const Error& row) const;

  Sqlite db_;
  std::string path_;
  Statement insert_;
  Statement begin_;
  Statement commit_;
  Error why_;
  std::optional<RowTable> recovered_;  // what open() read, until it is asked for or outdated
  Lsn committedLsn_ = 0;
  Lsn addedLsn_ = 0;
  std::size_t journalRows_ = 0;
};

}  // namespace qgpu
