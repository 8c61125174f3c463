#include "store/sqlite.h"

#include <utility>

namespace qgpu {
namespace {

ErrorCode errorCodeOf(int extended) {
  switch (extended & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::Conflict;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::Corrupt;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_NOMEM:
      return ErrorCode::Unavailable;
    default:
      return ErrorCode::Internal;
  }
}

}  // namespace

Statement::Statement(sqlite3* db, const char* sql) {
  sqlite3_stmt* handle = nullptr;
  sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  handle_.reset(handle);
}

Statement& Statement::bind(int index, std::int64_t value) {
  sqlite3_bind_int64(handle_.get(), index, value);
  return *this;
}

Statement& Statement::bind(int index, std::span<const std::byte> blob) {
  // A null pointer would bind NULL; an empty row is an empty blob.
  if (blob.empty()) {
    sqlite3_bind_zeroblob(handle_.get(), index, 0);
  } else {
    sqlite3_bind_blob64(handle_.get(), index, blob.data(), blob.size(), SQLITE_STATIC);
  }
  return *this;
}

Statement& Statement::bind(int index, const std::string& text) {
  sqlite3_bind_text64(handle_.get(), index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement::Step Statement::step() {
  if (!prepared()) return Step::Failed;
  switch (sqlite3_step(handle_.get())) {
    case SQLITE_ROW:
      return Step::Row;
    case SQLITE_DONE:
      reset();
      return Step::Done;
    default:
      reset();
      return Step::Failed;
  }
}

void Statement::reset() {
  sqlite3_reset(handle_.get());
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_.get(), column);
}

std::span<const std::byte> Statement::blob(int column) const {
  const void* data = sqlite3_column_blob(handle_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : size};
}

std::string Statement::text(int column) const {
  const auto bytes = blob(column);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<Sqlite> Sqlite::open(const std::string& path, const char* vfs, SyncFailed syncFailed) {
  sqlite3* handle = nullptr;
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int rc = sqlite3_open_v2(path.c_str(), &handle, flags, vfs);
  if (handle == nullptr) return fail(ErrorCode::Unavailable, path + ": out of memory");
  Sqlite db(handle, std::move(syncFailed));
  if (rc != SQLITE_OK) return db.lastError(path);
  return db;
}

Status Sqlite::exec(const char* sql) {
  if (sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return lastError(sql);
  }
  return ok();
}

Result<std::int64_t> Sqlite::queryInteger(const char* sql) {
  Statement statement = prepare(sql);
  switch (statement.step()) {
    case Statement::Step::Row:
      return statement.integer(0);
    case Statement::Step::Done:
      return fail(ErrorCode::NotFound, std::string(sql) + ": no row");
    default:
      return lastError(sql);
  }
}

Result<std::string> Sqlite::queryText(const char* sql) {
  Statement statement = prepare(sql);
  switch (statement.step()) {
    case Statement::Step::Row:
      return statement.text(0);
    case Statement::Step::Done:
      return fail(ErrorCode::NotFound, std::string(sql) + ": no row");
    default:
      return lastError(sql);
  }
}

void Sqlite::keepLogOnClose(bool keep) {
  sqlite3_db_config(handle_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep ? 1 : 0, nullptr);
}

bool Sqlite::failedToSync() const {
  const int code = sqlite3_extended_errcode(handle_.get());
  return code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC;
}

Error Sqlite::lastError(const std::string& what) const {
  const int code = sqlite3_extended_errcode(handle_.get());
  const std::string text = what + ": " + sqlite3_errmsg(handle_.get());
  if (failedToSync()) {
    const std::string why = text + " (fsync failed; a restart recovers)";
    if (!syncFailed_) fatal(ExitCode::Environment, why.c_str());
    syncFailed_(why);
  }
  return fail(errorCodeOf(code), text);
}

}  // namespace qgpu
