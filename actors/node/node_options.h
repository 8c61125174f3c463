#pragma once
// What the node actor is told at its construction: who it is and by what limits it acts, whom it
// speaks to, and where tokens come from.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "actors/base/asker.h"
#include "actors/ledger/fit.h"
#include "actors/model.h"
#include "runtime/actor.h"

namespace qgpu {

// Where tokens come from. A token is all that a process shows to become part of a task, so it must
// not be guessable: the daemon draws it from the kernel, tests count.
class TokenSource {
 public:
  // 32 lower-case hex characters, never the same twice.
  virtual std::string next() = 0;

 protected:
  ~TokenSource() = default;
};

struct NodeOptions {
  std::string name;
  std::string version;
  std::uint32_t pid = 0;
  // Of this manager, committed before any card hears of a task. It only grows: a guest that has met
  // a later one, because the store is an older copy, raises it (HAZARDS 23).
  std::uint32_t incarnation = 1;
  std::uint64_t lastTask = 0;  // no task gets this number or one below it
  // Tasks that live by the run dir, in order. One that the store numbered and has no row of had
  // ended, so its processes are told to go.
  std::vector<std::uint64_t> living;
  Policy policy = Policy::BestEffort;  // of cards whose policy nobody chose live
  bool mixed = false;
  // On Kubernetes: whether it is mixed the node's label says, by NodeLabelled; until then `mixed`.
  bool labelled = false;
  std::uint32_t maxTasksPerCard = 0;  // 0: as taskLimitOf() says
  Permille overcommit{0};             // of each card's memory, for what may leave it
  std::string attachSocket;
  std::string realtime = "none";                               // what the card loop got, for status
  ArbiterConfig arbiter;                                       // of the cards, for status
  UnixMsAtZero unixMsAtZero = [] { return std::int64_t{0}; };  // to date events
  Nanos evictGrace = seconds(5);    // from "launches fail" to the end of its processes
  Nanos ownerGrace = millis(800);   // from its owner's death to its release, if none is attached
  Nanos gatherMax = seconds(1);     // for reports of cards and tasks
  Nanos introduceMax = seconds(1);  // then a bind is answered, introduced or not
  Nanos probeEvery = seconds(1);    // of a storage that failed
};

// What Kubernetes counts, the public pages say; a node that stands alone is shared however small
// its cards are.
inline TaskLimit taskLimitOf(const NodeOptions& options) {
  return {options.maxTasksPerCard, options.labelled ? 1 : kLeastTasksAlone};
}

struct NodePeers {
  ActorId attach{};            // holds tokens and pages
  std::vector<ActorId> cards;  // as the list of cards
  std::vector<ActorId> tasks;  // the pool of task actors: as many tasks can be bound at once
  ActorId member{};            // who speaks for the scheduler; nobody: the node stands alone
};

}  // namespace qgpu
