// Rows as a file: what it holds comes back, and what is damaged, newer, or in the way is told.

#include "store/row_copy.h"

#include <fstream>
#include <sys/stat.h>

#include "tests/unit/store/store_fixture.h"

namespace qgpu::row_copy_test {
namespace {

RowCopy sample() {
  return {"manager",
          "node-7",
          1'700'000'000'000,
          "0.1.0",
          {nodeRow(3), taskRow(1, "a"), taskRow(2, "b"), auditRow(9)}};
}

TEST(RowCopy, WhatWasWrittenIsReadAgainByNobodyElse) {
  TempFolder folder;
  const std::string path = folder / "snapshot";
  ASSERT_TRUE(writeCopyFile(path, "older").ok());
  ASSERT_TRUE(writeCopyFile(path, encodeCopy(sample())).ok());
  const auto copy = readCopy(path);
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(copy->daemon, "manager");
  EXPECT_EQ(copy->of, "node-7");
  EXPECT_EQ(copy->version, "0.1.0");
  EXPECT_EQ(copy->takenUnixMs, 1'700'000'000'000);
  EXPECT_EQ(digestOf(copy->rows), digestOf(sample().rows));
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(RowCopy, D5_EachFlippedByteAndEachCutIsTold) {
  const std::string file = encodeCopy(sample());
  for (std::size_t at = 0; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(decodeCopy(damaged).ok()) << at;
    EXPECT_FALSE(decodeCopy(file.substr(0, at)).ok()) << at;
  }
  EXPECT_TRUE(decodeCopy(file).ok());
}

TEST(RowCopy, D6_OneOfALaterQgpuSaysWhichOneItNeeds) {
  for (const char* head :
       {"qgpu-snapshot 2\nreader 1 3.1.0\n", "qgpu-snapshot 1\nreader 2 3.1.0\n"}) {
    const auto copy = decodeCopy(std::string(head) + "something else");
    ASSERT_FALSE(copy.ok());
    EXPECT_EQ(copy.error().code, ErrorCode::Unsupported);
    EXPECT_NE(copy.error().message.find("needs qgpu 3.1.0 or newer"), std::string::npos);
  }
}

TEST(RowCopy, IsRestoredIntoAnEmptyStoreAlone) {
  TempFolder folder;
  const std::string path = folder / "meta.db";
  auto store = SqliteStore::open(path);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(restoreInto(*store, sample(), 5).ok());
  EXPECT_EQ(taskNames(store->load().value()), (std::vector<std::string>{"a", "b"}));
  const Status again = restoreInto(*store, sample(), 5);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::AlreadyExists);
  EXPECT_EQ(store->load()->size(), 4U);
}

TEST(RowCopy, ARestoredNodePassesOverNumbersThatMayHaveBeenGiven) {
  const StoredRow node = makeRow({RowKind::Node, 0}, [](schema::Row::Builder row) {
    auto facts = row.initNode();
    facts.setIncarnation(4);
    facts.setNextTask(50);
  });
  const auto rows = asRestored({node}, 5);
  const auto now = read(rows.front()).getNode();
  EXPECT_TRUE(now.getRestored());
  EXPECT_EQ(now.getIncarnation(), 4U);
  EXPECT_GT(now.getNextTask(), 50U);
  EXPECT_EQ(now.getUnknownFrom(), 50U);
  EXPECT_EQ(now.getUnknownTo(), now.getNextTask());
}

// One range has both: those of the copy, and those that may have been given since.
TEST(RowCopy, ARestoredNodeKillsNothingOfANumberThatWasUnknownBefore) {
  const StoredRow node = makeRow({RowKind::Node, 0}, [](schema::Row::Builder row) {
    row.initNode().setNextTask(50);
    row.getNode().setUnknownFrom(40);
    row.getNode().setUnknownTo(42);
  });
  const auto rows = asRestored({node}, 5);
  const auto now = read(rows.front()).getNode();
  EXPECT_EQ(now.getUnknownFrom(), 40U);
  EXPECT_EQ(now.getUnknownTo(), now.getNextTask());
}

TEST(RowCopy, ARestoredSchedulerGathersAndForgetsDrainsAndTokens) {
  const StoredRow cluster = makeRow({RowKind::Cluster, 0}, [](schema::Row::Builder row) {
    auto facts = row.initCluster();
    facts.setTerm(3);
    facts.setNextTask(50);
    facts.initTokens(2)[0].setId("t");
  });
  const StoredRow member = makeRow({RowKind::ClusterNode, 0}, [](schema::Row::Builder row) {
    row.initClusterNode().setName("a");
    row.getClusterNode().initDrains(1)[0].setUntilUnixMs(9);
  });
  const auto rows = asRestored({cluster, member}, 1'000);
  const auto now = read(rows[0]).getCluster();
  EXPECT_TRUE(now.getGathers());
  EXPECT_EQ(now.getTerm(), 3U);
  EXPECT_EQ(now.getFirstTask(), 1'000U);
  EXPECT_EQ(now.getNextTask(), 1'000U);
  EXPECT_EQ(now.getTokens().size(), 0U);
  EXPECT_TRUE(read(rows[1]).getClusterNode().getCordoned());
  EXPECT_EQ(read(rows[1]).getClusterNode().getDrains().size(), 0U);
  EXPECT_EQ(std::string(read(rows[1]).getClusterNode().getName()), "a");
}

}  // namespace
}  // namespace qgpu::row_copy_test
