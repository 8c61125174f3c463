#pragma once
// What one seed decides before its cluster begins: how many nodes and cards, what is asked of them,
// and which classes of faults there are at all. Drawn from the seed, printed with every run; a
// person or --shrink may override single ones. The kin of options.h.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "runtime/units.h"
#include "tests/sim/fault_options.h"

namespace qgpu::sim {

// Classes of faults; bits of ClusterOptions::faults.
enum class ClusterFault : std::uint32_t {
  NodeCrash = 1u << 0,       // a manager is killed and starts again
  SchedulerCrash = 1u << 1,  // of several: any of them
  PowerLoss = 1u << 2,       // ... of a manager or the scheduler: what was not synced is lost
  NodeLoss = 1u << 3,        // a machine is away for longer than the fence time
  DiskFull = 1u << 4,        // for a while
  DiskErrors = 1u << 5,
  SyncFails = 1u << 6,    // a failed fsync ends the process
  SlowDisk = 1u << 7,     // an fsync takes up to seconds
  Stalls = 1u << 8,       // a process has no turns for a while
  Cuts = 1u << 9,         // a connection breaks, and what is in flight is lost or late
  Partitions = 1u << 10,  // some nodes and the scheduler do not reach each other
  OneWay = 1u << 11,      // ... in one direction alone
  Delays = 1u << 12,      // of up to seconds
  Duplicates = 1u << 13,  // words that arrive twice, also after a later connection was made
  Operators = 1u << 14,   // cordon, drain, priorities
  Forwards = 1u << 15,    // binds that are asked for on a node
  Endings = 1u << 16,     // tasks that end on their node, by their owner's death or by hand
  SmallMailboxes = 1u << 17,
  // Where schedulers share an etcd:
  Pauses = 1u << 18,     // the scheduler that acts is stopped, and woken after its seat is lost
  EtcdCuts = 1u << 19,   // a scheduler does not reach etcd, or hears no answers of it
  EtcdCalls = 1u << 20,  // calls of all of them get lost, arrive late, or have no answer
  EtcdDown = 1u << 21,   // etcd has no majority
  EtcdFull = 1u << 22,   // and no space
  EtcdSlow = 1u << 23,   // its members take up to seconds
};
using ClusterFaultName = NamedFault<ClusterFault>;
const std::vector<ClusterFaultName>& clusterFaultNames();

struct ClusterOptions : FaultOptions<ClusterFault> {
  std::uint32_t schedulers = 1;
  bool etcd = false;  // they share; else the one has a file
  std::uint32_t nodes = 3;
  std::uint32_t cards = 2;  // of a node, at most
  std::int64_t cardGib = 16;
  std::uint32_t mixedPercent = 80;  // of nodes that take online and offline tasks
  std::uint32_t slots = 32;         // tasks that a node takes
  std::uint32_t mailboxMax = 1024;
  std::uint64_t snapshotRows = 4096;

  std::uint32_t tasks = 8;     // that clients keep, about
  Nanos lifeMin = seconds(2);  // of a task
  Nanos lifeMax = seconds(60);
  std::uint32_t pinnedPercent = 10;  // that name their node
  std::uint32_t groupsPercent = 0;   // of the times that a client may submit: a group
  Nanos think = seconds(1);          // between two doings of a client, about
  Nanos delayMax = millis(5);        // of the network
  Nanos faultEvery = seconds(10);    // on average

  std::uint64_t events = 12'000;  // of the safety phase; ...
  Nanos length = seconds(150);    // ... which ends then at the latest

  static ClusterOptions draw(std::uint64_t seed);
  std::string text() const;  // as set() takes it
  Status set(const std::string& assignment);
};

}  // namespace qgpu::sim
