// Claim: where schedulers share an etcd, another one acts within 3 s (p99) of the death of the one
// that did, nothing that was acknowledged is lost and no task is on two nodes; and such a cluster
// takes 1,000 submits a second from call to bound. Prints one JSON line.
//
// Three etcd, three schedulers, nodes as bench_submit's `members`, and a client that submits at a
// steady rate throughout and ends what it submitted before, all real processes or links on this
// machine. The acting scheduler is killed (SIGKILL) --kills=N times and started again. `acts_s`:
// from the kill to the first answer of another one; `submit_s`: of every submit, from when it was
// due, those of the gaps among them. Beside it, in the same run and with one client, the rate of
// submits of one scheduler with SQLite, of one with one etcd and of one with three.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bench/cluster/cluster_client.h"
#include "bench/cluster/cluster_daemons.h"
#include "bench/cluster/following_client.h"
#include "bench/cluster/members.h"
#include "bench/read_option.h"
#include "runtime/loop.h"
#include "tests/testing/eventually.h"

namespace qgpu::bench {
namespace {

constexpr std::size_t kGroup = 3;
constexpr std::size_t kStanding = 2'000;       // tasks that live at a time
constexpr std::uint64_t kAnswersBefore = 500;  // of one that acts, before it is killed
constexpr std::size_t kBehindSeconds = 20;     // of submits without an answer, at most
constexpr auto kPatience = std::chrono::seconds(60);

struct Options {
  std::int64_t kills = 10;
  std::int64_t rate = 500;
  std::int64_t nodes = 64;
  std::int64_t tasks = 5'000;  // of a round of the rates
  std::int64_t rounds = 3;
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "bench_group: %s\n", why.c_str());
  std::exit(1);
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i++) {
    const char* a = argv[i];
    if (!readOption(a, "--kills=", options.kills) && !readOption(a, "--rate=", options.rate) &&
        !readOption(a, "--nodes=", options.nodes) && !readOption(a, "--tasks=", options.tasks) &&
        !readOption(a, "--rounds=", options.rounds)) {
      return false;
    }
  }
  return true;
}

double secondsAt(std::vector<Nanos>& all, std::size_t permille) {
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return static_cast<double>(all[std::min(all.size() - 1, all.size() * permille / 1000)].value) /
         1e9;
}

// Submits a second to one scheduler, 1,024 under way; the median of the rounds.
double rateOf(const Options& options, std::vector<std::string> store) {
  constexpr std::size_t kWindow = 1'024, kConnections = 4;
  OwnScheduler scheduler(std::move(store));
  if (Status up = scheduler.start(); !up) die(up.error().message);
  const auto count = static_cast<std::size_t>(options.nodes);
  const Members nodes(count, {"bench"}, {scheduler.tcp()});
  ClusterClient client(scheduler.rpc(), kConnections);
  if (client.awaitAlive(count, kPatience) != count) die("no nodes");
  std::vector<double> rates;
  for (std::int64_t i = 0; i < options.rounds; ++i) {
    Submitted seen = client.submit(static_cast<std::size_t>(options.tasks), kWindow);
    if (seen.failed + seen.waiting > 0) die("submits failed or wait: " + seen.why);
    rates.push_back(seen.perSecond());
    client.erase(seen.tasks, kWindow);
    if (!testing::eventually([&] { return client.tasks() == 0; }, kPatience)) die("tasks stay");
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

struct Kills {
  std::vector<Nanos> acts, submits;
  std::uint64_t submitted = 0, erased = 0;
};

// The acting scheduler dies again and again while the client goes on.
Kills killAgainAndAgain(const Options& options) {
  const OwnEtcd etcd(kGroup);
  std::vector<std::unique_ptr<OwnScheduler>> schedulers;
  std::vector<std::string> sockets, addresses;
  for (std::size_t i = 0; i < kGroup; ++i) {
    schedulers.push_back(std::make_unique<OwnScheduler>(std::vector<std::string>{etcd.store()}));
    if (Status up = schedulers.back()->start(); !up) die(up.error().message);
    sockets.push_back(schedulers.back()->rpc());
    addresses.push_back(schedulers.back()->tcp());
  }
  const auto count = static_cast<std::size_t>(options.nodes);
  const Members nodes(count, {"bench"}, addresses);
  if (!testing::eventually([&] { return nodes.joined() == count; }, kPatience)) die("no nodes");
  FollowingClient client(sockets, kStanding);

  Kills seen;
  const auto rate = static_cast<std::size_t>(options.rate);
  std::int64_t kills = 0;
  std::size_t dead = kGroup;  // whose successor has not answered yet
  Nanos killedAt{0};
  std::future<bool> back;  // whether the one that was started again serves
  const auto over = [&] {
    if (!client.refused().empty()) die(client.refused());
    if (client.underWay() > kBehindSeconds * rate) die("too slow a machine: give a lower --rate");
    if (dead != kGroup && client.acting() != dead) {
      seen.acts.push_back(monotonicNow() - killedAt);
      schedulers[dead]->launch();
      back = std::async(std::launch::async,
                        [one = schedulers[dead].get()] { return one->awaitService(kPatience); });
      dead = kGroup;
    }
    if (dead != kGroup || client.answersInRow() < kAnswersBefore) return false;
    if (client.underWay() > rate / 10) return false;  // what came in the gap is served first
    if (back.valid()) {
      if (back.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
      if (!back.get()) die("a scheduler does not come back");
    }
    if (kills == options.kills) return true;
    ++kills;
    dead = client.acting();
    schedulers[dead]->kill();
    killedAt = monotonicNow();
    return false;
  };
  client.run(static_cast<std::uint32_t>(rate), over);
  client.rest();
  if (!client.refused().empty()) die(client.refused());
  if (const std::string wrong = client.differences(); !wrong.empty()) die(wrong);
  const NodeCounts& counts = nodes.counts();
  const std::uint64_t live = client.submitted() - client.erased();
  const auto holdAll = [&] { return counts.placed.load() - counts.ended.load() == live; };
  if (!testing::eventually(holdAll, kPatience)) {
    die(std::to_string(counts.placed.load() - counts.ended.load()) + " tasks are on nodes, " +
        std::to_string(live) + " live, " + std::to_string(nodes.joined()) + " nodes have joined");
  }
  if (counts.twice.load() > 0) die(std::to_string(counts.twice.load()) + " tasks were bound twice");
  seen.submits = std::move(client.latencies());
  seen.submitted = client.submitted();
  seen.erased = client.erased();
  return seen;
}

int run(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: bench_group [--kills=N] [--rate=N] [--nodes=N] [--tasks=N] "
                 "[--rounds=N]\n");
    return 2;
  }
  if (!OwnEtcd::isHere()) {
    std::fprintf(stderr, "bench_group: no etcd: install etcd-server\n");
    return 77;
  }
  const double sqlite = rateOf(options, {});
  double one = 0, three = 0;
  {
    const OwnEtcd etcd(1);
    one = rateOf(options, {etcd.store()});
  }
  {
    const OwnEtcd etcd(kGroup);
    three = rateOf(options, {etcd.store()});
  }
  Kills kills = killAgainAndAgain(options);
  std::printf(
      "{\"bench\":\"group\",\"kills\":%zu,\"rate\":%lld,\"nodes\":%lld,"
      "\"acts_s\":{\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"max\":%.2f},"
      "\"submit_s\":{\"p50\":%.4f,\"p90\":%.3f,\"max\":%.2f},"
      "\"submitted\":%llu,\"deleted\":%llu,\"lost\":0,\"undone\":0,\"bound_twice\":0,"
      "\"submits_per_s\":{\"sqlite\":%.0f,\"etcd\":%.0f,\"three_etcd\":%.0f}}\n",
      kills.acts.size(), static_cast<long long>(options.rate),
      static_cast<long long>(options.nodes), secondsAt(kills.acts, 500), secondsAt(kills.acts, 900),
      secondsAt(kills.acts, 990), secondsAt(kills.acts, 1000), secondsAt(kills.submits, 500),
      secondsAt(kills.submits, 900), secondsAt(kills.submits, 1000),
      static_cast<unsigned long long>(kills.submitted),
      static_cast<unsigned long long>(kills.erased), sqlite, one, three);
  return 0;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  return qgpu::bench::run(argc, argv);
}
