// StoreJournal: answers in order and after the commit, groups, bounds, and a disk that fills up.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "store/store_journal.h"
#include "store/testing/memory_disk.h"
#include "tests/unit/store/store_fixture.h"

namespace qgpu::journal_test {
namespace {

using ::testing::Test;

// The loop that appends: closures wait here until the test runs them.
class Inbox {
 public:
  void post(std::function<void()> closure) {
    const std::lock_guard lock(mutex_);
    closures_.push_back(std::move(closure));
    arrived_.notify_one();
  }
  void runOne() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !closures_.empty(); });
    const auto closure = std::move(closures_.front());
    closures_.pop_front();
    lock.unlock();
    closure();
  }
  template <typename Condition>
  void runUntil(Condition&& condition) {
    while (!condition()) runOne();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> closures_;
};

class JournalTest : public Test {
 protected:
  std::unique_ptr<StoreJournal> start(StoreJournal::Limits limits = {}) {
    auto store = SqliteStore::open("meta.db", {.vfs = disk_.vfs()});
    EXPECT_TRUE(store.ok()) << store.error().message;
    return std::make_unique<StoreJournal>(
        std::make_unique<SqliteStore>(std::move(*store)),
        [this](std::function<void()> f) { inbox_.post(std::move(f)); },
        [this](Status status) { health_.push_back(status.ok()); }, limits);
  }
  void append(Journal& journal, std::vector<StoredRow> rows) {
    const std::size_t number = appended_++;
    journal.append(std::move(rows), [this, number](Status status) {
      told_.push_back(number);
      status_.push_back(std::move(status));
    });
  }
  // Waits until every append so far was answered.
  void drain() {
    inbox_.runUntil([this] { return told_.size() == appended_; });
  }
  std::vector<std::string> storedNames() {
    auto store = SqliteStore::open("meta.db", {.vfs = disk_.vfs()});
    return taskNames(std::move(store->load()).value());
  }

  MemoryDisk disk_{"journal-test"};
  Inbox inbox_;
  std::size_t appended_ = 0;
  std::vector<std::size_t> told_;
  std::vector<Status> status_;
  std::vector<bool> health_;
};

TEST_F(JournalTest, ReadsWhatWasAppendedBeforeAndNothingLater) {
  const auto journal = start();
  append(*journal, {taskRow(1, "a")});
  std::vector<std::string> seen;
  bool told = false;
  journal->read([&](Result<std::vector<StoredRow>> rows) {
    seen = taskNames(rows.value());
    return [&told] { told = true; };
  });
  append(*journal, {taskRow(1, "b")});
  drain();
  inbox_.runUntil([&told] { return told; });
  EXPECT_EQ(seen, std::vector<std::string>{"a"});
}

TEST_F(JournalTest, D2_AnswersInOrderAfterTheCommit) {
  auto journal = start();
  for (std::uint64_t id = 0; id < 1000; ++id) append(*journal, {taskRow(id, "t")});
  EXPECT_TRUE(told_.empty()) << "an answer came from inside append()";
  drain();
  for (std::size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(told_[i], i);
    ASSERT_TRUE(status_[i].ok()) << status_[i].error().message;
  }
  journal.reset();
  EXPECT_EQ(storedNames().size(), 1000u);
}

TEST_F(JournalTest, CommitsManyTurnsInOneTransaction) {
  auto journal = start();
  for (std::uint64_t id = 0; id < 1000; ++id) append(*journal, {taskRow(id, "t")});
  drain();
  const auto counters = journal->counters();
  EXPECT_EQ(counters.batches, 1000u);
  EXPECT_EQ(counters.rows, 1000u);
  EXPECT_GE(counters.groups, 1000u / 256);
  EXPECT_LE(counters.groups, 1000u);
  EXPECT_EQ(counters.queuedRows, 0u);
}

TEST_F(JournalTest, EndsAGroupAtItsLimit) {
  auto journal = start({.groupRows = 10});
  for (std::uint64_t id = 0; id < 1000; ++id) append(*journal, {taskRow(id, "t")});
  drain();
  EXPECT_GE(journal->counters().groups, 100u);
}

TEST_F(JournalTest, C8_CommitsWhatWasAcceptedBeforeItEnds) {
  auto journal = start();
  for (std::uint64_t id = 0; id < 300; ++id) append(*journal, {taskRow(id, "t")});
  journal.reset();
  drain();
  EXPECT_EQ(storedNames().size(), 300u);
}

TEST_F(JournalTest, C5_RefusesWhatTheQueueCanNotHoldInItsTurn) {
  auto journal = start({.queuedRows = 2});
  append(*journal, {taskRow(1, "a"), taskRow(2, "b"), taskRow(3, "c")});
  append(*journal, {taskRow(4, "d")});
  drain();
  EXPECT_EQ(told_, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(status_[0].error().code, ErrorCode::Overloaded);
  EXPECT_TRUE(status_[1].ok());
  EXPECT_EQ(journal->counters().refused, 1u);
}

TEST_F(JournalTest, RefusesABadRowWithoutItsNeighbours) {
  auto journal = start();
  append(*journal, {taskRow(1, "a")});
  append(*journal, {taskRow(2, "b"), StoredRow{{RowKind::Task, 3}, {}}});
  append(*journal, {taskRow(4, "d")});
  drain();
  EXPECT_TRUE(status_[0].ok());
  EXPECT_EQ(status_[1].error().code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(status_[2].ok());
  journal.reset();
  EXPECT_EQ(storedNames(), (std::vector<std::string>{"a", "d"}));
}

TEST_F(JournalTest, SnapshotsOnDemandAndByLength) {
  auto journal = start({.snapshotRows = 50});
  append(*journal, {taskRow(1, "a")});
  bool taken = false;
  journal->snapshot([&](Status status) { taken = status.ok(); });
  inbox_.runUntil([&] { return taken; });
  EXPECT_EQ(journal->counters().snapshots, 1u);
  for (std::uint64_t id = 0; id < 60; ++id) append(*journal, {taskRow(id, "t")});
  journal.reset();
  drain();
  EXPECT_EQ(storedNames().size(), 60u);
  auto store = SqliteStore::open("meta.db", {.vfs = disk_.vfs()});
  EXPECT_LT(store->journalRows(), 50u);
}

TEST_F(JournalTest, D4_AFullDiskRefusesAndServiceResumesWhenSpaceReturns) {
  auto journal = start({.probe = millis(1)});
  append(*journal, {taskRow(1, "before")});
  drain();
  disk_.setCapacity(0);
  append(*journal, {taskRow(2, "lost"), taskRow(1, "lost too")});
  inbox_.runUntil([this] { return health_.size() == 1; });
  drain();
  EXPECT_EQ(status_[1].error().code, ErrorCode::Unavailable);
  EXPECT_NE(status_[1].error().message.find("free space"), std::string::npos)
      << status_[1].error().message;
  EXPECT_FALSE(journal->counters().healthy);

  disk_.setCapacity(INT64_MAX);
  inbox_.runUntil([this] { return health_.size() == 2; });  // by its own probe
  EXPECT_EQ(health_, (std::vector<bool>{false, true}));
  append(*journal, {taskRow(3, "after")});
  drain();
  EXPECT_TRUE(status_[2].ok());
  EXPECT_EQ(journal->counters().failed, 1u);
  journal.reset();
  EXPECT_EQ(storedNames(), (std::vector<std::string>{"before", "after"}));
}

TEST_F(JournalTest, D4_AnAppendFindsOutThatSpaceIsBack) {
  auto journal = start({.probe = seconds(3600)});
  disk_.setCapacity(0);
  append(*journal, {taskRow(1, "lost")});
  drain();
  disk_.setCapacity(INT64_MAX);
  append(*journal, {taskRow(2, "kept")});
  drain();
  EXPECT_TRUE(status_[1].ok());
  journal.reset();
  EXPECT_EQ(storedNames(), (std::vector<std::string>{"kept"}));
}

TEST_F(JournalTest, D4_ADiskThatFailsRefusesUntilItWorksAgain) {
  auto journal = start({.probe = seconds(3600)});
  disk_.crashAt(disk_.ioCount() + 1);
  append(*journal, {taskRow(1, "lost")});
  append(*journal, {taskRow(2, "lost")});
  drain();
  EXPECT_EQ(status_[0].error().code, ErrorCode::Unavailable);
  EXPECT_EQ(status_[1].error().code, ErrorCode::Unavailable);
  disk_.crashAt(UINT64_MAX);
  append(*journal, {taskRow(3, "kept")});
  drain();
  EXPECT_TRUE(status_[2].ok());
  journal.reset();
  EXPECT_EQ(storedNames(), (std::vector<std::string>{"kept"}));
}

TEST_F(JournalTest, D4_ASnapshotThatFindsNoRoomHarmsNobody) {
  auto journal = start();
  for (std::uint64_t id = 0; id < 200; ++id) append(*journal, {taskRow(id, "t")});
  drain();
  disk_.setCapacity(0);
  Status taken = ok();
  bool told = false;
  journal->snapshot([&](Status status) { taken = std::move(status), told = true; });
  inbox_.runUntil([&] { return told; });
  EXPECT_EQ(taken.error().code, ErrorCode::Unavailable);
  EXPECT_TRUE(journal->counters().healthy);
  disk_.setCapacity(INT64_MAX);
  journal.reset();
  EXPECT_EQ(storedNames().size(), 200u);
}

TEST_F(JournalTest, D4_AFailedFsyncEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto journal = start();
        disk_.fail(MemoryDisk::Op::Sync);
        append(*journal, {taskRow(1, "a")});
        drain();
      },
      ::testing::ExitedWithCode(static_cast<int>(ExitCode::Environment)), "fsync failed");
}

}  // namespace
}  // namespace qgpu::journal_test
