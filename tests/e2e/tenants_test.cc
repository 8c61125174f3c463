// Unmodified OpenCL programs on a real card: quotas, turns, policies and dying tenants, and what a
// trace tells of them.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <signal.h>
#include <sstream>

#include "tests/e2e/harness.h"

namespace qgpu::e2e::tenants_test {
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
  ASSERT_TRUE(
      eventually([&] { return launched(manager, "victim", 2) && launched(manager, "heir", 2); },
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
                                      {"--seconds", "60", "--kernel-ms", "100", "--verify"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "batch", 2); }));
  auto online =
      manager.runTask(work("serve", {"--class", "online", "--core", "0"},
                           {"--seconds", "3", "--mode", "bursts", "--kernel-ms", "1", "--verify"}));
  EXPECT_EQ(online->wait().value_or(-1), 0) << online->output();
  const auto before = manager.task("batch")["launches"].get<std::int64_t>();
  ASSERT_TRUE(eventually([&] { return launched(manager, "batch", before + 2); }));
  endWork(*offline);
  EXPECT_GT(manager.cards()[0]["holds"].get<std::int64_t>(), 0);
}

Finished ctl(const Manager& manager, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {binary("qgpuctl"), "--socket", manager.socket()});
  return run(std::move(arguments));
}

std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Complete events of one name, by when they began.
std::vector<Json> spansOf(const Json& trace, const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == name) found.push_back(event);
  }
  std::sort(found.begin(), found.end(), [](const Json& a, const Json& b) {
    return a["ts"].get<std::int64_t>() < b["ts"].get<std::int64_t>();
  });
  return found;
}
std::int64_t endOf(const Json& span) {
  return span["ts"].get<std::int64_t>() + span["dur"].get<std::int64_t>();
}

TEST(Tenants, ATraceHasTheSlicesOfBothAndTheyAddUpToWhatTheyAreCharged) {
  Manager manager(kCpuCard);
  const TempFolder dir;
  auto a = manager.runTask(work("one", {"--core", "30"}, {"--seconds", "60", "--kernel-ms", "2"}));
  auto b = manager.runTask(work("two", {"--core", "30"}, {"--seconds", "60", "--kernel-ms", "2"}));
  ASSERT_TRUE(
      eventually([&] { return launched(manager, "one", 10) && launched(manager, "two", 10); },
                 std::chrono::seconds(30)));
  const std::string file = dir.path() + "/trace.json";
  const std::map<std::string, std::int64_t> before = {{"one", usedNs(manager, "one")},
                                                      {"two", usedNs(manager, "two")}};
  const std::int64_t from = monotonicNs();
  const Finished recorded = ctl(manager, {"trace", "record", "--seconds", "3", "-o", file});
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const auto elapsed = static_cast<double>(monotonicNs() - from);

  const Json trace = Json::parse(contentOf(file), nullptr, false);
  ASSERT_FALSE(trace.is_discarded()) << "no JSON";
  const std::vector<Json> slices = spansOf(trace, "slice");
  std::map<std::int64_t, std::int64_t> sums;  // microseconds, by task
  for (std::size_t i = 0; i < slices.size(); ++i) {
    sums[slices[i]["args"]["task"].get<std::int64_t>()] += slices[i]["dur"].get<std::int64_t>();
    if (i == 0) continue;
    EXPECT_LE(endOf(slices[i - 1]), slices[i]["ts"].get<std::int64_t>())
        << "two slices at once: " << slices[i - 1] << " and " << slices[i];
  }
  EXPECT_EQ(sums.size(), 2u) << trace.dump().substr(0, 2'000);
  EXPECT_FALSE(spansOf(trace, "hold").empty());
  for (const auto& [name, used] : before) {
    const double charged = static_cast<double>(usedNs(manager, name) - used) / elapsed;
    const std::int64_t id = manager.task(name)["id"].get<std::int64_t>();
    EXPECT_GT(charged, 0.2) << name;
    EXPECT_NEAR(static_cast<double>(sums[id]) / 3e6, charged, 0.08) << name;
  }
}

TEST(Tenants, ATimelineShowsWhoHadTheCardAndAnArrowWhomOnlineHeld) {
  Manager manager(kCpuCard);
  const TempFolder dir;
  auto offline = manager.runTask(work("batch", {"--class", "offline", "--core", "50"},
                                      {"--seconds", "60", "--kernel-ms", "5"}));
  ASSERT_TRUE(eventually([&] { return launched(manager, "batch", 5); }));
  auto online = manager.runTask(work("serve", {"--class", "online", "--core", "0"},
                                     {"--seconds", "60", "--mode", "bursts", "--kernel-ms", "1"}));
  ASSERT_TRUE(
      eventually([&] { return manager.cards()[0]["preempt_us"]["n"].get<std::int64_t>() >= 2; },
                 std::chrono::seconds(30)));
  const Finished shown = ctl(manager, {"timeline", "--seconds", "5", "--card", "0"});
  EXPECT_EQ(shown.status, 0) << shown.output;
  for (const char* word : {"batch", "serve", "online", "offline", "gates shut for online"}) {
    EXPECT_NE(shown.output.find(word), std::string::npos) << word << "\n" << shown.output;
  }
  EXPECT_EQ(shown.output.find('\x1b'), std::string::npos) << "this is no terminal";
  const std::string svg = dir.path() + "/timeline.svg", file = dir.path() + "/trace.json";
  EXPECT_EQ(ctl(manager, {"timeline", "--svg", svg}).status, 0);
  EXPECT_TRUE(contentOf(svg).ends_with("</svg>\n"));
  const Finished recorded = ctl(manager, {"trace", "record", "--seconds", "4", "-o", file});
  ASSERT_EQ(recorded.status, 0) << recorded.output;
  const Json trace = Json::parse(contentOf(file), nullptr, false);
  ASSERT_FALSE(trace.is_discarded()) << "no JSON";
  const auto flows = std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                                   [](const Json& event) { return event["ph"] == "f"; });
  EXPECT_GT(flows, 0) << shown.output;
  EXPECT_EQ(ctl(manager, {"timeline", "--card", "no-such"}).status, 3);
  EXPECT_EQ(ctl(manager, {"trace", "record", "--seconds", "1", "-o", "/nonexistent/x"}).status, 3);
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
}  // namespace qgpu::e2e::tenants_test
