#include "store/sqlite_journal.h"

#include <chrono>
#include <optional>
#include <utility>

namespace qgpu {

SqliteJournal::SqliteJournal(Store store, Post post, Health health)
    : SqliteJournal(std::move(store), std::move(post), std::move(health), Limits()) {}

SqliteJournal::SqliteJournal(Store store, Post post, Health health, Limits limits)
    : writer_(std::move(store), limits),
      post_(std::move(post)),
      health_(std::move(health)),
      queue_(limits),
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
  enqueue(batchOf(std::move(rows), std::move(done)));
}

void SqliteJournal::snapshot(Committed done) {
  enqueue(snapshotOrder(std::move(done)));
}

void SqliteJournal::enqueue(JournalBatch batch) {
  {
    const std::lock_guard lock(mutex_);
    queue_.add(std::move(batch));
  }
  wake_.notify_one();
}

SqliteJournal::Counters SqliteJournal::counters() const {
  const std::lock_guard lock(mutex_);
  return {written_, queue_.refused(), queue_.rows()};
}

void SqliteJournal::run() {
  for (;;) {
    switch (waitForWork()) {
      case Wake::Work:
        serveGroup();
        break;
      case Wake::Idle:
        writer_.idle();
        publish();
        tellHealth();
        break;
      case Wake::Stop:
        return;
    }
  }
}

SqliteJournal::Wake SqliteJournal::waitForWork() {
  std::unique_lock lock(mutex_);
  const auto due = [this] { return !queue_.empty() || stopping_; };
  if (const Nanos patience = writer_.patience(); patience != kNever) {
    if (!wake_.wait_for(lock, std::chrono::nanoseconds(patience.value), due)) return Wake::Idle;
  } else {
    wake_.wait(lock, due);
  }
  return queue_.empty() ? Wake::Stop : Wake::Work;
}

void SqliteJournal::serveGroup() {
  std::vector<JournalBatch> group;
  {
    const std::lock_guard lock(mutex_);
    group = queue_.takeGroup();
  }
  writer_.commit(group);
  publish();
  tellHealth();
  tell(std::move(group));
  writer_.shorten();  // after the answers, so that nobody waits for it
  publish();
}

void SqliteJournal::publish() {
  const std::lock_guard lock(mutex_);
  written_ = writer_.counters();
}

void SqliteJournal::tellHealth() {
  std::optional<Status> news = writer_.takeHealth();
  if (!news || !health_) return;
  post_([health = health_, told = std::move(*news)] { health(told); });
}

void SqliteJournal::tell(std::vector<JournalBatch> group) {
  // One closure a group: a loop is woken once, not once a turn. The rows die here, on this thread.
  std::vector<std::pair<Committed, Status>> answers;
  for (JournalBatch& batch : group) {
    if (batch.done) answers.emplace_back(std::move(batch.done), std::move(batch.status));
  }
  if (answers.empty()) return;
  post_([answers = std::move(answers)] {
    for (const auto& [done, status] : answers) done(status);
  });
}

}  // namespace qgpu
