#pragma once
// The plain parts of the node actor: what it is told at construction, what it keeps of a task, and
// what one durable change consists of.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/arbiter/arbiter.h"
#include "actors/base/asker.h"
#include "actors/base/codec.h"
#include "actors/base/event_kinds.h"
#include "actors/ledger/ledger.h"
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
  std::uint64_t lastTask = 0;         // no task gets this number or one below it
  // Tasks that live by the run dir, in order. One that the store numbered and has no row of had
  // ended, so its processes are told to go.
  std::vector<std::uint64_t> living;
  Policy policy = Policy::BestEffort; // of cards whose policy nobody chose live
  bool mixed = false;
  // On Kubernetes: whether it is mixed the node's label says, by NodeLabelled; until then `mixed`.
  bool labelled = false;
  std::uint32_t maxTasksPerCard = 0;  // 0: nominal GiB / 4
  std::string attachSocket;
  std::string realtime = "none";      // what the card loop got, for status
  ArbiterConfig arbiter;              // of the cards, for status
  UnixMsAtZero unixMsAtZero = [] { return std::int64_t{0}; };   // to date events
  Nanos evictGrace = seconds(5);      // from "launches fail" to the end of its processes
  Nanos ownerGrace = millis(800);     // from its owner's death to its release, if none is attached
  Nanos gatherMax = seconds(1);       // for reports of cards and tasks
  Nanos introduceMax = seconds(1);    // then a bind is answered, introduced or not
  Nanos probeEvery = seconds(1);      // of a storage that failed
};

struct NodePeers {
  ActorId attach{};               // holds tokens and pages
  std::vector<ActorId> cards;     // as the list of cards
  std::vector<ActorId> tasks;     // the pool of task actors: as many tasks can be bound at once
  ActorId member{};               // who speaks for the scheduler; nobody: the node stands alone
};

// Whether the node itself remembers the request id; the scheduler does for what it places.
inline bool isLocalRequest(const TaskSpec& spec) {
  return !spec.requestId.empty() && spec.clusterTask == 0;
}

// How far a task's binding is known. Each step is caused by the answer to the one before.
enum class Stage : std::uint8_t { TellingTask, TellingAttach, Live };

struct Binding {
  TaskSpec spec;
  std::string token;
  std::uint64_t boundUnixMs = 0;
  std::uint32_t slot = 0;            // of the pool of task actors
  Stage stage = Stage::TellingTask;
  bool late = false;                 // its askers were answered before it was live
  bool evicting = false;             // durable: it ends when its processes are gone
  bool ownerGone = false;
  std::string endReason;             // why it is being closed
  std::uint32_t processes = 0;
  TaskPhase phase = TaskPhase::Bound;
  TaskFigures figures;               // the last report
  std::vector<Asker> waiting;        // for the end of the introduction
};

// One durable change. It is checked, then persisted, and takes effect when its commit is known;
// the node makes one at a time, so nothing it was checked against can change in between.
struct Change {
  enum class Kind : std::uint8_t {
    Node,     // the node's own row: at the start, as a probe, to number more events
    Bind,
    End,      // unbind, evict: closes the task, or marks it as evicting while processes live
    Close,    // the row goes, and with it all that the task held
    Policy,
    Mark,     // cordon, uncordon, drain
    Permit,   // something that the client does itself; the node permits and audits it
    Term,     // of the scheduler that this node obeys
  };
  Kind kind = Kind::Node;
  std::optional<Asker> asker;         // nobody: the node's own doing
  Who who;
  std::uint64_t task = 0;
  std::string text;                   // reason of an End, words of a Permit
  std::string cardText;               // as asked: id, index or "all"
  Policy policy = Policy::BestEffort;
  CardMark mark = CardMark::Ready;
  TaskSpec spec;
  bool ordered = false;               // by the member actor; the task is the one that `spec` names
  std::vector<std::string> wanted;    // ids of the cards that the scheduler chose
  std::uint64_t term = 0;
  // Filled by the check.
  std::vector<std::size_t> cards;
  Placement placement;
  std::string token;
  EventRecord event;                  // seq 0: none
  std::uint32_t incarnation = 0;      // as the row of this change has it

  // The event that goes with it. What is told by whom and when is filled in later.
  void tells(EventKind which, std::uint64_t ofTask, std::string card, std::string what) {
    event = {0, 0, which.name(), ofTask, std::move(card), std::move(what), ""};
  }
};

// A question that waits for reports of cards and tasks.
struct Gather {
  enum class About : std::uint8_t { Cards, Tasks };
  Asker asker;
  About about = About::Cards;
  std::set<std::size_t> cards;        // that have not answered yet
  std::set<std::uint64_t> tasks;
};

}  // namespace qgpu
