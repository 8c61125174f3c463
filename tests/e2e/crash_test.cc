// C9: the manager may die at any moment. Tenants run on, and a new one takes up where it was; also,
// D5, where its database is gone.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/harness.h"

namespace qgpu::e2e::crash_test {
namespace {

std::vector<std::string> tenant(const std::string& name, const std::string& share) {
  return {"--name", name,        "--core", share,      "--",          binary("qgpu-work"),
          "--json", "--seconds", "60",     "--verify", "--kernel-ms", "5"};
}

TEST(Crash, C9_KilledUnderLoadAndRestartedNoTenantStopsAndAllIsAsBefore) {
  Manager manager({"--cards=opencl", "--max-tasks-per-card=8", "--policy=fs"});
  auto a = manager.runTask(tenant("a", "30"));
  auto b = manager.runTask(tenant("b", "60"));
  ASSERT_TRUE(eventually([&] {
    const Json first = manager.task("a");
    const Json second = manager.task("b");
    return !first.is_null() && !second.is_null() && first["launches"] > 5 && second["launches"] > 5;
  }));
  ASSERT_TRUE(manager.ask("policy all best-effort")["ok"]);
  const Json before = manager.task("a");

  manager.kill();
  EXPECT_TRUE(a->alive());
  EXPECT_TRUE(b->alive());
  manager.start();
  const std::int64_t back = monotonicNs();

  const Json after = manager.task("a");
  ASSERT_FALSE(after.is_null());
  for (const char* key : {"id", "name", "class", "card", "share_permille", "mem_bytes"}) {
    EXPECT_EQ(after[key], before[key]) << key;
  }
  EXPECT_EQ(manager.cards()[0]["policy"], "best-effort");
  EXPECT_TRUE(
      eventually([&] { return manager.task("a")["turns"] > 0 && manager.task("b")["turns"] > 0; }));
  EXPECT_LE(monotonicNs() - back, 1'000'000'000) << "slices resume within a second";
  endWork(*a);
  endWork(*b);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

TEST(Crash, A3_ARestartedManagerHoldsOfflineForOnlineAsBefore) {
  Manager manager({"--cards=opencl", "--mixed", "--max-tasks-per-card=8"});
  auto batch =
      manager.runTask({"--name", "batch", "--class", "offline", "--core", "50", "--",
                       binary("qgpu-work"), "--json", "--seconds", "60", "--kernel-ms", "100"});
  auto serve =
      manager.runTask({"--name", "serve", "--class", "online", "--", binary("qgpu-work"), "--json",
                       "--seconds", "60", "--mode", "bursts", "--kernel-ms", "1"});
  const auto preempted = [&](std::int64_t least) {
    return manager.cards()[0]["preempt_us"]["n"].get<std::int64_t>() >= least;
  };
  ASSERT_TRUE(eventually([&] { return preempted(5); }));
  manager.kill();
  manager.start();
  EXPECT_TRUE(eventually([&] { return preempted(5); })) << "online no longer holds offline";
  endWork(*serve);
  endWork(*batch);
}

// D5: what is left when somebody deletes the database of a manager that is down.
void loseDatabase(const Manager& manager) {
  for (const char* end : {"", "-wal", "-shm"}) {
    std::filesystem::remove(manager.database() + end);
  }
}

TEST(Crash, D5_WithItsDatabaseDeletedANewManagerTakesOverTheTasksThatLive) {
  Manager manager({"--cards=opencl", "--max-tasks-per-card=8", "--policy=fs"});
  auto a = manager.runTask(tenant("a", "30"));
  auto b = manager.runTask(tenant("b", "60"));
  ASSERT_TRUE(eventually([&] {
    const Json first = manager.task("a");
    const Json second = manager.task("b");
    return !first.is_null() && !second.is_null() && first["launches"] > 5 && second["launches"] > 5;
  }));
  const std::map<std::string, Json> before = {{"a", manager.task("a")}, {"b", manager.task("b")}};

  manager.kill();
  loseDatabase(manager);
  manager.start();
  const std::int64_t back = monotonicNs();
  EXPECT_TRUE(eventually([&] {
    const Json first = manager.task("a");
    const Json second = manager.task("b");
    return !first.is_null() && !second.is_null() && first["turns"] > 0 && second["turns"] > 0;
  }));
  EXPECT_LE(monotonicNs() - back, 1'000'000'000) << "slices resume within a second";
  for (const auto& [name, was] : before) {
    const Json is = manager.task(name);
    for (const char* key : {"id", "class", "card", "share_permille", "mem_bytes", "processes"}) {
      EXPECT_EQ(is[key], was[key]) << name << ' ' << key;
    }
  }

  auto c = manager.runTask({"--name", "c", "--core", "5", "--", binary("qgpu-work"), "--json",
                            "--seconds", "20", "--kernel-ms", "1"});
  ASSERT_TRUE(eventually([&] {
    const Json third = manager.task("c");
    return !third.is_null() && third["launches"] > 0;
  }));
  const auto id = manager.task("c")["id"].get<std::uint64_t>();
  EXPECT_GT(id, before.at("a")["id"].get<std::uint64_t>());
  EXPECT_GT(id, before.at("b")["id"].get<std::uint64_t>());
  ASSERT_TRUE(manager.ask("evict " + before.at("b")["id"].dump())["ok"]);
  EXPECT_TRUE(eventually([&] { return manager.task("b").is_null(); }));
  EXPECT_NE(b->wait().value_or(0), 0) << "it was ended";
  endWork(*a);
  ASSERT_TRUE(manager.ask("evict " + std::to_string(id))["ok"]);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

TEST(Crash, D5_ADamagedDatabaseIsRefusedAndTheTasksGoOnOnceItIsMovedAway) {
  Manager manager({"--cards=opencl", "--mixed", "--max-tasks-per-card=8"});
  auto batch =
      manager.runTask({"--name", "batch", "--class", "offline", "--core", "50", "--",
                       binary("qgpu-work"), "--json", "--seconds", "60", "--kernel-ms", "100"});
  auto serve =
      manager.runTask({"--name", "serve", "--class", "online", "--", binary("qgpu-work"), "--json",
                       "--seconds", "60", "--mode", "bursts", "--kernel-ms", "1"});
  const auto preempted = [&](std::int64_t least) {
    return manager.cards()[0]["preempt_us"]["n"].get<std::int64_t>() >= least;
  };
  ASSERT_TRUE(eventually([&] { return preempted(5); }));
  manager.kill();
  loseDatabase(manager);
  std::ofstream(manager.database()) << std::string(8192, 'x');
  const Finished refused = run({binary("qgpu-manager"), "--run-dir=" + manager.runDir(),
                                "--dbfile=" + manager.database(), "--http=127.0.0.1:0",
                                "--cards=opencl", "--mixed", "--max-tasks-per-card=8"});
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_NE(refused.output.find("the tasks that live are taken over"), std::string::npos)
      << refused.output;
  EXPECT_TRUE(serve->alive());
  EXPECT_TRUE(batch->alive());
  loseDatabase(manager);
  manager.start();
  EXPECT_TRUE(eventually([&] { return preempted(5); })) << "online no longer holds offline";
  endWork(*serve);
  endWork(*batch);
}

TEST(Crash, D5_AnOlderCopyIsTheTruthAndItsNewTasksNeverMeetTheNumbersOfOldOnes) {
  Manager manager({"--cards=opencl", "--max-tasks-per-card=8"});
  manager.stop();
  const std::string copy = manager.database() + ".copy";
  std::filesystem::copy_file(manager.database(), copy);
  manager.start();
  auto a = manager.runTask({"--name", "a", "--core", "30", "--", binary("qgpu-work"), "--json",
                            "--seconds", "60", "--verify", "--kernel-ms", "5"});
  const auto launches = [&](const std::string& name) {
    const Json task = manager.task(name);
    return task.is_null() ? 0 : task["launches"].get<int>();
  };
  ASSERT_TRUE(eventually([&] { return launches("a") > 5; }));
  const Json before = manager.task("a");

  manager.kill();
  loseDatabase(manager);
  std::filesystem::copy_file(copy, manager.database());
  manager.start();
  EXPECT_TRUE(manager.tasks().empty());
  EXPECT_TRUE(eventually([&] {
    return a->output().find("does not take this process back: no task has this token") !=
           std::string::npos;
  })) << a->output();
  auto b = manager.runTask(tenant("b", "30"));
  ASSERT_TRUE(eventually([&] { return launches("b") > 5; }));
  EXPECT_GT(manager.task("b")["id"], before["id"]);

  manager.kill();  // and whoever takes the copy away has both of them
  loseDatabase(manager);
  manager.start();
  EXPECT_TRUE(eventually([&] { return launches("a") > 5 && launches("b") > 5; }))
      << manager.tasks().dump() << '\n'
      << a->output() << b->output();
  EXPECT_EQ(manager.task("a")["id"], before["id"]);
  endWork(*b);
  endWork(*a);
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

TEST(Crash, ManyKillsInARowHarmNobody) {
  Manager manager({"--cards=opencl", "--max-tasks-per-card=8"});
  auto a = manager.runTask(tenant("a", "30"));
  auto b = manager.runTask(tenant("b", "60"));
  // A bind may be listed before its answer is out; a program that runs has its answer.
  ASSERT_TRUE(eventually([&] {
    const Json tasks = manager.tasks();
    return tasks.size() == 2 && tasks[0]["processes"] == 1 && tasks[1]["processes"] == 1;
  }));
  for (int round = 0; round < 5; ++round) {
    manager.kill();
    manager.start();
  }
  for (const char* name : {"a", "b"}) {
    const auto before = manager.task(name)["launches"].get<std::uint64_t>();
    EXPECT_TRUE(eventually([&] { return manager.task(name)["launches"] > before + 5; })) << name;
  }
  endWork(*a);
  endWork(*b);
}

}  // namespace
}  // namespace qgpu::e2e::crash_test
