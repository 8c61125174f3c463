// A cluster of real daemons: a scheduler and two managers that reach it over a unix socket.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/e2e/harness.h"

namespace qgpu::e2e {
namespace {

const char kSubmit[] = R"({"name":"a","memory_gib":2,"core_percent":50})";

class Scheduler {
 public:
  explicit Scheduler(std::vector<std::string> more = {}) : more_(std::move(more)) { start(); }
  ~Scheduler() {
    if (child_->alive()) stop();
    if (::testing::Test::HasFailure()) fprintf(stderr, "scheduler:\n%s\n", log().c_str());
  }

  void start() {
    std::vector<std::string> argv = {binary("qgpu-scheduler"), "--run-dir=" + runDir(),
                                     "--dbfile=" + dir_.path() + "/scheduler.db",
                                     "--http=127.0.0.1:0", "--rpc=127.0.0.1:0"};
    argv.insert(argv.end(), more_.begin(), more_.end());
    child_ = std::make_unique<Child>(argv);
    const bool serves = eventually([this] {
      return !askSocket(socket(), "status", std::chrono::milliseconds(500)).empty() ||
             !child_->alive();
    });
    EXPECT_TRUE(serves && child_->alive()) << "the scheduler does not serve: " << log();
  }
  void kill() {
    child_->signal(SIGKILL);
    child_->wait();
  }
  int stop() {
    child_->signal(SIGTERM);
    return child_->wait(std::chrono::seconds(10)).value_or(-1);
  }
  std::string log() const { return child_->output(); }
  std::string runDir() const { return dir_.path() + "/run"; }
  std::string socket() const { return runDir() + "/scheduler.sock"; }
  std::string rpc() const { return "unix:" + runDir() + "/scheduler.rpc"; }

  Json ask(const std::string& line) {
    const std::string answer = askSocket(socket(), line, std::chrono::seconds(40));
    Json json = Json::parse(answer, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << "'" << line << "' was answered: " << answer;
    return json;
  }
  Json task(std::uint64_t id) {
    const Json answer = ask("tasks " + std::to_string(id));
    return answer["ok"] == true && !answer["tasks"].empty() ? answer["tasks"][0] : Json();
  }
  std::string stateOf(const std::string& node) {
    const Json answer = ask("nodes");
    for (const Json& one : answer["nodes"]) {
      if (one["name"] == node) return one["state"];
    }
    return "unknown";
  }
  bool waitFor(const std::string& node, const std::string& state) {
    return eventually([&] { return stateOf(node) == state; }, std::chrono::seconds(30));
  }

 private:
  TempDir dir_;
  std::vector<std::string> more_;
  std::unique_ptr<Child> child_;
};

std::vector<std::string> memberOf(const Scheduler& scheduler, const std::string& name) {
  return {"--cards=sim:2x16", "--nodename=" + name, "--scheduler=" + scheduler.rpc()};
}

Finished ctl(const Scheduler& scheduler, std::vector<std::string> words) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--server", scheduler.rpc()};
  argv.insert(argv.end(), words.begin(), words.end());
  return run(argv);
}

TEST(Scheduler, RefusesASecondOneAndBadFlagsWithOneLineAndExit2) {
  Scheduler scheduler;
  TempDir other;
  const std::vector<std::vector<std::string>> wrong = {
      {"--run-dir=" + scheduler.runDir(), "--dbfile=" + other.path() + "/a.db"},
      {"--run-dir=" + other.path() + "/r", "--rpc=10.1.2.3:1"},
      {"--run-dir=" + other.path() + "/r", "--tls-cert=/nonexistent"},
      {"--priority=random"},
  };
  for (const auto& flags : wrong) {
    std::vector<std::string> argv = {binary("qgpu-scheduler"), "--http=127.0.0.1:0",
                                     "--rpc=127.0.0.1:0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    const Finished result = run(argv);
    EXPECT_EQ(result.status, 2) << flags[0] << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  EXPECT_TRUE(std::filesystem::is_empty(other.path()));
  EXPECT_TRUE(scheduler.ask("status")["ok"]);
  EXPECT_EQ(scheduler.stop(), 0) << scheduler.log();
  EXPECT_FALSE(std::filesystem::exists(scheduler.socket()));
}

TEST(Cluster, BindsWhatIsSubmittedAndEndsWhatIsDeleted) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  Manager b(memberOf(scheduler, "node-b"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  ASSERT_TRUE(scheduler.waitFor("node-b", "alive"));
  EXPECT_EQ(scheduler.ask("cards")["cards"].size(), 4u);

  const Json bound = scheduler.ask(std::string("submit ") + kSubmit);
  ASSERT_TRUE(bound["ok"]) << bound;
  ASSERT_FALSE(bound["waiting"]) << bound;
  EXPECT_EQ(bound["env"]["QGPU_TOKEN"], bound["token"]);
  Manager& node = bound["node"] == "node-a" ? a : b;
  EXPECT_EQ(node.task("a")["id"], bound["node_task"]);

  const std::uint64_t id = bound["task"];
  EXPECT_EQ(ctl(scheduler, {"delete", std::to_string(id)}).status, 0);
  EXPECT_TRUE(eventually([&] { return node.tasks().empty(); }));
  EXPECT_TRUE(eventually([&] { return scheduler.task(id)["place"] == "ended"; }));
}

TEST(Cluster, AProgramRunByAMemberCountsInTheCluster) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const auto child = a.runTask({"--name", "forwarded", "--memory", "4", "--", "sleep", "60"});
  EXPECT_TRUE(eventually([&] {
    const Json tasks = scheduler.ask("tasks")["tasks"];
    return tasks.size() == 1 && tasks[0]["name"] == "forwarded" && tasks[0]["node"] == "node-a" &&
           tasks[0]["place"] == "bound";
  }));
  child->signal(SIGTERM);
  child->wait();
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
  const auto refused = a.runTask({"--memory", "64", "--", "true"});
  EXPECT_EQ(refused->wait().value_or(-1), 125);
}

TEST(Cluster, ASchedulerThatIsKilledComesBackWithTheSameTasks) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const Json bound = scheduler.ask(std::string("submit ") + kSubmit);
  ASSERT_TRUE(bound["ok"]) << bound;
  const std::uint64_t term = scheduler.ask("status")["term"];
  scheduler.kill();
  EXPECT_EQ(a.tasks().size(), 1u);
  scheduler.start();
  EXPECT_EQ(scheduler.ask("status")["term"], term + 1);
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const Json task = scheduler.task(bound["task"]);
  EXPECT_EQ(task["place"], "bound") << task;
  EXPECT_EQ(task["epoch"], bound["epoch"]);
  EXPECT_EQ(task["node_task"], bound["node_task"]);
  EXPECT_EQ(a.tasks().size(), 1u);
}

TEST(Cluster, C3_ANodeThatIsKilledIsLostAfterTheFenceAndItsTaskIsPlacedAgain) {
  Scheduler scheduler({"--lease=3s"});
  Manager a(memberOf(scheduler, "node-a"));
  Manager b(memberOf(scheduler, "node-b"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  ASSERT_TRUE(scheduler.waitFor("node-b", "alive"));
  const Json bound = scheduler.ask(std::string("submit ") + kSubmit);
  ASSERT_TRUE(bound["ok"]) << bound;
  const std::string first = bound["node"];
  (first == "node-a" ? a : b).kill();
  ASSERT_TRUE(scheduler.waitFor(first, "lost"));
  const std::uint64_t id = bound["task"];
  EXPECT_TRUE(eventually([&] {
    const Json task = scheduler.task(id);
    return task["place"] == "bound" && task["node"] != first;
  }, std::chrono::seconds(30)));
  EXPECT_GT(scheduler.task(id)["epoch"], bound["epoch"]);
  // The node that comes back holds an older epoch, and is told to end it.
  Manager& returned = first == "node-a" ? a : b;
  returned.start();
  ASSERT_TRUE(scheduler.waitFor(first, "alive"));
  EXPECT_TRUE(eventually([&] { return returned.tasks().empty(); }, std::chrono::seconds(20)));
}

TEST(Cluster, ATaskThatFitsNowhereWaitsAndIsExplained) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const Json first = scheduler.ask(R"(submit {"name":"whole","core_percent":200})");
  ASSERT_TRUE(first["ok"]) << first;
  const Json second = scheduler.ask(std::string("submit ") + kSubmit);
  ASSERT_TRUE(second["ok"]) << second;
  EXPECT_TRUE(second["waiting"]) << second;
  const Json why = scheduler.ask("explain " + second["task"].dump());
  EXPECT_FALSE(why["fits"]) << why;
  EXPECT_EQ(why["nodes"][0]["node"], "node-a") << why;
  EXPECT_TRUE(scheduler.ask("delete " + first["task"].dump())["ok"]);
  const std::uint64_t id = second["task"];
  EXPECT_TRUE(eventually([&] { return scheduler.task(id)["place"] == "bound"; }));
}

}  // namespace
}  // namespace qgpu::e2e
