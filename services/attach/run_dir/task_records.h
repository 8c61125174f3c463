#pragma once
// What a manager leaves of its tasks for one that finds no database (D5): RUN_DIR/tasks holds one
// file per task, with the durable row as it was committed. The run dir lives exactly as long as
// guests can, until a reboot, so what a new database must know of those that live is there.
//
// A record is written to a new file that is renamed, so it is whole or not there; nothing in it is
// believed before its length, version and checksum are right. It is no second database: see
// survivors.h for when it is read.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/fd.h"
#include "runtime/journal.h"
#include "runtime/result.h"
#include "schema/rows.capnp.h"

namespace qgpu {

class TaskRecords {
 public:
  static constexpr std::size_t kRecordsMax = 8'192;

  // Makes the folder where it is missing.
  Status open(const std::string& runDir);

  // Replaces the task's record. One that can't be written is missing when the database is lost,
  // which harms nobody until then.
  void write(schema::TaskRow::Reader row);
  // From now on its record says that the task ends as soon as its processes are gone.
  void markEvicting(std::uint64_t task);
  void remove(std::uint64_t task);

  // The tasks that have a record, in order, at most kRecordsMax. What else is in the folder, such
  // as a record that a dead manager had not finished, is removed.
  std::vector<std::uint64_t> list();
  // The task's row. Corrupt: not what a manager wrote. Unsupported: a newer manager wrote it.
  // NotFound: there is none.
  Result<StoredRow> read(std::uint64_t task) const;

 private:
  Error unusable(std::uint64_t task, ErrorCode code, const std::string& why) const;

  std::string path_;
  Fd folder_;
};

}  // namespace qgpu
