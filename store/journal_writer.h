#pragma once
// What a journal decides, without a thread, lock or clock: which batches it takes in (JournalQueue)
// and what it does to the store with them (JournalWriter). StoreJournal runs the two on a loop
// and a store thread; the simulator runs them on virtual time.
//
// Kept here: D2 (answers in append order, ok only after the commit), D4 (a full disk fails batches
// with Unavailable, nothing of them applied, and each new batch or a probe finds out when space is
// back), C5 (the queue is bounded; a refusal is told in its place).

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "store/row_store.h"

namespace qgpu {

struct JournalLimits {
  std::size_t groupRows = 256;      // rows of one transaction, once a batch has begun it
  std::size_t queuedRows = 16'384;  // not yet committed; more are refused
  std::size_t queuedBytes = 32 << 20;
  std::size_t snapshotRows = 4'096;  // journal length that starts a snapshot
  Nanos idle = millis(200);          // without work, before a checkpoint
  Nanos probe = millis(200);         // between looks at a storage that failed
  Nanos unsure = millis(50);         // before a commit without an answer is asked for again
};

// The rows of one turn, an order to take a snapshot, or one to read all rows.
struct JournalBatch {
  using Read = std::function<void(Result<std::vector<StoredRow>>)>;

  std::vector<StoredRow> rows;
  std::size_t bytes = 0;
  Journal::Committed done;
  Status status = ok();  // not ok: refused already, told in its place
  bool snapshot = false;
  Read read{};
  bool alone() const { return snapshot || read; }  // one group by itself
};

class JournalQueue {
 public:
  explicit JournalQueue(JournalLimits limits) : limits_(limits) {}

  // Never refuses visibly: a batch that does not fit (Overloaded) or could not be read back
  // (InvalidArgument) keeps its place, so that answers stay in append order, but not its rows.
  void add(JournalBatch batch);

  bool empty() const { return queue_.empty(); }
  // Whole batches up to the first that brings the group to its limit; an order goes alone. Not
  // while it is empty.
  std::vector<JournalBatch> takeGroup();

  std::size_t rows() const { return rows_; }
  std::uint64_t refused() const { return refused_; }

 private:
  const JournalLimits limits_;
  std::deque<JournalBatch> queue_;
  std::size_t rows_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t refused_ = 0;
};

// A batch of `rows`, checked; for JournalQueue::add().
JournalBatch batchOf(std::vector<StoredRow> rows, Journal::Committed done);
JournalBatch snapshotOrder(Journal::Committed done);
// `read` is called where the writer works, with the rows after all batches before.
JournalBatch readOrder(JournalBatch::Read read);

class JournalWriter {
 public:
  struct Counters {
    std::uint64_t groups = 0;  // transactions committed
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t failed = 0;  // batches, for the disk
    std::uint64_t snapshots = 0;
    std::uint64_t snapshotsFailed = 0;
    bool healthy = true;
  };

  JournalWriter(std::unique_ptr<RowStore> store, JournalLimits limits);

  // Gives each batch of the group its status: one transaction, all or nothing. Ok: it is on disk.
  // False: nobody knows yet, and the same group is to be given again, `limits.unsure` later.
  bool commit(std::vector<JournalBatch>& group);
  // Moves a journal that has grown long into the snapshot; after the answers, so that nobody waits.
  void shorten();
  // To be called when `patience` passed without work: copies the log into the file, or looks
  // whether a storage that failed works again.
  void idle();
  // kNever where idle() would have nothing to do.
  Nanos patience() const;

  // Since it was asked last, storage turned bad (why) or works again (ok).
  std::optional<Status> takeHealth() { return std::exchange(health_, std::nullopt); }
  const Counters& counters() const { return counters_; }

 private:
  Status addGroup(std::vector<JournalBatch>& group);
  void settle(std::vector<JournalBatch>& group, const Status& status);
  Error storageError(const Error& why) const;
  Status takeSnapshot();
  void setHealth(const Status& status);

  const std::unique_ptr<RowStore> store_;
  const JournalLimits limits_;
  bool unsure_ = false;     // whether the group that was added is stored
  bool logDirty_ = false;   // something to checkpoint
  std::size_t snapshotAt_;  // journal length of the next snapshot
  std::optional<Status> health_;
  Counters counters_;
};

}  // namespace qgpu
