// Crashes: at every single I/O of a run on a disk in memory that loses what was not synced, and by
// kill -9 of a real process that writes to a real file.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/sqlite_journal.h"
#include "store/testing/memory_disk.h"
#include "tests/unit/store_fixture.h"

namespace qgpu {
namespace {

constexpr int kCommits = 12;

// The rows of commit number n, counted from 1: changes, additions and erasures.
std::vector<StoredRow> rowsOf(int n) {
  const auto id = static_cast<std::uint64_t>(n);
  const std::string text(static_cast<std::size_t>(n * 37), static_cast<char>('a' + n));
  std::vector<StoredRow> rows = {nodeRow(static_cast<std::uint32_t>(n)), taskRow(id, text)};
  if (n % 3 == 0) rows.push_back(erasedTask(id - 1));
  return rows;
}

struct Progress {
  int acked = 0;   // commits that returned ok
  int issued = 0;  // commits that were begun
};

// Opens, commits, takes a snapshot in the middle and checkpoints; ends at the first failure.
Progress writeUntilCrash(const MemoryDisk& disk) {
  Progress run;
  auto store = Store::open("meta.db", {.vfs = disk.vfs()});
  if (!store) return run;
  for (int n = 1; n <= kCommits; ++n) {
    run.issued = n;
    for (const StoredRow& row : rowsOf(n)) {
      if (!store->add(row)) return run;
    }
    if (!store->commit()) return run;
    run.acked = n;
    if (n == 5 && !store->snapshot()) return run;
    if (n % 4 == 0 && !store->checkpoint()) return run;
  }
  return run;
}

// digests[n]: of the state after n commits.
std::vector<std::uint64_t> expectedDigests() {
  RowTable table;
  std::vector<std::uint64_t> digests = {table.digest()};
  Lsn lsn = 0;
  for (int n = 1; n <= kCommits; ++n) {
    for (StoredRow& row : rowsOf(n)) {
      if (isErased(row)) row.words.clear();
      table.redo(++lsn, std::move(row));
    }
    digests.push_back(table.digest());
  }
  return digests;
}

TEST(StoreCrash, D1_APowerCutAtEveryIoLosesNothingAcknowledged) {
  const auto digests = expectedDigests();
  std::uint64_t ios = 0;
  {
    MemoryDisk disk("crash-count");
    ASSERT_EQ(writeUntilCrash(disk).acked, kCommits);
    ios = disk.ioCount();
  }
  ASSERT_GT(ios, 50u);
  for (std::uint64_t io = 1; io <= ios; ++io) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      MemoryDisk disk("crash-at");
      disk.crashAt(io);
      const Progress run = writeUntilCrash(disk);
      disk.powerCut(seed);
      auto store = Store::open("meta.db", {.vfs = disk.vfs()});
      ASSERT_TRUE(store.ok()) << "io " << io << " seed " << seed << ": " << store.error().message;
      const std::uint64_t found = digestOf(std::move(store->load()).value());
      bool legal = false;
      for (int n = run.acked; n <= run.issued; ++n) {
        legal = legal || found == digests[static_cast<std::size_t>(n)];
      }
      ASSERT_TRUE(legal) << "io " << io << " seed " << seed << ": acknowledged " << run.acked
                         << ", issued " << run.issued;
    }
  }
}

// Found by seed 423 of the simulator: a database without its log lost an acknowledged commit.
TEST(StoreCrash, D4_AnFsyncThatFailsWhileOpeningIsNotOverlooked) {
  MemoryDisk disk("sync-at-open");
  disk.fail(MemoryDisk::Op::Sync, 1);
  bool told = false;
  Store::Options options;
  options.vfs = disk.vfs();
  options.syncFailed = [&told](const std::string&) { told = true; };
  auto store = Store::open("meta.db", options);
  EXPECT_TRUE(told || !store.ok());
}

TEST(StoreCrash, D1_ACrashDuringRecoveryLosesNothingEither) {
  const auto digests = expectedDigests();
  for (std::uint64_t first = 60;; first += 17) {
    MemoryDisk disk("crash-twice");
    disk.crashAt(first);
    const Progress run = writeUntilCrash(disk);
    if (run.acked == kCommits) break;
    disk.powerCut(first);
    disk.crashAt(disk.ioCount() + 1 + first % 3);
    { auto ignored = Store::open("meta.db", {.vfs = disk.vfs()}); }
    disk.powerCut(first + 1);
    auto store = Store::open("meta.db", {.vfs = disk.vfs()});
    ASSERT_TRUE(store.ok()) << store.error().message;
    const std::uint64_t found = digestOf(std::move(store->load()).value());
    ASSERT_TRUE(found == digests[static_cast<std::size_t>(run.acked)] ||
                found == digests[static_cast<std::size_t>(run.issued)])
        << "first crash at io " << first;
  }
}

// The child: appends task rows 1, 2, 3, ... and writes the number of each answered one to `out`.
[[noreturn]] void writeForEver(const std::string& path, int out) {
  auto store = Store::open(path);
  if (!store) _exit(3);
  const Lsn first = store->lastLsn() + 1;
  int wake[2];
  if (::pipe(wake) != 0) _exit(3);
  SqliteJournal journal(std::move(*store), [](std::function<void()> f) { f(); }, nullptr,
                        {.snapshotRows = 64});
  for (auto id = static_cast<std::uint64_t>(first);; ++id) {
    journal.append({taskRow(id, "t")}, [out, id, &wake](Status status) {
      if (!status || ::write(out, &id, sizeof id) != sizeof id) _exit(4);
      if (id % 16 == 0 && ::write(wake[1], "x", 1) != 1) _exit(4);
    });
    char byte = 0;
    if (id % 16 == 0 && ::read(wake[0], &byte, 1) != 1) _exit(4);
  }
}

TEST(StoreCrash, D1_KillOfTheWriterLosesNothingAcknowledged) {
  TempFolder folder;
  const std::string path = folder / "meta.db";
  for (int kill = 0; kill < 20; ++kill) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(pipes[0]);
      writeForEver(path, pipes[1]);
    }
    ::close(pipes[1]);
    // The kill lands wherever the writer is after this many answers.
    std::uint64_t acked = 0;
    for (int i = 0; i < 40 + kill * 7; ++i) ASSERT_EQ(::read(pipes[0], &acked, 8), 8);
    ::kill(child, SIGKILL);
    while (::read(pipes[0], &acked, 8) == 8) {
    }
    ::close(pipes[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;

    auto store = Store::open(path);
    ASSERT_TRUE(store.ok()) << store.error().message;
    const auto stored = static_cast<std::uint64_t>(store->lastLsn());
    EXPECT_GE(stored, acked);
    EXPECT_EQ(std::move(store->load()).value().size(), stored) << "a hole";
  }
}

}  // namespace
}  // namespace qgpu
