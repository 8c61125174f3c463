#pragma once
// The plain parts of the member actor: what it is told at construction, its state table, and what
// it knows of tasks between the words of the scheduler and those of the node.

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/codec.h"
#include "runtime/actor.h"
#include "schema/cluster.capnp.h"

namespace qgpu {

struct MemberOptions {
  std::int64_t cpuMilli = 0;               // of this machine; 0: not counted
  Bytes hostMem{0};                        // of this machine; 0: not counted
  std::string attachSocket;
  std::vector<std::string> environment;    // NAME=VALUE, of tenants on this node
  Nanos joinMax = seconds(10);             // from the connection to the welcome
  Nanos leaseOverMax = seconds(5);         // then the connection is made anew
  Nanos retryAfter = seconds(5);           // of a scheduler that turned this node away
  Nanos forwardMax = millis(4'500);        // less than the clients wait
  Nanos batch = millis(500);               // of events that ask for the same report
  Nanos refreshEvery = seconds(10);        // of figures of use
  Nanos endAgain = seconds(1);             // of an end that the node could not store
};

struct MemberPeers {
  ActorId node{};
  ActorId link{};    // to the scheduler
};

enum class MemberState : std::uint8_t {
  Down,         // no connection
  Gathering,    // connected; the node is asked what it has
  Greeting,     // hello is said
  Admitting,    // welcome; a term higher than any before is stored first
  Member,       // in a session, and its lease lives
  LeaseOver,    // in a session; nothing new is bound (C1)
  TurnedAway,   // by this scheduler; it is asked again later
};
bool mayMove(MemberState from, MemberState to);

// A refusal as it travels: the code of runtime/result.h by name.
struct Fault {
  std::string code;
  std::string message;
};
Fault faultOf(const Error& error);
Fault readFault(schema::Failure::Reader reader);
void writeFault(const Fault& fault, schema::Failure::Builder builder);

// A binding as the scheduler was told of it, see schema::HeldTask.
struct HeldRecord {
  struct Use {
    std::uint64_t usedNs = 0, gpuNs = 0, heldNs = 0, turns = 0, launches = 0;
    std::uint64_t memBytes = 0, memPeak = 0, overrunNs = 0;
    std::uint32_t processes = 0;
    bool operator==(const Use&) const = default;
  };
  std::uint64_t nodeTask = 0;
  TaskSpec spec;
  std::vector<std::string> cards;
  schema::TaskState state = schema::TaskState::BOUND;
  Use use;
  bool ended = false;
};
HeldRecord readHeld(schema::TaskInfo::Reader info);
void writeHeld(const HeldRecord& record, schema::HeldTask::Builder builder);
// What every binding says of itself. The spec has the scheduler's number and epoch.
void writeBinding(std::uint64_t nodeTask, const TaskSpec& spec,
                  const std::vector<std::string>& cards, schema::HeldTask::Builder builder);
// Whether the scheduler should hear of the newer one. What a card does with a task from slice to
// slice counts as one state, and figures of use count, only where `use` says so.
enum class Compare : std::uint8_t { States, Use };
bool differs(const HeldRecord& told, const HeldRecord& now, Compare compare);

// What the scheduler decides by, and how a card suspends, as text to compare; with Compare::Use
// also the sums, which it knows from its own account.
std::string digestOf(capnp::List<schema::CardStatus>::Reader cards, Compare compare);

// What the member knows of a task of the scheduler.
struct KnownTask {
  enum class Step : std::uint8_t {
    Asked,    // its order waits here or at the node
    Held,     // the node holds it
    Over,     // nothing of it is here
  };
  Step step = Step::Asked;
  std::uint32_t epoch = 0;            // that is asked for or held
  std::uint64_t nodeTask = 0;
  std::string token;                  // empty: bound before this manager started
  std::vector<std::string> cards;
  std::uint32_t over = 0;             // the highest epoch that ended or was refused here: it and
                                      // those before it stay so, also while a lower one is held
  Fault why;                          // of that
  std::uint64_t overStamp = 0;        // of its place among those that are Over
};

// An order on its way to the node.
struct MemberOrder {
  enum class Kind : std::uint8_t { Place, End, Mark };
  Kind kind = Kind::Place;
  std::uint64_t attempt = 0;          // of the connection by which it came
  std::uint64_t task = 0;
  std::uint32_t epoch = 0;
  TaskSpec spec;
  std::vector<std::string> cards;     // of a Mark: the one card
  bool held = false;                  // asked again for its answer: nothing new is bound
  std::uint64_t nodeTask = 0;
  std::string reason;
  schema::OrderMark::Mark mark = schema::OrderMark::Mark::UNCORDON;
};

}  // namespace qgpu
