#pragma once
// SQLite with owners: a connection and its prepared statements that close themselves, and result
// codes turned into Result. It exists so that the rest of store/ reads as what it stores.
//
// Kept here: D4. A failed fsync ends the process (fatal), because what the kernel then holds in
// memory and what is on disk can no longer be told apart; everything else becomes an Error. In a
// simulated world a handler ends the simulated process instead.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <sqlite3.h>
#include <string>
#include <utility>

#include "runtime/result.h"

namespace qgpu {

// One prepared statement. Bindings point at the caller's bytes and must outlive step().
class Statement {
 public:
  enum class Step { Row, Done, Failed };

  Statement() = default;
  Statement(sqlite3* db, const char* sql);

  bool prepared() const { return handle_ != nullptr; }
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, std::span<const std::byte> blob);
  Statement& bind(int index, const std::string& text);

  // After Done or Failed the statement is reset and may be bound again; the connection's
  // lastError() says why it failed.
  Step step();
  void reset();

  std::int64_t integer(int column) const;
  // Valid until the next step() or reset().
  std::span<const std::byte> blob(int column) const;
  std::string text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

// One connection, used by one thread at a time.
class Sqlite {
 public:
  // Told that an fsync failed and why; where it returns, nothing may be done with the connection
  // any more but to close it. Empty: fatal(), which does not return.
  using SyncFailed = std::function<void(const std::string& why)>;

  // vfs: SQLite's name of an operating-system layer, nullptr for the usual one.
  static Result<Sqlite> open(const std::string& path, const char* vfs, SyncFailed syncFailed = {});

  Status exec(const char* sql);
  // First column of the first row; NotFound where there is none.
  Result<std::int64_t> queryInteger(const char* sql);
  Result<std::string> queryText(const char* sql);
  Statement prepare(const char* sql) { return Statement(handle_.get(), sql); }

  bool inTransaction() const { return sqlite3_get_autocommit(handle_.get()) == 0; }
  // Leaves the file alone when the connection closes: for databases that are not ours to change.
  void keepLogOnClose(bool keep);

  // Whether the last call failed because an fsync did.
  bool failedToSync() const;
  // Why the last call failed: "what: reason". Tells SyncFailed where that was an fsync.
  Error lastError(const std::string& what) const;
  sqlite3* handle() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close(handle); }
  };
  Sqlite(sqlite3* handle, SyncFailed syncFailed)
      : handle_(handle), syncFailed_(std::move(syncFailed)) {}
  std::unique_ptr<sqlite3, Close> handle_;
  SyncFailed syncFailed_;
};

}  // namespace qgpu
