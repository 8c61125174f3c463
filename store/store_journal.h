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
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/journal.h"
#include "runtime/result.h"
#include "runtime/units.h"
#include "store/journal_writer.h"

namespace qgpu {

class StoreJournal final : public Journal {
 public:
  // Runs a closure on the loop that appends; called from the store thread, in order, and until the
  // destructor returns.
  using Post = std::function<void(std::function<void()>)>;
  // Told through Post when storage turns bad (why) and when it works again (ok).
  using Health = std::function<void(Status)>;

  using Limits = JournalLimits;

  struct Counters : JournalWriter::Counters {
    std::uint64_t refused = 0;  // batches, for a full queue
    std::size_t queuedRows = 0;
  };

  StoreJournal(std::unique_ptr<RowStore> store, Post post, Health health);
  StoreJournal(std::unique_ptr<RowStore> store, Post post, Health health, Limits limits);
  ~StoreJournal() override;
  StoreJournal(const StoreJournal&) = delete;
  StoreJournal& operator=(const StoreJournal&) = delete;

  // Overloaded where the queue is full, InvalidArgument for a row that could not be read back,
  // Unavailable where the disk fails: then nothing of the batch is stored.
  void append(std::vector<StoredRow> rows, Committed done) override;

  // Moves the journal into the snapshot, after what was appended before.
  void snapshot(Committed done);

  // All rows as of what was appended before: `work` runs with them on the store thread, and what it
  // makes of them on the loop. Commits wait for it.
  using Work = std::function<std::function<void()>(Result<std::vector<StoredRow>>)>;
  void read(Work work);

  // Safe from any thread.
  Counters counters() const;

 private:
  enum class Wake { Work, Idle, Stop };

  void enqueue(JournalBatch batch);
  void run();
  Wake waitForWork();
  // False: it stops while nobody knows whether a group is stored, and nobody is told.
  bool serveGroup();
  bool waitForAnswer();
  void publish();
  void tellHealth();
  void tell(std::vector<JournalBatch> group);

  const Limits limits_;
  JournalWriter writer_;  // of the store thread, once that runs
  const Post post_;
  const Health health_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  JournalQueue queue_;
  JournalWriter::Counters written_;  // the writer's, as of its last work
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace qgpu
