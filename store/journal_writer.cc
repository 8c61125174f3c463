#include "store/journal_writer.h"

#include <string>
#include <utility>

namespace qgpu {
namespace {

Status checkRows(const std::vector<StoredRow>& rows) {
  for (const StoredRow& row : rows) {
    if (Status good = checkOwnRow(row); !good) return good;
  }
  return ok();
}

Error storageError(const Error& why) {
  return fail(ErrorCode::Unavailable,
              "storage fails (" + why.message + "): free space or mend the disk, then try again");
}

}  // namespace

JournalBatch batchOf(std::vector<StoredRow> rows, Journal::Committed done) {
  JournalBatch batch;
  for (const StoredRow& row : rows) batch.bytes += bytesOf(row).size();
  batch.status = checkRows(rows);
  batch.rows = std::move(rows);
  batch.done = std::move(done);
  return batch;
}

JournalBatch snapshotOrder(Journal::Committed done) {
  JournalBatch batch;
  batch.done = std::move(done);
  batch.snapshot = true;
  return batch;
}

void JournalQueue::add(JournalBatch batch) {
  const bool rowsFit = rows_ + batch.rows.size() <= limits_.queuedRows;
  const bool bytesFit = bytes_ + batch.bytes <= limits_.queuedBytes;
  if (batch.status.ok() && !(rowsFit && bytesFit)) {
    refused_++;
    batch.status =
        fail(ErrorCode::Overloaded,
             "the storage queue is full (" + std::to_string(rows_) + " rows): try again later");
  }
  if (!batch.status.ok()) {
    batch.rows = {};
    batch.bytes = 0;
  }
  rows_ += batch.rows.size();
  bytes_ += batch.bytes;
  queue_.push_back(std::move(batch));
}

std::vector<JournalBatch> JournalQueue::takeGroup() {
  std::vector<JournalBatch> group;
  std::size_t rows = 0;
  while (!queue_.empty() && rows < limits_.groupRows) {
    if (queue_.front().snapshot && !group.empty()) break;
    rows += queue_.front().rows.size();
    bytes_ -= queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (group.back().snapshot) break;
  }
  rows_ -= rows;
  return group;
}

JournalWriter::JournalWriter(SqliteStore store, JournalLimits limits)
    : store_(std::move(store)), limits_(limits), snapshotAt_(limits.snapshotRows) {}

void JournalWriter::commit(std::vector<JournalBatch>& group) {
  if (group.front().snapshot) {
    if (group.front().status.ok()) group.front().status = takeSnapshot();
    return;
  }
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  for (const JournalBatch& batch : group) {
    batches += batch.status.ok() ? 1 : 0;
    rows += batch.rows.size();
  }
  if (batches == 0) return;
  const Status status = addGroup(group);
  setHealth(status);
  for (JournalBatch& batch : group) {
    if (batch.status.ok() && !status) batch.status = storageError(status.error());
  }
  counters_.groups += status.ok() ? 1 : 0;
  counters_.batches += status.ok() ? batches : 0;
  counters_.rows += status.ok() ? rows : 0;
  counters_.failed += status.ok() ? 0 : batches;
}

// On failure nothing of the group is stored.
Status JournalWriter::addGroup(std::vector<JournalBatch>& group) {
  for (const JournalBatch& batch : group) {
    if (!batch.status.ok()) continue;
    for (const StoredRow& row : batch.rows) {
      if (Status added = store_.add(row); !added) return added;
    }
  }
  Status committed = store_.commit();
  logDirty_ = logDirty_ || committed.ok();
  return committed;
}

// A snapshot that fails costs nothing but a longer journal: commits and health are not touched.
Status JournalWriter::takeSnapshot() {
  const Status taken = store_.snapshot();
  snapshotAt_ = store_.journalRows() + limits_.snapshotRows;
  (taken.ok() ? counters_.snapshots : counters_.snapshotsFailed)++;
  if (!taken) return storageError(taken.error());
  logDirty_ = true;
  return ok();
}

void JournalWriter::shorten() {
  if (store_.journalRows() >= snapshotAt_ && takeSnapshot().ok()) {
    logDirty_ = !store_.checkpoint().ok();
  }
}

void JournalWriter::idle() {
  if (counters_.healthy) {
    logDirty_ = !store_.checkpoint().ok();
  } else {
    setHealth(store_.probe());
  }
}

Nanos JournalWriter::patience() const {
  if (!counters_.healthy) return limits_.probe;
  return logDirty_ ? limits_.idle : kNever;
}

void JournalWriter::setHealth(const Status& status) {
  if (counters_.healthy == status.ok()) return;
  counters_.healthy = status.ok();
  health_ = status.ok() ? ok() : Status(storageError(status.error()));
}

}  // namespace qgpu
