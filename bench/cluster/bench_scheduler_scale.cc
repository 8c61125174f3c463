// Claim: a scheduler of 10,000 nodes with 8 cards each and 100,000 tasks takes at most 800 MB,
// serves within 3 s after it was killed, and spends at most 20 % of a core on heartbeats. Prints
// one JSON line.
//
// The scheduler is the real daemon with its database on disk; each node is a TCP connection with a
// real member and link, all of them in this process, before nodes without a disk. The default is
// a fifth of that size, for a minute's run: --nodes=10000 --tasks=100000 is the claim. --idle=N
// seconds of heartbeats alone. --etcd=N: with an etcd of so many members in place of the database,
// and what it took.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/cluster/cluster_client.h"
#include "bench/cluster/cluster_daemons.h"
#include "bench/cluster/members.h"
#include "bench/load_manager.h"
#include "bench/read_option.h"
#include "tests/testing/eventually.h"

namespace qgpu::bench {
namespace {

struct Options {
  std::int64_t nodes = 2'000;
  std::int64_t tasks = 20'000;
  std::int64_t window = 1'024;
  std::int64_t idle = 10;  // seconds
  std::int64_t etcd = 0;   // members; 0: a database of its own
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i++) {
    const bool known = readOption(argv[i], "--nodes=", options.nodes) ||
                       readOption(argv[i], "--tasks=", options.tasks) ||
                       readOption(argv[i], "--window=", options.window) ||
                       readOption(argv[i], "--idle=", options.idle) ||
                       readOption(argv[i], "--etcd=", options.etcd);
    if (!known) return false;
  }
  return options.etcd >= 0 && options.nodes <= static_cast<std::int64_t>(Members::kNodesMax);
}

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_scheduler_scale: %s\n", why.c_str());
  std::exit(1);
}

double secondsSince(Nanos from) {
  return static_cast<double>((monotonicNow() - from).value) / 1e9;
}

// A descriptor a node, here and in the daemon that inherits the limit.
void raiseDescriptors(std::int64_t nodes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < static_cast<rlim_t>(nodes) + 1'000) die("too few file descriptors");
}

struct Beats {
  double percent = 0;  // of one core
  double kibPerSecond = 0;
};

struct Report {
  double joinSeconds = 0, submitPerSecond = 0;
  Beats beats;
  double serveSeconds = 0, backSeconds = 0;
  std::uint64_t rssKib = 0, rssAgainKib = 0;
  double dbMegabytes = 0;
  std::string etcd;  // JSON; empty where there is none
};

void awaitAlive(ClusterClient& client, std::size_t nodes) {
  const std::size_t alive = client.awaitAlive(nodes, std::chrono::seconds(180));
  if (alive != nodes) die(std::to_string(alive) + " of the nodes have joined");
}

// The first answer is of all of them.
void awaitTasks(ClusterClient& client, std::size_t tasks) {
  std::size_t seen = 0;
  const auto answers = [&] {
    try {
      seen = client.tasks();
      return true;
    } catch (const kj::Exception&) {
      return false;  // it does not act yet
    }
  };
  if (!testing::eventually(answers, std::chrono::seconds(60))) die("nobody acts again");
  if (seen != tasks) die("tasks were lost: " + std::to_string(seen));
}

// Bytes that the loopback device has carried, with all headers.
double loopbackBytes() {
  std::ifstream devices("/proc/net/dev");
  for (std::string name; devices >> name;) {
    double bytes = 0;
    if (name == "lo:" && devices >> bytes) return bytes;
  }
  return 0;
}

// While nothing happens but heartbeats.
Beats beatsOf(pid_t scheduler, std::int64_t idle) {
  const Nanos used = cpuTimeOf(scheduler), from = monotonicNow();
  const double bytes = loopbackBytes();
  ::sleep(static_cast<unsigned>(idle));
  const auto span = static_cast<double>((monotonicNow() - from).value);
  return {100.0 * static_cast<double>((cpuTimeOf(scheduler) - used).value) / span,
          (loopbackBytes() - bytes) / 1024 / (span / 1e9)};
}

Report measure(const Options& options) {
  Report report;
  std::optional<OwnEtcd> etcd;
  std::vector<std::string> store;
  if (options.etcd > 0) store = {etcd.emplace(static_cast<std::size_t>(options.etcd)).store()};
  OwnScheduler scheduler(store);
  if (Status up = scheduler.start(); !up) die(up.error().message);
  const auto nodes = static_cast<std::size_t>(options.nodes);
  const auto tasks = static_cast<std::size_t>(options.tasks);
  Nanos from = monotonicNow();
  const Members members(nodes, {"bench"}, {scheduler.tcp()});
  std::optional<ClusterClient> client(std::in_place, scheduler.rpc(), 4);
  awaitAlive(*client, nodes);
  report.joinSeconds = secondsSince(from);
  const EtcdUse before = etcd ? etcd->use() : EtcdUse();
  const Submitted seen = client->submit(tasks, static_cast<std::size_t>(options.window));
  if (seen.tasks.size() != tasks) die("not all tasks were bound: " + seen.why);
  report.submitPerSecond = seen.perSecond();
  const EtcdUse after = etcd ? etcd->use() : EtcdUse();
  report.beats = beatsOf(scheduler.pid(), options.idle);
  report.rssKib = residentKib(scheduler.pid());
  if (etcd) {
    const EtcdUse rested = etcd->use();
    char text[200];
    std::snprintf(text, sizeof text,
                  ",\"etcd\":{\"members\":%lld,\"mib\":%.1f,\"writes\":%llu,"
                  "\"writes_of_heartbeats\":%llu}",
                  static_cast<long long>(options.etcd), rested.mebibytes,
                  static_cast<unsigned long long>(after.writes - before.writes),
                  static_cast<unsigned long long>(rested.writes - after.writes));
    report.etcd = text;
  } else {
    const auto bytes = std::filesystem::file_size(scheduler.database());
    report.dbMegabytes = static_cast<double>(bytes) / 1e6;
  }
  client.reset();
  scheduler.kill();
  from = monotonicNow();
  if (Status up = scheduler.start(); !up) die(up.error().message);
  client.emplace(scheduler.rpc(), 4);
  awaitTasks(*client, tasks);
  report.serveSeconds = secondsSince(from);
  awaitAlive(*client, nodes);
  report.backSeconds = secondsSince(from);
  awaitTasks(*client, tasks);
  report.rssAgainKib = residentKib(scheduler.pid());
  return report;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: bench_scheduler_scale [--nodes=N] [--tasks=N] [--window=N] "
                 "[--idle=SECONDS] [--etcd=MEMBERS]\n");
    return 2;
  }
  raiseDescriptors(options.nodes);
  const Report r = measure(options);
  std::printf(
      "{\"bench\":\"scheduler_scale\",\"nodes\":%lld,\"cards\":%lld,\"tasks\":%lld,"
      "\"join_s\":%.1f,\"submit_per_s\":%.0f,\"rss_mb\":%.0f,"
      "\"heartbeat_percent\":%.1f,\"heartbeat_kib_per_s\":%.0f,"
      "\"restart_to_serving_s\":%.2f,\"all_nodes_back_s\":%.1f,\"rss_again_mb\":%.0f,"
      "\"db_mb\":%.0f%s}\n",
      static_cast<long long>(options.nodes), static_cast<long long>(options.nodes * 8),
      static_cast<long long>(options.tasks), r.joinSeconds, r.submitPerSecond,
      static_cast<double>(r.rssKib) / 1024, r.beats.percent, r.beats.kibPerSecond, r.serveSeconds,
      r.backSeconds, static_cast<double>(r.rssAgainKib) / 1024, r.dbMegabytes, r.etcd.c_str());
  return 0;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  return qgpu::bench::run(argc, argv);
}
