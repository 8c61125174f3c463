#include "bench/placement_trace.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

namespace qgpu::bench {
namespace {

// The trace has no card memory, so that a share of a card is the same share of its memory: 1 GiB
// of these cards is a permille. Tasks per card have no limit.
constexpr std::int64_t kCardGib = 1000;
constexpr std::uint32_t kNoTaskLimit = 1000;

ClusterNodeFacts nodeOf(std::string name, std::int64_t cpuMilli, std::int64_t memMib,
                        std::uint32_t cards, const std::string& model) {
  ClusterNodeFacts facts;
  facts.tasks.configured = kNoTaskLimit;
  facts.cpuMilli = cpuMilli;
  facts.hostMem = mebibytes(memMib);
  for (std::uint32_t i = 0; i < cards; ++i) {
    ClusterCard card;
    card.id = name + "/" + std::to_string(i);
    card.index = i;
    card.model = model;
    card.mem = gibibytes(kCardGib);
    facts.cards.push_back(std::move(card));
  }
  facts.name = std::move(name);
  return facts;
}

Pod podOf(std::int64_t cpuMilli, std::int64_t memMib, std::uint32_t cards, std::int64_t share,
          std::vector<std::string> models) {
  Pod pod;
  pod.ask.cpuMilli = cpuMilli;
  pod.ask.hostMem = mebibytes(memMib);
  pod.ask.models = std::move(models);
  pod.ask.task.cards = cards;
  if (cards == 0) return pod;
  pod.ask.task.share = Permille(cards > 1 ? 1000 : share);
  pod.ask.task.mem = gibibytes(pod.ask.task.share.value);
  pod.demand = pod.ask.task.share.value * cards;
  return pod;
}

std::vector<std::string> split(const std::string& line, char by) {
  std::vector<std::string> parts;
  std::istringstream in(line);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

std::vector<std::vector<std::string>> readCsv(const std::string& path, std::size_t columns) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);  // the names of the columns
  while (std::getline(in, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    rows.push_back(split(line, ','));
    if (rows.back().size() < columns) return {};
  }
  return rows;
}

std::int64_t number(const std::string& text) {
  return std::atoll(text.c_str());
}

}  // namespace

std::uint64_t Draw::next() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::int64_t Trace::supply() const {
  std::size_t cards = 0;
  for (const ClusterNodeFacts& node : nodes) cards += node.cards.size();
  return static_cast<std::int64_t>(cards) * 1000;
}

Trace readTrace(const std::string& folder, const std::string& workload) {
  Trace trace;
  for (const auto& row : readCsv(folder + "/openb_pod_list_" + workload + ".csv", 5)) {
    std::vector<std::string> models;
    if (row.size() > 5) models = split(row[5], '|');
    trace.pods.push_back(podOf(number(row[1]), number(row[2]),
                               static_cast<std::uint32_t>(number(row[3])), number(row[4]),
                               std::move(models)));
  }
  if (trace.pods.empty()) return trace;
  for (const auto& row : readCsv(folder + "/openb_node_list_gpu_node.csv", 5)) {
    trace.nodes.push_back(nodeOf(row[0], number(row[1]), number(row[2]),
                                 static_cast<std::uint32_t>(number(row[3])), row[4]));
  }
  // The order of names tells equals apart.
  std::sort(trace.nodes.begin(), trace.nodes.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return trace;
}

// Made up: sizes as they are common, mostly parts of a card and single cards.
Trace makeTrace() {
  Trace trace;
  Draw draw(1);
  for (int i = 0; i < 1213; ++i) {
    const bool large = draw.below(2) == 0;
    trace.nodes.push_back(nodeOf("made-" + std::to_string(10'000 + i), large ? 96'000 : 64'000,
                                 large ? 393'216 : 262'144, large ? 8 : 2, large ? "L" : "S"));
  }
  constexpr std::int64_t kShares[] = {50, 100, 200, 250, 330, 460, 500, 810, 1000, 1000, 1000};
  for (int i = 0; i < 8152; ++i) {
    const std::size_t kind = draw.below(100);
    const auto cpu = static_cast<std::int64_t>(draw.below(12) + 1) * 1000;
    const std::uint32_t cards = kind < 13 ? 0 : kind < 98 ? 1 : kind < 99 ? 2 : 8;
    trace.pods.push_back(podOf(cpu, cpu * 3, cards, kShares[draw.below(std::size(kShares))], {}));
  }
  return trace;
}

std::vector<const Pod*> drawWorkload(const Trace& trace, std::int64_t permille,
                                     std::uint64_t seed) {
  const std::int64_t wanted = mulDiv(trace.supply(), permille, 1000);
  Draw draw(seed);
  std::vector<const Pod*> pods;
  std::int64_t demand = 0;
  for (const Pod& pod : trace.pods) {
    pods.push_back(&pod);
    demand += pod.demand;
  }
  while (demand < wanted) {
    pods.push_back(&trace.pods[draw.below(trace.pods.size())]);
    demand += pods.back()->demand;
  }
  for (std::size_t i = pods.size(); i > 1; --i) std::swap(pods[i - 1], pods[draw.below(i)]);
  return pods;
}

std::vector<ClusterLedger::Typical> typicalOf(const Trace& trace) {
  using Kind = std::tuple<std::int64_t, std::uint32_t, Permille, std::vector<std::string>>;
  std::map<Kind, std::int64_t> counts;
  for (const Pod& pod : trace.pods) {
    const ClusterAsk& ask = pod.ask;
    ++counts[Kind{ask.cpuMilli, ask.task.cards, ask.task.share, ask.models}];
  }
  std::vector<ClusterLedger::Typical> all;
  for (const auto& [kind, count] : counts) {
    const auto& [cpu, cards, share, models] = kind;
    ClusterLedger::Typical typical;
    typical.cards = cards;
    typical.cpuMilli = cpu;
    typical.models = models;
    typical.weight = count;
    if (cards != 0) {
      typical.card.share = share;
      typical.card.whole = share >= kWholeCard;
      if (!typical.card.whole) typical.card.mem = gibibytes(share.value);
    }
    all.push_back(typical);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.weight > b.weight; });
  const std::size_t most = trace.pods.size() * 95 / 100;
  std::size_t seen = 0;
  std::size_t kept = 0;
  while (kept < all.size() && seen < most) seen += static_cast<std::size_t>(all[kept++].weight);
  all.resize(kept);
  return all;
}

std::vector<ClusterNodeFacts> copies(const std::vector<ClusterNodeFacts>& nodes, int times) {
  std::vector<ClusterNodeFacts> all;
  for (int n = 0; n < times; ++n) {
    for (ClusterNodeFacts node : nodes) {
      node.name += "-" + std::to_string(n);
      all.push_back(std::move(node));
    }
  }
  return all;
}

}  // namespace qgpu::bench
