#pragma once
// The words that every decision shares: what a task is called and of which class, how a card is
// shared, what is said of a card, a node and a place. Plain types without behaviour, so that a core
// takes them without taking another core.
//
// The enums of schema/types.capnp and schema/cluster.capnp have the same values in the same order;
// actors/base/codec.cc and actors/scheduler/codec.cc check that when they are compiled. A value is
// added at the end, here and there.

#include <cstddef>
#include <cstdint>

namespace qgpu {

// A task where it is held: numbered by the node's ledger from 1, by the cluster's for a scheduler.
enum class TaskId : std::uint64_t { kNone = 0 };

// Position of a node in the cluster's ledger; it stays while the process lives, also when the node
// is lost.
enum class NodeId : std::uint32_t {};

// Position of a node among all that this scheduler knows by name; durable as the number of its row.
enum class MemberId : std::uint32_t {};

// Online tasks get the card the moment they want it, offline ones what those leave; ordinary tasks
// share a card among themselves.
enum class TaskClass : std::uint8_t { Online, Offline, Ordinary };

// How the tasks of one card that are not online share its time; actors/policies.h has the rules. To
// add one: here, in schema/types.capnp, and there.
enum class Policy : std::uint8_t { BestEffort, FixedShare, BurstShare };

// What kind of tasks sit on a card: ordinary ones, or online and offline ones.
enum class Tenancy : std::uint8_t { Free, Ordinary, Hybrid };

// Whether a card takes tasks. Starting: its node does not count its devices yet. Unproven: the
// scheduler wants a report of what holds on it, and has none that is new enough.
enum class CardMark : std::uint8_t { Ready, Cordoned, Draining, Starting, Unproven };

// Whether a node is heard of: joining until its first hello, suspect once its lease ran out, lost
// after the fence time.
enum class NodeLife : std::uint8_t { Joining, Alive, Suspect, Lost };

// By what nodes and cards are ranked. ClassDefault: by what is usual for the class of the task.
enum class Score : std::uint8_t { ClassDefault, Binpack, Spread, Fgd, Random, BestFit };

// Where a task is in its life; actors/card/task_states.h says which state may follow which.
enum class TaskPhase : std::uint8_t {
  Pending,     // a free slot
  Bound,       // holds its share and memory, no process is attached
  Attached,    // a process is there, the card has not spoken of it yet
  Idle,        // wants nothing
  Ready,       // wants the card and is held
  Running,     // its gate is open
  Suspending,  // held, not settled yet
  Suspended,   // held and settled with work of its own in flight
  Exited,      // its binding ended with no process attached
  Lost,        // its binding ended under its processes
};
inline constexpr std::size_t kTaskPhases = 10;

// Whether the card speaks of a task in this state.
constexpr bool isActive(TaskPhase phase) {
  return phase >= TaskPhase::Idle && phase <= TaskPhase::Suspended;
}

// --- limits that more than one place checks ---
inline constexpr std::size_t kModelsMax = 16;        // card models that a task may name
inline constexpr std::uint32_t kGroupSizeMax = 256;  // tasks that start together
inline constexpr std::size_t kNodeCardsMax = 64;     // cards of one node
inline constexpr std::size_t kTaskCardsMax = 16;  // of one task: as many as a welcome has room for
inline constexpr std::int64_t kMemoryGibMax = 1 << 20;  // of a card or of a host: 1 PiB
inline constexpr std::int64_t kCpuMilliMax = 1 << 24;   // of a host: some 16,000 cores

}  // namespace qgpu
