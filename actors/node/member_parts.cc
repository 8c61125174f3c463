#include "actors/node/member_parts.h"

#include <array>

namespace qgpu {
namespace {

constexpr std::uint8_t bit(MemberState state) {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(state));
}

constexpr std::uint8_t kLeases = bit(MemberState::Member) | bit(MemberState::LeaseOver);
constexpr std::uint8_t kDown = bit(MemberState::Down);

// By the state that is left: the set of states that may follow.
constexpr std::array<std::uint8_t, 7> kNext = {
    /* Down       */ bit(MemberState::Gathering),
    /* Gathering  */ bit(MemberState::Greeting) | kDown,
    /* Greeting   */ bit(MemberState::Admitting) | bit(MemberState::TurnedAway) | kLeases | kDown,
    /* Admitting  */ kLeases | kDown,
    /* Member     */ bit(MemberState::LeaseOver) | kDown,
    /* LeaseOver  */ bit(MemberState::Member) | kDown,
    /* TurnedAway */ kDown,
};

std::vector<std::string> split(const std::string& ids) {
  std::vector<std::string> found;
  std::size_t from = 0;
  while (from < ids.size()) {
    const std::size_t to = std::min(ids.find(',', from), ids.size());
    found.push_back(ids.substr(from, to - from));
    from = to + 1;
  }
  return found;
}

schema::TaskState coarse(schema::TaskState state) {
  return isActive(readPhase(state)) ? schema::TaskState::ATTACHED : state;
}

}  // namespace

bool mayMove(MemberState from, MemberState to) {
  return (kNext[static_cast<std::size_t>(from)] & bit(to)) != 0;
}

Fault faultOf(const Error& error) { return {errorName(error.code), error.message}; }

Fault readFault(schema::Failure::Reader reader) {
  return {text(reader.getCode()).substr(0, 32), text(reader.getMessage()).substr(0, 1'024)};
}

void writeFault(const Fault& fault, schema::Failure::Builder builder) {
  builder.setCode(fault.code);
  builder.setMessage(fault.message);
}

HeldRecord readHeld(schema::TaskInfo::Reader info) {
  HeldRecord record;
  record.nodeTask = info.getId();
  record.spec = readSpec(info.getSpec());
  record.cards = split(text(info.getCard()));
  record.state = info.getState();
  const auto use = info.getUse();
  record.use = {use.getUsedNs(),   use.getGpuNs(),   use.getHeldNs(),  use.getTurns(),
                use.getLaunches(), use.getMemBytes(), use.getMemPeak(), use.getOverrunNs(),
                use.getProcesses()};
  return record;
}

void writeBinding(std::uint64_t nodeTask, const TaskSpec& spec,
                  const std::vector<std::string>& cards, schema::HeldTask::Builder builder) {
  builder.setNodeTask(nodeTask);
  builder.setClusterTask(spec.clusterTask);
  builder.setEpoch(spec.clusterEpoch);
  writeSpec(spec, builder.initSpec());
  auto list = builder.initCards(static_cast<unsigned>(cards.size()));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, cards[i]);
}

void writeHeld(const HeldRecord& record, schema::HeldTask::Builder builder) {
  writeBinding(record.nodeTask, record.spec, record.cards, builder);
  builder.setState(record.state);
  auto use = builder.initUse();
  use.setUsedNs(record.use.usedNs);
  use.setGpuNs(record.use.gpuNs);
  use.setHeldNs(record.use.heldNs);
  use.setTurns(record.use.turns);
  use.setLaunches(record.use.launches);
  use.setMemBytes(record.use.memBytes);
  use.setMemPeak(record.use.memPeak);
  use.setOverrunNs(record.use.overrunNs);
  use.setProcesses(record.use.processes);
  builder.setEnded(record.ended);
}

bool differs(const HeldRecord& told, const HeldRecord& now, Compare compare) {
  if (compare == Compare::Use) return told.state != now.state || told.use != now.use;
  return coarse(told.state) != coarse(now.state) || told.use.processes != now.use.processes;
}

std::string digestOf(capnp::List<schema::CardStatus>::Reader cards, Compare compare) {
  std::string digest;
  const auto add = [&digest](std::uint64_t value) { digest += std::to_string(value) + ' '; };
  for (const auto card : cards) {
    digest += text(card.getInfo().getId()) + ' ';
    add(static_cast<std::uint64_t>(card.getState()));
    add(static_cast<std::uint64_t>(card.getPolicy()));
    add(static_cast<std::uint64_t>(card.getInfo().getSuspend()));
    if (compare == Compare::States) continue;
    add(static_cast<std::uint64_t>(card.getTenancy()));
    add(card.getTasks());
    add(card.getMemBound());
    add(card.getShareBound());
    add(card.getGreedyBound());
  }
  return digest;
}

}  // namespace qgpu
