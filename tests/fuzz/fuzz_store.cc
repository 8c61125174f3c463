// A whole database: rows with right and wrong checksums and positions in its tables, opened by the
// real store on a disk in memory. Layout: FORMAT and SNAPSHOT (1 byte each: numbers to store where
// FORMAT is not 0), then rows: FLAGS (1 in the snapshot, 2 wrong checksum), LSN, KIND, ID, WORDS (1
// byte each) and the row's words.
//
// Promises: D1 (what is recovered is what was committed), D5 (damage is told as such, what is
// served reads in full), D6 (another format is refused).

#include <capnp/message.h>
#include <kj/exception.h>

#include "schema/rows.capnp.h"
#include "store/format.h"
#include "store/rows.h"
#include "store/sqlite_store.h"
#include "store/testing/memory_disk.h"
#include "tests/fuzz/target.h"

namespace qgpu::fuzz {
namespace {

std::span<const std::byte> asBytes(std::span<const std::uint8_t> bytes) {
  return std::as_bytes(bytes);
}

// Every field of a row that was accepted, without the checks that its decoder made.
void readAll(const StoredRow& row) {
  const auto failed = kj::runCatchingExceptions([&] {
    static_cast<void>(capnp::readMessageUnchecked<schema::Row>(row.words.data()).toString());
  });
  require(failed == nullptr, "D5: an accepted row reads in full");
}

constexpr const char* kPath = "fuzz.db";

void writeRows(Sqlite& db, Input& in) {
  Statement journal =
      db.prepare("INSERT INTO journal (lsn, kind, id, row, sum) VALUES (?1, ?2, ?3, ?4, ?5)");
  Statement snapshot =
      db.prepare("INSERT INTO snapshot (lsn, kind, id, row, sum) VALUES (?1, ?2, ?3, ?4, ?5)");
  for (int rows = 0; rows < 16 && !in.empty(); ++rows) {
    const std::uint8_t flags = in.byte();
    const Lsn lsn = in.number<std::int8_t>();
    const RowKey key{static_cast<RowKind>(in.byte()), in.byte()};
    const auto bytes = asBytes(in.bytes(in.byte() * std::size_t{8}));
    const std::int64_t wrong = (flags & 2U) != 0 ? 1 : 0;
    Statement& into = (flags & 1U) != 0 ? snapshot : journal;
    into.bind(1, lsn)
        .bind(2, static_cast<std::int64_t>(key.kind))
        .bind(3, static_cast<std::int64_t>(key.id))
        .bind(4, bytes)
        .bind(5, checksum(key, lsn, bytes) ^ wrong);
    into.step();  // refused where the key is there already, which is as good
  }
}

// True where the tables are written, so that SqliteStore::open has something to judge.
bool writeDatabase(MemoryDisk& disk, Input& in) {
  Result<Sqlite> db = Sqlite::open(kPath, disk.vfs());
  require(db.ok(), "SQLite opens a file in memory");
  if (!db->exec("PRAGMA locking_mode = EXCLUSIVE")) return false;
  if (!createOrMigrate(*db, kFormats)) return false;
  const std::int8_t format = in.number<std::int8_t>();
  const std::string numbers =
      "UPDATE meta SET v = " + std::to_string(format) +
      " WHERE k = 'format'; UPDATE meta SET v = " + std::to_string(in.number<std::int8_t>()) +
      " WHERE k = 'snapshotLsn'";
  if (format != 0 && !db->exec(numbers.c_str())) return false;
  if (!db->exec("BEGIN")) return false;
  writeRows(*db, in);
  return db->exec("COMMIT").ok();
}

// A database that opened serves sound rows, takes one more, and is the same after a restart.
void checkStore(SqliteStore store, SqliteStore::Options options) {
  Result<std::vector<StoredRow>> rows = store.load();
  require(rows.ok(), "D5: what open() accepted loads");
  for (const StoredRow& row : *rows) readAll(row);
  if (rows->empty()) return;
  const Lsn before = store.lastLsn();
  require(store.add(rows->front()).ok() && store.commit() == RowStore::Commit::Done &&
              store.lastLsn() == before + 1,
          "a database that opened takes a row");
  RowTable known;
  for (const StoredRow& row : *rows) known.redo(1, row);
  { const SqliteStore closed = std::move(store); }
  Result<SqliteStore> reopened = SqliteStore::open(kPath, options);
  require(reopened.ok(), "D1: a database that opened opens again");
  RowTable found;
  const auto again = reopened->load();
  for (const StoredRow& row : *again) found.redo(1, row);
  require(found.digest() == known.digest(), "D1: what is recovered is what was committed");
}

void wholeDatabase(Input in) {
  static MemoryDisk disk("fuzz");
  const SqliteStore::Options options{disk.vfs(), &kFormats};
  for (const char* file : {"fuzz.db", "fuzz.db-wal", "fuzz.db-journal"}) {
    if (disk.exists(file)) disk.remove(file, true);
  }
  const auto format = static_cast<std::int8_t>(in.left() == 0 ? 0 : Input(in).byte());
  if (!writeDatabase(disk, in)) return;
  Result<SqliteStore> store = SqliteStore::open(kPath, options);
  if (!store) {
    const ErrorCode code = store.error().code;
    require(code == ErrorCode::Corrupt || code == ErrorCode::Unsupported,
            "D5, D6: a damaged database is told as such");
    const bool newer = store.error().message.find("by a newer qgpu") != std::string::npos;
    require(code != ErrorCode::Unsupported || format != 0 || newer,
            "D6: our own format is supported");
    return;
  }
  require(format == 0 || format == kFormats.current, "D6: another format is refused");
  checkStore(std::move(*store), options);
}

}  // namespace
}  // namespace qgpu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qgpu::fuzz;
  wholeDatabase(Input(data, size));
  return 0;
}
