// Claim: a cluster takes 5,000 submits per second end to end: from a client's call over RPC to the
// answer that says node, card and token, with the decision and the node's confirmation committed
// to the scheduler's SQLite with fsync. Prints one JSON line; the median of --rounds=N.
//
// The scheduler is the real daemon. Nodes are of two kinds. `members`: --nodes=N, real members and
// links in one process over TCP, behind nodes that have no disk. `managers`: --managers=N real
// daemons with simulated cards, which commit every bind to a disk of their own and make its pages;
// all of them share this machine with the scheduler. Limits of the same run: what SQLite alone
// commits of the same rows, and RPC alone.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/cluster/cluster_client.h"
#include "bench/cluster/cluster_daemons.h"
#include "bench/cluster/members.h"
#include "bench/cluster/submit_limits.h"
#include "bench/load_manager.h"
#include "bench/read_option.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_folder.h"

namespace qgpu::bench {
namespace {

struct Options {
  std::int64_t nodes = 64;
  std::int64_t managers = 4;
  std::int64_t tasks = 10'000;  // a round of members; managers have at most 400 each
  std::int64_t window = 1'024;
  std::int64_t connections = 4;
  std::int64_t rounds = 3;
  std::int64_t record = 0;  // 1: the scheduler records what it is told and does
};

constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::size_t kTasksOfManager = 400;
constexpr std::size_t kQuietTasks = 200;  // one at a time

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i++) {
    const char* a = argv[i];
    const bool known =
        readOption(a, "--nodes=", options.nodes, 0) ||
        readOption(a, "--managers=", options.managers, 0) ||
        readOption(a, "--tasks=", options.tasks) || readOption(a, "--window=", options.window) ||
        readOption(a, "--connections=", options.connections) ||
        readOption(a, "--rounds=", options.rounds) || readOption(a, "--record=", options.record, 0);
    if (!known) return false;
  }
  return true;
}

struct Round {
  double rate = 0, p50 = 0, p99 = 0;  // per second, ms
  double schedulerUs = 0;             // its CPU for each bind
  double nodesUs = 0;                 // the CPU of real managers for each bind
};

struct Figures {
  std::vector<Round> rounds;
  double quietP50 = 0;  // ms, one submit at a time
  double over(double Round::*figure) const {
    std::vector<double> all;
    for (const Round& round : rounds) all.push_back(round.*figure);
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_submit: %s\n", why.c_str());
  std::exit(1);
}

template <typename Condition>
void await(Condition condition, const char* what) {
  if (!testing::eventually(condition, kPatience)) die(std::string("no ") + what);
}

double microsEach(Nanos used, std::size_t count) {
  return static_cast<double>(used.value) / 1e3 / static_cast<double>(count);
}

// Rounds of submits, each on an empty cluster of `nodes`.
Figures measure(const Options& options, const OwnScheduler& scheduler, std::size_t nodes,
                std::size_t tasks, const OwnManagers* managers) {
  ClusterClient client(scheduler.rpc(), static_cast<std::size_t>(options.connections));
  if (client.awaitAlive(nodes, kPatience) != nodes) die("no nodes: they do not join");
  Figures figures;
  const auto window = static_cast<std::size_t>(options.window);
  for (std::int64_t i = 0; i < options.rounds; ++i) {
    const Nanos used = cpuTimeOf(scheduler.pid());
    const Nanos usedByNodes = managers == nullptr ? Nanos(0) : managers->cpuTime();
    Submitted seen = client.submit(tasks, window);
    if (seen.failed + seen.waiting > 0) {
      die(std::to_string(seen.failed) + " submits failed, " + std::to_string(seen.waiting) +
          " wait: " + seen.why);
    }
    Round round{seen.perSecond(), seen.millisAt(500), seen.millisAt(990),
                microsEach(cpuTimeOf(scheduler.pid()) - used, tasks), 0};
    if (managers != nullptr) round.nodesUs = microsEach(managers->cpuTime() - usedByNodes, tasks);
    figures.rounds.push_back(round);
    if (i + 1 == options.rounds) break;
    client.erase(seen.tasks, window);
    await([&] { return client.tasks() == 0; }, "end of the tasks");
  }
  figures.quietP50 = client.submit(kQuietTasks, 1).millisAt(500);
  return figures;
}

std::string textOf(const Figures& figures) {
  char text[256];
  std::snprintf(text, sizeof text,
                "{\"per_s\":%.0f,\"p50_ms\":%.1f,\"p99_ms\":%.1f,\"p50_alone_ms\":%.2f,"
                "\"scheduler_us\":%.0f,\"managers_us\":%.0f}",
                figures.over(&Round::rate), figures.over(&Round::p50), figures.over(&Round::p99),
                figures.quietP50, figures.over(&Round::schedulerUs), figures.over(&Round::nodesUs));
  return text;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: bench_submit [--nodes=N] [--managers=N] [--tasks=N] "
                 "[--window=N] [--connections=N] [--rounds=N] [--record=0|1]\n");
    return 2;
  }
  std::string members = "null", managers = "null";
  const auto window = static_cast<std::size_t>(options.window);
  const auto connections = static_cast<std::size_t>(options.connections);
  Result<DiskLimits> disk = DiskLimits{};
  double echo = 0;
  const testing::TempFolder records("bench");
  std::vector<std::string> recorded;
  if (options.record != 0) recorded.push_back("--record=" + records.path());
  if (options.nodes > 0) {
    OwnScheduler scheduler(recorded);
    if (Status up = scheduler.start(); !up) die(up.error().message);
    {
      const Members nodes(static_cast<std::size_t>(options.nodes), {"bench"}, {scheduler.tcp()});
      members = textOf(measure(options, scheduler, static_cast<std::size_t>(options.nodes),
                               static_cast<std::size_t>(options.tasks), nullptr));
    }
    scheduler.stop(std::chrono::seconds(60));
    disk = diskLimits(scheduler.database(), scheduler.folder().path(), window / 4);
    if (!disk) die(disk.error().message);
    echo = echoLimit(scheduler.folder().path(), connections, window);
  }
  if (options.managers > 0) {
    OwnScheduler scheduler(recorded);
    if (Status up = scheduler.start(); !up) die(up.error().message);
    const auto count = static_cast<std::size_t>(options.managers);
    const OwnManagers nodes(count, scheduler.rpc());
    managers = textOf(measure(options, scheduler, count, count * kTasksOfManager, &nodes));
  }
  std::printf(
      "{\"bench\":\"submit\",\"nodes\":%lld,\"window\":%zu,\"members\":%s,"
      "\"manager_daemons\":%lld,\"managers\":%s,"
      "\"limits\":{\"sqlite_tasks_per_s\":%.0f,\"sqlite_commits_per_s\":%.0f,"
      "\"row_bytes\":%.0f,\"rpc_echo_per_s\":%.0f}}\n",
      static_cast<long long>(options.nodes), window, members.c_str(),
      static_cast<long long>(options.managers), managers.c_str(), disk->tasksPerSecond,
      disk->commitsPerSecond, disk->rowBytes, echo);
  return 0;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  return qgpu::bench::run(argc, argv);
}
