#include "bench/cluster/submit_limits.h"

#include "bench/cluster/cluster_client.h"
#include "runtime/loop.h"
#include "store/sqlite.h"
#include "store/sqlite_store.h"

namespace qgpu::bench {
namespace {

constexpr std::size_t kRowsPerTask = 4;  // as assumed, as bound, its audit, an old audit erased
constexpr std::size_t kEchoes = 20'000;

struct Raw {
  Sqlite db;
  Statement insert;
  std::int64_t lsn = 0;
};

Result<Raw> openRaw(const std::string& path) {
  auto db = Sqlite::open(path, nullptr);
  if (!db) return db.error();
  for (const char* setting :
       {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
        "PRAGMA wal_autocheckpoint = 0",
        "CREATE TABLE journal (lsn INTEGER PRIMARY KEY, kind INTEGER, id INTEGER, row BLOB, "
        "sum INTEGER)"}) {
    if (Status set = db->exec(setting); !set) return set.error();
  }
  Statement insert = db->prepare("INSERT INTO journal VALUES (?1, 7, ?1, ?2, ?1)");
  return Raw{std::move(*db), std::move(insert)};
}

// Commits of `rows` rows each for about a second; commits per second.
Result<double> commits(Raw& raw, const std::vector<StoredRow>& from, std::size_t rows) {
  const Nanos begin = monotonicNow();
  std::size_t done = 0;
  while (monotonicNow() - begin < seconds(1)) {
    if (Status on = raw.db.exec("BEGIN IMMEDIATE"); !on) return on.error();
    for (std::size_t i = 0; i < rows; ++i) {
      const StoredRow& row = from[static_cast<std::size_t>(raw.lsn) % from.size()];
      raw.insert.bind(1, ++raw.lsn).bind(2, bytesOf(row));
      if (raw.insert.step() != Statement::Step::Done) return raw.db.lastError("insert");
    }
    if (Status on = raw.db.exec("COMMIT"); !on) return on.error();
    ++done;
  }
  return static_cast<double>(done) * 1e9 / static_cast<double>((monotonicNow() - begin).value);
}

}  // namespace

Result<DiskLimits> diskLimits(const std::string& from, const std::string& folder,
                              std::size_t batch) {
  auto store = SqliteStore::open(from);
  if (!store) return store.error();
  auto rows = store->load();
  if (!rows) return rows.error();
  std::erase_if(*rows, [](const StoredRow& row) { return row.key.kind != RowKind::ClusterTask; });
  if (rows->empty()) return fail(ErrorCode::NotFound, "no task was stored");
  DiskLimits limits;
  for (const StoredRow& row : *rows) limits.rowBytes += static_cast<double>(bytesOf(row).size());
  limits.rowBytes /= static_cast<double>(rows->size());

  auto raw = openRaw(folder + "/raw.db");
  if (!raw) return raw.error();
  const auto single = commits(*raw, *rows, 1);
  if (!single) return single.error();
  limits.commitsPerSecond = *single;
  const auto grouped = commits(*raw, *rows, kRowsPerTask * batch);
  if (!grouped) return grouped.error();
  limits.tasksPerSecond = *grouped * static_cast<double>(batch);
  return limits;
}

double echoLimit(const std::string& folder, std::size_t connections, std::size_t window) {
  const std::string path = folder + "/echo.rpc";
  const EchoServer server(path);
  ClusterClient client("unix:" + path, connections);
  return client.submit(kEchoes, window).perSecond();
}

}  // namespace qgpu::bench
