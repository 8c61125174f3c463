// D5: what a manager leaves of its tasks, and what the next one believes of it.

#include "services/attach/run_dir/survivors.h"

#include <capnp/message.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "services/attach/run_dir/attached_list.h"
#include "services/attach/run_dir/task_records.h"
#include "services/base/process.h"
#include "tests/testing/forked_process.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::survivors_test {
namespace {

// A process that only lives.
class Sleeper {
 public:
  std::uint32_t pid() const { return static_cast<std::uint32_t>(process_.pid()); }
  std::uint64_t start() const { return processStart(pid()).value_or(0); }
  void end() {
    process_.kill();
    process_.wait();
  }

 private:
  testing::ForkedProcess process_{[]() -> int {
    for (;;) ::pause();
  }};
};

struct Owner {
  std::uint32_t pid = 0;
  std::uint64_t start = 0;
};

class SurvivorsTest : public ::testing::Test {
 protected:
  SurvivorsTest() {
    EXPECT_TRUE(records.open(folder_).ok());
    EXPECT_TRUE(list.open(folder_).ok());
  }

  static std::string tokenOf(std::uint64_t task) {
    std::string token = std::to_string(task);
    return std::string(32 - token.size(), '0') + token;
  }

  void write(std::uint64_t task, const std::string& token, Owner owner = {}) {
    capnp::MallocMessageBuilder message;
    auto row = message.initRoot<schema::TaskRow>();
    row.setId(task);
    row.setToken(token);
    row.initSpec().setName("task of a test");
    row.getSpec().setSharePermille(300);
    row.getSpec().setOwnerPid(owner.pid);
    row.getSpec().setOwnerStart(owner.start);
    row.initCards(1).set(0, "sim-0");
    row.setBoundUnixMs(1234);
    records.write(row.asReader());
  }
  void write(std::uint64_t task) { write(task, tokenOf(task)); }
  void listAs(const Sleeper& process, std::uint64_t task) {
    list.add({process.pid(), process.start(), task, {0}});
  }

  std::string file(std::uint64_t task) const { return folder_ + "/tasks/" + std::to_string(task); }
  std::string bytesOf(std::uint64_t task) const {
    std::ifstream in(file(task), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(std::uint64_t task, const std::string& bytes) const {
    std::ofstream(file(task), std::ios::binary | std::ios::trunc) << bytes;
  }

  // Valid until the next call.
  schema::TaskRow::Reader rowOf(const StoredRow& stored) {
    row_ = stored;
    return capnp::readMessageUnchecked<schema::Row>(row_->words.data()).getTask();
  }
  Survivors survivors() {
    Result<Survivors> found = findSurvivors(folder_);
    EXPECT_TRUE(found.ok());
    return found.ok() ? std::move(*found) : Survivors();
  }
  static std::vector<std::uint64_t> numbers(const Survivors& found) {
    std::vector<std::uint64_t> tasks;
    for (const StoredRow& row : found.tasks) tasks.push_back(row.key.id);
    return tasks;
  }

  TaskRecords records;
  AttachedList list;
  const testing::TempFolder made_{"survivors"};
  const std::string folder_ = made_.path();

 private:
  std::optional<StoredRow> row_;
};

using Numbers = std::vector<std::uint64_t>;

// --- records ---

TEST_F(SurvivorsTest, ARecordIsTheRowThatWasCommittedAndOnlyItsOwnerMayReadIt) {
  write(7);
  const Result<StoredRow> read = records.read(7);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->key, (RowKey{RowKind::Task, 7}));
  const auto row = rowOf(*read);
  EXPECT_EQ(row.getId(), 7u);
  EXPECT_EQ(row.getToken(), tokenOf(7).c_str());
  EXPECT_EQ(row.getSpec().getSharePermille(), 300u);
  EXPECT_STREQ(row.getCards()[0].cStr(), "sim-0");
  EXPECT_EQ(row.getBoundUnixMs(), 1234u);
  struct stat facts {};
  ASSERT_EQ(::stat(file(7).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u) << "it holds a token";
  records.remove(7);
  EXPECT_EQ(records.read(7).error().code, ErrorCode::NotFound);
}

TEST_F(SurvivorsTest, D5_ARecordThatIsCutAnywhereIsNotBelieved) {
  write(7);
  const std::string whole = bytesOf(7);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(7, whole.substr(0, length));
    ASSERT_EQ(records.read(7).error().code, ErrorCode::Corrupt) << length;
  }
  put(7, whole + whole);
  EXPECT_EQ(records.read(7).error().code, ErrorCode::Corrupt);
  put(7, whole + std::string(1 << 20, 'x'));
  EXPECT_NE(records.read(7).error().message.find("longer than"), std::string::npos);
  put(7, whole);
  EXPECT_TRUE(records.read(7).ok());
}

TEST_F(SurvivorsTest, D5_ARecordWithAnyByteChangedIsNotBelieved) {
  write(7);
  const std::string whole = bytesOf(7);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    put(7, changed);
    ASSERT_FALSE(records.read(7).ok()) << at;
  }
  put(8, whole);  // another task's name
  EXPECT_EQ(records.read(8).error().code, ErrorCode::Corrupt);
}

TEST_F(SurvivorsTest, D6_ARecordOfANewerManagerIsLeftAloneAndSaidSo) {
  write(7);
  std::string newer = bytesOf(7);
  newer[8] = 2;
  put(7, newer);
  const Survivors found = survivors();
  EXPECT_TRUE(found.tasks.empty());
  ASSERT_EQ(found.unusable.size(), 1u);
  EXPECT_NE(found.unusable[0].find("newer qgpu-manager"), std::string::npos);
  EXPECT_EQ(bytesOf(7), newer);
}

TEST_F(SurvivorsTest, WhatIsNoRecordIsClearedAway) {
  write(7);
  for (const char* name : {"7.new", "8.new", "x", "0", "007", "99999999999999999999", "-1"}) {
    std::ofstream(folder_ + "/tasks/" + name) << "half";
  }
  EXPECT_EQ(records.list(), Numbers{7});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/tasks"), {}), 1);
}

TEST_F(SurvivorsTest, AnEvictionIsNotForgottenWithTheDatabase) {
  write(7);
  records.markEvicting(7);
  const Result<StoredRow> read = records.read(7);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(rowOf(*read).getEvicting());
  EXPECT_EQ(rowOf(*read).getToken(), tokenOf(7).c_str());
  records.markEvicting(8);  // has none
  EXPECT_EQ(records.list(), Numbers{7});
}

// --- who lives ---

TEST_F(SurvivorsTest, D5_ATaskLivesWhileAListedProcessDoes) {
  Sleeper seven, eight;
  write(7);
  write(8);
  write(9);  // had a process, which is not listed any more
  listAs(seven, 7);
  listAs(eight, 8);
  eight.end();
  const Survivors found = survivors();
  EXPECT_EQ(numbers(found), Numbers{7});
  EXPECT_EQ(found.lastTask, 7u);
  EXPECT_TRUE(found.unusable.empty());
  EXPECT_EQ(records.list(), Numbers{7}) << "nobody lives of the others";
}

TEST_F(SurvivorsTest, D5_APidThatWasGivenOutAgainIsNotTheProcess) {
  Sleeper other;
  write(7);
  list.add({other.pid(), other.start() + 1, 7, {0}});
  EXPECT_TRUE(survivors().tasks.empty());
}

TEST_F(SurvivorsTest, D5_ATaskWhoseProgramHasNotTouchedItsCardYetLivesWithItsOwner) {
  Sleeper owner, gone;
  write(7, tokenOf(7), {owner.pid(), owner.start()});
  write(8, tokenOf(8), {gone.pid(), gone.start()});
  gone.end();
  EXPECT_EQ(numbers(survivors()), Numbers{7});
}

TEST_F(SurvivorsTest, D5_ADamagedRecordHarmsOnlyItself) {
  Sleeper process;
  for (const std::uint64_t task : {7u, 8u, 9u}) {
    write(task);
    listAs(process, task);
  }
  put(8, bytesOf(8).substr(0, 40));
  const Survivors found = survivors();
  EXPECT_EQ(numbers(found), (Numbers{7, 9}));
  ASSERT_EQ(found.unusable.size(), 1u);
  EXPECT_EQ(found.unusable[0], folder_ + "/tasks/8 is cut off");
  EXPECT_TRUE(survivors().unusable.empty()) << "said once";
}

TEST_F(SurvivorsTest, D5_NoTokenOpensTwoTasks) {
  Sleeper process;
  write(7, tokenOf(7));
  write(8, tokenOf(7));
  listAs(process, 7);
  listAs(process, 8);
  const Survivors found = survivors();
  EXPECT_EQ(numbers(found), Numbers{7});
  ASSERT_EQ(found.unusable.size(), 1u);
  EXPECT_EQ(found.lastTask, 8u) << "its number is in use all the same";
}

TEST_F(SurvivorsTest, P9_AllTasksThatLiveAreNamedByProcessOrOwner) {
  const Sleeper process;
  const Sleeper owner;
  write(3, tokenOf(3), {owner.pid(), owner.start()});
  write(4);  // nobody lives of it
  listAs(process, 9);
  write(9);
  listAs(process, 6);
  EXPECT_EQ(survivors().living, (Numbers{3, 6, 9}));
}

TEST_F(SurvivorsTest, A10_TheNumberOfALivingTaskIsKnownAlsoWithoutARecord) {
  Sleeper process;
  listAs(process, 12);
  listAs(process, UINT64_MAX);  // nonsense
  const Survivors found = survivors();
  EXPECT_TRUE(found.tasks.empty());
  EXPECT_EQ(found.lastTask, 12u);
}

}  // namespace
}  // namespace qgpu::survivors_test
