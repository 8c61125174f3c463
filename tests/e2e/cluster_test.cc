// A cluster of real daemons: a scheduler and two managers that reach it over a unix socket.

#include <algorithm>
#include <atomic>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include "tests/e2e/harness.h"
#include "tests/testing/certificates.h"

namespace qgpu::e2e::cluster_test {
namespace {

const char kSubmit[] = R"({"name":"a","memory_gib":2,"core_percent":50})";

std::vector<std::string> memberOf(const Scheduler& scheduler, const std::string& name) {
  return {"--cards=sim:2x16", "--nodename=" + name, "--scheduler=" + scheduler.rpc()};
}

Finished ctl(const Scheduler& scheduler, std::vector<std::string> words) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--server", scheduler.rpc()};
  argv.insert(argv.end(), words.begin(), words.end());
  return run(argv);
}

#define EXPECT_HOLDS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// The number of the task that `qgpuctl submit` with these options answers with.
std::uint64_t submitted(const Scheduler& scheduler, std::vector<std::string> options) {
  options.insert(options.begin(), {"-o", "json", "submit"});
  const Finished done = ctl(scheduler, options);
  const Json answer = Json::parse(done.output, nullptr, false);
  EXPECT_TRUE(done.status == 0 && answer.is_object()) << done.output;
  return answer.is_object() ? answer["task"].get<std::uint64_t>() : 0;
}

std::vector<std::string> flagsOf(const TlsFiles& files) {
  return {"--tls-cert=" + files.cert, "--tls-key=" + files.key, "--tls-ca=" + files.ca};
}

TEST(Scheduler, RefusesASecondOneAndBadFlagsWithOneLineAndExit2) {
  Scheduler scheduler;
  TempFolder other;
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

// A report of today as `prove` writes it, of a card of this machine and these programs.
std::string reportOf(const std::string& card, const std::string& version) {
  utsname kernel{};
  ::uname(&kernel);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  Json head = {{"card", card},          {"kernel", kernel.release}, {"qgpu", version},
               {"date", date},          {"others_permille", 0},     {"stolen_permille", 0},
               {"driver", "of nothing"}};
  for (const char* text :
       {"model", "backend", "host", "suspend", "isolation", "realtime", "clock", "command"}) {
    head[text] = "x";
  }
  const Json promise = {{"id", "quota"},
                        {"promise", "p"},
                        {"verdict", "proven"},
                        {"why", ""},
                        {"figures", Json::object()},
                        {"again", "a"}};
  return Json({{"kind", "qgpu-report"},
               {"schema", 1},
               {"head", head},
               {"promises", Json::array({promise})},
               {"online_starts", Json::array()}})
      .dump();
}

TEST(Cluster, WhereReportsAreWantedACardTakesNothingNewBeforeItHasOne) {
  Scheduler scheduler({"--require-report=30"});
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const std::uint64_t task = submitted(scheduler, {"--memory", "2", "--core", "50"});
  EXPECT_HOLDS(scheduler.ask("tasks").dump(), "ReportNeeded");
  EXPECT_HOLDS(scheduler.ask("cards").dump(), "\"state\":\"unproven\"");

  TempFolder folder;
  const std::string path = folder.path() + "/report.json";
  const auto keep = [&](const std::string& report) {
    std::ofstream(path) << report;
    ASSERT_TRUE(a.ask("report sim-1 " + path)["ok"]);
  };
  const std::string version = a.ask("status")["version"];
  keep(reportOf("sim-1", "0.0.1"));
  const std::string why = "qgpu 0.0.1 is " + version;
  EXPECT_TRUE(eventually([&] { return a.ask("events 0").dump().find(why) != std::string::npos; }));
  EXPECT_EQ(scheduler.task(task)["place"], "waiting");

  keep(reportOf("sim-1", version));
  EXPECT_TRUE(eventually([&] { return scheduler.task(task)["place"] == "bound"; }))
      << a.ask("events 0") << scheduler.ask("tasks");
  EXPECT_HOLDS(scheduler.task(task).dump(), "sim-1");
}

TEST(Cluster, WhereAReportMustBeSignedAnothersCountsForNothing) {
  TempFolder folder;
  const std::string path = folder / "report.json", signers = folder / "signers";
  for (const char* key : {"key", "other"}) {
    ASSERT_EQ(run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key}).status, 0);
  }
  ASSERT_EQ(testing::shell("echo \"me@host $(cat " + folder / "key.pub" + ")\" >" + signers).status,
            0);
  Scheduler scheduler({"--require-report=30"});
  std::vector<std::string> flags = memberOf(scheduler, "node-a");
  flags.push_back("--report-signers=" + signers);
  Manager a(flags);
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const std::uint64_t task = submitted(scheduler, {"--memory", "2", "--core", "50"});
  std::ofstream(path) << reportOf("sim-1", a.ask("status")["version"]);
  const auto keepSignedBy = [&](const char* key) {
    std::filesystem::remove(path + ".sig");
    const Finished made =
        run({"ssh-keygen", "-Y", "sign", "-q", "-n", "qgpu-report", "-f", folder / key, path});
    ASSERT_EQ(made.status, 0) << made.output;
    ASSERT_TRUE(a.ask("report sim-1 " + path)["ok"]);
  };
  const auto tells = [&](const std::string& what) {
    return eventually([&] { return a.ask("events 0").dump().find(what) != std::string::npos; });
  };
  keepSignedBy("other");
  EXPECT_TRUE(tells("none of --report-signers signed it")) << a.ask("events 0");
  EXPECT_EQ(scheduler.task(task)["place"], "waiting");

  keepSignedBy("key");
  EXPECT_TRUE(tells("its report holds")) << a.ask("events 0");
  EXPECT_TRUE(eventually([&] { return scheduler.task(task)["place"] == "bound"; }))
      << scheduler.ask("tasks");
}

TEST(Cluster, AShellEvaluatesWhatASubmitAnswersUnlessTheTaskWaits) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const auto evaluated = [&](const std::string& options) {
    return run({"/bin/sh", "-c",
                "vars=$(" + binary("qgpuctl") + " --server " + scheduler.rpc() + " -o env submit " +
                    options + " 2>/dev/null) || exit $?; eval \"$vars\"; " +
                    "printf %s \"$QGPU_TOKEN\""});
  };
  const Finished bound = evaluated("--name here --memory 2");
  EXPECT_EQ(bound.status, 0);
  EXPECT_EQ(bound.output.size(), 32u) << "the token: " << bound.output;
  EXPECT_EQ(a.task("here")["name"], "here");
  EXPECT_EQ(evaluated("--name all --cards 2").status, 3) << "a card is taken: it waits";
  const Finished waits = ctl(scheduler, {"-o", "env", "submit", "--cards", "2"});
  EXPECT_HOLDS(waits.output, " waits");
  EXPECT_EQ(waits.output.find("export"), std::string::npos) << waits.output;
}

TEST(Cluster, AProgramRunByAMemberCountsInTheCluster) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  // The node itself has to know: until then it refuses what would be placed by the scheduler.
  ASSERT_TRUE(eventually(
      [&] { return a.ask("status")["cluster"].get<std::string>().starts_with("joined"); }));
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

// --- run --cluster ---

bool joined(Manager& manager) {
  return eventually(
      [&] { return manager.ask("status")["cluster"].get<std::string>().starts_with("joined"); });
}

// qgpuctl run at the scheduler, on the machine of this node.
std::unique_ptr<Child> runPlaced(const Scheduler& scheduler, const Manager& here,
                                 std::vector<std::string> words) {
  std::vector<std::string> argv = {binary("qgpuctl"), "--server", scheduler.rpc(), "run"};
  argv.insert(argv.end(), words.begin(), words.end());
  return std::make_unique<Child>(argv, Environment{{"QGPU_SOCKET", here.socket()}});
}

TEST(RunInCluster, StartsTheProgramWhereItWasPlacedOnThisNodeAndEndsTheTask) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a")), b(memberOf(scheduler, "node-b"));
  ASSERT_TRUE(joined(a) && joined(b));
  TempFolder folder;
  const std::string told = folder / "token";
  const auto child = runPlaced(scheduler, a,
                               {"--node", "node-a", "--name", "train", "--memory", "4", "--", "sh",
                                "-c", "echo $QGPU_TOKEN $QGPU_SOCKET >" + told + "; exit 7"});
  EXPECT_EQ(child->wait(), 7) << child->output();
  EXPECT_EQ(child->output(), "");
  const std::string said = testing::shell("cat " + told).output;
  EXPECT_EQ(said.find(' '), 32u) << "the token: " << said;
  EXPECT_HOLDS(said, a.attachSocket());
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
  EXPECT_TRUE(eventually([&] { return a.tasks().empty(); }));
}

TEST(RunInCluster, SaysWhereItWasPlacedElsewhereAndStartsNothing) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a")), b(memberOf(scheduler, "node-b"));
  ASSERT_TRUE(joined(a) && joined(b));
  TempFolder folder;
  const std::string mark = folder / "started";
  const auto child = runPlaced(scheduler, a, {"--node", "node-b", "--", "touch", mark});
  EXPECT_EQ(child->wait(), 125);
  EXPECT_HOLDS(child->output(), "was placed on node node-b (sim-");
  EXPECT_HOLDS(child->output(),
               "the same command with --node node-b; to keep it on this machine "
               "say --node node-a");
  EXPECT_FALSE(std::filesystem::exists(mark));
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
  EXPECT_TRUE(eventually([&] { return b.tasks().empty(); }));
}

TEST(RunInCluster, WaitsForItsPlace) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(joined(a));
  const std::uint64_t whole = submitted(scheduler, {"--cards", "2", "--memory", "16"});
  const auto child = runPlaced(scheduler, a, {"--name", "later", "--", "true"});
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].size() == 2; }));
  EXPECT_TRUE(eventually([&] {
    return child->output().find("waits for its place (ctrl-c ends it)") != std::string::npos;
  })) << child->output();
  EXPECT_TRUE(child->alive());
  EXPECT_EQ(ctl(scheduler, {"delete", std::to_string(whole)}).status, 0);
  EXPECT_EQ(child->wait(), 0) << child->output();
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
}

// Ctrl-c, and the end that nobody can prepare for.
TEST(RunInCluster, NothingIsLeftWhereItIsEndedWhileItWaitsOrRuns) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(joined(a));
  TempFolder folder;
  const std::string told = folder / "pid";
  for (const int signal : {SIGINT, SIGKILL}) {
    const auto runs = runPlaced(
        scheduler, a, {"--cards", "2", "--", "sh", "-c", "echo $$ >" + told + "; exec sleep 1000"});
    const auto pid = [&] { return std::atoi(testing::shell("cat " + told).output.c_str()); };
    ASSERT_TRUE(eventually([&] { return pid() > 0; })) << runs->output();
    const auto waits = runPlaced(scheduler, a, {"--", "true"});
    ASSERT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].size() == 2; }));
    waits->signal(signal);
    EXPECT_EQ(waits->wait(), 128 + signal);
    EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].size() == 1; }));
    runs->signal(signal);
    EXPECT_EQ(runs->wait(), 128 + signal);
    if (signal == SIGKILL) ::kill(pid(), SIGKILL);
    std::filesystem::remove(told);
    EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
    EXPECT_TRUE(eventually([&] { return a.tasks().empty(); }));
  }
}

TEST(RunInCluster, IsRefusedAs125AndOptionsOfClustersNeedOne) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(joined(a));
  const auto big = runPlaced(scheduler, a, {"--memory", "100", "--", "true"});
  EXPECT_EQ(big->wait(), 125);
  EXPECT_HOLDS(big->output(), "not even an empty cluster would do");
  EXPECT_TRUE(scheduler.ask("tasks")["tasks"].empty());
  EXPECT_TRUE(a.tasks().empty());
  const auto unmanaged = std::make_unique<Child>(
      std::vector<std::string>{binary("qgpuctl"), "--server", scheduler.rpc(), "run", "--", "true"},
      Environment{{"QGPU_SOCKET", scheduler.runDir() + "/manager.sock"}});
  EXPECT_EQ(unmanaged->wait(), 125);
  EXPECT_HOLDS(unmanaged->output(), "CMD needs a manager here that has joined the scheduler");
  const auto alone = a.runTask({"--node", "node-a", "--", "true"});
  EXPECT_EQ(alone->wait(), 2);
  EXPECT_HOLDS(alone->output(), "--node is for `run --cluster`");
}

// What CMD gets is what whoever started qgpuctl had, not what the connection over RPC wants.
TEST(RunInCluster, TheProgramHasTheSignalsOfWhoeverStartedIt) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(joined(a));
  const std::string asks = "grep -E 'Sig(Ign|Blk)' /proc/self/status";
  const Finished plain = run({"sh", "-c", asks});
  const auto child = runPlaced(scheduler, a, {"--", "sh", "-c", asks});
  EXPECT_EQ(child->wait(), 0);
  EXPECT_EQ(child->output(), plain.output);
  const auto pipe =
      runPlaced(scheduler, a, {"--", "bash", "-c", "yes | head -1; echo $PIPESTATUS"});
  EXPECT_EQ(pipe->wait(), 0);
  EXPECT_EQ(pipe->output(), "y\n141\n") << "128 and SIGPIPE";
}

// The process beside qgpuctl that will end the task; the first that it starts.
pid_t guardOf(const Child& program) {
  const std::string self = std::to_string(program.pid());
  return std::atoi(
      testing::shell("cat /proc/" + self + "/task/" + self + "/children").output.c_str());
}

// A terminal signals everybody at once, and a shell that reads what CMD writes waits for its end.
TEST(RunInCluster, WhoEndsTheTaskOutlivesSignalsAndKeepsNoFileOpen) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(joined(a));
  TempFolder folder;
  const std::string told = folder / "pid";
  const Child child(
      {"sh", "-c", "exec 0<&- 9>" + told + ".9; exec \"$0\" \"$@\"", binary("qgpuctl"), "--server",
       scheduler.rpc(), "run", "--", "sh", "-c", "echo $$ >" + told + "; exec sleep 1000"},
      Environment{{"QGPU_SOCKET", a.socket()}});
  const auto pid = [&] { return std::atoi(testing::shell("cat " + told).output.c_str()); };
  ASSERT_TRUE(eventually([&] { return pid() > 0; })) << child.output();
  const pid_t guard = guardOf(child);
  ASSERT_GT(guard, 1);
  const std::string files = "/proc/" + std::to_string(guard) + "/fd";
  // It may be at its beginning still.
  const auto kept = [&] {
    return testing::shell("cd " + files + " && for fd in *; do readlink $fd; done | cut -d: -f1")
        .output;
  };
  EXPECT_TRUE(eventually([&] { return kept() == "/dev/null\n/dev/null\n/dev/null\nsocket\n"; }))
      << kept();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) {
    EXPECT_EQ(::kill(guard, signal), 0);
  }
  child.signal(SIGKILL);
  ::kill(pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return scheduler.ask("tasks")["tasks"].empty(); }));
  EXPECT_TRUE(eventually([&] { return a.tasks().empty(); }));
  // Reaped or not, by whoever does that here.
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(files + "/0"); }));
}

// Answers each line by the first word of it, in the order that was given, the last again and again.
class ScriptedDaemon {
 public:
  using Script = std::map<std::string, std::deque<std::string>>;
  ScriptedDaemon(const std::string& path, Script script)
      : script_(std::move(script)), listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedDaemon() {
    ends_ = true;
    thread_.join();
    ::close(listener_);
  }
  ScriptedDaemon(const ScriptedDaemon&) = delete;

  // The lines of submit and delete so far, without the description of a task.
  std::string heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void serve() {
    std::vector<pollfd> all{{listener_, POLLIN, 0}};
    while (!ends_) {
      ::poll(all.data(), all.size(), 10);
      for (std::size_t i = all.size() - 1; i > 0; --i) {
        if (all[i].revents == 0 || answers(all[i].fd)) continue;
        ::close(all[i].fd);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (all[0].revents != 0) {
        all.push_back({::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), POLLIN, 0});
      }
    }
    for (std::size_t i = 1; i < all.size(); ++i) ::close(all[i].fd);
  }
  // One line, which fits; false where the other end is gone.
  bool answers(int peer) {
    char text[4096];
    const ssize_t n = ::recv(peer, text, sizeof text, 0);
    if (n <= 0) return false;
    const std::string line(text, static_cast<std::size_t>(n) - 1);
    const std::string word = line.substr(0, line.find(' '));
    if (word == "submit" || word == "delete") {
      const std::lock_guard lock(mutex_);
      heard_ += (word == "delete" ? line : word) + "\n";
    }
    auto& answers = script_[word];
    const std::string said = answers.empty() ? R"({"ok":true})" : answers.front();
    if (answers.size() > 1) answers.pop_front();
    return ::send(peer, (said + "\n").data(), said.size() + 1, MSG_NOSIGNAL) > 0;
  }

  Script script_;  // of the thread
  const int listener_;
  std::atomic<bool> ends_ = false;
  mutable std::mutex mutex_;
  std::string heard_;
  std::thread thread_;
};

std::string refusal(const std::string& code) {
  return R"({"ok":false,"error":"because","code":")" + code + "\"}";
}

const char kBound[] = R"({"ok":true,"task":7,"node":"far","cards":["sim-0"],"env":{}})";

// qgpuctl run --cluster at a scheduler of this script, beside the manager of another node than it
// names; what it was asked.
std::string askedOf(ScriptedDaemon::Script script, const std::string& until) {
  TempFolder folder;
  const ScriptedDaemon manager(folder / "manager.sock",
                               {{"status", {R"({"ok":true,"node":"near"})"}}});
  const ScriptedDaemon scheduler(folder / "scheduler.sock", std::move(script));
  const Finished done = run({binary("qgpuctl"), "run", "--cluster", "--", "true"},
                            Environment{{"QGPU_SOCKET", folder / "manager.sock"}});
  EXPECT_EQ(done.status, 125) << done.output;
  EXPECT_TRUE(eventually([&] { return scheduler.heard().ends_with(until); })) << scheduler.heard();
  return scheduler.heard();
}

TEST(RunInCluster, ATaskThatMayHaveBeenMadeIsAskedForAndDeletedUntilThatIsSure) {
  for (const char* code : {"unavailable", "overloaded", "stands-by", "internal", "corrupt"}) {
    EXPECT_EQ(askedOf({{"submit", {refusal(code), kBound}},
                       {"delete", {refusal(code), R"({"ok":true})"}}},
                      "delete 7\ndelete 7\n"),
              "submit\nsubmit\ndelete 7\ndelete 7\n")
        << code;
  }
}

TEST(RunInCluster, ARefusalForGoodLeavesNothingToDelete) {
  EXPECT_EQ(askedOf({{"submit", {refusal("infeasible")}}}, "submit\n"), "submit\n");
  EXPECT_EQ(askedOf({{"submit", {kBound}}, {"delete", {refusal("not-found")}}}, "delete 7\n"),
            "submit\ndelete 7\n");
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
  EXPECT_TRUE(eventually(
      [&] {
        const Json task = scheduler.task(id);
        return task["place"] == "bound" && task["node"] != first;
      },
      std::chrono::seconds(30)));
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

// Two cards are there for a group of three; the scheduler is killed while it waits.
TEST(Cluster, P11_AGroupStartsAsAWholeOnceItsLastTaskHasRoomAlsoOverAKill) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const auto submit = [&](const std::string& rank) {
    return ctl(scheduler, {"-o", "json", "submit", "--name", rank, "--core", "100", "--group",
                           "train", "--group-size", "3", "--request-id", rank});
  };
  const std::vector<std::string> ranks = {"rank-0", "rank-1", "rank-2"};
  for (const std::string& rank : ranks) {
    EXPECT_TRUE(Json::parse(submit(rank).output)["waiting"]) << rank;
  }
  EXPECT_TRUE(a.tasks().empty());
  const Finished why = ctl(scheduler, {"explain", "rank-2"});
  EXPECT_HOLDS(why.output, "3 members of its group are to start at once, and 2 fit");
  scheduler.kill();
  scheduler.start();
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  EXPECT_TRUE(a.tasks().empty());
  Manager b(memberOf(scheduler, "node-b"));
  for (const std::string& rank : ranks) {
    EXPECT_TRUE(eventually([&] {
      const Json answer = Json::parse(submit(rank).output, nullptr, false);
      return answer.is_object() && !answer["waiting"] && answer["token"] != "";
    })) << rank;
  }
  EXPECT_EQ(a.tasks().size() + b.tasks().size(), 3u);
}

TEST(Cluster, AnOperatorSeesWhyATaskWaitsWhatWouldHelpAndThatItHelps) {
  Scheduler scheduler;
  Manager a({"--cards=sim:1x16", "--mixed", "--nodename=node-a", "--scheduler=" + scheduler.rpc()});
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const std::uint64_t first =
      submitted(scheduler, {"--class", "offline", "--core", "50", "--memory", "9"});
  const std::uint64_t second = submitted(scheduler, {"--class", "online", "--memory", "8"});
  EXPECT_EQ(scheduler.task(second)["place"], "waiting");
  const std::string told = "MemShort: nearest: node node-a, sim-0: lacks 1 GiB";
  EXPECT_HOLDS(ctl(scheduler, {"tasks"}).output, told);
  EXPECT_HOLDS(ctl(scheduler, {"events"}).output, "task-waits  task " + std::to_string(second));
  EXPECT_HOLDS(ctl(scheduler, {"audit"}).output, "waits: MemShort");
  EXPECT_HOLDS(ctl(scheduler, {"status"}).output, "1 online: MemShort");
  EXPECT_HOLDS(scheduler.metric("qgpu_pending_tasks"),
               "qgpu_pending_tasks{class=\"online\",reason=\"MemShort\"} 1\n");
  const Finished why = ctl(scheduler, {"explain", std::to_string(second)});
  EXPECT_HOLDS(why.output, "what would help: evict offline task " + std::to_string(first));
  EXPECT_HOLDS(why.output, "MemShort");
  EXPECT_HOLDS(why.output, "lacks 1 GiB");
  EXPECT_HOLDS(ctl(scheduler, {"preempt", std::to_string(second), "--dry-run"}).output, "node-a");
  EXPECT_EQ(scheduler.task(first)["place"], "bound") << "a dry run changes nothing";
  EXPECT_EQ(ctl(scheduler, {"delete", std::to_string(first)}).status, 0);
  EXPECT_TRUE(eventually([&] { return scheduler.task(second)["place"] == "bound"; }));
  const Finished audit = ctl(scheduler, {"audit"});
  EXPECT_HOLDS(audit.output, "task-deleted  task " + std::to_string(first));
  EXPECT_EQ(audit.output.find("task-bound"), std::string::npos) << "no daemon's own doing";
}

TEST(Cluster, ADrainedNodeIsLeftAndWhatFitsNowhereElseWaits) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const std::uint64_t big = submitted(scheduler, {"--core", "200", "--name", "big"});
  EXPECT_HOLDS(ctl(scheduler, {"what-if", "drain", "node-a"}).output, "nowhere");
  Manager b(memberOf(scheduler, "node-b"));
  ASSERT_TRUE(scheduler.waitFor("node-b", "alive"));
  EXPECT_HOLDS(ctl(scheduler, {"what-if", "drain", "node-a"}).output, "node-b");
  EXPECT_HOLDS(ctl(scheduler, {"drain", "node-a", "--timeout", "60s"}).output,
               "node-a is draining");
  EXPECT_TRUE(eventually([&] { return scheduler.task(big)["node"] == "node-b"; }));
  EXPECT_TRUE(eventually([&] { return a.tasks().empty(); }));
  EXPECT_EQ(ctl(scheduler, {"drain", "node-b", "--timeout", "1s"}).status, 0);
  EXPECT_TRUE(eventually([&] { return scheduler.task(big)["place"] == "waiting"; },
                         std::chrono::seconds(30)));
  EXPECT_EQ(ctl(scheduler, {"uncordon", "node-a"}).status, 0);
  EXPECT_TRUE(eventually([&] { return scheduler.task(big)["place"] == "bound"; }));
  EXPECT_EQ(scheduler.task(big)["node"], "node-a");
}

TEST(Cluster, OverTcpOnlyCertificatesOfTheCaCountAndTheAuditNamesThem) {
  TempFolder folder;
  testing::Certificates made(folder.path());
  made.makeCa("ca");
  made.makeCa("other");
  Scheduler scheduler(flagsOf(made.make("ca", "127.0.0.1")));
  std::vector<std::string> joins = flagsOf(made.make("ca", "node-a", "", "/OU=qgpu-node"));
  joins.insert(joins.end(),
               {"--cards=sim:1x16", "--nodename=node-a", "--scheduler=" + scheduler.tcp()});
  Manager a(joins);
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive")) << a.log();

  const auto asked = [&](std::vector<std::string> words, std::vector<std::string> flags) {
    std::vector<std::string> argv = {binary("qgpuctl"), "--server", scheduler.tcp()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    argv.insert(argv.end(), words.begin(), words.end());
    return run(argv);
  };
  const TlsFiles reader = made.make("ca", "operator-2");
  const Finished unasked = asked({"cordon", "node-a"}, flagsOf(reader));
  EXPECT_EQ(unasked.status, 3) << unasked.output;
  EXPECT_HOLDS(unasked.output, "OU=qgpu-admin");
  EXPECT_EQ(asked({"nodes"}, flagsOf(reader)).status, 0);
  const TlsFiles admin = made.make("ca", "operator-3", "", "/OU=qgpu-admin");
  EXPECT_EQ(asked({"cordon", "node-a"}, flagsOf(admin)).status, 0);
  EXPECT_HOLDS(ctl(scheduler, {"audit"}).output, "cordoned  (certificate operator-3)");

  const TlsFiles stranger = made.make("other", "stranger");
  TlsFiles trusting = stranger;  // of us, who do not trust it
  trusting.ca = made.path("ca.pem");
  for (const auto& flags : {flagsOf(stranger), flagsOf(trusting), std::vector<std::string>{}}) {
    const std::int64_t before = monotonicNs();
    const Finished refused = asked({"uncordon", "node-a"}, flags);
    EXPECT_EQ(refused.status, 4) << refused.output;
    EXPECT_LT(monotonicNs() - before, 3'000'000'000) << "told at once: " << refused.output;
  }
  EXPECT_TRUE(scheduler.ask("nodes")["nodes"][0]["cordoned"]) << "state unchanged";
}

// As an operator does it: a CA and certificates by `qgpuctl certs`, and new ones of the same keys
// while everything runs.
TEST(Cluster, CertificatesOfTheCommandServeAndAreRenewedWhileDaemonsRun) {
  TempFolder folder;
  const auto certs = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {binary("qgpuctl"), "certs"});
    words.insert(words.end(), {"--dir", folder.path() + "/certs"});
    const Finished done = run(words);
    EXPECT_EQ(done.status, 0) << done.output;
    return done.output;
  };
  const auto files = [&](const std::string& name) {
    const std::string at = folder.path() + "/certs/";
    return TlsFiles{at + name + ".pem", at + name + ".key", at + "ca.pem"};
  };
  certs({"init"});
  certs({"issue", "127.0.0.1", "--role", "scheduler"});
  certs({"issue", "node-a"});
  certs({"issue", "alice", "--role", "admin"});
  certs({"issue", "bob", "--role", "reader"});
  Scheduler scheduler(flagsOf(files("127.0.0.1")));
  std::vector<std::string> joins = flagsOf(files("node-a"));
  joins.insert(joins.end(),
               {"--cards=sim:1x16", "--nodename=node-a", "--scheduler=" + scheduler.tcp()});
  Manager a(joins);
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive")) << a.log();
  const auto asked = [&](const std::string& who, std::vector<std::string> words) {
    const std::vector<std::string> flags = flagsOf(files(who));
    words.insert(words.begin(), flags.begin(), flags.end());
    words.insert(words.begin(), {binary("qgpuctl"), "--server", scheduler.tcp()});
    return run(words).status;
  };
  EXPECT_EQ(asked("bob", {"nodes"}), 0);
  EXPECT_EQ(asked("bob", {"cordon", "node-a"}), 3);
  EXPECT_EQ(asked("alice", {"cordon", "node-a"}), 0);
  EXPECT_EQ(asked("alice", {"uncordon", "node-a"}), 0);

  EXPECT_HOLDS(certs({"renew", "--before", "366d", "--days", "400d"}), "127.0.0.1");
  const auto readAnew = [](const std::string& log) {
    return log.find("certificates-changed") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] { return readAnew(scheduler.log()) && readAnew(a.log()); },
                         std::chrono::seconds(60)))
      << scheduler.log() << a.log();
  EXPECT_EQ(scheduler.stateOf("node-a"), "alive") << "nothing was cut off";
  a.kill();
  a.start();
  EXPECT_TRUE(eventually([&] {
    return a.ask("status")["cluster"].get<std::string>().starts_with("joined");
  })) << a.log();
  EXPECT_EQ(asked("alice", {"cordon", "node-a"}), 0);
}

// Whoever has a shell on the scheduler's machine reaches its port on loopback.
TEST(Cluster, WithoutCertificatesNobodyTakesANodeOverFromLoopback) {
  Scheduler scheduler;
  Manager owner(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const std::vector<std::string> flags = {"--cards=sim:2x16", "--nodename=node-a",
                                          "--scheduler=" + scheduler.tcp()};
  Manager thief(flags);
  for (int later = 0; later < 2; ++later) {  // incarnations than that of the node
    thief.kill();
    thief.start();
  }
  const auto standing = [](Manager& manager) {
    return manager.ask("status")["cluster"].get<std::string>();
  };
  EXPECT_TRUE(eventually([&] {
    return thief.log().find("nothing says who joins over TCP") != std::string::npos;
  })) << thief.log();
  EXPECT_EQ(standing(thief), "no scheduler");
  EXPECT_TRUE(standing(owner).starts_with("joined")) << standing(owner);
  const Json bound = scheduler.ask(std::string("submit ") + kSubmit);
  ASSERT_TRUE(bound["ok"]) << bound;
  EXPECT_EQ(owner.tasks().size(), 1u);
  EXPECT_TRUE(thief.tasks().empty());

  Scheduler trusting({"--insecure"});
  Manager joined({"--cards=sim:2x16", "--nodename=node-a", "--scheduler=" + trusting.tcp()});
  EXPECT_TRUE(trusting.waitFor("node-a", "alive")) << joined.log();
}

TEST(Cluster, TheExampleClientSubmitsFollowsAndDeletes) {
  Scheduler scheduler;
  Manager a(memberOf(scheduler, "node-a"));
  ASSERT_TRUE(scheduler.waitFor("node-a", "alive"));
  const Finished example = run({binary("qgpu-example"), scheduler.rpc()});
  EXPECT_EQ(example.status, 0) << example.output;
  EXPECT_HOLDS(example.output, "bound on node node-a");
  EXPECT_HOLDS(example.output, "deleted");
}

TEST(Scheduler, TellsSystemdWhenItServesAndWhenItEnds) {
  TempFolder dir;
  const std::string path = dir.path() + "/notify";
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const timeval limit{20, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto hear = [&] {
    char text[64];
    const ssize_t n = ::recv(socket, text, sizeof text, 0);
    return std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  };
  Child child({binary("qgpu-scheduler"), "--run-dir=" + dir.path() + "/run", "--http=127.0.0.1:0",
               "--dbfile=" + dir.path() + "/s.db", "--rpc=127.0.0.1:0"},
              {{"NOTIFY_SOCKET", path}, {"WATCHDOG_USEC", "30000000"}});
  EXPECT_EQ(hear(), "READY=1");
  EXPECT_EQ(hear(), "WATCHDOG=1");
  EXPECT_EQ(hear(), "WATCHDOG=1") << "again and again";
  EXPECT_FALSE(askSocket(dir.path() + "/run/scheduler.sock", "status").empty());
  child.signal(SIGTERM);
  std::string last = hear();
  while (last == "WATCHDOG=1") last = hear();
  EXPECT_EQ(last, "STOPPING=1");
  EXPECT_EQ(child.wait().value_or(-1), 0) << child.output();
  ::close(socket);
}

}  // namespace
}  // namespace qgpu::e2e::cluster_test
