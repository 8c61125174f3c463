// qgpu-sim: what a seed does, what many seeds find, whether planted bugs are found.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "tests/sim/power_loss.h"
#include "tests/sim/runner.h"

namespace qgpu::sim {
namespace {

constexpr std::uint64_t kTracedEvents = 60;  // before a failure
constexpr std::size_t kPlantBatch = 4;       // seeds that are tried beside each other
// Within which a planted bug must be found, for each kind of world. The first are those that find
// them all, and those that find most come first of these.
constexpr const char* kPlantSeeds[] = {
    "2,1,5,3,8,37,4,11,15,24,32,33,44,49,74,86,117,135,1040,1..2000",
    "3,1,8,2,16,7,10,45,53,57,149,155,508,1..2000",
    "4,2,24,13,43,45,1..2000",
};

struct Names {
  const char* name;
  const char* about;
  Kind kind;
};
#define X(name, about) {#name, #about, KIND},
#define Y(name, about) {#name, about, KIND},
constexpr Names kBugs[] = {
#define KIND Kind::Node
    QGPU_BUGS(Y)
#undef KIND
#define KIND Kind::Cluster
        QGPU_CLUSTER_BUGS(Y)
#undef KIND
#define KIND Kind::Paging
            QGPU_PAGING_BUGS(Y)
#undef KIND
};
constexpr Names kMarks[] = {
#define KIND Kind::Node
    QGPU_MARKS(X)
#undef KIND
#define KIND Kind::Cluster
        QGPU_CLUSTER_MARKS(X)
#undef KIND
#define KIND Kind::Paging
            QGPU_PAGING_MARKS(X)
#undef KIND
};
#undef X
#undef Y

struct Command {
  std::string seed;
  std::string seeds;
  std::string shrinkSeed;
  std::string regressions;
  std::uint64_t powerLoss = 0;
  bool bugs = false;
  bool list = false;
  bool marks = false;
  bool trace = false;
  bool worker = false;
  RunnerOptions runner;
};

std::string replay(std::uint64_t seed, const RunnerOptions& options) {
  std::string command = std::string("qgpu-sim ") + optionOf(options.kind) +
                        (*optionOf(options.kind) != 0 ? " " : "") + std::to_string(seed);
  for (const std::string& set : options.sets) command += " --set " + set;
  if (!options.plant.empty()) command += " --plant " + options.plant;
  return command;
}

void print(std::uint64_t seed, const Failure& failure, const RunnerOptions& options) {
  std::printf("seed %llu: %s %s at %.6f s, event %llu: %s\n  replay: %s\n",
              static_cast<unsigned long long>(seed), name(failure.failing), failure.id.c_str(),
              static_cast<double>(failure.at.value) / 1e9,
              static_cast<unsigned long long>(failure.event), failure.what.c_str(),
              replay(seed, options).c_str());
}

// One seed, twice if it fails: the second time with its last events written out.
int runOne(const Command& command) {
  const auto seeds = Seeds::parse(command.seed);
  if (!seeds || seeds->list.size() != 1) {
    std::fprintf(stderr, "qgpu-sim: '%s' is not one seed; ranges go to --seeds\n",
                 command.seed.c_str());
    return static_cast<int>(Failing::Usage);
  }
  const std::uint64_t seed = seeds->list[0];
  const auto settings = settingsOf(seed, command.runner);
  if (!settings) {
    std::fprintf(stderr, "qgpu-sim: %s\n", settings.error().message.c_str());
    return static_cast<int>(Failing::Usage);
  }
  if (!command.runner.plant.empty()) plantedBug = bugNamed(command.runner.plant);
  std::printf("seed %llu %s\n", static_cast<unsigned long long>(seed), settings->c_str());
  std::fflush(stdout);
  const Outcome outcome = *runSeed(seed, command.runner, command.trace ? 0 : UINT64_MAX);
  if (outcome.failure) {
    const std::uint64_t at = outcome.failure->event;
    const std::uint64_t from = at > kTracedEvents ? at - kTracedEvents : 0;
    if (!command.trace) static_cast<void>(runSeed(seed, command.runner, from));
    print(seed, *outcome.failure, command.runner);
    return static_cast<int>(outcome.failure->failing);
  }
  std::printf("good: %llu events, %.3f virtual s, %llu managers, %llu tasks, hash %016llx\n",
              static_cast<unsigned long long>(outcome.events),
              static_cast<double>(outcome.length.value) / 1e9,
              static_cast<unsigned long long>(outcome.lives),
              static_cast<unsigned long long>(outcome.tasks),
              static_cast<unsigned long long>(outcome.hash));
  return 0;
}

int report(const Summary& summary, const Command& command) {
  for (const Summary::Bad& bad : summary.bad) print(bad.seed, bad.failure, command.runner);
  std::uint64_t missing = 0;
  for (std::size_t i = 0; i < std::size(kMarks); ++i) {
    if (kMarks[i].kind != command.runner.kind) continue;
    const bool must = kMarks[i].about == std::string("Must");
    missing += must && summary.marks[i] == 0 ? 1 : 0;
    if (!command.marks && summary.marks[i] != 0) continue;
    std::printf("mark %-28s %-5s %llu\n", kMarks[i].name, kMarks[i].about,
                static_cast<unsigned long long>(summary.marks[i]));
  }
  const double cpu = static_cast<double>(summary.cpuNs) / 1e9;
  const int runs = command.runner.twice ? 2 : 1;
  std::printf(
      "{\"sim\":\"seeds\",\"seeds\":%llu,\"bad\":%zu,\"events\":%llu,\"managers\":%llu,"
      "\"tasks\":%llu,\"cpu_s\":%.1f,\"events_per_cpu_s\":%.0f,\"marks_missed\":%llu}\n",
      static_cast<unsigned long long>(summary.seeds), summary.bad.size(),
      static_cast<unsigned long long>(summary.events),
      static_cast<unsigned long long>(summary.lives),
      static_cast<unsigned long long>(summary.tasks), cpu,
      runs * static_cast<double>(summary.events) / std::max(cpu, 1e-3),
      static_cast<unsigned long long>(missing));
  if (!summary.bad.empty()) return static_cast<int>(summary.bad[0].failure.failing);
  return command.marks && missing != 0 ? static_cast<int>(Failing::NotFound) : 0;
}

int runMany(const Command& command) {
  const auto seeds = Seeds::parse(command.seeds);
  const auto checked = settingsOf(1, command.runner);
  for (const std::string& why :
       {seeds ? "" : seeds.error().message, checked ? "" : checked.error().message}) {
    if (why.empty()) continue;
    std::fprintf(stderr, "qgpu-sim: %s\n", why.c_str());
    return static_cast<int>(Failing::Usage);
  }
  return report(runSeeds(*seeds, command.runner), command);
}

// Which seed finds the bug that `options` plant: one that is good without it and breaks with it
// the invariant that the bug is known to break. Seeds are tried some at a time, as they are given.
struct Finding {
  std::optional<Summary::Bad> bad;
  std::string otherwise;    // by what else it was noticed
  std::uint64_t seeds = 0;  // that were tried
};
Finding find(const Seeds& seeds, const std::string& invariant, const RunnerOptions& options) {
  RunnerOptions sound = options;
  sound.plant.clear();
  Finding finding;
  for (std::size_t from = 0; from < seeds.list.size(); from += kPlantBatch) {
    const std::size_t to = std::min(seeds.list.size(), from + kPlantBatch);
    const Seeds some{{seeds.list.begin() + static_cast<std::ptrdiff_t>(from),
                      seeds.list.begin() + static_cast<std::ptrdiff_t>(to)}};
    const Summary summary = runSeeds(some, options);
    finding.seeds += summary.seeds;
    for (const Summary::Bad& bad : summary.bad) {
      if (bad.failure.id != invariant) {
        finding.otherwise = bad.failure.id + " in seed " + std::to_string(bad.seed);
        continue;
      }
      if (!runSeeds({{bad.seed}}, sound).bad.empty()) continue;
      finding.bad = bad;
      return finding;
    }
  }
  return finding;
}

// Each planted bug, until a seed finds it.
int runBugs(const Command& command) {
  const auto kind = static_cast<std::size_t>(command.runner.kind);
  const auto seeds = Seeds::parse(command.seeds.empty() ? kPlantSeeds[kind] : command.seeds);
  if (!seeds) {
    std::fprintf(stderr, "qgpu-sim: %s\n", seeds.error().message.c_str());
    return static_cast<int>(Failing::Usage);
  }
  int missed = 0;
  std::size_t planted = 0;
  for (const Names& bug : kBugs) {
    if (bug.kind != command.runner.kind) continue;
    ++planted;
    if (!command.runner.plant.empty() && command.runner.plant != bug.name) continue;
    RunnerOptions options = command.runner;
    options.plant = bug.name;
    options.quiet = true;
    const Finding finding = find(*seeds, bug.about, options);
    missed += finding.bad ? 0 : 1;
    std::printf("%-28s breaks %-4s ", bug.name, bug.about);
    if (finding.bad) {
      std::printf("found by %s (%s) in seed %llu\n", finding.bad->failure.id.c_str(),
                  name(finding.bad->failure.failing),
                  static_cast<unsigned long long>(finding.bad->seed));
    } else {
      std::printf("NOT FOUND in %llu seeds%s%s\n", static_cast<unsigned long long>(finding.seeds),
                  finding.otherwise.empty() ? "" : "; noticed by ", finding.otherwise.c_str());
    }
    std::fflush(stdout);
  }
  std::printf("{\"sim\":\"planted\",\"bugs\":%zu,\"missed\":%d}\n", planted, missed);
  return missed == 0 ? 0 : static_cast<int>(Failing::NotFound);
}

int runShrink(const Command& command) {
  const auto seeds = Seeds::parse(command.shrinkSeed);
  if (!seeds) {
    std::fprintf(stderr, "qgpu-sim: %s\n", seeds.error().message.c_str());
    return static_cast<int>(Failing::Usage);
  }
  const std::uint64_t seed = seeds->list[0];
  RunnerOptions quiet = command.runner;
  quiet.quiet = true;
  const Summary summary = runSeeds({{seed}}, quiet);
  if (summary.bad.empty()) {
    std::printf("seed %llu does not fail\n", static_cast<unsigned long long>(seed));
    return 0;
  }
  RunnerOptions reduced = quiet;
  reduced.sets = shrink(seed, summary.bad[0].failure, quiet);
  print(seed, summary.bad[0].failure, reduced);
  return static_cast<int>(summary.bad[0].failure.failing);
}

// A line of the file: a seed, of another kind where its word is before it, then the name=value
// settings under which it failed.
int runRegressions(const Command& command) {
  std::ifstream file(command.regressions);
  if (!file) {
    std::fprintf(stderr, "qgpu-sim: can't read '%s'\n", command.regressions.c_str());
    return static_cast<int>(Failing::Usage);
  }
  Summary all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string seed;
    if (!(words >> seed)) continue;
    RunnerOptions options = command.runner;
    for (const Kind kind : {Kind::Cluster, Kind::Paging}) {
      if (seed != optionOf(kind) + 2) continue;
      options.kind = kind;
      words >> seed;
    }
    options.quiet = true;
    for (std::string set; words >> set;) options.sets.push_back(set);
    const auto seeds = Seeds::parse(seed);
    if (!seeds) {
      std::fprintf(stderr, "qgpu-sim: %s: %s\n", line.c_str(), seeds.error().message.c_str());
      return static_cast<int>(Failing::Usage);
    }
    const Summary one = runSeeds(*seeds, options);
    all.seeds += one.seeds;
    all.bad.insert(all.bad.end(), one.bad.begin(), one.bad.end());
  }
  for (const Summary::Bad& bad : all.bad) print(bad.seed, bad.failure, command.runner);
  std::printf("{\"sim\":\"regressions\",\"seeds\":%llu,\"bad\":%zu}\n",
              static_cast<unsigned long long>(all.seeds), all.bad.size());
  return all.bad.empty() ? 0 : static_cast<int>(all.bad[0].failure.failing);
}

int runPowerLoss(const Command& command) {
  const PowerLossSummary summary = cutPower(1, command.powerLoss);
  if (!summary.failure.empty()) {
    std::printf("power cut %llu: %s\n", static_cast<unsigned long long>(summary.failedPoint),
                summary.failure.c_str());
  }
  std::printf(
      "{\"sim\":\"power-loss\",\"points\":%llu,\"in_recovery\":%llu,"
      "\"acknowledged\":%llu,\"lost\":%d}\n",
      static_cast<unsigned long long>(summary.points),
      static_cast<unsigned long long>(summary.inRecovery),
      static_cast<unsigned long long>(summary.batches), summary.failure.empty() ? 0 : 1);
  return summary.failure.empty() ? 0 : static_cast<int>(Failing::Invariant);
}

int runList() {
  const auto list = [](const char* what, const Names& one) {
    std::printf("%-4s %-32s %-4s %s\n", what, one.name, one.about, optionOf(one.kind));
  };
  for (const Names& bug : kBugs) list("bug", bug);
  for (const Names& mark : kMarks) list("mark", mark);
  return 0;
}

int choose(const Command& command) {
  const std::string& plant = command.runner.plant;
  if (!plant.empty() && bugNamed(plant) == Bug::kNone) {
    std::fprintf(stderr, "qgpu-sim: no bug '%s'; --list shows them\n", plant.c_str());
    return static_cast<int>(Failing::Usage);
  }
  if (command.worker) return work(command.runner);
  if (command.list) return runList();
  if (command.bugs) return runBugs(command);
  if (command.powerLoss != 0) return runPowerLoss(command);
  if (!command.regressions.empty()) return runRegressions(command);
  if (!command.shrinkSeed.empty()) return runShrink(command);
  if (!command.seeds.empty()) return runMany(command);
  if (!command.seed.empty()) return runOne(command);
  std::fprintf(stderr,
               "qgpu-sim: a seed, --seeds, --bugs, --shrink or --regressions is wanted; "
               "--help tells more\n");
  return static_cast<int>(Failing::Usage);
}

}  // namespace
}  // namespace qgpu::sim

int main(int argc, char** argv) {
  CLI::App app(
      "One qgpu node in a world that a seed decides: real actors and store, simulated tenants, "
      "disk and faults.\nExit status: 0 good, 2 usage, 3 crash, 4 liveness, 5 invariant, "
      "6 nondeterminism, 7 a planted bug or a mark was missed.");
  using qgpu::sim::Kind;
  qgpu::sim::Command command;
  app.add_option("seed", command.seed, "run this seed; a failure shows its last events");
  app.add_option("--seeds", command.seeds, "run many: 1..1000 or 3,17,40..50");
  app.add_option("--set", command.runner.sets, "name=value: overrides what the seed drew")
      ->take_all();
  app.add_option("--plant", command.runner.plant, "plant this bug");
  app.add_option("--jobs", command.runner.jobs, "worker processes; default: as many as CPUs");
  app.add_option("--shrink", command.shrinkSeed, "reduce a failing seed to what it needs");
  app.add_option("--regressions", command.regressions, "replay the seeds of this file");
  app.add_option("--power-loss", command.powerLoss, "cut the power of the store at so many points");
  app.add_flag("--twice", command.runner.twice, "run each seed in two processes, compare hashes");
  app.add_flag("--stop-at-first", command.runner.stopAtFirst, "end at the first failure");
  app.add_flag("--quiet", command.runner.quiet, "no progress on stderr");
  app.add_flag("--bugs", command.bugs, "plant each bug in turn until a seed finds it");
  app.add_flag("--marks", command.marks, "with --seeds: show all marks, a missed one is an error");
  app.add_flag("--list", command.list, "names of bugs and marks");
  app.add_flag("--trace", command.trace, "with one seed: write out every event");
  const auto world = [&app, &command](Kind kind, const char* about) {
    const auto chosen = [&command, kind] { command.runner.kind = kind; };
    return app.add_flag_callback(optionOf(kind), chosen, about);
  };
  world(Kind::Cluster, "schedulers and several nodes on a network, instead of one node")
      ->excludes(world(Kind::Paging, "a card whose tasks have memory that can leave it"));
  app.add_flag("--worker", command.worker)->group("");
  CLI11_PARSE(app, argc, argv);
  return qgpu::sim::choose(command);
}
