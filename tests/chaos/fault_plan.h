#pragma once
// What goes wrong, and when: a storm is some faults that overlap, drawn from a seed, each with its
// end. Of one thing (a process, a host's wire, a disk, a clock) one fault at a time.

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace qgpu::chaos {

enum class Fault : std::uint8_t {
  Kill,         // SIGKILL, and started again at the end
  Pause,        // SIGSTOP
  CutHost,      // its cable
  CutFrom,      // what the host sends is lost
  CutTo,        // what is sent to the host is lost
  CutPair,      // between two hosts, both ways
  CutOneWay,    // what the host sends to another one is lost
  TakeAddress,  // another machine has the host's address, and refuses
  FillDisk,     // of an etcd or a manager
  SlowSync,     // each fsync of an etcd or a manager takes long
  StepClock,    // the wall clock of a scheduler or a manager
};
inline constexpr std::array kFaultNames = {"kill",      "pause",     "cut_host",    "cut_from",
                                           "cut_to",    "cut_pair",  "cut_one_way", "take_address",
                                           "fill_disk", "slow_sync", "step_clock"};
inline constexpr std::size_t kFaults = kFaultNames.size();

// What there is: hosts 0 to kGroup - 1 have an etcd and a scheduler each, the others a manager.
inline constexpr std::size_t kGroup = 3;
inline constexpr std::size_t kManagers = 4;
inline constexpr std::size_t kHosts = kGroup + kManagers;
// Processes by number: etcds, schedulers, managers.
inline constexpr std::size_t kProcesses = 2 * kGroup + kManagers;
inline constexpr std::size_t kFirstScheduler = kGroup, kFirstManager = 2 * kGroup;

struct Planned {
  Fault fault = Fault::Kill;
  std::size_t target = 0;                // process or host
  std::size_t other = 0;                 // host
  std::int64_t fromMs = 0, untilMs = 0;  // since the storm began
  std::int64_t amount = 0;  // FillDisk: bytes that are left; SlowSync: ms; StepClock: seconds
};

// By their beginnings; all end within `lengthMs`.
std::vector<Planned> planStorm(std::mt19937_64& random, std::int64_t lengthMs);

std::string describe(const Planned& planned);

}  // namespace qgpu::chaos
