// Unmodified OpenCL programs on a real card: quotas, turns, policies and dying tenants.

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/harness.h"

namespace qgpu::e2e {
namespace {

// A tenant that computes, checks its results, and says so in JSON at the end.
std::vector<std::string> work(const std::string& name, const std::vector<std::string>& task,
                              const std::vector<std::string>& program) {
  std::vector<std::string> argv = {"--name", name};
  argv.insert(argv.end(), task.begin(), task.end());
  argv.insert(argv.end(), {"--", binary("qgpu-work"), "--json"});
  argv.insert(argv.end(), program.begin(), program.end());
  return argv;
}

const std::vector<std::string> kCpuCard = {"--cards=opencl", "--mixed", "--max-tasks-per-card=8"};

bool launched(Manager& manager, const std::string& name, std::int64_t least) {
  const Json task = manager.task(name);
  return !task.is_null() && task["launches"].get<std::int64_t>() >= least;
}

std::int64_t usedNs(Manager& manager, const std::string& name) {
  const Json task = manager.task(name);
  return task.is_null() ? -1 : task["used_ns"].get<std::int64_t>();
}

TEST(Tenants, AProgramFromDebianRunsUnchanged) {
  Manager manager(kCpuCard);
  auto peak = manager.runTask({"--", "clpeak", "--kernel-latency"});
  EXPECT_EQ(peak->wait().value_or(-1), 0) << peak->output();
  EXPECT_NE(peak->output().find("Kernel launch latency"), std::string::npos) << peak->output();
  EXPECT_TRUE(eventually([&] { return manager.tasks().empty(); })) << "the task was not released";
}

TEST(Tenants, A14_OverQuotaTheProgramGetsTheErrorOfTheApiAndOthersNoticeNothing) {
  Manager manager(kCpuCard);
  auto good = manager.runTask(work("good", {"--memory", "1"}, {"--seconds", "3", "--verify"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "good", 3); }));
  auto greedy = manager.runTask(
      work("greedy", {"--memory", "1"}, {"--seconds", "1", "--memory-mib", "1100"}));
  EXPECT_EQ(greedy->wait().value_or(-1), 3) << greedy->output();
  EXPECT_EQ(good->wait().value_or(-1), 0) << good->output();
}

TEST(Tenants, ExitStatusAndRefusalsAreThoseOfAShell) {
  Manager manager(kCpuCard);
  EXPECT_EQ(manager.runTask({"--", "sh", "-c", "exit 7"})->wait().value_or(-1), 7);
  EXPECT_EQ(manager.runTask({"--", "/nonexistent"})->wait().value_or(-1), 127);
  auto refused = manager.runTask({"--memory", "100000", "--", "true"});
  EXPECT_EQ(refused->wait().value_or(-1), 125);
  EXPECT_FALSE(refused->output().empty());
  auto endless = manager.runTask({"--name", "endless", "--", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return !manager.task("endless").is_null(); }));
  endless->signal(SIGTERM);
  EXPECT_EQ(endless->wait().value_or(-1), 128 + SIGTERM);
}

TEST(Tenants, APolicyChangesLiveAndCapsAtOnce) {
  Manager manager(kCpuCard);
  auto tenant = manager.runTask(work("half", {"--core", "50"}, {"--seconds", "60"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "half", 3); }));
  ASSERT_TRUE(manager.ask("policy all fixed-share")["ok"]);
  EXPECT_EQ(manager.cards()[0]["policy"], "fixed-share");
  eventually([] { return false; }, std::chrono::milliseconds(300));
  const std::int64_t from = monotonicNs();
  const std::int64_t before = usedNs(manager, "half");
  eventually([] { return false; }, std::chrono::seconds(3));
  const std::int64_t used = usedNs(manager, "half") - before;
  const double share = static_cast<double>(used) / static_cast<double>(monotonicNs() - from);
  EXPECT_NEAR(share, 0.50, 0.05);
}

TEST(Tenants, A11_KilledInItsSliceTheCardGoesToTheNextAndItsBytesComeBack) {
  Manager manager(kCpuCard);
  auto victim = manager.runTask(work("victim", {}, {"--seconds", "60", "--kernel-ms", "100"}));
  auto heir = manager.runTask(work("heir", {}, {"--seconds", "60", "--kernel-ms", "5"}));
  ASSERT_TRUE(eventually(
      [&] { return launched(manager, "victim", 2) && launched(manager, "heir", 2); },
      std::chrono::seconds(30)));
  victim->signalChild(SIGKILL);
  EXPECT_EQ(victim->wait().value_or(-1), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return manager.task("victim").is_null(); }));
  const std::int64_t before = usedNs(manager, "heir");
  const std::int64_t from = monotonicNs();
  eventually([] { return false; }, std::chrono::seconds(1));
  const double share = static_cast<double>(usedNs(manager, "heir") - before) /
                       static_cast<double>(monotonicNs() - from);
  EXPECT_GE(share, 0.8) << "the heir does not get the whole card";
  EXPECT_EQ(manager.cards()[0]["mem_bound_bytes"], 1 << 30);
}

TEST(Tenants, A3_OnlineHoldsOfflineInTheMiddleOfALongKernelAndItsResultsStayRight) {
  Manager manager(kCpuCard);
  auto offline = manager.runTask(work("batch", {"--class", "offline", "--core", "50"},
                                      {"--seconds", "8", "--kernel-ms", "100", "--verify"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "batch", 2); }));
  auto online = manager.runTask(work("serve", {"--class", "online", "--core", "0"},
                                     {"--seconds", "3", "--mode", "bursts", "--kernel-ms", "1",
                                      "--verify"}));
  EXPECT_EQ(online->wait().value_or(-1), 0) << online->output();
  EXPECT_EQ(offline->wait().value_or(-1), 0) << offline->output();
  EXPECT_GT(manager.cards()[0]["holds"].get<std::int64_t>(), 0);
}

TEST(Tenants, TwoCardsOfOneCpuEachHaveAnArbiterOfTheirOwn) {
  const Environment two = {{"POCL_DEVICES", "pthread pthread"}};
  Manager manager(kCpuCard, two);
  const Json cards = manager.cards();
  ASSERT_EQ(cards.size(), 2u);
  auto a = manager.runTask([&] {
    auto argv = work("a", {"--card", cards[0]["id"]}, {"--seconds", "2", "--verify"});
    return argv;
  }());
  auto b = manager.runTask(work("b", {"--card", cards[1]["id"]}, {"--seconds", "2", "--verify"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "a", 2) && launched(manager, "b", 2); }));
  EXPECT_EQ(manager.task("a")["card"], cards[0]["id"]);
  EXPECT_EQ(manager.task("b")["card"], cards[1]["id"]);
  EXPECT_EQ(a->wait().value_or(-1), 0) << a->output();
  EXPECT_EQ(b->wait().value_or(-1), 0) << b->output();
}

}  // namespace
}  // namespace qgpu::e2e
