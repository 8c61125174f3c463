#pragma once
// What one seed decides before its world begins: the node, its load, and which classes of faults
// there are at all (each seed has some of them, so that rare ones are not drowned by common ones).
// Drawn from the seed, printed with every run; a person or --shrink may override single ones.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/sim/fault_options.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

// Classes of faults; bits of Options::faults.
enum class Fault : std::uint32_t {
  Crash = 1u << 0,       // the manager is killed and starts again
  PowerLoss = 1u << 1,   // ... and the disk loses what was not synced
  DiskFull = 1u << 2,    // for a while
  DiskErrors = 1u << 3,  // EIO now and then
  SyncFails = 1u << 4,   // a failed fsync ends the manager
  SlowDisk = 1u << 5,    // an fsync takes up to seconds
  SmallMailboxes = 1u << 6,
  Stalls = 1u << 7,         // a loop of the manager has no turns for a while
  Ignorers = 1u << 8,       // tenants that launch through a shut gate
  Deaths = 1u << 9,         // tenants that die with a kernel in flight
  Liars = 1u << 10,         // tenants that scribble in their page
  Silence = 1u << 11,       // tenants that stop to retire, ring or answer
  Storms = 1u << 12,        // doorbells that ring without need
  LongKernels = 1u << 13,   // up to 2 s
  Policies = 1u << 14,      // changed while tasks run
  Operators = 1u << 15,     // cordon, drain, evict
  Nonsense = 1u << 16,      // ill-formed requests, and from people who may not
  Owners = 1u << 17,        // the process that owns a task dies
  LostDatabase = 1u << 18,  // the file is gone when the manager starts again
};
using FaultName = NamedFault<Fault>;
const std::vector<FaultName>& faultNames();

struct Options : FaultOptions<Fault> {
  std::uint32_t cards = 1;
  std::int64_t cardGib = 16;
  bool freeze = false;         // cards that suspend by freeze ...
  bool rm = false;             // ... or by rm; else by gate
  std::uint32_t refusals = 0;  // permille of the driver's calls that take channels off ...
  std::uint32_t busy = 0;      // ... and of all of them that may pass
  std::uint32_t undoes = 0;    // permille of channels taken off that it puts on by itself
  bool mixed = true;
  std::uint32_t maxTasksPerCard = 0;
  Policy policy = Policy::BestEffort;
  std::uint32_t slots = 16;  // task actors of the node
  std::uint32_t mailboxMax = 1024;
  std::uint64_t snapshotRows = 4096;  // length of the journal that starts a snapshot

  Nanos onlineIdle = millis(100);
  Nanos sliceMin = millis(2);
  Nanos sliceMax = millis(30);

  std::uint32_t tasks = 4;     // that the client keeps bound, about
  Nanos lifeMin = millis(50);  // of a task
  Nanos lifeMax = seconds(3);
  std::uint32_t onlinePercent = 25;
  std::uint32_t offlinePercent = 40;  // the rest is ordinary
  std::uint32_t wholePercent = 5;     // of ordinary ones: whole cards
  Nanos kernelMin = micros(10);
  Nanos kernelMax = millis(5);
  Nanos faultEvery = millis(500);  // of the world's faults, on average

  std::uint64_t events = 30'000;  // of the safety phase; ...
  Nanos length = seconds(20);     // ... which ends then at the latest

  static Options draw(std::uint64_t seed);
  // "cards=2 faults=crash,liars ...": what is not as drawn can be set again by set().
  std::string text() const;
  // One "name=value". InvalidArgument names what is possible.
  Status set(const std::string& assignment);
};

}  // namespace qgpu::sim
