#include "actors/base/codec.h"

#include <algorithm>
#include <capnp/dynamic.h>
#include <iterator>

#include "actors/policies.h"
#include "runtime/enum_names.h"

namespace qgpu {
namespace {

template <typename To, typename From>
constexpr bool same(From a, To b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(same(TaskClass::Ordinary, schema::TaskClass::ORDINARY));
static_assert(same(TaskClass::Offline, schema::TaskClass::OFFLINE));
static_assert(same(Policy::BestEffort, schema::Policy::BEST_EFFORT));
static_assert(same(Policy::FixedShare, schema::Policy::FIXED_SHARE));
static_assert(same(Tenancy::Hybrid, schema::Tenancy::HYBRID));
static_assert(same(TaskPhase::Pending, schema::TaskState::PENDING));
static_assert(same(TaskPhase::Running, schema::TaskState::RUNNING));
static_assert(same(TaskPhase::Lost, schema::TaskState::LOST));

bool printable(const std::string& s) {
  return std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

Status checkText(const char* what, const std::string& s) {
  if (s.size() > kNameMax) {
    return fail(ErrorCode::InvalidArgument, std::string(what) + " is " + std::to_string(s.size()) +
                                                " characters long: at most " +
                                                std::to_string(kNameMax));
  }
  if (!printable(s)) {
    return fail(ErrorCode::InvalidArgument,
                std::string(what) + " holds a character that is not printable ASCII");
  }
  return ok();
}

bool any(const LatencyTimes& times) {
  return std::any_of(times.counts.begin(), times.counts.end(), [](auto n) { return n != 0; });
}

}  // namespace

void writeTimes(const LatencyTimes& times, schema::LatencyTimes::Builder builder) {
  builder.setSumNs(times.sumNs);
  std::size_t said = times.counts.size();  // zeros behind the last count go without saying
  while (said > 0 && times.counts[said - 1] == 0) --said;
  auto counts = builder.initCounts(static_cast<unsigned>(said));
  for (unsigned i = 0; i < counts.size(); ++i) counts.set(i, times.counts[i]);
}

LatencyTimes readTimes(schema::LatencyTimes::Reader reader) {
  LatencyTimes times;
  times.sumNs = reader.getSumNs();
  const auto counts = reader.getCounts();
  const auto most = std::min<unsigned>(counts.size(), static_cast<unsigned>(times.counts.size()));
  for (unsigned i = 0; i < most; ++i) times.counts[i] = counts[i];
  return times;
}

TaskClass readClass(schema::TaskClass word) {
  return word <= schema::TaskClass::ORDINARY ? static_cast<TaskClass>(word) : TaskClass::Ordinary;
}

Policy readPolicy(schema::Policy word) {
  const bool known = static_cast<std::size_t>(word) < std::size(kPolicyRules);
  return known ? static_cast<Policy>(word) : Policy::BestEffort;
}

TaskPhase readPhase(schema::TaskState word) {
  const auto value = static_cast<std::uint16_t>(word);
  return value < kTaskPhases ? static_cast<TaskPhase>(value) : TaskPhase::Idle;
}

schema::TaskClass word(TaskClass taskClass) {
  return static_cast<schema::TaskClass>(taskClass);
}
schema::Policy word(Policy policy) {
  return static_cast<schema::Policy>(policy);
}
schema::Tenancy word(Tenancy tenancy) {
  return static_cast<schema::Tenancy>(tenancy);
}
schema::TaskState word(TaskPhase phase) {
  return static_cast<schema::TaskState>(phase);
}

std::string policyName(Policy policy) {
  return std::string(enumName(word(policy)));
}
std::string className(TaskClass taskClass) {
  return std::string(enumName(word(taskClass)));
}

TaskSpec readSpec(schema::TaskSpec::Reader reader) {
  TaskSpec spec;
  spec.name = text(reader.getName());
  spec.taskClass = readClass(reader.getClass());
  spec.mem = Bytes(bounded(reader.getMemBytes()));
  spec.share = Permille(reader.getSharePermille());
  spec.cards = reader.getCards();
  spec.card = text(reader.getCard());
  spec.ownerPid = reader.getOwnerPid();
  spec.ownerStart = reader.getOwnerStart();
  spec.ownerUid = reader.getOwnerUid();
  spec.requestId = text(reader.getRequestId());
  spec.clusterTask = reader.getClusterTask();
  spec.clusterEpoch = reader.getClusterEpoch();
  spec.pageable = Bytes(bounded(reader.getPageableBytes()));
  return spec;
}

void writeSpec(const TaskSpec& spec, schema::TaskSpec::Builder builder) {
  builder.setName(spec.name);
  builder.setClass(word(spec.taskClass));
  builder.setMemBytes(static_cast<std::uint64_t>(spec.mem.value));
  builder.setSharePermille(static_cast<std::uint32_t>(spec.share.value));
  builder.setCards(spec.cards);
  builder.setCard(spec.card);
  builder.setOwnerPid(spec.ownerPid);
  builder.setOwnerStart(spec.ownerStart);
  builder.setOwnerUid(spec.ownerUid);
  builder.setRequestId(spec.requestId);
  builder.setClusterTask(spec.clusterTask);
  builder.setClusterEpoch(spec.clusterEpoch);
  builder.setPageableBytes(static_cast<std::uint64_t>(spec.pageable.value));
}

LedgerAsk askOf(const TaskSpec& spec) {
  return LedgerAsk{spec.taskClass, spec.mem, spec.share, spec.cards, spec.card, spec.pageable};
}

Status checkSpec(const TaskSpec& spec) {
  if (spec.name.empty()) return fail(ErrorCode::InvalidArgument, "a task needs a name");
  if (Status s = checkText("the name", spec.name); !s) return s;
  if (Status s = checkText("the card", spec.card); !s) return s;
  return checkText("the request id", spec.requestId);
}

void writeFacts(const CardFacts& facts, schema::CardInfo::Builder builder) {
  builder.setId(facts.id);
  builder.setIndex(facts.index);
  builder.setModel(facts.model);
  builder.setBackend(facts.backend);
  builder.setMemBytes(static_cast<std::uint64_t>(facts.mem.value));
  builder.setSuspend(facts.suspend);
  builder.setPlatform(facts.platform);
  builder.setDevice(facts.device);
  builder.setSuspendWhy(facts.suspendWhy);
  builder.setMemoryCounted(facts.memoryCounted);
  builder.setIsolation(facts.isolation);
  builder.setDriver(facts.driver);
  builder.setLinkGroup(facts.place.links);
  builder.setNumaNode(facts.place.numa);
  builder.setCounting(facts.counting);
}

CardFacts readCardFacts(schema::CardInfo::Reader info) {
  CardFacts facts;
  facts.id = text(info.getId());
  facts.index = info.getIndex();
  facts.model = text(info.getModel()).substr(0, kNameMax);
  facts.backend = text(info.getBackend()).substr(0, kNameMax);
  facts.mem = Bytes(bounded(info.getMemBytes()));
  facts.suspend = info.getSuspend();
  facts.platform = text(info.getPlatform()).substr(0, kNameMax);
  facts.device = info.getDevice();
  facts.suspendWhy = text(info.getSuspendWhy()).substr(0, kCardTextMax);
  facts.memoryCounted = text(info.getMemoryCounted()).substr(0, kCardTextMax);
  facts.isolation = info.getIsolation();
  facts.driver = text(info.getDriver()).substr(0, kNameMax);
  facts.place = {info.getLinkGroup(), std::max(info.getNumaNode(), -1)};
  facts.counting = info.getCounting();
  return facts;
}

const std::vector<capnp::StructSchema::Field>& cardFigureFields() {
  static const std::vector<capnp::StructSchema::Field> kFields = [] {
    const capnp::StructSchema status = capnp::Schema::from<schema::CardStatus>();
    const auto first = status.getFieldByName("holder").getIndex();
    std::vector<capnp::StructSchema::Field> fields;
    for (const auto field : status.getNonUnionFields()) {
      const capnp::Type type = field.getType();
      const bool number = type.isBool() || type.isUInt32() || type.isUInt64();
      const bool counted = field.getProto().getName() != "reportUnixMs";  // the node says it
      if (number && counted && field.getIndex() >= first) fields.push_back(field);
    }
    return fields;
  }();
  return kFields;
}

CardFigures readFigures(schema::CardStatus::Reader reader) {
  const capnp::DynamicStruct::Reader status(reader);
  CardFigures figures;
  for (const auto& field : cardFigureFields()) {
    const capnp::DynamicValue::Reader value = status.get(field);
    const bool flag = field.getType().isBool();
    figures.numbers.push_back(flag ? (value.as<bool>() ? 1 : 0) : value.as<std::uint64_t>());
  }
  figures.preemptTimes = readTimes(reader.getPreemptTimes());
  figures.releaseTimes = readTimes(reader.getReleaseTimes());
  return figures;
}

void writeFigures(const CardFigures& figures, schema::CardStatus::Builder builder) {
  capnp::DynamicStruct::Builder status(builder);
  for (std::size_t i = 0; i < figures.numbers.size(); ++i) {
    const capnp::StructSchema::Field field = cardFigureFields()[i];
    const std::uint64_t number = figures.numbers[i];
    if (field.getType().isBool()) {
      status.set(field, number != 0);
    } else {
      status.set(field, number);
    }
  }
  if (any(figures.preemptTimes)) writeTimes(figures.preemptTimes, builder.initPreemptTimes());
  if (any(figures.releaseTimes)) writeTimes(figures.releaseTimes, builder.initReleaseTimes());
}

TaskFigures readFigures(schema::TaskUse::Reader reader) {
  return {reader.getGpuNs(),      reader.getLaunches(),  reader.getMemBytes(),
          reader.getMemPeak(),    reader.getProcesses(), reader.getPageableHeld(),
          reader.getPageableOut()};
}

void writeFigures(const TaskFigures& figures, schema::TaskUse::Builder builder) {
  builder.setGpuNs(figures.gpuNs);
  builder.setLaunches(figures.launches);
  builder.setMemBytes(figures.memBytes);
  builder.setMemPeak(figures.memPeak);
  builder.setProcesses(figures.processes);
  builder.setPageableHeld(figures.pageableHeld);
  builder.setPageableOut(figures.pageableOut);
}

ShareFigures readShares(schema::TaskUse::Reader reader) {
  ShareFigures shares;
  shares.usedNs = reader.getUsedNs();
  shares.heldNs = reader.getHeldNs();
  shares.turns = reader.getTurns();
  shares.overrunNs = reader.getOverrunNs();
  return shares;
}

void writeShares(const ShareFigures& shares, schema::TaskUse::Builder builder) {
  builder.setUsedNs(shares.usedNs);
  builder.setHeldNs(shares.heldNs);
  builder.setTurns(shares.turns);
  builder.setOverrunNs(shares.overrunNs);
}

EventRecord readEvent(schema::Event::Reader reader) {
  return EventRecord{reader.getSeq(),        reader.getUnixMs(),     text(reader.getKind()),
                     reader.getTask(),       text(reader.getCard()), text(reader.getText()),
                     text(reader.getActor())};
}

void writeEvent(const EventRecord& event, schema::Event::Builder builder) {
  builder.setSeq(event.seq);
  builder.setUnixMs(event.unixMs);
  builder.setKind(event.kind);
  builder.setTask(event.task);
  builder.setCard(event.card);
  builder.setText(event.text);
  builder.setActor(event.actor);
}

void writeFailure(const Error& error, schema::Failure::Builder builder) {
  builder.setCode(errorName(error.code));
  builder.setMessage(error.message);
}

}  // namespace qgpu
