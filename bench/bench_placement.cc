// Claims: our comparisons place as their published models do, our binpack as well as the best of
// them, whatever nodes are called and in whatever order they stand; and a decision on thousands of
// nodes costs microseconds, and equals that of a look at every node. Prints one JSON line.
//
// Quality needs the trace: QGPU_TRACES=DIR, or shared/traces beside the repository. Without it the
// speed is measured on a made up cluster of the same size, and the line says so. --seeds=N (of ten
// from 42), --speed-only, --quality-only.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "actors/placement/cluster_ledger.h"
#include "bench/placement_trace.h"

namespace qgpu::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kArriving = 1300;  // permille of the cluster
constexpr std::uint64_t kFirstSeed = 42;

// Final allocation as published, percent.
struct Published {
  const char* workload;
  double random;
  double bestFit;
  double fgd;
};
constexpr Published kPublished[] = {{"default", 87.47, 93.08, 95.39},
                                    {"gpushare40", 86.00, 91.69, 94.15},
                                    {"multigpu20", 88.69, 93.93, 95.65}};

enum class Order { AsNamed, Shuffled };
enum class Typicals { Given, Learnt };

ClusterLedger ledgerOf(std::vector<ClusterNodeFacts> nodes, Order order, std::uint64_t seed) {
  Draw draw(seed * 7919);
  for (std::size_t i = nodes.size(); order == Order::Shuffled && i > 1; --i) {
    std::swap(nodes[i - 1], nodes[draw.below(i)]);
  }
  ClusterLedger ledger({Score::Binpack, seed << 32, true});
  for (const ClusterNodeFacts& facts : nodes) {
    ledger.setLife(ledger.setNode(facts).first, NodeLife::Alive);
  }
  return ledger;
}

// Percent of all cards that is allocated when everything has arrived.
double allocation(const Trace& trace, Score score, std::uint64_t seed, Order order,
                  Typicals typicals) {
  ClusterLedger ledger = ledgerOf(trace.nodes, order, seed);
  if (typicals == Typicals::Given) ledger.setTypical(typicalOf(trace));
  std::int64_t allocated = 0;
  std::uint64_t tasks = 0;
  for (const Pod* pod : drawWorkload(trace, kArriving, seed)) {
    ClusterAsk ask = pod->ask;
    ask.nodeScore = ask.cardScore = score;
    const Result<Spot> spot = ledger.place(ask);
    if (!spot) continue;
    ledger.bind(TaskId{++tasks}, *spot, "");
    allocated += pod->demand;
  }
  return 100.0 * static_cast<double>(allocated) / static_cast<double>(trace.supply());
}

double meanOf(const Trace& trace, Score score, std::uint64_t seeds, Order order,
              Typicals typicals) {
  double sum = 0;
  for (std::uint64_t n = 0; n < seeds; ++n) {
    sum += allocation(trace, score, kFirstSeed + n, order, typicals);
  }
  return sum / static_cast<double>(seeds);
}

bool isWithin(double value, double published, double margin) {
  return value >= published - margin && value <= published + margin;
}

// One workload's figures; false where one misses its target.
bool quality(const Trace& trace, const Published& published, std::uint64_t seeds) {
  const auto mean = [&](Score score, Order order = Order::AsNamed,
                        Typicals typicals = Typicals::Given) {
    return meanOf(trace, score, seeds, order, typicals);
  };
  const double random = mean(Score::Random);
  const double bestFit = mean(Score::BestFit);
  const double fgd = mean(Score::Fgd);
  const double binpack = mean(Score::Binpack);
  const double shuffled = mean(Score::Binpack, Order::Shuffled);
  const double learnt = mean(Score::Binpack, Order::AsNamed, Typicals::Learnt);
  const bool met = isWithin(random, published.random, 0.3) &&
                   isWithin(bestFit, published.bestFit, 0.3) && isWithin(fgd, published.fgd, 0.5) &&
                   binpack >= published.fgd - 0.25 && shuffled >= published.fgd - 0.25;
  std::printf(
      "\"%s\":{\"random\":%.2f,\"best_fit\":%.2f,\"fgd\":%.2f,\"spread\":%.2f,"
      "\"binpack\":%.2f,\"binpack_nodes_shuffled\":%.2f,\"binpack_learnt\":%.2f,"
      "\"published\":{\"random\":%.2f,\"best_fit\":%.2f,\"fgd\":%.2f},\"met\":%s}",
      published.workload, random, bestFit, fgd, mean(Score::Spread), binpack, shuffled, learnt,
      published.random, published.bestFit, published.fgd, met ? "true" : "false");
  return met;
}

bool isSame(const Result<Spot>& a, const Result<Spot>& b) {
  if (a.ok() != b.ok()) return false;
  if (!a) return a.error().code == b.error().code;
  return a->node == b->node && a->placement.cards == b->placement.cards;
}

struct Times {
  std::vector<double> us;

  template <typename Call>
  void time(const Call& call) {
    const auto start = Clock::now();
    call();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  double perSecond() const {
    double sum = 0;
    for (const double one : us) sum += one;
    return 1e6 * static_cast<double>(us.size()) / sum;
  }
  double at(std::size_t permille) {
    std::sort(us.begin(), us.end());
    return us[us.size() * permille / 1000];
  }
};

// A decision is place and bind together. Every `scanEach`th is also made by a look at every node,
// in the same state, and must come out the same.
void speed(Trace trace, int times, std::size_t scanEach) {
  trace.nodes = copies(trace.nodes, times);
  ClusterLedger ledger = ledgerOf(trace.nodes, Order::AsNamed, kFirstSeed);
  ledger.setTypical(typicalOf(trace));
  Times indexed;
  Times naive;
  std::uint64_t tasks = 0;
  for (const Pod* pod : drawWorkload(trace, kArriving, kFirstSeed)) {
    const bool isCompared = indexed.us.size() % scanEach == 0;
    Result<Spot> scanned = fail(ErrorCode::Internal, "");
    if (isCompared) naive.time([&] { scanned = ledger.scan(pod->ask); });
    Result<Spot> spot = fail(ErrorCode::Internal, "");
    indexed.time([&] {
      spot = ledger.place(pod->ask);
      if (spot) ledger.bind(TaskId{++tasks}, *spot, "");
    });
    if (isCompared && !isSame(spot, scanned)) {
      std::fprintf(stderr, "bench_placement: the index and a scan disagree\n");
      std::abort();
    }
  }
  std::printf(
      "{\"nodes\":%zu,\"cards\":%lld,\"decisions\":%zu,\"bound\":%llu,\"per_s\":%.0f,"
      "\"p50_us\":%.1f,\"p99_us\":%.1f,\"naive_per_s\":%.0f,\"naive_p50_us\":%.1f,"
      "\"compared\":%zu}",
      trace.nodes.size(), static_cast<long long>(trace.supply() / 1000), indexed.us.size(),
      static_cast<unsigned long long>(tasks), indexed.perSecond(), indexed.at(500), indexed.at(990),
      naive.perSecond(), naive.at(500), naive.us.size());
}

std::string tracesFolder() {
  const char* named = std::getenv("QGPU_TRACES");
  return named != nullptr ? named : QGPU_BENCH_TRACES;
}

}  // namespace
}  // namespace qgpu::bench

int main(int argc, char** argv) {
  using namespace qgpu::bench;
  std::uint64_t seeds = 10;
  bool wantsQuality = true;
  bool wantsSpeed = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seeds=", 8) == 0)
      seeds = std::strtoull(argv[i] + 8, nullptr, 10);
    else if (std::strcmp(argv[i], "--speed-only") == 0)
      wantsQuality = false;
    else if (std::strcmp(argv[i], "--quality-only") == 0)
      wantsSpeed = false;
    else
      return std::fprintf(stderr, "bench_placement: unknown option %s\n", argv[i]), 2;
  }
  seeds = std::max<std::uint64_t>(seeds, 1);
  const std::string folder = tracesFolder();
  Trace trace = readTrace(folder, "default");
  const bool hasTrace = !trace.nodes.empty();
  if (!hasTrace) {
    std::fprintf(stderr,
                 "bench_placement: no trace in %s (QGPU_TRACES=DIR names another): only "
                 "speed, on a made up cluster\n",
                 folder.c_str());
    trace = makeTrace();
  }
  std::printf("{\"bench\":\"placement\",\"trace\":\"%s\"", hasTrace ? "openb" : "made up");
  bool met = true;
  if (!hasTrace)
    std::printf(",\"quality\":\"skipped: no trace\"");
  else if (wantsQuality) {
    std::printf(",\"seeds\":%llu,\"quality\":{", static_cast<unsigned long long>(seeds));
    for (const Published& published : kPublished) {
      if (&published != kPublished) std::printf(",");
      met = quality(readTrace(folder, published.workload), published, seeds) && met;
    }
    std::printf("},\"met\":%s", met ? "true" : "false");
  }
  if (wantsSpeed) {
    std::printf(",\"speed\":[");
    speed(trace, 1, 1);
    std::printf(",");
    speed(trace, 4, 20);
    std::printf(",");
    speed(std::move(trace), 8, 80);
    std::printf("]");
  }
  std::printf("}\n");
}
