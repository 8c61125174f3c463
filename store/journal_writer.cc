#include "store/journal_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "store/rows.h"

namespace qgpu {
namespace {

Status checkRows(const std::vector<StoredRow>& rows) {
  for (const StoredRow& row : rows) {
    if (Status good = checkOwnRow(row); !good) return good;
  }
  return ok();
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

JournalBatch readOrder(JournalBatch::Read read) {
  JournalBatch batch;
  batch.read = std::move(read);
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
    if (queue_.front().alone() && !group.empty()) break;
    rows += queue_.front().rows.size();
    bytes_ -= queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (group.back().alone()) break;
  }
  rows_ -= rows;
  return group;
}

JournalWriter::JournalWriter(std::unique_ptr<RowStore> store, JournalLimits limits)
    : store_(std::move(store)), limits_(limits), snapshotAt_(limits.snapshotRows) {}

Error JournalWriter::storageError(const Error& why) const {
  return fail(ErrorCode::Unavailable, "storage fails (" + why.message + "): " +
                                          std::string(store_->remedy()) + ", then try again");
}

bool JournalWriter::commit(std::vector<JournalBatch>& group) {
  if (group.front().snapshot) {
    if (group.front().status.ok()) group.front().status = takeSnapshot();
    return true;
  }
  if (group.front().read) {
    group.front().read(store_->load());
    return true;
  }
  const bool anything = std::any_of(group.begin(), group.end(),
                                    [](const JournalBatch& batch) { return batch.status.ok(); });
  if (!anything) return true;
  Status added = unsure_ ? ok() : addGroup(group);
  if (!added) {
    settle(group, added);
    return true;
  }
  const RowStore::Commit committed = store_->commit();
  unsure_ = committed == RowStore::Commit::Unsure;
  if (unsure_) return false;
  settle(group, committed == RowStore::Commit::Done ? ok() : Status(store_->why()));
  return true;
}

// On failure nothing of the group is stored.
Status JournalWriter::addGroup(std::vector<JournalBatch>& group) {
  for (const JournalBatch& batch : group) {
    if (!batch.status.ok()) continue;
    for (const StoredRow& row : batch.rows) {
      if (Status added = store_->add(row); !added) return added;
    }
  }
  return ok();
}

void JournalWriter::settle(std::vector<JournalBatch>& group, const Status& status) {
  logDirty_ = logDirty_ || status.ok();
  setHealth(status);
  counters_.groups += status.ok() ? 1 : 0;
  for (JournalBatch& batch : group) {
    if (!batch.status.ok()) continue;
    counters_.batches += status.ok() ? 1 : 0;
    counters_.failed += status.ok() ? 0 : 1;
    counters_.rows += status.ok() ? batch.rows.size() : 0;
    if (!status) batch.status = storageError(status.error());
  }
}

// A snapshot that fails costs nothing but a longer journal: commits and health are not touched.
Status JournalWriter::takeSnapshot() {
  const Status taken = store_->snapshot();
  snapshotAt_ = store_->journalRows() + limits_.snapshotRows;
  (taken.ok() ? counters_.snapshots : counters_.snapshotsFailed)++;
  if (!taken) return storageError(taken.error());
  logDirty_ = true;
  return ok();
}

void JournalWriter::shorten() {
  if (store_->journalRows() >= snapshotAt_ && takeSnapshot().ok()) {
    logDirty_ = !store_->checkpoint().ok();
  }
}

void JournalWriter::idle() {
  if (counters_.healthy) {
    logDirty_ = !store_->checkpoint().ok();
  } else {
    setHealth(store_->probe());
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
