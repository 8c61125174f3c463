#pragma once
// What the tests of store/ share: a folder that goes away, rows of every kind, and a second look
// at the file through a plain SQLite connection.

#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <string>
#include <vector>

#include "store/rows.h"
#include "store/sqlite_store.h"
#include "tests/testing/temp_folder.h"
#include "tests/unit/store/make_row.h"

namespace qgpu {

using testing::TempFolder;

inline StoredRow taskRow(std::uint64_t id, const std::string& name) {
  return makeRow({RowKind::Task, id}, [&](schema::Row::Builder row) {
    auto task = row.initTask();
    task.setId(id);
    task.initSpec().setName(name);
    task.setToken("token of " + name);
    task.initCards(2).set(1, "sim-1");
  });
}
inline StoredRow nodeRow(std::uint32_t incarnation) {
  return makeRow({RowKind::Node, 0},
                 [&](schema::Row::Builder row) { row.initNode().setIncarnation(incarnation); });
}
inline StoredRow auditRow(std::uint64_t seq) {
  return makeRow({RowKind::Audit, seq},
                 [&](schema::Row::Builder row) { row.initAudit().setSeq(seq); });
}
inline StoredRow erasedTask(std::uint64_t id) {
  return makeRow({RowKind::Task, id}, [](schema::Row::Builder row) { row.setErased(); });
}

inline schema::Row::Reader read(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data());
}

// Names of the task rows among `rows`, in key order.
inline std::vector<std::string> taskNames(const std::vector<StoredRow>& rows) {
  std::vector<std::string> names;
  for (const StoredRow& row : rows) {
    if (row.key.kind == RowKind::Task) names.push_back(read(row).getTask().getSpec().getName());
  }
  return names;
}

inline std::uint64_t digestOf(const std::vector<StoredRow>& rows) {
  RowTable table;
  for (const StoredRow& row : rows) table.redo(1, row);
  return table.digest();
}

// Runs SQL on a file that no SqliteStore has open, as an operator or a fault would.
inline void tamper(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
}

}  // namespace qgpu
