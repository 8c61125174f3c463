#pragma once
// The Journal of a daemon: batches of rows go to a store thread, which commits them in groups, so
// that a loop never waits for a disk and one fsync serves many turns. What was queued while a
// group was being committed becomes the next group; nothing is delayed on purpose.
//
// Kept here: D2 (a batch is told ok only after its commit, in append order), D4 (a full disk fails
// batches with Unavailable, nothing of them applied, and each new batch or a probe finds out when
// space is back; a failed fsync ends the process), C5 (the queue is bounded, refusals are told),
// C8 (the destructor commits what was accepted and joins the thread).

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "store/store.h"

namespace qgpu {

class SqliteJournal final : public Journal {
 public:
  // Runs a closure on the loop that appends; called from the store thread, in order, and until the
  // destructor returns.
  using Post = std::function<void(std::function<void()>)>;
  // Told through Post when storage turns bad (why) and when it works again (ok).
  using Health = std::function<void(Status)>;

  struct Limits {
    std::size_t groupRows = 256;      // rows of one transaction, once a batch has begun it
    std::size_t queuedRows = 16'384;  // not yet committed; more are refused
    std::size_t queuedBytes = 32 << 20;
    std::size_t snapshotRows = 4'096;  // journal length that starts a snapshot
    Nanos idle = millis(200);          // without work, before a checkpoint
    Nanos probe = millis(200);         // between looks at a storage that failed
  };

  struct Counters {
    std::uint64_t groups = 0;  // transactions committed
    std::uint64_t batches = 0;
    std::uint64_t rows = 0;
    std::uint64_t refused = 0;  // batches, for a full queue
    std::uint64_t failed = 0;   // batches, for the disk
    std::uint64_t snapshots = 0;
    std::uint64_t snapshotsFailed = 0;
    std::size_t queuedRows = 0;
    bool healthy = true;
  };

  SqliteJournal(Store store, Post post, Health health);
  SqliteJournal(Store store, Post post, Health health, Limits limits);
  ~SqliteJournal() override;
  SqliteJournal(const SqliteJournal&) = delete;
  SqliteJournal& operator=(const SqliteJournal&) = delete;

  // Overloaded where the queue is full, InvalidArgument for a row that could not be read back,
  // Unavailable where the disk fails: then nothing of the batch is stored.
  void append(std::vector<StoredRow> rows, Committed done) override;

  // Moves the journal into the snapshot, after what was appended before.
  void snapshot(Committed done);

  // Safe from any thread.
  Counters counters() const;

 private:
  struct Batch {
    std::vector<StoredRow> rows;
    std::size_t bytes = 0;
    Committed done;
    Status status = ok();  // not ok: refused already, told in its place
    bool snapshot = false;
  };
  enum class Wake { Work, Idle, Stop };

  void enqueue(Batch batch);
  void run();
  Wake waitForWork();
  std::vector<Batch> takeGroup();
  void commitGroup(std::vector<Batch>& group);
  Status addGroup(std::vector<Batch>& group);
  Status takeSnapshot();
  void shortenJournal();
  void onIdle();
  void setHealth(const Status& status);
  void tell(std::vector<Batch> group);

  Store store_;  // of the store thread, once that runs
  const Post post_;
  const Health health_;
  const Limits limits_;
  bool logDirty_ = false;   // of the store thread: something to checkpoint
  std::size_t snapshotAt_;  // of the store thread: journal length of the next snapshot

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Batch> queue_;
  std::size_t queuedBytes_ = 0;
  Counters counters_;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qgpu
