// C9: the manager may die at any moment. Tenants run on, and a new one takes up where it was.

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/harness.h"

namespace qgpu::e2e {
namespace {

std::vector<std::string> tenant(const std::string& name, const std::string& share) {
  return {"--name", name, "--core",    share, "--",          binary("qgpu-work"),
          "--json", "--seconds", "8", "--verify", "--kernel-ms", "5"};
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
  EXPECT_TRUE(eventually([&] {
    return manager.task("a")["turns"] > 0 && manager.task("b")["turns"] > 0;
  }));
  EXPECT_LE(monotonicNs() - back, 1'000'000'000) << "slices resume within a second";
  EXPECT_EQ(a->wait().value_or(-1), 0) << a->output();
  EXPECT_EQ(b->wait().value_or(-1), 0) << b->output();
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); }));
}

TEST(Crash, A3_ARestartedManagerHoldsOfflineForOnlineAsBefore) {
  Manager manager({"--cards=opencl", "--mixed", "--max-tasks-per-card=8"});
  auto batch = manager.runTask({"--name", "batch", "--class", "offline", "--core", "50", "--",
                                binary("qgpu-work"), "--json", "--seconds", "9", "--kernel-ms",
                                "100"});
  auto serve = manager.runTask({"--name", "serve", "--class", "online", "--", binary("qgpu-work"),
                                "--json", "--seconds", "9", "--mode", "bursts", "--kernel-ms",
                                "1"});
  const auto preempted = [&](std::int64_t least) {
    return manager.cards()[0]["preempt_us"]["n"].get<std::int64_t>() >= least;
  };
  ASSERT_TRUE(eventually([&] { return preempted(5); }));
  manager.kill();
  manager.start();
  EXPECT_TRUE(eventually([&] { return preempted(5); })) << "online no longer holds offline";
  EXPECT_EQ(serve->wait().value_or(-1), 0) << serve->output();
  EXPECT_EQ(batch->wait().value_or(-1), 0) << batch->output();
}

TEST(Crash, ManyKillsInARowHarmNobody) {
  Manager manager({"--cards=opencl", "--max-tasks-per-card=8"});
  auto a = manager.runTask(tenant("a", "30"));
  auto b = manager.runTask(tenant("b", "60"));
  ASSERT_TRUE(eventually([&] { return manager.tasks().size() == 2; }));
  for (int round = 0; round < 5; ++round) {
    manager.kill();
    manager.start();
  }
  EXPECT_EQ(a->wait().value_or(-1), 0) << a->output();
  EXPECT_EQ(b->wait().value_or(-1), 0) << b->output();
}

}  // namespace
}  // namespace qgpu::e2e
