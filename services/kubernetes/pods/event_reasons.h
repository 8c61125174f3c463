#pragma once
// The catalogue of what qgpu says in Kubernetes events: each reason that `kubectl get events` and
// alerts may look for, with its type, who says it, of what, in which words, and which of them count
// as the same one. It is the only place where these names stand, so that nobody says one thing in
// two ways, or two things in one.
//
// Names and types are read by scripts of others: they stay. Shapes may get better words.

#include <cstddef>
#include <cstdint>

namespace qgpu {

enum class EventReason : std::uint8_t {
  Scheduled,
  Rejected,
  BindRolledBack,
  Preempted,
  Allocated,
  Refused,
  Suspended,
  MemoryOverrun,
  Unattached,
  Unheld,
  CardFault,
  CardRecovered,
  ProgramFault,
  TaskFault,
  TaskQuarantined,
  TaskReturned,
  PolicyChanged,
  PolicyUnknown,
  PolicyRefused,
  NodeRefused,
  NodeServed,
  ClaimRefused,
};

enum class EventType : std::uint8_t { Normal, Warning };
enum class EventSpeaker : std::uint8_t { Scheduler, Manager };
enum class EventOf : std::uint8_t { Pod, Node, Both, Claim };
// When a later one is the one that is there, counted once more: Words, where its message is equal;
// Subject, where the first value of its message is, and the message becomes the later one's.
enum class EventSame : std::uint8_t { Words, Subject };

struct EventEntry {
  EventReason reason;
  const char* name;
  EventType type;
  EventSpeaker speaker;
  EventOf of;
  EventSame same;
  const char* shape;  // of the message; {name} stands for a value
};

inline constexpr EventEntry kEventEntries[] = {
    {EventReason::Scheduled, "QGPUScheduled", EventType::Normal, EventSpeaker::Scheduler,
     EventOf::Pod, EventSame::Words, "bound to node {node}: {containers and their cards}"},
    {EventReason::Rejected, "QGPURejected", EventType::Warning, EventSpeaker::Scheduler,
     EventOf::Pod, EventSame::Words, "{why}"},
    {EventReason::BindRolledBack, "QGPUBindRolledBack", EventType::Warning, EventSpeaker::Scheduler,
     EventOf::Pod, EventSame::Words, "{why}"},
    {EventReason::Preempted, "QGPUPreempted", EventType::Warning, EventSpeaker::Scheduler,
     EventOf::Pod, EventSame::Words, "asked to leave node {node}: {why}"},
    {EventReason::Allocated, "QGPUAllocated", EventType::Normal, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "{what} has {cards}"},
    {EventReason::Refused, "QGPURefused", EventType::Warning, EventSpeaker::Manager, EventOf::Pod,
     EventSame::Words, "{what}: {why}"},
    {EventReason::Suspended, "QGPUSuspended", EventType::Normal, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Subject,
     "{what} was held for {ms} of the last {ms} ms, while others had the card"},
    {EventReason::MemoryOverrun, "QGPUMemoryOverrun", EventType::Warning, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Subject, "{what}: {allocations and quota}"},
    {EventReason::Unattached, "QGPUUnattached", EventType::Warning, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "{what}: {why}"},
    {EventReason::Unheld, "QGPUUnheld", EventType::Warning, EventSpeaker::Manager, EventOf::Pod,
     EventSame::Words, "{what}: {why}"},
    {EventReason::CardFault, "QGPUCardFault", EventType::Warning, EventSpeaker::Manager,
     EventOf::Both, EventSame::Words, "card {card}: {why}"},
    {EventReason::CardRecovered, "QGPUCardRecovered", EventType::Normal, EventSpeaker::Manager,
     EventOf::Both, EventSame::Words, "card {card}: {what}"},
    {EventReason::ProgramFault, "QGPUProgramFault", EventType::Warning, EventSpeaker::Manager,
     EventOf::Both, EventSame::Words, "a program on card {card} failed: {what}"},
    {EventReason::TaskFault, "QGPUTaskFault", EventType::Warning, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "{what}: {why}"},
    {EventReason::TaskQuarantined, "QGPUQuarantined", EventType::Warning, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "{what}: {why}"},
    {EventReason::TaskReturned, "QGPUReturned", EventType::Normal, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "{what} has its turns again"},
    {EventReason::PolicyChanged, "QGPUPolicyChanged", EventType::Normal, EventSpeaker::Manager,
     EventOf::Pod, EventSame::Words, "the cards of its node follow {policy}"},
    {EventReason::PolicyUnknown, "QGPUPolicyUnknown", EventType::Warning, EventSpeaker::Manager,
     EventOf::Node, EventSame::Words, "label {label}: {why}; best-effort applies"},
    {EventReason::PolicyRefused, "QGPUPolicyRefused", EventType::Warning, EventSpeaker::Manager,
     EventOf::Node, EventSame::Words, "{policy} can't be had now: {why}"},
    {EventReason::NodeRefused, "QGPUNodeRefused", EventType::Warning, EventSpeaker::Manager,
     EventOf::Node, EventSame::Words, "{why}"},
    {EventReason::NodeServed, "QGPUNodeServed", EventType::Normal, EventSpeaker::Manager,
     EventOf::Node, EventSame::Words, "its cards are shared again"},
    {EventReason::ClaimRefused, "QGPUClaimRefused", EventType::Warning, EventSpeaker::Manager,
     EventOf::Claim, EventSame::Words, "not prepared on node {node}: {why}"},
};

constexpr const EventEntry& eventEntry(EventReason reason) {
  return kEventEntries[static_cast<std::size_t>(reason)];
}

consteval bool eventEntriesStandInOrder() {
  std::size_t at = 0;
  for (const EventEntry& entry : kEventEntries) {
    if (entry.reason != static_cast<EventReason>(at++)) return false;
  }
  return at == static_cast<std::size_t>(EventReason::ClaimRefused) + 1;
}
static_assert(eventEntriesStandInOrder());

}  // namespace qgpu
