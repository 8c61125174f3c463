#pragma once
// The storage of a simulated manager: the product's journal on real SQLite on a disk in memory, its
// store thread replaced by virtual time. A commit happens at one point in time and is answered at a
// later one, so that a crash may fall between "on disk" and "told" (D1, D2).
//
// The life of a database: MemoryDisk; open(); close() for a clean stop, or the destructor alone for
// a crash; after a crash disk.restart() (the process died) or disk.powerCut() (the machine did);
// open() again.

#include <memory>
#include <string>
#include <vector>

#include "runtime/journal.h"
#include "store/etcd/etcd_store.h"
#include "store/journal_writer.h"
#include "store/testing/memory_disk.h"
#include "tests/sim/host.h"

namespace qgpu::sim {

// How long a commit takes.
struct DiskPace {
  Nanos min = micros(20);
  Nanos max = millis(30);
  std::uint32_t slowPermille = 0;  // of the commits, those that take up to `slowMax`
  Nanos slowMax = seconds(3);
};

class SimJournal final : public Journal {
 public:
  // The manager's process is over: it ended itself after a failed fsync, or disk.crashAt() struck.
  // Told once, from a timer; nothing is appended or answered afterwards.
  using Exits = std::function<void(const std::string& why)>;

  // Errors as SqliteStore::open(); Unavailable where an fsync failed: the manager does not start.
  static Result<std::unique_ptr<SimJournal>> open(Host& host, MemoryDisk& disk, Dice dice,
                                                  JournalLimits limits, Exits exits);
  // Over keys of an etcd, for who is seated by that guard. Errors as EtcdStore::open(). What etcd's
  // answers take, and that they do not come, is the Kv's.
  static Result<std::unique_ptr<SimJournal>> open(Host& host, Kv& etcd, const std::string& prefix,
                                                  const KvCondition& guard, Dice dice,
                                                  JournalLimits limits, Exits exits);
  ~SimJournal() override;
  SimJournal(const SimJournal&) = delete;
  SimJournal& operator=(const SimJournal&) = delete;

  // What the store held at open(), twice: read at once, and read again (D3).
  const std::vector<StoredRow>& rows() const { return rows_; }
  const std::vector<StoredRow>& rowsAgain() const { return rowsAgain_; }

  void setPace(DiskPace pace) { pace_ = pace; }
  void append(std::vector<StoredRow> rows, Committed done) override;
  void snapshot(Committed done);
  // Commits what was taken in, answers nobody, and closes the database as a clean stop does.
  void close();

  // Something is not on disk, or not answered yet.
  bool busy() const { return busy_ || !queue_.empty(); }
  bool healthy() const { return writer_->counters().healthy; }
  const JournalWriter::Counters& counters() const { return writer_->counters(); }

 private:
  struct Fate {
    bool over = false;
    std::string why;
  };

  SimJournal(Host& host, MemoryDisk* disk, Dice dice, JournalLimits limits, Exits exits,
             std::unique_ptr<Fate> fate);

  void add(JournalBatch batch);
  void work();
  void commit(Nanos rest);
  void tell();
  void idle();
  void armIdle();
  bool isOver();
  Nanos duration();

  Host& host_;
  MemoryDisk* const disk_;  // null: none, it is all in etcd
  Dice dice_;
  const Exits exits_;
  const std::unique_ptr<Fate> fate_;  // written by the store
  DiskPace pace_;
  std::vector<StoredRow> rows_;
  std::vector<StoredRow> rowsAgain_;
  const JournalLimits limits_;
  JournalQueue queue_;
  std::unique_ptr<JournalWriter> writer_;
  std::vector<JournalBatch> group_;  // being committed, or committed and not told
  bool busy_ = false;
  bool told_ = false;  // that it is over
  Host::Key idleTimer_ = 0;
};

}  // namespace qgpu::sim
