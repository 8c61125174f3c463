// Crashes: at every single I/O of a run on a disk in memory that loses what was not synced, and by
// kill -9 of a real process that writes to a real file.

#include <signal.h>
#include <unistd.h>

#include "store/store_journal.h"
#include "store/testing/memory_disk.h"
#include "tests/testing/forked_process.h"
#include "tests/unit/store/store_fixture.h"

namespace qgpu::store_crash_test {
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
  auto store = SqliteStore::open("meta.db", {.vfs = disk.vfs()});
  if (!store) return run;
  for (int n = 1; n <= kCommits; ++n) {
    run.issued = n;
    for (const StoredRow& row : rowsOf(n)) {
      if (!store->add(row)) return run;
    }
    if (store->commit() != RowStore::Commit::Done) return run;
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
      auto store = SqliteStore::open("meta.db", {.vfs = disk.vfs()});
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
  SqliteStore::Options options;
  options.vfs = disk.vfs();
  options.syncFailed = [&told](const std::string&) { told = true; };
  auto store = SqliteStore::open("meta.db", options);
  EXPECT_TRUE(told || !store.ok());
}

// A process that commits rows and is killed then. False: not all of them were acknowledged.
bool commitAndDie(MemoryDisk& disk, const std::vector<StoredRow>& rows,
                  std::uint64_t dieAfter = MemoryDisk::kForever) {
  disk.restart();
  auto store = SqliteStore::open("meta.db", {.vfs = disk.vfs()});
  if (!store) return false;
  if (dieAfter != MemoryDisk::kForever) disk.crashAt(disk.ioCount() + dieAfter);
  bool all = true;
  for (const StoredRow& row : rows) {
    all = all && store->add(row).ok() && store->commit() == RowStore::Commit::Done;
  }
  disk.crashNow();
  return all;
}

// What a process finds that is killed once it has read it.
std::vector<std::string> namesFound(MemoryDisk& disk) {
  disk.restart();
  auto store = SqliteStore::open("meta.db", {.vfs = disk.vfs()});
  EXPECT_TRUE(store.ok()) << store.error().message;
  std::vector<std::string> names = taskNames(std::move(store->load()).value());
  disk.crashNow();
  return names;
}

// Found by seed 31392 of the simulator: a token was told whose row a power cut then took.
TEST(StoreCrash, D1_WhatWasLoadedOnceSurvivesAPowerCut) {
  for (std::uint64_t dieAfter = 1; dieAfter <= 12; ++dieAfter) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      MemoryDisk disk("loaded");
      commitAndDie(disk, {taskRow(1, "told")});
      commitAndDie(disk, {taskRow(1, "again"), taskRow(2, "untold")}, dieAfter);
      const auto found = namesFound(disk);
      disk.powerCut(seed);
      ASSERT_EQ(namesFound(disk), found) << "io " << dieAfter << ", seed " << seed;
    }
  }
}

// Found by seed 68803 of the simulator: what a power cut had left of killed processes came back
// once the frame before it was written anew.
TEST(StoreCrash, D1_WhatAPowerCutTookNeverComesBack) {
  const std::vector<std::string> first = {"one"};
  for (std::uint64_t dieAfter = 1; dieAfter <= 8; ++dieAfter) {
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      MemoryDisk disk("torn");
      commitAndDie(disk, {taskRow(1, "one")});
      commitAndDie(disk, {taskRow(2, "two")}, dieAfter);
      commitAndDie(disk, {taskRow(3, "three")}, dieAfter);
      disk.powerCut(seed);
      if (namesFound(disk) != first) continue;
      commitAndDie(disk, {taskRow(2, "two")}, dieAfter);
      const auto names = namesFound(disk);
      ASSERT_TRUE(names == first || names == std::vector<std::string>({"one", "two"}))
          << "io " << dieAfter << ", seed " << seed;
    }
  }
}

TEST(StoreCrash, D4_AnFsyncThatFailsWhileTheLogIsCopiedOutIsNotOverlooked) {
  MemoryDisk disk("sync-at-reopen");
  commitAndDie(disk, {taskRow(1, "told")});
  disk.restart();
  disk.fail(MemoryDisk::Op::Sync, 1);
  bool told = false;
  SqliteStore::Options options;
  options.vfs = disk.vfs();
  options.syncFailed = [&told](const std::string&) { told = true; };
  auto store = SqliteStore::open("meta.db", options);
  EXPECT_TRUE(told);
  EXPECT_FALSE(store.ok());
}

TEST(StoreCrash, D4_AFullOrFailingDiskIsStillRead) {
  const auto opensWith = [](auto&& harm) {
    MemoryDisk disk("harmed");
    commitAndDie(disk, {taskRow(1, std::string(10'000, 'a')), taskRow(2, "b")});
    harm(disk);
    EXPECT_EQ(namesFound(disk).size(), 2u);
    disk.mend();
    EXPECT_TRUE(commitAndDie(disk, {taskRow(3, "c")}));
    EXPECT_EQ(namesFound(disk).size(), 3u);
  };
  opensWith([](MemoryDisk& disk) { disk.fail(MemoryDisk::Op::Write); });
  opensWith([](MemoryDisk& disk) { disk.fail(MemoryDisk::Op::Truncate); });
  opensWith([](MemoryDisk& disk) {
    disk.setCapacity(disk.used());
    EXPECT_EQ(namesFound(disk).size(), 2u);
    disk.setCapacity(INT64_MAX);
  });
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
    { auto ignored = SqliteStore::open("meta.db", {.vfs = disk.vfs()}); }
    disk.powerCut(first + 1);
    auto store = SqliteStore::open("meta.db", {.vfs = disk.vfs()});
    ASSERT_TRUE(store.ok()) << store.error().message;
    const std::uint64_t found = digestOf(std::move(store->load()).value());
    ASSERT_TRUE(found == digests[static_cast<std::size_t>(run.acked)] ||
                found == digests[static_cast<std::size_t>(run.issued)])
        << "first crash at io " << first;
  }
}

// The child: appends task rows 1, 2, 3, ... and writes the number of each answered one to `out`.
[[noreturn]] void writeForEver(const std::string& path, int out) {
  auto store = SqliteStore::open(path);
  if (!store) _exit(3);
  const Lsn first = store->lastLsn() + 1;
  int wake[2];
  if (::pipe(wake) != 0) _exit(3);
  StoreJournal journal(std::make_unique<SqliteStore>(std::move(*store)),
                       [](std::function<void()> f) { f(); }, nullptr, {.snapshotRows = 64});
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
    testing::ForkedProcess child([&]() -> int {
      ::close(pipes[0]);
      writeForEver(path, pipes[1]);
    });
    ::close(pipes[1]);
    // The kill lands wherever the writer is after this many answers.
    std::uint64_t acked = 0;
    for (int i = 0; i < 40 + kill * 7; ++i) ASSERT_EQ(::read(pipes[0], &acked, 8), 8);
    child.kill();
    while (::read(pipes[0], &acked, 8) == 8) {
    }
    ::close(pipes[0]);
    ASSERT_EQ(child.wait(), -SIGKILL);

    auto store = SqliteStore::open(path);
    ASSERT_TRUE(store.ok()) << store.error().message;
    const auto stored = static_cast<std::uint64_t>(store->lastLsn());
    EXPECT_GE(stored, acked);
    EXPECT_EQ(std::move(store->load()).value().size(), stored) << "a hole";
  }
}

}  // namespace
}  // namespace qgpu::store_crash_test
