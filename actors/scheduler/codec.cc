#include "actors/scheduler/codec.h"

#include <algorithm>
#include <set>

#include "actors/base/tenant_variables.h"

namespace qgpu {
namespace {

static_assert(static_cast<int>(Score::BestFit) == static_cast<int>(schema::Score::BEST_FIT));
static_assert(static_cast<int>(Score::Fgd) == static_cast<int>(schema::Score::FGD));

Status checkName(const char* what, const std::string& s, std::size_t most = kNameMax) {
  const bool printable =
      std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (s.size() <= most && printable) return ok();
  return fail(ErrorCode::InvalidArgument, std::string(what) + " is " + std::to_string(s.size()) +
                                              " characters long: at most " + std::to_string(most) +
                                              ", all printable ASCII");
}

CardMark markOf(schema::CardState state) {
  switch (state) {
    case schema::CardState::CORDONED:
      return CardMark::Cordoned;
    case schema::CardState::DRAINING:
      return CardMark::Draining;
    case schema::CardState::STARTING:
      return CardMark::Starting;
    default:
      return CardMark::Ready;
  }
}

// A sum over 64 cards of a node and all of its tasks must stay far from the end of 64 bits.
constexpr Bytes kMemMax = gibibytes(kMemoryGibMax);

Status checkGroup(const ClusterSpec& spec) {
  if (Status valid = checkName("the group", spec.group); !valid) return valid;
  const std::string size = std::to_string(spec.groupSize);
  if (spec.group.empty() && spec.groupSize != 0) {
    return fail(ErrorCode::InvalidArgument, "a group of " + size + " has no name: name both");
  }
  if (spec.group.empty()) return ok();
  if (spec.groupSize == 0 || spec.groupSize > kGroupSizeMax) {
    return fail(ErrorCode::InvalidArgument, "group '" + spec.group + "' is of " + size +
                                                " tasks: from 1 to " +
                                                std::to_string(kGroupSizeMax) + " make one");
  }
  if (!spec.preempt) return ok();
  return fail(ErrorCode::InvalidArgument,
              "a task of group '" + spec.group + "' evicts nobody: ask without preempt");
}

}  // namespace

Score readScore(schema::Score word) {
  return word <= schema::Score::BEST_FIT ? static_cast<Score>(word) : Score::ClassDefault;
}

schema::Score word(Score score) {
  return static_cast<schema::Score>(score);
}

std::vector<std::string> readTexts(capnp::List<capnp::Text>::Reader list, std::size_t limit) {
  std::vector<std::string> texts;
  for (const auto entry : list) {
    if (texts.size() == limit) break;
    texts.push_back(text(entry));
  }
  return texts;
}

ClusterSpec readClusterSpec(schema::ClusterSpec::Reader reader) {
  ClusterSpec spec;
  spec.task = readSpec(reader.getTask());
  spec.node = text(reader.getNode());
  spec.models = readTexts(reader.getModels(), kModelsMax + 1);  // one more is refused
  std::sort(spec.models.begin(), spec.models.end());
  spec.cpuMilli = bounded(reader.getCpuMilli());
  spec.hostMem = Bytes(bounded(reader.getHostMemBytes()));
  spec.application = text(reader.getApplication());
  spec.nodeScore = readScore(reader.getNodeScore());
  spec.cardScore = readScore(reader.getCardScore());
  spec.preempt = reader.getPreempt();
  spec.group = text(reader.getGroup());
  spec.groupSize = reader.getGroupSize();
  return spec;
}

void writeClusterSpec(const ClusterSpec& spec, schema::ClusterSpec::Builder builder) {
  writeSpec(spec.task, builder.initTask());
  builder.setNode(spec.node);
  writeTexts(spec.models, builder.initModels(static_cast<unsigned>(spec.models.size())));
  builder.setCpuMilli(static_cast<std::uint64_t>(spec.cpuMilli));
  builder.setHostMemBytes(static_cast<std::uint64_t>(spec.hostMem.value));
  builder.setApplication(spec.application);
  builder.setNodeScore(word(spec.nodeScore));
  builder.setCardScore(word(spec.cardScore));
  builder.setPreempt(spec.preempt);
  builder.setGroup(spec.group);
  builder.setGroupSize(spec.groupSize);
}

std::string groupOf(const ClusterSpec& spec) {
  if (spec.group.empty()) return {};
  return std::to_string(spec.task.ownerUid) + "/" + spec.group;
}

ClusterAsk askOf(const ClusterSpec& spec) {
  return ClusterAsk{askOf(spec.task), spec.node,      spec.models,    spec.cpuMilli, spec.hostMem,
                    spec.application, spec.nodeScore, spec.cardScore, groupOf(spec)};
}

Status checkClusterSpec(const ClusterSpec& spec) {
  if (Status valid = checkSpec(spec.task); !valid) return valid;
  if (Status valid = checkName("the node", spec.node, kNodeNameMax); !valid) return valid;
  if (Status valid = checkName("the application", spec.application); !valid) return valid;
  if (Status valid = checkGroup(spec); !valid) return valid;
  if (spec.models.size() > kModelsMax) {
    return fail(ErrorCode::InvalidArgument,
                "more than " + std::to_string(kModelsMax) + " card models are named");
  }
  for (const std::string& model : spec.models) {
    if (Status valid = checkName("a card model", model); !valid) return valid;
  }
  if (spec.node.empty() && !spec.task.card.empty()) {
    return fail(ErrorCode::InvalidArgument, "a card is named without its node: name both");
  }
  if (spec.node.empty() && spec.task.ownerPid != 0) {
    return fail(ErrorCode::InvalidArgument,
                "an owner process is named without its node: name both");
  }
  if (spec.hostMem > kMemMax || spec.cpuMilli > kCpuMilliMax) {
    return fail(ErrorCode::InvalidArgument, "more CPU or host memory than any node can have");
  }
  return ok();
}

bool sameAsk(const ClusterSpec& one, const ClusterSpec& other) {
  const ClusterAsk a = askOf(one);
  const ClusterAsk b = askOf(other);
  return one.task.name == other.task.name && a.task.taskClass == b.task.taskClass &&
         a.task.mem == b.task.mem && a.task.pageable == b.task.pageable &&
         a.task.share == b.task.share && a.task.cards == b.task.cards &&
         a.task.card == b.task.card && a.node == b.node && a.models == b.models &&
         a.cpuMilli == b.cpuMilli && a.hostMem == b.hostMem && a.application == b.application &&
         a.group == b.group && one.groupSize == other.groupSize;
}

Result<MemberFacts> readMemberFacts(schema::NodeFacts::Reader reader) {
  MemberFacts facts;
  facts.ledger.name = text(reader.getName());
  if (facts.ledger.name.empty()) return fail(ErrorCode::InvalidArgument, "a node needs a name");
  const Status named = checkName("the node's name", facts.ledger.name, kNodeNameMax);
  if (!named) return named.error();
  if (reader.getCards().size() > kNodeCardsMax) {
    return fail(ErrorCode::InvalidArgument,
                "a node has at most " + std::to_string(kNodeCardsMax) + " cards");
  }
  facts.ledger.mixed = reader.getMixed();
  facts.ledger.tasks = {reader.getMaxTasksPerCard(), reader.getLeastTasksPerCard()};
  facts.ledger.cpuMilli = std::min(bounded(reader.getCpuMilli()), std::int64_t{1} << 32);
  facts.ledger.hostMem = std::min(Bytes(bounded(reader.getHostMemBytes())), kMemMax);
  facts.version = text(reader.getVersion()).substr(0, kNameMax);
  facts.incarnation = reader.getIncarnation();
  for (const std::string& variable : readTexts(reader.getEnvironment(), kEnvironmentMax)) {
    const std::size_t equals = std::min(variable.find('='), variable.size());
    const std::string_view all(variable);
    if (equals == all.size()) continue;
    if (!nodeMayGive(all.substr(0, equals), all.substr(equals + 1))) continue;
    facts.environment.push_back(variable);
  }
  std::set<std::string> ids;
  for (const auto status : reader.getCards()) {
    CardLine line{readCardFacts(status.getInfo()), readFigures(status)};
    if (Status valid = checkName("a card's id", line.facts.id); !valid) return valid.error();
    if (line.facts.id.empty() || line.facts.mem <= Bytes(0) || line.facts.mem > kMemMax ||
        !ids.insert(line.facts.id).second) {
      return fail(ErrorCode::InvalidArgument,
                  "a card needs an id of its own and memory: '" + line.facts.id + "'");
    }
    facts.ledger.cards.push_back({line.facts.id, line.facts.index, line.facts.model, line.facts.mem,
                                  readPolicy(status.getPolicy()), markOf(status.getState()),
                                  status.getState() != schema::CardState::QUARANTINED,
                                  status.getReportUnixMs(), line.facts.place});
    facts.cards.push_back(std::move(line));
  }
  return facts;
}

HeldTask readHeld(schema::HeldTask::Reader reader) {
  HeldTask held;
  held.nodeTask = reader.getNodeTask();
  held.clusterTask = reader.getClusterTask();
  held.epoch = reader.getEpoch();
  held.spec = readSpec(reader.getSpec());
  held.cards = readTexts(reader.getCards(), kNodeCardsMax);
  held.phase = readPhase(reader.getState());
  const auto use = reader.getUse();
  held.figures = readFigures(use);
  held.usedNs = use.getUsedNs();
  held.heldNs = use.getHeldNs();
  held.ended = reader.getEnded();
  return held;
}

}  // namespace qgpu
