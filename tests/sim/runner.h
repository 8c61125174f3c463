#pragma once
// Many seeds: workers in processes of their own, so that a crash costs one seed and names it, and
// what was found of all of them together.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/planted.h"
#include "tests/sim/world.h"

namespace qgpu::sim {

struct Seeds {
  std::vector<std::uint64_t> list;
  // "5", "1..1000" (both included) or "3,17,40..50".
  static Result<Seeds> parse(const std::string& text);
};

// Which kind of world seeds are of.
enum class Kind : std::uint8_t { Node, Cluster, Paging };
// The option that chooses it; empty: none.
const char* optionOf(Kind kind);

struct RunnerOptions {
  Kind kind = Kind::Node;
  unsigned jobs = 0;   // 0: as many as there are CPUs
  bool twice = false;  // each seed in two processes, whose hashes must agree
  bool stopAtFirst = false;
  bool quiet = false;             // no progress on stderr
  std::vector<std::string> sets;  // "name=value", applied to each seed's options
  std::string plant;              // name of a bug; empty: none
};

struct Summary {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t lives = 0;
  std::uint64_t tasks = 0;
  std::int64_t cpuNs = 0;  // of the workers
  std::array<std::uint64_t, static_cast<std::size_t>(Mark::kCount)> marks{};
  struct Bad {
    std::uint64_t seed;
    Failure failure;
  };
  std::vector<Bad> bad;
};

Summary runSeeds(const Seeds& seeds, const RunnerOptions& options);

// What a worker does: reads seeds from stdin, one a line, and writes what became of each.
int work(const RunnerOptions& options);

// The options of a seed, as drawn and then set, in words. InvalidArgument as Options::set().
Result<std::string> settingsOf(std::uint64_t seed, const RunnerOptions& options);
// One world of that seed; traced from that event on. Errors as of settingsOf().
Result<Outcome> runSeed(std::uint64_t seed, const RunnerOptions& options,
                        std::uint64_t traceFrom = UINT64_MAX);

// Removes faults, tasks, cards and time from a failing seed as long as it fails in the same way.
// Returns the settings that are left, to be given as --set.
std::vector<std::string> shrink(std::uint64_t seed, const Failure& failure,
                                const RunnerOptions& options);

// Bugs by name; kNone where there is no such.
Bug bugNamed(const std::string& name);

}  // namespace qgpu::sim
