#include <algorithm>
#include <tuple>
#include <utility>

#include "actors/placement/cluster_ledger_parts.h"

namespace qgpu {
namespace {

// How far a card or node is from taking the task: amounts in permille of a card, other reasons by
// how lasting they are.
std::int64_t distance(Reason reason, std::int64_t missing, Bytes cardMem) {
  switch (reason) {
    case Reason::Fits: return 0;
    case Reason::MemShort:
      return 1 + (cardMem.value == 0 ? 0 : mulDiv(missing, 1000, cardMem.value));
    case Reason::CoreShort:
    case Reason::GreedyShort: return 1 + missing;
    case Reason::SlotsFull: return 200 * missing;
    case Reason::CpuShort:
    case Reason::HostMemShort: return 500;
    case Reason::NotWholeFree:
    case Reason::HeldWhole: return 1000 + missing;
    case Reason::NotEnoughCards: return 1000 + 1000 * missing;
    case Reason::ShareNeeded: return 20'000;
    case Reason::WrongTenancy: return 21'000;
    case Reason::ManagerStarting: return 21'500;
    case Reason::CardCordoned: return 22'000;
    case Reason::NodeCordoned: return 23'000;
    case Reason::StaleState: return 24'000;
    case Reason::NodeLost: return 25'000;
    case Reason::CardUnhealthy: return 26'000;
    case Reason::CardTooSmall:
      return 30'000 + (cardMem.value == 0 ? 0 : mulDiv(missing, 1000, cardMem.value));
    case Reason::ModelMismatch: return 1'000'000;
    case Reason::NotMixedNode: return 1'100'000;
    default: return 2'000'000;
  }
}

std::string nodeText(Reason reason, std::int64_t missing) {
  switch (reason) {
    case Reason::Fits: return "fits";
    case Reason::NoQgpuNode: return "has no cards";
    case Reason::NotMixedNode: return "takes ordinary tasks only: start its manager with --mixed";
    case Reason::NodeLost: return "is lost";
    case Reason::StaleState: return "has not said yet what it holds";
    case Reason::NodeCordoned: return "takes no new tasks: uncordon it";
    case Reason::OtherNode: return "is not the node that was named";
    case Reason::CpuShort: return "lacks " + std::to_string(missing) + "m of processors";
    case Reason::HostMemShort: return "lacks " + gibText(Bytes(missing)) + " of host memory";
    case Reason::NotEnoughCards: return "lacks " + std::to_string(missing) + " free card(s)";
    default: return reasonName(reason);
  }
}

std::string cardText(const CardRoom& card, const Shape& shape, Reason reason,
                     std::int64_t missing) {
  if (reason == Reason::ModelMismatch) return "is of another model";
  const std::string has = describe(card, shape.card, reason);
  switch (reason) {
    case Reason::CardTooSmall:
    case Reason::MemShort: return "lacks " + gibText(Bytes(missing)) + ": " + has;
    case Reason::CoreShort:
    case Reason::GreedyShort:
      return "lacks " + percentText(Permille(missing)) + " percent: " + has;
    default: return has;
  }
}

std::int64_t missingOnNode(const NodeRoom& room, const Shape& shape, Reason reason) {
  if (reason == Reason::CpuShort) return shape.cpuMilli - room.cpuFree();
  if (reason == Reason::HostMemShort) return (shape.hostMem - room.hostMemFree()).value;
  return 0;
}

}  // namespace

NodeVerdict ClusterLedger::Parts::nearest(NodeId node, const ClusterAsk& ask, const Shape& shape,
                                          Tally& tally) const {
  const Node& on = at(node);
  const NodeRoom& room = rooms[raw(node)];
  Reason whole = judgeNode(room, shape);
  if (!ask.node.empty() && on.facts.name != ask.node) whole = Reason::OtherNode;
  const std::size_t wanted = ask.task.card.empty() ? SIZE_MAX : cardOf(on, ask.task.card);
  // Host resources are looked at last: a card that is short says more.
  const bool isHost = whole == Reason::CpuShort || whole == Reason::HostMemShort;
  NodeVerdict verdict{node, std::nullopt, whole, missingOnNode(room, shape, whole), ""};
  if (whole != Reason::Fits && !isHost) {
    tally.counts[static_cast<std::size_t>(whole)] += room.cards.size();
    return verdict;
  }
  tally.reasons.clear();
  std::size_t fitting = 0;
  for (std::size_t i = 0; i < room.cards.size() && shape.cards != 0; ++i) {
    const bool isOther = !ask.task.card.empty() && i != wanted;
    tally.reasons.push_back(isOther ? Reason::OtherNode : judgeCard(room.cards[i], shape));
    fitting += tally.reasons.back() == Reason::Fits ? 1 : 0;
  }
  const bool isShort = fitting < shape.cards;
  std::int64_t least = INT64_MAX;
  for (std::size_t i = 0; i < tally.reasons.size(); ++i) {
    Reason reason = tally.reasons[i];
    if (reason == Reason::Fits) reason = isShort ? Reason::NotEnoughCards : whole;
    ++tally.counts[static_cast<std::size_t>(reason)];
    const CardRoom& card = room.cards[i];
    std::int64_t missing = shortfall(card, shape.card, reason);
    const bool isFew = reason == Reason::NotEnoughCards;
    if (isFew) missing = static_cast<std::int64_t>(shape.cards - fitting);
    const std::int64_t far = distance(reason, missing, card.mem);
    if (!(isShort || whole == Reason::Fits) || far >= least) continue;
    least = far;
    verdict.reason = reason;
    verdict.missing = missing;
    verdict.card = isFew ? std::nullopt : std::optional(i);
  }
  return verdict;
}

std::string ClusterLedger::Parts::textOf(const NodeVerdict& verdict, const Shape& shape) const {
  if (!verdict.card || verdict.reason == Reason::OtherNode) {
    return nodeText(verdict.reason, verdict.missing);
  }
  const std::size_t card = *verdict.card;
  return at(verdict.node).facts.cards[card].id + ": " +
         cardText(room(verdict.node).cards[card], shape, verdict.reason, verdict.missing);
}

std::int64_t ClusterLedger::Parts::distanceOf(const NodeVerdict& verdict) const {
  const Bytes mem = verdict.card ? room(verdict.node).cards[*verdict.card].mem : Bytes(0);
  return distance(verdict.reason, verdict.missing, mem);
}

ClusterVerdict ClusterLedger::explain(const ClusterAsk& ask) const {
  ClusterVerdict verdict;
  verdict.counts.assign(kReasons, 0);
  if (Status valid = check(ask); !valid) {
    verdict.considered = static_cast<std::size_t>(parts_->sums.cards);
    verdict.counts[static_cast<std::size_t>(Reason::InvalidRequest)] = verdict.considered;
    return verdict;
  }
  const Shape shape = parts_->shapeOf(ask);
  Parts::Tally tally;
  std::vector<std::pair<std::int64_t, NodeVerdict>> all;
  for (std::uint32_t i = 0; i < parts_->nodes.size(); ++i) {
    verdict.considered += parts_->rooms[i].cards.size();
    NodeVerdict nearest = parts_->nearest(NodeId{i}, ask, shape, tally);
    verdict.fits = verdict.fits || nearest.reason == Reason::Fits;
    const std::int64_t far = parts_->distanceOf(nearest);
    all.emplace_back(far, std::move(nearest));
  }
  const std::size_t shown = std::min(all.size(), ClusterVerdict::kVerdictsMax);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                    [](const auto& a, const auto& b) {
                      return std::tie(a.first, a.second.node) < std::tie(b.first, b.second.node);
                    });
  for (std::size_t i = 0; i < shown; ++i) {
    NodeVerdict& line = verdict.nodes.emplace_back(std::move(all[i].second));
    line.text = parts_->textOf(line, shape);
  }
  std::copy(tally.counts.begin(), tally.counts.end(), verdict.counts.begin());
  return verdict;
}

std::optional<NodeVerdict> ClusterLedger::nearest(const ClusterAsk& ask) const {
  const Shape shape = parts_->shapeOf(ask);
  std::uint32_t from = 0;
  auto to = static_cast<std::uint32_t>(parts_->nodes.size());
  if (!ask.node.empty()) {
    const std::optional<NodeId> named = findNode(ask.node);
    if (!named) return std::nullopt;
    from = Parts::raw(*named);
    to = from + 1;
  }
  Parts::Tally tally;
  std::optional<NodeVerdict> best;
  std::int64_t least = INT64_MAX;
  for (std::uint32_t i = from; i < to; ++i) {
    const NodeVerdict verdict = parts_->nearest(NodeId{i}, ask, shape, tally);
    const std::int64_t far = parts_->distanceOf(verdict);
    if (far >= least) continue;
    least = far;
    best = verdict;
  }
  if (best) best->text = parts_->textOf(*best, shape);
  return best;
}

}  // namespace qgpu
