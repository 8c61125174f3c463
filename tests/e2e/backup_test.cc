// What is stored is lost, and comes back: from a copy that was taken before, or from what nodes
// hold. Real daemons, real programs; nobody of these notices.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <signal.h>

#include "store/row_copy.h"
#include "tests/e2e/harness.h"
#include "tests/e2e/launching_program.h"
#include "tests/unit/store/make_row.h"

namespace qgpu::e2e::backup_test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

void loseDatabase(const testing::PrivateDaemon& daemon) {
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(daemon.database() + end);
}

Finished ctl(const testing::PrivateDaemon& daemon, std::vector<std::string> words) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--socket", daemon.socket()};
  argv.insert(argv.end(), words.begin(), words.end());
  return run(argv);
}

// `qgpu-NAME --restore=FILE` on the database of this daemon.
Finished restore(const testing::PrivateDaemon& daemon, const std::string& file,
                 std::vector<std::string> more = {}) {
  std::vector<std::string> argv = {binary("qgpu-" + daemon.name()), "--restore=" + file,
                                   "--run-dir=" + daemon.runDir(), "--dbfile=" + daemon.database()};
  argv.insert(argv.end(), more.begin(), more.end());
  return run(argv);
}

// A scheduler and two managers with two cards each; a task has most of a card.
class BackedUpCluster : public ::testing::Test {
 protected:
  BackedUpCluster() {
    EXPECT_TRUE(scheduler_.waitFor("node-a", "alive"));
    EXPECT_TRUE(scheduler_.waitFor("node-b", "alive"));
  }

  static std::vector<std::string> memberOf(const Scheduler& scheduler, const std::string& name) {
    return {"--cards=sim:2x16", "--nodename=" + name, "--scheduler=" + scheduler.rpc()};
  }
  Json submit(const std::string& name, int core = 60) {
    return scheduler_.ask(R"(submit {"memory_gib":2,"name":")" + name + R"(","request_id":")" +
                          name + R"(","core_percent":)" + std::to_string(core) + "}");
  }
  std::unique_ptr<LaunchingProgram> start(const Json& assigned) {
    return std::make_unique<LaunchingProgram>(assigned, assigned["node"] == "node-a" ? a_ : b_);
  }
  // Over on its node, and its room is known to be free.
  void end(const Json& assigned) {
    const std::size_t before = held().size();
    ASSERT_TRUE(scheduler_.ask("delete " + assigned["task"].dump())["ok"]);
    EXPECT_TRUE(eventually([&] {
      const std::string now = place(assigned);
      return held().size() == before - 1 && now != "bound" && now != "ending";
    }));
  }
  // The names of what each node holds; a task on both is there twice.
  std::multiset<std::string> held() {
    std::multiset<std::string> names;
    for (Manager* manager : {&a_, &b_}) {
      for (const Json& task : manager->tasks()) names.insert(task["name"].get<std::string>());
    }
    return names;
  }
  std::string place(const Json& assigned) {
    const Json task = scheduler_.task(assigned["task"]);
    return task.is_null() ? "unknown" : task["place"].get<std::string>();
  }
  std::uint64_t term() { return scheduler_.ask("status")["term"]; }
  bool gathered() {
    return eventually([&] { return scheduler_.log().find("gathered") != std::string::npos; },
                      kPatience);
  }
  void expectSame(const Json& asked, const std::string& name) {
    const Json again = submit(name);
    EXPECT_EQ(again["task"], asked["task"]) << again;
    EXPECT_EQ(again["token"], asked["token"]) << again;
    EXPECT_EQ(again["node"], asked["node"]) << again;
  }

  // A store that is empty at the first start is no different: that gathers, too.
  Scheduler scheduler_{{"--lease=3s", "--rebuild-from-nodes"}};
  Manager a_{memberOf(scheduler_, "node-a")};
  Manager b_{memberOf(scheduler_, "node-b")};
  TempFolder folder_;
  const std::string file_ = folder_ / "scheduler.snapshot";
};

TEST_F(BackedUpCluster, P3_ARestoredSchedulerTakesOverWhatWasDecidedSinceAndDisturbsNobody) {
  ASSERT_TRUE(gathered());
  const Json one = submit("one"), two = submit("two"), ends = submit("ends"), over = submit("over");
  const auto first = start(one), second = start(two);
  ASSERT_TRUE(first->launches() && second->launches());
  const Json waits = submit("waits");
  ASSERT_TRUE(waits["waiting"]) << waits;
  const Finished saved = ctl(scheduler_, {"snapshot", "save", file_});
  ASSERT_EQ(saved.status, 0) << saved.output;
  EXPECT_HOLDS(saved.output, "qgpu-scheduler of ");
  EXPECT_HOLDS(ctl(scheduler_, {"snapshot", "show", file_}).output, "5 cluster task");
  EXPECT_HOLDS(ctl(scheduler_, {"audit"}).output, "snapshot save");

  // What the copy does not know: two are over, who waited has a place, and another came.
  ASSERT_TRUE(scheduler_.ask("delete " + ends["task"].dump())["ok"]);
  ASSERT_TRUE(eventually([&] { return place(waits) == "bound"; }));
  end(over);
  const Json newer = submit("newer");
  ASSERT_FALSE(newer["waiting"]) << newer;
  const auto third = start(newer);
  ASSERT_TRUE(third->launches());
  const std::multiset<std::string> before = held();
  ASSERT_EQ(before, (std::multiset<std::string>{"newer", "one", "two", "waits"}));
  const std::uint64_t seen = term();

  scheduler_.kill();
  loseDatabase(scheduler_);
  const Finished done = restore(scheduler_, file_);
  ASSERT_EQ(done.status, 0) << done.output;
  scheduler_.start();
  const Json late = submit("late", 10);
  EXPECT_TRUE(late["waiting"]) << "before nodes said what they hold: " << late;
  ASSERT_TRUE(gathered()) << scheduler_.log();
  EXPECT_GT(term(), seen);
  for (const Json& task : {one, two, waits, newer}) EXPECT_EQ(place(task), "bound") << task;
  for (const Json& task : {ends, over}) EXPECT_NE(place(task), "bound") << task;
  EXPECT_HOLDS(scheduler_.log(), "task-adopted");
  EXPECT_TRUE(eventually([&] { return place(late) == "bound"; }));
  std::multiset<std::string> now = before;
  now.insert("late");
  EXPECT_EQ(held(), now) << "nothing is bound twice, and nothing ended";
  for (const auto* program : {&first, &second, &third}) EXPECT_TRUE((*program)->launches());
  expectSame(one, "one");
  expectSame(newer, "newer");
  end(one);
}

TEST_F(BackedUpCluster, D5_ASchedulerWithoutItsDatabaseIsRebuiltFromNodesAndDisturbsNobody) {
  ASSERT_TRUE(gathered());
  const Json one = submit("one"), two = submit("two");
  const auto first = start(one), second = start(two);
  const auto alone =
      a_.runTask({"--name", "alone", "--memory", "1", "--core", "10", "--", "sleep", "600"});
  ASSERT_TRUE(first->launches() && second->launches());
  ASSERT_TRUE(eventually([&] { return held().size() == 3; }));
  const std::multiset<std::string> before = held();
  const std::uint64_t seen = term();

  scheduler_.kill();
  loseDatabase(scheduler_);
  scheduler_.start();
  const Json again = submit("one");
  ASSERT_TRUE(gathered()) << scheduler_.log();
  EXPECT_GT(term(), seen);
  EXPECT_EQ(place(one), "bound");
  EXPECT_EQ(place(two), "bound");
  EXPECT_EQ(place(again), again["task"] == one["task"] ? "bound" : "ended") << again;
  EXPECT_EQ(held(), before);
  EXPECT_HOLDS(scheduler_.log(), "task-adopted");
  EXPECT_TRUE(first->launches() && second->launches() && alone->alive());
  expectSame(one, "one");
  const Json task = scheduler_.task(two["task"]);
  EXPECT_EQ(task["name"], "two");
  EXPECT_EQ(task["node"], two["node"]);
  EXPECT_EQ(task["share_permille"], 600) << task;
  const Json fresh = submit("fresh");
  EXPECT_FALSE(fresh["waiting"]) << fresh;
  end(one);
}

TEST(Backup, ASnapshotOfAnotherDaemonOrADamagedOneIsRefusedAndTheDatabaseIsLeftAlone) {
  Scheduler scheduler;
  TempFolder folder;
  const std::string file = folder / "s";
  ASSERT_EQ(ctl(scheduler, {"snapshot", "save", file}).status, 0);
  const Finished running = restore(scheduler, file);
  EXPECT_EQ(running.status, 2);
  EXPECT_HOLDS(running.output, "in use by another process");
  ASSERT_EQ(scheduler.stop(), 0);
  const Finished there = restore(scheduler, file);
  EXPECT_EQ(there.status, 2);
  EXPECT_HOLDS(there.output, "rows already");
  const Finished other =
      run({binary("qgpu-manager"), "--restore=" + file, "--dbfile=" + (folder / "m.db")});
  EXPECT_EQ(other.status, 2);
  EXPECT_HOLDS(other.output, "is of a scheduler");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Finished cut =
      run({binary("qgpu-scheduler"), "--restore=" + file, "--dbfile=" + (folder / "s.db")});
  EXPECT_EQ(cut.status, 2);
  EXPECT_HOLDS(cut.output, "no whole snapshot");
  EXPECT_FALSE(std::filesystem::exists(folder / "s.db"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.db"));
}

TEST(Backup, TenThousandTasksAreOneAnswer) {
  constexpr std::uint64_t kTasks = 10'000;
  RowCopy copy{"scheduler", "host", 1, "0.1.0", {}};
  for (std::uint64_t id = 1; id <= kTasks; ++id) {
    copy.rows.push_back(makeRow({RowKind::ClusterTask, id}, [id](schema::Row::Builder row) {
      auto task = row.initClusterTask().initTask();
      task.setId(id);
      auto spec = task.initSpec();
      spec.setApplication(std::string(200, 'a'));
      auto asked = spec.initTask();
      asked.setName("task-" + std::to_string(id));
      asked.setRequestId(std::string(100, 'r') + std::to_string(id));
      asked.setMemBytes(1U << 30U);
      asked.setSharePermille(100);
    }));
  }
  TempFolder folder;
  const std::string first = folder / "first", second = folder / "second";
  ASSERT_TRUE(writeCopyFile(first, encodeCopy(copy)).ok());
  Scheduler scheduler;
  scheduler.kill();
  loseDatabase(scheduler);
  const Finished done = restore(scheduler, first);
  ASSERT_EQ(done.status, 0) << done.output;
  scheduler.start();
  const Finished saved = ctl(scheduler, {"-o", "json", "snapshot", "save", second});
  ASSERT_EQ(saved.status, 0) << saved.output;
  EXPECT_EQ(Json::parse(saved.output)["kinds"]["cluster task"], kTasks);
  EXPECT_GT(std::filesystem::file_size(second), kTasks * 300);
}

// What attached before and after the copy runs on; what ended since does not come back.
TEST(Backup, D5_AManagerThatIsRestoredTakesOverTasksThatAreNewerThanTheCopy) {
  Manager manager({"--cards=sim:1x16", "--nodename=node-a"});
  const auto sleeper = [&](const char* name) {
    return manager.runTask({"--name", name, "--memory", "2", "--core", "40", "--", "sleep", "600"});
  };
  auto older = sleeper("older"), ends = sleeper("ends");
  ASSERT_TRUE(eventually([&] { return manager.tasks().size() == 2; }));
  ASSERT_TRUE(manager.ask("cordon 0")["ok"]);
  ASSERT_TRUE(manager.ask("uncordon 0")["ok"]);
  TempFolder folder;
  const std::string file = folder / "manager.snapshot";
  ASSERT_EQ(ctl(manager, {"snapshot", "save", file}).status, 0);
  const Json first = manager.task("older");
  ends->signal(SIGKILL);
  ends->wait();
  ASSERT_TRUE(eventually([&] { return manager.tasks().size() == 1; }));
  auto newer = sleeper("newer");
  ASSERT_TRUE(eventually([&] { return !manager.task("newer").is_null(); }));
  const Json second = manager.task("newer");

  manager.kill();
  loseDatabase(manager);
  const Finished elsewhere = restore(manager, file, {"--nodename=node-b"});
  EXPECT_EQ(elsewhere.status, 2);
  EXPECT_HOLDS(elsewhere.output, "is of node node-a");
  const Finished done = restore(manager, file, {"--nodename=node-a"});
  ASSERT_EQ(done.status, 0) << done.output;
  manager.start();
  EXPECT_EQ(manager.task("older")["id"], first["id"]);
  EXPECT_EQ(manager.task("newer")["id"], second["id"]) << manager.log();
  EXPECT_TRUE(eventually([&] { return manager.task("ends").is_null(); }));
  EXPECT_TRUE(older->alive());
  EXPECT_TRUE(newer->alive());
  auto later = manager.runTask({"--name", "later", "--memory", "1", "--core", "10", "--", "true"});
  EXPECT_EQ(later->wait().value_or(-1), 0);
  older->signal(SIGTERM);
  newer->signal(SIGTERM);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

}  // namespace
}  // namespace qgpu::e2e::backup_test
