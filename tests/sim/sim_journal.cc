#include "tests/sim/sim_journal.h"

#include <utility>

#include "store/sqlite_store.h"

namespace qgpu::sim {
namespace {

constexpr const char* kFile = "meta.db";

}  // namespace

Result<std::unique_ptr<SimJournal>> SimJournal::open(Host& host, MemoryDisk& disk, Dice dice,
                                                     JournalLimits limits, Exits exits) {
  auto fate = std::make_unique<Fate>();
  SqliteStore::Options options;
  options.vfs = disk.vfs();
  options.syncFailed = [fate = fate.get()](const std::string& why) { *fate = {true, why}; };
  Result<SqliteStore> store = SqliteStore::open(kFile, std::move(options));
  Error why = store ? Error() : store.error();
  if (store) {
    auto rows = store->load();
    auto again = rows ? store->load() : fail(ErrorCode::Unavailable, "not read");
    if (rows && again && !fate->over) {
      std::unique_ptr<SimJournal> journal(
          new SimJournal(host, &disk, dice, limits, std::move(exits), std::move(fate)));
      journal->rows_ = std::move(*rows);
      journal->rowsAgain_ = std::move(*again);
      journal->writer_ =
          std::make_unique<JournalWriter>(std::make_unique<SqliteStore>(std::move(*store)), limits);
      return journal;
    }
    if (!rows || !again) why = rows ? again.error() : rows.error();
  }
  if (fate->over) why = fail(ErrorCode::Unavailable, fate->why);
  // The process that met this ends; its connection must not write any more.
  disk.crashNow();
  return why;
}

Result<std::unique_ptr<SimJournal>> SimJournal::open(Host& host, Kv& etcd,
                                                     const std::string& prefix,
                                                     const KvCondition& guard, Dice dice,
                                                     JournalLimits limits, Exits exits) {
  auto fate = std::make_unique<Fate>();
  const auto lost = [fate = fate.get()](const std::string& why) { *fate = {true, why}; };
  auto store = EtcdStore::open(etcd, {prefix, guard, lost});
  auto rows = store ? (*store)->load() : Result<std::vector<StoredRow>>(store.error());
  if (!rows) return rows.error();
  std::unique_ptr<SimJournal> journal(
      new SimJournal(host, nullptr, dice, limits, std::move(exits), std::move(fate)));
  journal->rows_ = std::move(*rows);
  journal->writer_ = std::make_unique<JournalWriter>(std::move(*store), limits);
  return journal;
}

SimJournal::SimJournal(Host& host, MemoryDisk* disk, Dice dice, JournalLimits limits, Exits exits,
                       std::unique_ptr<Fate> fate)
    : host_(host),
      disk_(disk),
      dice_(dice),
      exits_(std::move(exits)),
      fate_(std::move(fate)),
      limits_(limits),
      queue_(limits) {}

SimJournal::~SimJournal() {
  if (writer_ != nullptr && disk_ != nullptr) disk_->crashNow();
}

void SimJournal::append(std::vector<StoredRow> rows, Committed done) {
  add(batchOf(std::move(rows), std::move(done)));
}

void SimJournal::snapshot(Committed done) {
  add(snapshotOrder(std::move(done)));
}

void SimJournal::add(JournalBatch batch) {
  if (fate_->over) return;
  queue_.add(std::move(batch));
  if (busy_) return;
  busy_ = true;
  host_.cancel(Scope::Manager, std::exchange(idleTimer_, 0));
  host_.after(Scope::Manager, dice_.between(micros(5), micros(50)), [this] { work(); });
}

Nanos SimJournal::duration() {
  if (dice_.below(1000) < pace_.slowPermille) return dice_.magnitude(pace_.max, pace_.slowMax);
  return dice_.magnitude(pace_.min, pace_.max);
}

void SimJournal::work() {
  group_ = queue_.takeGroup();
  const Nanos whole = duration();
  const Nanos first = dice_.between(Nanos(0), whole);
  host_.after(Scope::Manager, first, [this, rest = whole - first] { commit(rest); });
}

void SimJournal::commit(Nanos rest) {
  const bool known = writer_->commit(group_);
  if (isOver()) return;
  if (!known) {
    host_.after(Scope::Manager, limits_.unsure + duration(), [this, rest] { commit(rest); });
    return;
  }
  host_.after(Scope::Manager, rest, [this] { tell(); });
}

void SimJournal::tell() {
  static_cast<void>(writer_->takeHealth());  // for a log, which nobody keeps here
  for (JournalBatch& batch : std::exchange(group_, {})) {
    if (batch.done) batch.done(std::move(batch.status));
  }
  writer_->shorten();
  if (isOver()) return;
  if (!queue_.empty()) {
    host_.after(Scope::Manager, Nanos(0), [this] { work(); });
    return;
  }
  busy_ = false;
  armIdle();
}

void SimJournal::armIdle() {
  const Nanos patience = writer_->patience();
  if (patience == kNever) return;
  idleTimer_ = host_.after(Scope::Manager, patience, [this] { idle(); });
}

void SimJournal::idle() {
  idleTimer_ = 0;
  writer_->idle();
  if (!isOver()) armIdle();
}

bool SimJournal::isOver() {
  if (disk_ != nullptr && disk_->crashed() && !fate_->over) *fate_ = {true, "killed at an I/O"};
  if (!fate_->over) return false;
  if (!std::exchange(told_, true)) exits_(fate_->why);
  return true;
}

void SimJournal::close() {
  while (!fate_->over && !queue_.empty()) {
    group_ = queue_.takeGroup();
    if (!writer_->commit(group_)) break;
  }
  if (fate_->over && disk_ != nullptr) disk_->crashNow();
  writer_.reset();
}

}  // namespace qgpu::sim
