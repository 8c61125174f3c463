#include "store/format.h"

namespace qgpu {
namespace {

// "qgpu" in SQLite's header field for the program that a file belongs to.
constexpr std::int64_t kApplicationId = 0x71677075;
constexpr const char* kSetApplicationId = "PRAGMA application_id = 0x71677075";

// lsn: position in the journal. row: a flat Cap'n Proto message, empty where the key is gone.
// sum: checksum() of rows.h. meta holds `format`, and `snapshotLsn`, the position up to which
// snapshot is complete, and with `reader` and `readerSince` the least that understands the rows.
constexpr const char* kTables = R"sql(
  CREATE TABLE meta (k TEXT PRIMARY KEY, v) WITHOUT ROWID;
  CREATE TABLE journal (
    lsn INTEGER PRIMARY KEY, kind INTEGER NOT NULL, id INTEGER NOT NULL,
    row BLOB NOT NULL, sum INTEGER NOT NULL);
  CREATE TABLE snapshot (
    kind INTEGER NOT NULL, id INTEGER NOT NULL, lsn INTEGER NOT NULL,
    row BLOB NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
  INSERT INTO meta VALUES ('snapshotLsn', 0);
)sql";

const Migration* stepFrom(const Formats& formats, std::int64_t from) {
  for (const Migration& step : formats.migrations) {
    if (step.from == from) return &step;
  }
  return nullptr;
}

// Runs `sql` and stores the number of the format that results, all or nothing.
Status change(Sqlite& db, const char* sql, std::int64_t format) {
  const std::string number =
      "INSERT OR REPLACE INTO meta VALUES ('format', " + std::to_string(format) + ")";
  for (const char* part : {"BEGIN IMMEDIATE", kSetApplicationId, sql, number.c_str(), "COMMIT"}) {
    Status done = db.exec(part);
    if (!done) {
      if (db.inTransaction()) static_cast<void>(db.exec("ROLLBACK").ok());
      return done;
    }
  }
  return ok();
}

// 0 where a qgpu wrote it that noted none.
Result<std::int64_t> readerOf(Sqlite& db) {
  return db.queryInteger(
      "SELECT coalesce((SELECT CAST(v AS INTEGER) FROM meta WHERE k = 'reader'), 0)");
}

Status noteReader(Sqlite& db, const Needs& needs) {
  const auto noted = readerOf(db);
  if (!noted) return noted.error();
  if (*noted >= needs.number) return ok();
  return db.exec(("INSERT OR REPLACE INTO meta VALUES ('reader', " + std::to_string(needs.number) +
                  "), ('readerSince', '" + needs.since + "')")
                     .c_str());
}

}  // namespace

const Formats kFormats = {1, kTables, {}};

Result<bool> isEmpty(Sqlite& db) {
  auto tables = db.queryInteger("SELECT count(*) FROM sqlite_schema");
  if (!tables) return tables.error();
  return *tables == 0;
}

Result<std::int64_t> readFormat(Sqlite& db) {
  auto owner = db.queryInteger("PRAGMA application_id");
  if (!owner) return owner.error();
  if (*owner != kApplicationId) {
    return fail(ErrorCode::Unsupported,
                "is a database of another program; choose another --dbfile");
  }
  return db.queryInteger("SELECT CAST(v AS INTEGER) FROM meta WHERE k = 'format'");
}

Status checkFormat(Sqlite& db, const Formats& formats) {
  auto empty = isEmpty(db);
  if (!empty) return empty.error();
  if (*empty) return ok();
  auto format = readFormat(db);
  if (!format) return format.error();
  const auto needs = readerOf(db);
  if (!needs) return needs.error();
  const auto since = db.queryText(
      "SELECT coalesce((SELECT CAST(v AS TEXT) FROM meta WHERE k = 'readerSince'), '')");
  if (!since) return since.error();
  if (Status readable = checkReader(*needs, *since, formats.reads); !readable) {
    return fail(readable.error().code, readable.error().message + ", or choose another --dbfile");
  }
  const std::string has = "has format " + std::to_string(*format) + ", this qgpu ";
  if (*format > formats.current) {
    return fail(ErrorCode::Unsupported, has + "knows formats up to " +
                                            std::to_string(formats.current) +
                                            ": install a newer qgpu, or choose another --dbfile");
  }
  for (std::int64_t from = *format; from < formats.current; ++from) {
    if (stepFrom(formats, from) == nullptr) {
      return fail(ErrorCode::Unsupported, has + "has no way from format " + std::to_string(from) +
                                              ": install an older qgpu first, or choose another "
                                              "--dbfile");
    }
  }
  return ok();
}

Status createOrMigrate(Sqlite& db, const Formats& formats) {
  auto empty = isEmpty(db);
  if (!empty) return empty.error();
  if (*empty) {
    Status created = change(db, formats.create, formats.current);
    return created ? noteReader(db, formats.needs) : created;
  }
  auto format = readFormat(db);
  if (!format) return format.error();
  for (std::int64_t from = *format; from < formats.current; ++from) {
    Status done = change(db, stepFrom(formats, from)->sql, from + 1);
    if (!done) return done;
  }
  return noteReader(db, formats.needs);
}

}  // namespace qgpu
