// The store and its rows: what is kept, what is refused, and what damage leads to. The journal
// thread has its own tests in journal_test.cc, crashes in store_crash_test.cc.

#include <capnp/any.h>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

#include "store/crc32c.h"
#include "store/sqlite_store.h"
#include "tests/testing/forked_process.h"
#include "tests/unit/store/store_fixture.h"

namespace qgpu::store_test {
namespace {

using ::testing::Test;

class StoreTest : public Test {
 protected:
  SqliteStore open() {
    auto store = SqliteStore::open(path_);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return std::move(store).value();
  }
  Error openFails() {
    auto store = SqliteStore::open(path_);
    EXPECT_FALSE(store.ok());
    return store.ok() ? Error{} : store.error();
  }
  std::vector<StoredRow> loaded() {
    SqliteStore store = open();
    return std::move(store.load()).value();
  }
  void write(std::vector<StoredRow> rows, bool snapshot = false) {
    SqliteStore store = open();
    for (const StoredRow& row : rows) ASSERT_TRUE(store.add(row).ok());
    ASSERT_EQ(store.commit(), RowStore::Commit::Done);
    if (!snapshot) return;
    ASSERT_TRUE(store.snapshot().ok());
  }
  std::string fileBytes() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "meta.db";
};

TEST(Crc32c, GivesThePublishedCheckValue) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}

TEST_F(StoreTest, GivesBackTheNewestRowOfEachKeyAfterAReopen) {
  write({nodeRow(1), taskRow(1, "a"), taskRow(2, "b"), taskRow(1, "c"), nodeRow(2)});
  const auto rows = loaded();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(read(rows[0]).getNode().getIncarnation(), 2u);
  EXPECT_EQ(taskNames(rows), (std::vector<std::string>{"c", "b"}));
  EXPECT_EQ(read(rows[1]).getTask().getCards()[1], "sim-1");
}

TEST_F(StoreTest, LeavesOutErasedKeys) {
  write({taskRow(1, "a"), taskRow(2, "b"), erasedTask(1)});
  EXPECT_EQ(taskNames(loaded()), (std::vector<std::string>{"b"}));
}

TEST_F(StoreTest, KeepsIdsOfAllSixtyFourBits) {
  write({taskRow(UINT64_MAX, "last")}, true);
  EXPECT_EQ(loaded().at(0).key.id, UINT64_MAX);
}

TEST_F(StoreTest, RecoversFromASnapshotAndTheJournalAfterIt) {
  write({taskRow(1, "a"), taskRow(2, "b"), taskRow(3, "c")}, true);
  write({taskRow(2, "B"), erasedTask(3), taskRow(4, "d")});
  EXPECT_EQ(taskNames(loaded()), (std::vector<std::string>{"a", "B", "d"}));
  write({}, true);
  EXPECT_EQ(taskNames(loaded()), (std::vector<std::string>{"a", "B", "d"}));
}

TEST_F(StoreTest, CountsOnAfterASnapshotAndAReopen) {
  write({taskRow(1, "a"), taskRow(2, "b")}, true);
  SqliteStore store = open();
  EXPECT_EQ(store.lastLsn(), 2);
  EXPECT_EQ(store.journalRows(), 0u);
  ASSERT_TRUE(store.add(taskRow(1, "c")).ok());
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  EXPECT_EQ(store.lastLsn(), 3);
}

TEST_F(StoreTest, KeepsTheNewestAuditRowsOnly) {
  SqliteStore store = open();
  const auto count = static_cast<std::uint64_t>(kAuditRowsMax) + 5;
  for (std::uint64_t seq = 1; seq <= count; ++seq) ASSERT_TRUE(store.add(auditRow(seq)).ok());
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  ASSERT_TRUE(store.snapshot().ok());
  const auto rows = std::move(store.load()).value();
  EXPECT_EQ(rows.size(), static_cast<std::size_t>(kAuditRowsMax));
  EXPECT_EQ(rows.front().key.id, 6u);
}

// Each restart of a manager skips a thousand numbers of events.
TEST_F(StoreTest, KeepsAuditRowsWhateverTheirNumbersAre) {
  SqliteStore store = open();
  const auto gap = static_cast<std::uint64_t>(kAuditRowsMax);
  for (const std::uint64_t seq : {std::uint64_t{2}, gap * 3, gap * 9}) {
    ASSERT_TRUE(store.add(auditRow(seq)).ok());
  }
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  ASSERT_TRUE(store.snapshot().ok());
  EXPECT_EQ(std::move(store.load()).value().size(), 3u);
}

TEST_F(StoreTest, D1_ForgetsWhatWasNotCommitted) {
  {
    SqliteStore store = open();
    ASSERT_TRUE(store.add(taskRow(1, "a")).ok());
    ASSERT_EQ(store.commit(), RowStore::Commit::Done);
    ASSERT_TRUE(store.add(taskRow(2, "b")).ok());
  }
  EXPECT_EQ(taskNames(loaded()), (std::vector<std::string>{"a"}));
}

TEST_F(StoreTest, RefusesARowThatCouldNotBeReadBack) {
  SqliteStore store = open();
  StoredRow wrongKind = taskRow(1, "a");
  wrongKind.key.kind = RowKind::Node;
  EXPECT_EQ(store.add(wrongKind).error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(store.add(StoredRow{{RowKind::Task, 1}, {}}).error().code, ErrorCode::InvalidArgument);
  StoredRow huge = taskRow(1, "a");
  huge.words = Words(kRowBytesMax / sizeof(capnp::word) + 1);
  EXPECT_EQ(store.add(huge).error().code, ErrorCode::InvalidArgument);
}

TEST_F(StoreTest, RefusesASecondOwnerAndLeavesTheFirstAlone) {
  SqliteStore store = open();
  ASSERT_TRUE(store.add(taskRow(1, "a")).ok());
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  const Error error = openFails();
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_NE(error.message.find(path_ + " is in use"), std::string::npos) << error.message;
  ASSERT_TRUE(store.add(taskRow(2, "b")).ok());
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  EXPECT_EQ(taskNames(std::move(store.load()).value()), (std::vector<std::string>{"a", "b"}));
}

TEST_F(StoreTest, KeepsItsLockAgainstOtherProcesses) {
  SqliteStore store = open();
  openFails();  // this attempt must not cost us the lock
  testing::ForkedProcess child([&] {
    auto other = SqliteStore::open(path_);
    return !other.ok() && other.error().code == ErrorCode::Conflict ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(StoreTest, UsesNoSharedMemoryFileAndNobodyElseMayRead) {
  SqliteStore store = open();
  ASSERT_TRUE(store.add(taskRow(1, "a")).ok());
  ASSERT_EQ(store.commit(), RowStore::Commit::Done);
  EXPECT_FALSE(std::filesystem::exists(path_ + "-shm"));
  for (const char* suffix : {"", "-wal"}) {
    struct stat facts = {};
    ASSERT_EQ(::stat((path_ + suffix).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(StoreTest, MakesTheFolderThatItNeeds) {
  auto store = SqliteStore::open(folder_ / "a/b/meta.db");
  EXPECT_TRUE(store.ok());
}

TEST_F(StoreTest, SaysWhatIsWrongWithAPath) {
  auto folder = SqliteStore::open(folder_ / "");
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::Unavailable);
  std::ofstream(folder_ / "file") << "x";
  auto below = SqliteStore::open(folder_ / "file/meta.db");
  ASSERT_FALSE(below.ok());
  EXPECT_NE(below.error().message.find("--dbfile"), std::string::npos) << below.error().message;
}

TEST_F(StoreTest, D3_RedoOfAnySuffixTwiceGivesTheSameDigest) {
  const std::vector<StoredRow> rows = {taskRow(1, "a"), taskRow(2, "b"), taskRow(1, "c"),
                                       taskRow(3, "d"), taskRow(2, "e")};
  RowTable whole;
  for (std::size_t i = 0; i < rows.size(); ++i) whole.redo(static_cast<Lsn>(i + 1), rows[i]);
  whole.redo(6, StoredRow{{RowKind::Task, 3}, {}});
  const std::uint64_t expected = whole.digest();
  for (std::size_t from = 0; from < rows.size(); ++from) {
    for (std::size_t i = from; i < rows.size(); ++i) {
      whole.redo(static_cast<Lsn>(i + 1), rows[i]);
    }
    EXPECT_EQ(whole.digest(), expected) << "suffix from " << from;
  }
  EXPECT_EQ(whole.rows().size(), 2u);
}

TEST_F(StoreTest, D5_FindsAChangedByteInARow) {
  for (const bool inSnapshot : {false, true}) {
    std::filesystem::remove(path_);
    write({taskRow(7, "a"), taskRow(8, "b")}, inSnapshot);
    const std::string table = inSnapshot ? "snapshot" : "journal";
    tamper(path_, "UPDATE " + table +
                      " SET row = substr(row, 1, 20) || x'ff' || substr(row, 22) WHERE id = 7");
    const std::string before = fileBytes();
    const Error error = openFails();
    EXPECT_EQ(error.code, ErrorCode::Corrupt);
    EXPECT_NE(error.message.find("task 7 fails its checksum"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("move it and"), std::string::npos) << error.message;
    EXPECT_EQ(fileBytes(), before);
  }
}

TEST_F(StoreTest, D5_FindsARowUnderAnotherKeyAndAHoleInTheJournal) {
  write({taskRow(1, "a"), taskRow(2, "b"), taskRow(3, "c")});
  std::filesystem::copy_file(path_, path_ + ".good");
  for (const char* sql :
       {"UPDATE journal SET id = 9 WHERE id = 2", "DELETE FROM journal WHERE lsn = 2",
        "DELETE FROM journal WHERE lsn = 1", "UPDATE meta SET v = 1 WHERE k = 'snapshotLsn'",
        "UPDATE journal SET kind = 70000 WHERE id = 2", "DELETE FROM meta"}) {
    std::filesystem::copy_file(path_ + ".good", path_,
                               std::filesystem::copy_options::overwrite_existing);
    tamper(path_, sql);
    auto store = SqliteStore::open(path_);
    EXPECT_FALSE(store.ok()) << sql;
  }
}

TEST_F(StoreTest, D5_FindsAPageOfGarbage) {
  std::vector<StoredRow> rows;
  for (std::uint64_t id = 1; id <= 200; ++id) rows.push_back(taskRow(id, std::string(100, 'x')));
  write(rows, true);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4 * 4096);
  file << std::string(4096, '\x5a');
  file.close();
  EXPECT_EQ(openFails().code, ErrorCode::Corrupt);
}

TEST_F(StoreTest, D5_RefusesAFileThatIsNoDatabaseAndLeavesItAlone) {
  std::ofstream(path_) << std::string(8192, 'x');
  EXPECT_EQ(openFails().code, ErrorCode::Corrupt);
  EXPECT_EQ(fileBytes(), std::string(8192, 'x'));
}

TEST_F(StoreTest, D3_CutsATornTail) {
  {
    SqliteStore store = open();
    for (const char* name : {"a", "b", "c"}) {
      ASSERT_TRUE(store.add(taskRow(1, name)).ok());
      ASSERT_EQ(store.commit(), RowStore::Commit::Done);
    }
    // What a crash would leave: the files as they are while the store lives.
    std::filesystem::copy_file(path_, folder_ / "torn.db");
    std::filesystem::copy_file(path_ + "-wal", folder_ / "torn.db-wal");
  }
  const auto whole = std::filesystem::file_size(folder_ / "torn.db-wal");
  std::filesystem::resize_file(folder_ / "torn.db-wal", whole - 100);
  auto torn = SqliteStore::open(folder_ / "torn.db");
  ASSERT_TRUE(torn.ok()) << torn.error().message;
  EXPECT_EQ(torn->lastLsn(), 2);
  EXPECT_EQ(taskNames(std::move(torn->load()).value()), (std::vector<std::string>{"b"}));
}

TEST_F(StoreTest, D6_RefusesANewerFormatAndLeavesItAlone) {
  write({taskRow(1, "a")});
  tamper(path_, "UPDATE meta SET v = 7 WHERE k = 'format'");
  const std::string before = fileBytes();
  const Error error = openFails();
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_NE(error.message.find("has format 7"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("install a newer qgpu"), std::string::npos) << error.message;
  EXPECT_EQ(fileBytes(), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + "-shm"));
}

// What this program does not know yet, under a checksum that is right.
TEST_F(StoreTest, D6_RowsThatNeedALaterReaderAreRefusedByItsVersionAndLeftAlone) {
  Formats later = kFormats;
  later.reads = kReads + 1;
  later.needs = {kReads + 1, "3.1.0"};
  {
    auto store = SqliteStore::open(path_, {.formats = &later});
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(store->add(taskRow(1, "a")).ok());
    ASSERT_EQ(store->commit(), RowStore::Commit::Done);
  }
  const std::string before = fileBytes();
  const Error error = openFails();
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_NE(error.message.find("needs qgpu 3.1.0 or newer"), std::string::npos) << error.message;
  EXPECT_EQ(fileBytes(), before);
  EXPECT_TRUE(SqliteStore::open(path_, {.formats = &later}).ok());
}

TEST_F(StoreTest, D6_ADowngradeWithinTheSameReaderGoesOn) {
  Formats later = kFormats;
  later.reads = kReads + 1;  // it knows more, and writes what today's reader understands
  ASSERT_TRUE(SqliteStore::open(path_, {.formats = &later}).ok());
  write({taskRow(1, "a")});
  EXPECT_EQ(taskNames(loaded()), std::vector<std::string>{"a"});
}

TEST_F(StoreTest, ItIsReadAgainBetweenCommits) {
  SqliteStore store = open();
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(store.add(taskRow(1, name)).ok());
    ASSERT_EQ(store.commit(), RowStore::Commit::Done);
    EXPECT_EQ(taskNames(std::move(store.load()).value()), std::vector<std::string>{name});
  }
}

TEST_F(StoreTest, D6_RowsOfANewerQgpuAreNoDamage) {
  const StoredRow row = taskRow(1, "a");
  const RowKey later{RowKind(99), 1};
  write({row});
  tamper(path_,
         "UPDATE journal SET kind = 99, sum = " + std::to_string(checksum(later, 1, bytesOf(row))));
  const std::string before = fileBytes();
  const Error error = openFails();
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_EQ(error.message, path_ +
                               ": journal: kind 99 1 was written by a newer qgpu: install that "
                               "one, or choose another --dbfile");
  EXPECT_EQ(fileBytes(), before);
  tamper(path_, "UPDATE journal SET sum = sum + 1");
  EXPECT_EQ(openFails().code, ErrorCode::Corrupt);
}

TEST_F(StoreTest, D6_RefusesTheDatabaseOfAnotherProgram) {
  tamper(path_, "CREATE TABLE recipes (name TEXT)");
  const std::string before = fileBytes();
  EXPECT_EQ(openFails().code, ErrorCode::Unsupported);
  EXPECT_EQ(fileBytes(), before);
}

TEST_F(StoreTest, D6_LoadsTheFixtureOfFormat1) {
  std::ifstream sql(std::string(QGPU_FIXTURES) + "/store_format1.sql");
  ASSERT_TRUE(sql.is_open());
  tamper(path_, {std::istreambuf_iterator<char>(sql), {}});
  const auto rows = loaded();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(read(rows[0]).getNode().getIncarnation(), 4u);
  EXPECT_EQ(taskNames(rows), (std::vector<std::string>{"kept", "changed"}));
}

TEST_F(StoreTest, D6_MigratesAnOlderFormatStepByStep) {
  write({taskRow(1, "a")});
  const Migration steps[] = {{1, "CREATE TABLE extra (k)"}, {2, "ALTER TABLE extra ADD COLUMN v"}};
  const Formats later = {3, "", steps};
  {
    auto store = SqliteStore::open(path_, {.formats = &later});
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_EQ(taskNames(std::move(store->load()).value()), (std::vector<std::string>{"a"}));
  }
  tamper(path_, "SELECT k, v FROM extra");
  EXPECT_EQ(openFails().code, ErrorCode::Unsupported);  // today's program meets the later file
}

TEST_F(StoreTest, D6_AStepThatFailsLeavesTheOldFormat) {
  write({taskRow(1, "a")});
  const Migration steps[] = {{1, "CREATE TABLE extra (k); SELECT * FROM missing"}};
  const Formats later = {2, "", steps};
  EXPECT_FALSE(SqliteStore::open(path_, {.formats = &later}).ok());
  const Formats gap = {3, "", steps};
  auto refused = SqliteStore::open(path_, {.formats = &gap});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(taskNames(loaded()), (std::vector<std::string>{"a"}));
}

// Bytes that pass the checksum are ours; these tests ask what the decoder alone makes of others.
TEST(DecodeRow, D5_RefusesMessagesThatReachOutsideThemselves) {
  StoredRow row = taskRow(1, "name");
  const auto good = bytesOf(row);
  ASSERT_TRUE(decodeRow(row.key, good).ok());
  EXPECT_FALSE(decodeRow(row.key, good.first(good.size() - 8)).ok());
  EXPECT_FALSE(decodeRow(row.key, good.first(good.size() - 3)).ok());
  EXPECT_FALSE(decodeRow(row.key, {}).ok());
  EXPECT_FALSE(decodeRow({RowKind::Card, 1}, good).ok());
  EXPECT_FALSE(decodeRow({RowKind(9), 1}, good).ok());
}

TEST(DecodeRow, D6_AKindThatIsNotKnownIsOfANewerQgpu) {
  StoredRow row = taskRow(1, "name");
  EXPECT_EQ(decodeRow({RowKind(99), 1}, bytesOf(row)).error().code, ErrorCode::Unsupported);
  // Data begins with the union's tag, 16 bits wide; the root pointer stands before it.
  const auto of = [](std::uint16_t which) {
    const std::uint64_t words[] = {std::uint64_t{1} << 32, which};
    const auto decoded = decodeRow({RowKind::Task, 1}, std::as_bytes(std::span(words)));
    return decoded ? ErrorCode::Internal : decoded.error().code;
  };
  EXPECT_EQ(of(999), ErrorCode::Unsupported);
  EXPECT_EQ(of(schema::Row::NODE), ErrorCode::Corrupt) << "known, and of another key";
}

TEST(DecodeRow, D6_ARootThatAnOlderSchemaMadeSmallerStaysWhole) {
  // A struct of one word of data and no pointers; it says that it is a node's row.
  const std::uint64_t words[] = {std::uint64_t{1} << 32, 1};
  const auto bytes = std::as_bytes(std::span(words));
  const auto decoded = decodeRow({RowKind::Node, 0}, bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(read(*decoded).isNode());
  EXPECT_EQ(read(*decoded).getNode().getNextTask(), 0u);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), bytesOf(*decoded).begin()));
}

// Each pointer is sound and leads to something that its field is not.
TEST(DecodeRow, D5_RefusesPointersOfAnotherTypeThanTheirFields) {
  const auto decoded = [](auto spoil) {
    capnp::MallocMessageBuilder message;
    auto task = message.initRoot<schema::Row>().initTask();
    task.initSpec().setName("name");
    task.setToken("token");
    task.initCards(2).set(0, "sim-0");
    spoil(message.getRoot<capnp::AnyStruct>().getPointerSection()[0].getAs<capnp::AnyStruct>());
    Words words(message.getRoot<schema::Row>().asReader().totalSize().wordCount + 1);
    capnp::copyToUnchecked(message.getRoot<capnp::AnyStruct>().asReader(),
                           kj::arrayPtr(words.data(), words.size()));
    return decodeRow({RowKind::Task, 1}, std::as_bytes(std::span(words)));
  };
  using Numbers = capnp::List<std::uint64_t>;
  const auto as = [](capnp::AnyPointer::Builder pointer) { pointer.initAs<Numbers>(2); };
  EXPECT_TRUE(decoded([](auto) {}).ok());
  EXPECT_FALSE(decoded([&](auto task) { as(task.getPointerSection()[0]); }).ok()) << "a struct";
  EXPECT_FALSE(decoded([&](auto task) { as(task.getPointerSection()[1]); }).ok()) << "a text";
  EXPECT_FALSE(decoded([&](auto task) { as(task.getPointerSection()[2]); }).ok()) << "a list";
  EXPECT_FALSE(decoded([&](auto task) {
                 auto spec = task.getPointerSection()[0].template getAs<capnp::AnyStruct>();
                 as(spec.getPointerSection()[0]);
               }).ok())
      << "a text within";
  EXPECT_FALSE(decoded([](auto task) {
                 auto cards = task.getPointerSection()[2].template initAs<capnp::List<Numbers>>(2);
                 cards.init(0, 1);
               }).ok())
      << "a text in a list";
}

TEST(DecodeRow, D5_ARowOfZerosIsDamagedAndNotAnErasedKey) {
  for (const std::size_t words : {1u, 2u, 512u}) {
    const std::vector<std::byte> zeros(words * 8);
    const auto decoded = decodeRow({RowKind::Task, 1}, zeros);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.error().code, ErrorCode::Corrupt);
  }
  const StoredRow erased = erasedTask(1);
  EXPECT_FALSE(decodeRow(erased.key, bytesOf(erased)).ok());
}

TEST(DecodeRow, D5_SurvivesEveryChangeOfOneByte) {
  StoredRow row = taskRow(1, "name");
  std::vector<std::byte> bytes(bytesOf(row).begin(), bytesOf(row).end());
  for (std::byte& byte : bytes) {
    for (const auto change : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
      byte ^= change;
      auto decoded = decodeRow(row.key, bytes);
      if (decoded) static_cast<void>(read(*decoded).toString().flatten());
      byte ^= change;
    }
  }
}

}  // namespace
}  // namespace qgpu::store_test
