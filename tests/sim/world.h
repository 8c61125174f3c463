#pragma once
// One seeded life of a node: the real actors on the real store, tenants, a client and faults. It
// goes through three phases: safety (everything may fail), liveness (nothing fails any more: the
// node must come to rest, or the reason is told), and restart (what a new manager reads from disk
// must be what the old one knew).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/sim/options.h"

namespace qgpu::sim {

// Why a run is not good; also the exit codes of qgpu-sim.
enum class Failing : std::uint8_t {
  Usage = 2,
  Crash = 3,  // a failed check, a signal, a sanitizer
  Liveness = 4,
  Invariant = 5,
  Nondeterminism = 6,
  NotFound = 7,  // a planted bug that no seed found, a mark that none hit
};
const char* name(Failing failing);

struct Failure {
  Failing failing = Failing::Invariant;
  std::string id;  // of the invariant, as in "A3"
  std::string what;
  Nanos at{0};
  std::uint64_t event = 0;  // how many there had been
};

struct Outcome {
  std::uint64_t seed = 0;
  std::uint64_t hash = 0;
  std::uint64_t events = 0;  // turns of actors, and doings of guests, disks and faults
  std::uint64_t lives = 0;   // managers
  std::uint64_t tasks = 0;   // that were bound
  Nanos length{0};
  std::optional<Failure> failure;
};

class World {
 public:
  // From event `traceFrom` on, what happens is written to stdout.
  explicit World(const Options& options, std::uint64_t traceFrom = UINT64_MAX);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Outcome run();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace qgpu::sim
