#include "store/sqlite_journal.h"

#include <chrono>
#include <string>
#include <utility>

namespace qgpu {
namespace {

std::size_t bytesOfBatch(const std::vector<StoredRow>& rows) {
  std::size_t sum = 0;
  for (const StoredRow& row : rows) sum += bytesOf(row).size();
  return sum;
}

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

SqliteJournal::SqliteJournal(Store store, Post post, Health health)
    : SqliteJournal(std::move(store), std::move(post), std::move(health), Limits()) {}

SqliteJournal::SqliteJournal(Store store, Post post, Health health, Limits limits)
    : store_(std::move(store)),
      post_(std::move(post)),
      health_(std::move(health)),
      limits_(limits),
      snapshotAt_(limits.snapshotRows),
      thread_([this] { run(); }) {}

SqliteJournal::~SqliteJournal() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SqliteJournal::append(std::vector<StoredRow> rows, Committed done) {
  Batch batch;
  batch.bytes = bytesOfBatch(rows);
  batch.status = checkRows(rows);
  batch.rows = std::move(rows);
  batch.done = std::move(done);
  enqueue(std::move(batch));
}

void SqliteJournal::snapshot(Committed done) {
  Batch batch;
  batch.done = std::move(done);
  batch.snapshot = true;
  enqueue(std::move(batch));
}

void SqliteJournal::enqueue(Batch batch) {
  {
    const std::lock_guard lock(mutex_);
    const bool rowsFit = counters_.queuedRows + batch.rows.size() <= limits_.queuedRows;
    const bool bytesFit = queuedBytes_ + batch.bytes <= limits_.queuedBytes;
    if (batch.status.ok() && !(rowsFit && bytesFit)) {
      counters_.refused++;
      batch.status = fail(ErrorCode::Overloaded, "the storage queue is full (" +
                                                     std::to_string(counters_.queuedRows) +
                                                     " rows): try again later");
    }
    // A refused batch keeps its place, so that answers stay in append order, but not its rows.
    if (!batch.status.ok()) {
      batch.rows = {};
      batch.bytes = 0;
    }
    counters_.queuedRows += batch.rows.size();
    queuedBytes_ += batch.bytes;
    queue_.push_back(std::move(batch));
  }
  wake_.notify_one();
}

SqliteJournal::Counters SqliteJournal::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void SqliteJournal::run() {
  for (;;) {
    switch (waitForWork()) {
      case Wake::Work: {
        std::vector<Batch> group = takeGroup();
        commitGroup(group);
        tell(std::move(group));
        shortenJournal();  // after the answers, so that nobody waits for it
        break;
      }
      case Wake::Idle:
        onIdle();
        break;
      case Wake::Stop:
        return;
    }
  }
}

SqliteJournal::Wake SqliteJournal::waitForWork() {
  std::unique_lock lock(mutex_);
  const auto due = [this] { return !queue_.empty() || stopping_; };
  if (!counters_.healthy || logDirty_) {
    const Nanos pause = counters_.healthy ? limits_.idle : limits_.probe;
    if (!wake_.wait_for(lock, std::chrono::nanoseconds(pause.value), due)) return Wake::Idle;
  } else {
    wake_.wait(lock, due);
  }
  return queue_.empty() ? Wake::Stop : Wake::Work;
}

// Whole batches up to the first that brings the group to its limit; a snapshot goes alone.
std::vector<SqliteJournal::Batch> SqliteJournal::takeGroup() {
  const std::lock_guard lock(mutex_);
  std::vector<Batch> group;
  std::size_t rows = 0;
  while (!queue_.empty() && rows < limits_.groupRows) {
    if (queue_.front().snapshot && !group.empty()) break;
    rows += queue_.front().rows.size();
    queuedBytes_ -= queue_.front().bytes;
    group.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (group.back().snapshot) break;
  }
  counters_.queuedRows -= rows;
  return group;
}

void SqliteJournal::commitGroup(std::vector<Batch>& group) {
  if (group.front().snapshot) {
    if (group.front().status.ok()) group.front().status = takeSnapshot();
    return;
  }
  std::uint64_t batches = 0;
  std::uint64_t rows = 0;
  for (const Batch& batch : group) {
    batches += batch.status.ok() ? 1 : 0;
    rows += batch.rows.size();
  }
  if (batches == 0) return;
  const Status status = addGroup(group);
  setHealth(status);
  for (Batch& batch : group) {
    if (batch.status.ok() && !status) batch.status = storageError(status.error());
  }
  {
    const std::lock_guard lock(mutex_);
    counters_.groups += status.ok() ? 1 : 0;
    counters_.batches += status.ok() ? batches : 0;
    counters_.rows += status.ok() ? rows : 0;
    counters_.failed += status.ok() ? 0 : batches;
  }
}

// One transaction; on failure nothing of the group is stored.
Status SqliteJournal::addGroup(std::vector<Batch>& group) {
  for (const Batch& batch : group) {
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
Status SqliteJournal::takeSnapshot() {
  const Status taken = store_.snapshot();
  snapshotAt_ = store_.journalRows() + limits_.snapshotRows;
  {
    const std::lock_guard lock(mutex_);
    (taken.ok() ? counters_.snapshots : counters_.snapshotsFailed)++;
  }
  if (!taken) return storageError(taken.error());
  logDirty_ = true;
  return ok();
}

void SqliteJournal::shortenJournal() {
  if (store_.journalRows() >= snapshotAt_ && takeSnapshot().ok()) {
    logDirty_ = !store_.checkpoint().ok();
  }
}

void SqliteJournal::onIdle() {
  if (counters().healthy) {
    logDirty_ = !store_.checkpoint().ok();
  } else {
    setHealth(store_.probe());
  }
}

void SqliteJournal::setHealth(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (counters_.healthy == status.ok()) return;
    counters_.healthy = status.ok();
  }
  if (!health_) return;
  Status told = status.ok() ? ok() : Status(storageError(status.error()));
  post_([health = health_, told = std::move(told)] { health(told); });
}

void SqliteJournal::tell(std::vector<Batch> group) {
  // One closure a group: a loop is woken once, not once a turn. The rows die here, on this thread.
  std::vector<std::pair<Committed, Status>> answers;
  for (Batch& batch : group) {
    if (batch.done) answers.emplace_back(std::move(batch.done), std::move(batch.status));
  }
  if (answers.empty()) return;
  post_([answers = std::move(answers)] {
    for (const auto& [done, status] : answers) done(status);
  });
}

}  // namespace qgpu
