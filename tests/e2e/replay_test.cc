// A scheduler that records, under real managers: what it decided is decided again from the files,
// and what was changed, cut or damaged in them is told.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "services/replay/testing/memory_recording.h"
#include "tests/e2e/harness.h"

namespace qgpu::e2e::replay_test {
namespace {

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<std::string> memberOf(const Scheduler& scheduler, const std::string& name) {
  return {"--cards=sim:2x16", "--nodename=" + name, "--scheduler=" + scheduler.rpc()};
}

Finished replay(const std::string& path, std::vector<std::string> more = {}) {
  std::vector<std::string> argv = {binary("qgpu-scheduler"), "--replay=" + path};
  argv.insert(argv.end(), more.begin(), more.end());
  return run(argv);
}

std::string textOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Two lives of a scheduler: the first is killed, the second stopped.
class RecordedCluster : public ::testing::Test {
 protected:
  RecordedCluster() {
    EXPECT_TRUE(scheduler_.waitFor("node-a", "alive"));
    EXPECT_TRUE(scheduler_.waitFor("node-b", "alive"));
    EXPECT_HOLDS(scheduler_.log(), "records file=" + (folder_ / "records/scheduler-"));
    for (int i = 0; i < 6; ++i) submit("first-" + std::to_string(i), 60);
    for (const char* ask : {"cordon node-a", "uncordon node-a", "nodes", "tasks"}) ok(ask);
    ok("delete " + submit("short", 10)["task"].dump());
    ok("drain node-b 1s");
    EXPECT_TRUE(eventually([&] { return b_.tasks().empty(); }));
    scheduler_.kill();
    scheduler_.start();
    EXPECT_TRUE(scheduler_.waitFor("node-a", "alive"));
    EXPECT_TRUE(scheduler_.waitFor("node-b", "alive"));
    ok("uncordon node-b");
    last_ = submit("second", 10);
    EXPECT_TRUE(eventually([&] { return !b_.tasks().empty(); }));
    EXPECT_EQ(scheduler_.stop(), 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "records")) {
      files_.push_back(entry.path().string());
    }
    std::sort(files_.begin(), files_.end());
  }

  void ok(const std::string& line) {
    const Json answer = scheduler_.ask(line);
    EXPECT_TRUE(answer["ok"]) << line << ": " << answer;
  }
  Json submit(const std::string& name, int core) {
    return scheduler_.ask(R"(submit {"memory_gib":2,"name":")" + name + R"(","core_percent":)" +
                          std::to_string(core) + "}");
  }
  // A copy of a recording with another content.
  std::string written(const std::string& name, const std::string& content) {
    return folder_.write(name, content);
  }

  TempFolder folder_;
  Scheduler scheduler_{{"--lease=3s", "--record=" + (folder_ / "records")}};
  Manager a_{memberOf(scheduler_, "node-a")};
  Manager b_{memberOf(scheduler_, "node-b")};
  Json last_;
  std::vector<std::string> files_;
};

TEST_F(RecordedCluster, A13_IsDecidedAgainByteByByte) {
  ASSERT_EQ(files_.size(), 2u);
  const Finished both = replay(folder_ / "records");
  EXPECT_EQ(both.status, 0) << both.output;
  for (const std::string& file : files_) {
    EXPECT_HOLDS(both.output, file + ": the same as recorded");
    struct stat facts {};
    ASSERT_EQ(::stat(file.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  }
  EXPECT_HOLDS(both.output, "The recording is cut there");
  EXPECT_HOLDS(both.output, "The recording ends: it was stopped.");
  EXPECT_EQ(both.output.find("warning"), std::string::npos) << both.output;

  // Of the second life: a task of the first, at its end and before its first turn.
  const std::string task = last_["task"].dump();
  const Finished explained = replay(files_[1], {"--explain=" + task});
  EXPECT_EQ(explained.status, 0) << explained.output;
  EXPECT_HOLDS(explained.output, "\"ok\":true");
  EXPECT_HOLDS(explained.output, last_["node"].get<std::string>());
  const Finished before = replay(files_[1], {"--until=2020-01-31T12:00:00Z"});
  EXPECT_EQ(before.status, 0) << before.output;
  EXPECT_HOLDS(before.output, "0 turns");
  EXPECT_HOLDS(before.output, "Later turns than 2020-01-31T12:00:00Z were left out.");
}

TEST_F(RecordedCluster, WhatDiffersIsNamedAndDamageIsTold) {
  ASSERT_EQ(files_.size(), 2u);
  const std::string file = textOf(files_[1]);
  const std::string other =
      written("other", testing::MemoryRecording::changed(file, [](schema::Recorded::Builder r) {
                if (r.isBegan()) {
                  r.getBegan().setVersion("9.9.9");
                  r.getBegan().getOptions().setLeaseNs(millis(3'500).value);
                }
                return true;
              }));
  const Finished differs = replay(other);
  EXPECT_EQ(differs.status, 1) << differs.output;
  EXPECT_HOLDS(differs.output, "other was recorded by qgpu 9.9.9, and this is ");
  EXPECT_HOLDS(differs.output, "welcome.leaseNs: recorded 3000000000, now 3500000000");

  std::string damaged = file;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  const Finished told = replay(written("damaged", damaged));
  EXPECT_EQ(told.status, 2) << told.output;
  EXPECT_HOLDS(told.output, "damaged is damaged: record ");

  const Finished cut = replay(written("cut", file.substr(0, file.size() / 2)));
  EXPECT_EQ(cut.status, 0) << cut.output;
  EXPECT_HOLDS(cut.output, "The recording is cut there");
}

TEST(Replay, WrongUseIsOneLine) {
  TempFolder folder;
  const Finished none = replay(folder.path());
  EXPECT_EQ(none.status, 2);
  EXPECT_HOLDS(none.output, "has no recording");
  EXPECT_EQ(replay(folder / "nothing").status, 2);
  EXPECT_EQ(replay(folder.write("x", "something else, long enough")).status, 2);
  const Scheduler first({"--record=" + (folder / "records")});
  const Finished second = run({binary("qgpu-scheduler"), "--run-dir=" + (folder / "run"),
                               "--dbfile=" + (folder / "s.db"), "--rpc=127.0.0.1:0",
                               "--http=127.0.0.1:0", "--record=" + (folder / "records")});
  EXPECT_EQ(second.status, 2);
  EXPECT_HOLDS(second.output, "another process records in ");
}

}  // namespace
}  // namespace qgpu::e2e::replay_test
