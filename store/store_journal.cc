#include "store/store_journal.h"

#include <chrono>
#include <optional>
#include <utility>

namespace qgpu {

StoreJournal::StoreJournal(std::unique_ptr<RowStore> store, Post post, Health health)
    : StoreJournal(std::move(store), std::move(post), std::move(health), Limits()) {}

StoreJournal::StoreJournal(std::unique_ptr<RowStore> store, Post post, Health health, Limits limits)
    : limits_(limits),
      writer_(std::move(store), limits),
      post_(std::move(post)),
      health_(std::move(health)),
      queue_(limits),
      thread_([this] { run(); }) {}

StoreJournal::~StoreJournal() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StoreJournal::append(std::vector<StoredRow> rows, Committed done) {
  enqueue(batchOf(std::move(rows), std::move(done)));
}

void StoreJournal::snapshot(Committed done) {
  enqueue(snapshotOrder(std::move(done)));
}

void StoreJournal::read(Work work) {
  enqueue(readOrder([this, work = std::move(work)](Result<std::vector<StoredRow>> rows) {
    post_(work(std::move(rows)));
  }));
}

void StoreJournal::enqueue(JournalBatch batch) {
  {
    const std::lock_guard lock(mutex_);
    queue_.add(std::move(batch));
  }
  wake_.notify_one();
}

StoreJournal::Counters StoreJournal::counters() const {
  const std::lock_guard lock(mutex_);
  return {written_, queue_.refused(), queue_.rows()};
}

void StoreJournal::run() {
  for (;;) {
    switch (waitForWork()) {
      case Wake::Work:
        if (!serveGroup()) return;
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

StoreJournal::Wake StoreJournal::waitForWork() {
  std::unique_lock lock(mutex_);
  const auto due = [this] { return !queue_.empty() || stopping_; };
  if (const Nanos patience = writer_.patience(); patience != kNever) {
    if (!wake_.wait_for(lock, std::chrono::nanoseconds(patience.value), due)) return Wake::Idle;
  } else {
    wake_.wait(lock, due);
  }
  return queue_.empty() ? Wake::Stop : Wake::Work;
}

bool StoreJournal::serveGroup() {
  std::vector<JournalBatch> group;
  {
    const std::lock_guard lock(mutex_);
    group = queue_.takeGroup();
  }
  while (!writer_.commit(group)) {
    if (!waitForAnswer()) return false;
  }
  publish();
  tellHealth();
  tell(std::move(group));
  writer_.shorten();  // after the answers, so that nobody waits for it
  publish();
  return true;
}

bool StoreJournal::waitForAnswer() {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, std::chrono::nanoseconds(limits_.unsure.value),
                         [this] { return stopping_; });
}

void StoreJournal::publish() {
  const std::lock_guard lock(mutex_);
  written_ = writer_.counters();
}

void StoreJournal::tellHealth() {
  std::optional<Status> news = writer_.takeHealth();
  if (!news || !health_) return;
  post_([health = health_, told = std::move(*news)] { health(told); });
}

void StoreJournal::tell(std::vector<JournalBatch> group) {
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
