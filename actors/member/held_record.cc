#include "actors/member/held_record.h"

#include <algorithm>

namespace qgpu {
namespace {

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

HeldRecord readHeld(schema::TaskInfo::Reader info) {
  HeldRecord record;
  record.nodeTask = info.getId();
  record.spec = readSpec(info.getSpec());
  record.cards = split(text(info.getCard()));
  record.state = info.getState();
  record.figures = readFigures(info.getUse());
  record.shares = readShares(info.getUse());
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
  writeFigures(record.figures, use);
  writeShares(record.shares, use);
  builder.setEnded(record.ended);
}

bool differs(const HeldRecord& told, const HeldRecord& now, Compare compare) {
  if (compare == Compare::Use) {
    return told.state != now.state || told.figures != now.figures || told.shares != now.shares;
  }
  return coarse(told.state) != coarse(now.state) || told.figures.processes != now.figures.processes;
}

std::string digestOf(capnp::List<schema::CardStatus>::Reader cards, Compare compare) {
  std::string digest;
  const auto add = [&digest](std::uint64_t value) { digest += std::to_string(value) + ' '; };
  for (const auto card : cards) {
    digest += text(card.getInfo().getId()) + ' ';
    add(static_cast<std::uint64_t>(card.getState()));
    add(static_cast<std::uint64_t>(card.getPolicy()));
    add(static_cast<std::uint64_t>(card.getInfo().getSuspend()));
    add(card.getReportUnixMs());
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
