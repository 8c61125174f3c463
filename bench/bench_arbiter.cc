// What a decision costs in the arbiter, without actors, loops or gates.
//
// preempt: one online submit while an offline task holds the card, up to the hold standing in the
// caller's Decisions; the clock is read around each single call. turns: events handled per second
// of processor time (a turn is one handled message) while 8, 64 or 512 busy tasks pass the card
// on: each slice ends in an expire and a settled.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "actors/arbiter/arbiter.h"

namespace {

using namespace qgpu;
using Clock = std::chrono::steady_clock;

std::int64_t nanosSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

ArbiterTask tenant(std::uint64_t id, TaskClass taskClass, std::int64_t share) {
  ArbiterTask task;
  task.id = TaskId{id};
  task.taskClass = taskClass;
  task.share = Permille(share);
  return task;
}

// Nanoseconds of each online arrival on a card with `tasks` busy offline tasks, sorted.
std::vector<std::int64_t> onlineArrivals(std::uint64_t tasks, int rounds) {
  Nanos now = seconds(1);
  Arbiter arbiter(ArbiterConfig{}, now);
  Decisions out;
  const TaskId online{9999};
  arbiter.join(tenant(9999, TaskClass::Online, 0), now, out);
  for (std::uint64_t id = 1; id <= tasks; ++id) {
    arbiter.join(tenant(id, TaskClass::Offline, 1), now, out);
    arbiter.busy(TaskId{id}, now, now, out);
  }
  std::vector<std::int64_t> costs;
  costs.reserve(static_cast<std::size_t>(rounds));
  for (int i = 0; i < rounds; ++i) {
    now += millis(1);
    out.clear();
    const auto start = Clock::now();
    arbiter.busy(online, now, now, out);
    costs.push_back(nanosSince(start));
    if (out.gates.size() != 2 || out.gates[0].kind != GateDecision::Kind::Hold) std::abort();
    const GateDecision hold = out.gates[0];
    now += micros(100);
    arbiter.settled(hold.task, hold.epoch, now, now, out);
    arbiter.quiet(online, now, now, out);
    now = arbiter.nextDeadline();
    arbiter.expire(now, out);
  }
  std::sort(costs.begin(), costs.end());
  return costs;
}

double turnsPerSecond(std::uint64_t tasks, Policy policy, int switches) {
  Nanos now = seconds(1);
  ArbiterConfig config;
  config.policy = policy;
  Arbiter arbiter(config, now);
  Decisions out;
  for (std::uint64_t id = 1; id <= tasks; ++id) {
    arbiter.join(tenant(id, TaskClass::Ordinary, 1000 / static_cast<std::int64_t>(tasks)), now,
                 out);
    arbiter.busy(TaskId{id}, now, now, out);
  }
  std::int64_t turns = 0;
  const std::clock_t start = std::clock();
  for (int i = 0; i < switches; ++i) {
    now = arbiter.nextDeadline();
    out.clear();
    arbiter.expire(now, out);
    ++turns;
    if (out.gates.empty() || out.gates[0].kind != GateDecision::Kind::Hold) continue;
    const GateDecision hold = out.gates[0];
    now += micros(10);
    out.clear();
    arbiter.settled(hold.task, hold.epoch, now, now, out);
    ++turns;
  }
  return static_cast<double>(turns) * CLOCKS_PER_SEC / static_cast<double>(std::clock() - start);
}

}  // namespace

int main() {
  const std::vector<std::int64_t> costs = onlineArrivals(8, 200'000);
  const auto at = [&](std::size_t permille) { return costs[costs.size() * permille / 1000]; };
  std::printf("{\"bench\":\"arbiter\",\"online_to_hold_ns\":{\"p50\":%lld,\"p99\":%lld,\"n\":%zu}",
              static_cast<long long>(at(500)), static_cast<long long>(at(990)), costs.size());
  const char* names[] = {"best_effort", "fixed_share", "burst_share"};
  for (Policy policy : {Policy::BestEffort, Policy::FixedShare, Policy::BurstShare}) {
    std::printf(",\"turns_per_s_%s\":{", names[static_cast<int>(policy)]);
    for (std::uint64_t tasks : {8u, 64u, 512u}) {
      std::printf("%s\"%llu\":%.0f", tasks == 8 ? "" : ",", static_cast<unsigned long long>(tasks),
                  turnsPerSecond(tasks, policy, 300'000));
    }
    std::printf("}");
  }
  std::printf("}\n");
}
