// Recordings on a disk: a file for each life, their bound, and who may write there.

#include "services/replay/recording_writer.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "services/replay/recording_file.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::recording_writer_test {
namespace {

using testing::TempFolder;

constexpr std::int64_t kAt = 1'700'000'000'000;
constexpr RecordingWriter::Limits kSmall{100'000, 1UL << 20U};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

Words refusedBy(std::uint32_t actor) {
  ScratchBuilder scratch;
  return recordOf(scratch, [&](schema::Recorded::Builder to) { to.setRefused(actor); });
}

// What stands in the only recording of a folder: actors that were refused, and how it ended.
struct Content {
  std::vector<std::uint32_t> refused;
  std::string ended;
};
Content contentOf(const std::string& path) {
  auto reader = RecordingReader::open(std::make_unique<std::ifstream>(path), path);
  Content content;
  EXPECT_TRUE(reader.ok());
  for (; (*reader)->at() == RecordingReader::At::Record; (*reader)->next()) {
    const auto record = (*reader)->record();
    if (record.isRefused()) content.refused.push_back(record.getRefused());
    if (record.isEnded()) content.ended = record.getEnded().cStr();
  }
  EXPECT_EQ((*reader)->at(), RecordingReader::At::End);
  return content;
}

std::unique_ptr<RecordingWriter> opened(const std::string& folder,
                                        RecordingWriter::Limits limits = {}) {
  auto writer = RecordingWriter::open(folder, limits);
  EXPECT_TRUE(writer.ok()) << writer.error().message;
  return std::move(*writer);
}

TEST(RecordingWriter, WritesWhatItIsToldInOrderForItsUserAlone) {
  TempFolder folder;
  const std::string there = folder / "records";
  std::string path;
  {
    auto writer = opened(there);
    EXPECT_FALSE(writer->takes());
    ASSERT_TRUE(writer->begin({refusedBy(0)}, kAt, {}).ok());
    EXPECT_TRUE(writer->takes());
    path = writer->path();
    for (std::uint32_t i = 1; i < 10'000; ++i) writer->put(refusedBy(i));
  }
  const Content content = contentOf(path);
  ASSERT_EQ(content.refused.size(), 10'000u);
  for (std::uint32_t i = 0; i < 10'000; ++i) ASSERT_EQ(content.refused[i], i);
  EXPECT_EQ(content.ended, "it was stopped");
  EXPECT_SAYS(path, "/scheduler-20231114T221320.000-");
  struct stat facts {};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
}

TEST(RecordingWriter, StopsAtItsBoundAndSaysSo) {
  TempFolder folder;
  std::promise<std::string> stopped;
  auto writer = opened(folder.path(), kSmall);
  ASSERT_TRUE(writer->begin({}, kAt, [&](const std::string& why) { stopped.set_value(why); }).ok());
  for (std::uint32_t i = 0; writer->takes(); ++i) writer->put(refusedBy(i));
  EXPECT_SAYS(stopped.get_future().get(), "as --record-mib says");
  const std::string path = writer->path();
  writer.reset();
  EXPECT_SAYS(contentOf(path).ended, "as --record-mib says");
  EXPECT_LE(std::filesystem::file_size(path), kSmall.folderBytes + 200);
}

TEST(RecordingWriter, StopsWhereTheDiskDoesNotKeepUp) {
  TempFolder folder;
  std::promise<std::string> stopped;
  RecordingWriter::Limits limits;
  limits.pendingBytes = 8;  // no record is so small
  auto writer = opened(folder.path(), limits);
  ASSERT_TRUE(writer->begin({}, kAt, [&](const std::string& why) { stopped.set_value(why); }).ok());
  writer->put(refusedBy(1));
  EXPECT_FALSE(writer->takes());
  EXPECT_EQ(stopped.get_future().get(), "the disk did not keep up");
}

TEST(RecordingWriter, OldestRecordingsMakeRoom) {
  TempFolder folder;
  std::vector<std::string> paths;
  for (int life = 0; life < 4; ++life) {
    auto writer = opened(folder.path(), kSmall);
    ASSERT_TRUE(writer->begin({}, kAt + life * 1'000, {}).ok());
    paths.push_back(writer->path());
    for (std::uint32_t i = 0; i < 1'000; ++i) writer->put(refusedBy(i));
  }
  std::ofstream(folder / "notes").put('x');
  EXPECT_FALSE(std::filesystem::exists(paths[0]));
  EXPECT_TRUE(std::filesystem::exists(paths[3]));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes"));
  EXPECT_EQ(contentOf(paths[3]).refused.size(), 1'000u);
}

TEST(RecordingWriter, AFolderIsOneProcessAlone) {
  TempFolder folder;
  const auto first = opened(folder.path());
  const auto second = RecordingWriter::open(folder.path(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_SAYS(second.error().message, "another process records in " + std::string(folder.path()));
  const auto nowhere = RecordingWriter::open(folder / "a/b", {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_SAYS(nowhere.error().message, "can't make");
}

TEST(RecordingWriter, AStoreThatIsLargerThanTheBoundIsToldAndLeavesNoFile) {
  TempFolder folder;
  auto writer = opened(folder.path(), {64, 64});
  std::vector<Words> rows(10, refusedBy(1));
  const Status begun = writer->begin(rows, kAt, {});
  ASSERT_FALSE(begun.ok());
  EXPECT_SAYS(begun.error().message, "give --record-mib more");
  EXPECT_FALSE(writer->takes());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace qgpu::recording_writer_test
