#pragma once
// The plain types of the scheduler: what it is told at construction, and what it keeps of a task
// and of a node. Durable unless said otherwise; schema/rows.capnp has the rows.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/asker.h"
#include "actors/membership/membership.h"
#include "actors/scheduler/codec.h"
#include "runtime/actor.h"

namespace qgpu {

struct SchedulerOptions {
  std::string version;
  std::uint32_t pid = 0;
  Score priority = Score::Binpack;  // of ordinary tasks, until somebody chooses another one live
  // Of a new store: no task gets a number below it. A silent node may hold tasks of a store that
  // is lost, and must not be asked for another task by the number of one of these. So it is to be
  // more than all stores of this cluster before have given: the daemon takes the Unix time in ms,
  // which nobody outruns with less than 1,000 tasks a second for ever. Tasks with numbers below it
  // that nodes hold are taken over as they are.
  std::uint64_t firstTask = 1;
  // Where there are no rows: nodes hold tasks of a store that is lost, and are waited for before
  // anything is placed. A store says so itself where it was restored from a copy.
  bool rebuilds = false;
  // Cards take nothing new without a report (`qgpuctl prove`) that holds and is no older. 0: none
  // is wanted.
  std::int64_t reportMsMax = 0;
  std::size_t endedKept = 8'192;  // newest tasks that ended, whose requests are remembered
  UnixMsAtZero unixMsAtZero = [] { return std::int64_t{0}; };  // to date events
  Membership::Times times;
  Nanos assumeMax = seconds(30);    // for a node's answer to an order
  Nanos refusedPause = seconds(1);  // before a node that refused gets more of what waits
  Nanos lookEvery = millis(500);    // at leases, overdue orders and drains
  Nanos probeEvery = seconds(1);    // of a storage that failed
};

// Whose request, and its id.
using RequestKey = std::pair<std::uint32_t, std::string>;

struct SchedulerPeers {
  ActorId links{};  // the adapter that has the connections to the nodes
};

enum class PlaceState : std::uint8_t { Waiting, Assumed, Bound, Ending, Ended, Lost };

// Room that tasks, which were told to end, make for one that waits.
struct RoomMaking {
  MemberId member{};
  std::vector<std::string> cards;                                // ids; closed to everybody else
  std::vector<std::pair<std::uint64_t, std::uint32_t>> victims;  // with their epochs
};

// One task of the cluster.
struct Job {
  std::uint32_t epoch = 0;  // of the last decision; 0: none yet
  ClusterSpec spec;
  PlaceState state = PlaceState::Waiting;
  bool again = false;              // Ending: it waits again once its node has ended it
  bool adopted = false;            // bound by its node alone; never placed anywhere else
  bool forwarded = false;          // asked for on its node, by somebody who waits there
  bool groupStarted = false;       // its group was whole while it had a place
  std::optional<MemberId> member;  // whose node holds it, or was told to
  std::vector<std::string> cards;
  std::uint64_t nodeTask = 0;
  std::string token;
  std::uint64_t submittedUnixMs = 0;
  std::uint64_t boundUnixMs = 0;
  std::uint64_t endedUnixMs = 0;
  std::string reason;
  std::optional<RoomMaking> making;  // for it, while it waits
  // Not durable: told again by the node, or of this moment alone.
  TaskPhase phase = TaskPhase::Pending;
  TaskFigures figures;
  std::uint64_t usedNs = 0;
  std::uint64_t heldNs = 0;
  std::vector<Asker> askers;  // of submit, until it is bound
  bool held = false;          // its node has said that it has it
  bool tokenDue = false;      // Bound: its node is asked for the token that the store lacks
  Nanos answerBy{0};          // of the last order about it
  Nanos refusedAt{0};         // by the last node that did

  // Its node is part of what was asked, so it is placed nowhere else.
  bool pinned() const { return adopted || !spec.node.empty(); }
  // Nobody is told its token, since its group is not whole yet.
  bool awaitsGroup() const { return !spec.group.empty() && !groupStarted; }
};

// What an operator said of a node; durable.
struct NodeMarks {
  bool cordoned = false;
  std::map<std::string, std::uint64_t> drains;  // card id ("": all of it) to the end, Unix ms
};

// A node as this scheduler knows it.
struct ClusterMember {
  MemberFacts facts;           // name alone until it said hello
  std::optional<NodeId> node;  // in the ledger, once it said hello
  NodeMarks marks;
  std::uint64_t sinceUnixMs = 0;                   // of its life
  std::set<std::uint64_t> jobs;                    // whose member it is
  std::map<std::uint64_t, std::uint64_t> adopted;  // its number of a task, to ours
};

// Which part of a list is told.
struct ListPart {
  std::uint64_t after = 0;
  std::size_t most = SIZE_MAX;  // entries
};

}  // namespace qgpu
