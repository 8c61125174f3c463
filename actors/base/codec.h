#pragma once
// Between messages and the plain types that actors decide with; all actors use it. Everything that
// is read here is bounded: a number that does not fit its type becomes the type's largest, which
// the rules then refuse. Nothing here fails but checkSpec(). The enums of the schema and of the
// cores have the same order, checked in codec.cc.

#include <capnp/schema.h>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/card_facts.h"
#include "actors/base/latency_times.h"
#include "actors/ledger/ledger.h"
#include "actors/model.h"
#include "schema/envelope.capnp.h"
#include "schema/types.capnp.h"

namespace qgpu {

inline std::uint64_t raw(TaskId task) {
  return static_cast<std::uint64_t>(task);
}
inline std::string text(capnp::Text::Reader reader) {
  return {reader.begin(), reader.size()};
}

// An unsigned number of a message as a signed quantity, saturated.
inline std::int64_t bounded(std::uint64_t value) {
  return value > static_cast<std::uint64_t>(INT64_MAX) ? INT64_MAX
                                                       : static_cast<std::int64_t>(value);
}

// Values that the enum does not have (a newer peer) read as the safest: ordinary, best-effort.
TaskClass readClass(schema::TaskClass word);
Policy readPolicy(schema::Policy word);
schema::TaskClass word(TaskClass taskClass);
schema::Policy word(Policy policy);
schema::Tenancy word(Tenancy tenancy);
schema::TaskState word(TaskPhase phase);
TaskPhase readPhase(schema::TaskState word);
// As people read them: "best-effort", "online".
std::string policyName(Policy policy);
std::string className(TaskClass taskClass);

// What a person or program asks for, see schema::TaskSpec.
struct TaskSpec {
  std::string name;  // for people
  TaskClass taskClass = TaskClass::Ordinary;
  Bytes mem{0};                    // of each card
  Permille share{0};               // of one card; 0 for online
  std::uint32_t cards = 1;         // more than one: whole ones
  std::string card;                // id or index wanted; empty: any
  std::uint32_t ownerPid = 0;      // it ends with this process; 0: with nobody
  std::uint64_t ownerStart = 0;    // which tells that process from a later one of its number
  std::uint32_t ownerUid = 0;      // who may end it
  std::string requestId;           // repeated: the same task; empty: each is a new one
  std::uint64_t clusterTask = 0;   // 0: bound by this node alone
  std::uint32_t clusterEpoch = 0;  // of the decision of the scheduler
  Bytes pageable{0};               // of `mem`, what it lends while it is held
};
TaskSpec readSpec(schema::TaskSpec::Reader reader);
void writeSpec(const TaskSpec& spec, schema::TaskSpec::Builder builder);
LedgerAsk askOf(const TaskSpec& spec);
// The rules that concern the outside alone: lengths and printable characters. InvalidArgument.
Status checkSpec(const TaskSpec& spec);
inline constexpr std::size_t kNameMax = 64;       // of names, card ids and request ids
inline constexpr std::size_t kNodeNameMax = 253;  // as long as Kubernetes' names of nodes are

// What a card actor reports of its card, as its node and its scheduler keep it: the numbers of
// schema::CardStatus from `holder` on, since the actor's start. Only the actor that writes them and
// the page of metrics know one from another, so that a new one is named nowhere between.
struct CardFigures {
  std::vector<std::uint64_t> numbers;  // as cardFigureFields() lists them; none before a report
  LatencyTimes preemptTimes;
  LatencyTimes releaseTimes;
};
// Made once, in the order of the schema: whole numbers and flags.
const std::vector<capnp::StructSchema::Field>& cardFigureFields();
CardFigures readFigures(schema::CardStatus::Reader reader);
void writeFigures(const CardFigures& figures, schema::CardStatus::Builder builder);

LatencyTimes readTimes(schema::LatencyTimes::Reader reader);
void writeTimes(const LatencyTimes& times, schema::LatencyTimes::Builder builder);

// What the cards say of a task, since it joined.
struct ShareFigures {
  std::uint64_t usedNs = 0;
  std::uint64_t heldNs = 0;
  std::uint64_t turns = 0;
  std::uint64_t overrunNs = 0;
  bool quarantined = false;
  std::string note;
  bool operator==(const ShareFigures&) const = default;
};

// What a task actor says of itself; memory in bytes, over all its processes.
struct TaskFigures {
  std::uint64_t gpuNs = 0;
  std::uint64_t launches = 0;
  std::uint64_t memBytes = 0;
  std::uint64_t memPeak = 0;
  std::uint32_t processes = 0;
  std::uint64_t pageableHeld = 0;
  std::uint64_t pageableOut = 0;
  bool operator==(const TaskFigures&) const = default;
};
// Both of one TaskUse, which has no place for `quarantined` and `note`. Writing one leaves the
// other.
TaskFigures readFigures(schema::TaskUse::Reader reader);
ShareFigures readShares(schema::TaskUse::Reader reader);
void writeFigures(const TaskFigures& figures, schema::TaskUse::Builder builder);
void writeShares(const ShareFigures& shares, schema::TaskUse::Builder builder);

// One line of the story of a node or a scheduler, see schema::Event. Numbered by EventSource.
struct EventRecord {
  std::uint64_t seq = 0;
  std::uint64_t unixMs = 0;
  std::string kind;
  std::uint64_t task = 0;
  std::string card;
  std::string text;
  std::string actor;
};
EventRecord readEvent(schema::Event::Reader reader);
void writeEvent(const EventRecord& event, schema::Event::Builder builder);

void writeFailure(const Error& error, schema::Failure::Builder builder);

}  // namespace qgpu
