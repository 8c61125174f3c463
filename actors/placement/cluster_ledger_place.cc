#include <algorithm>
#include <utility>

#include "actors/placement/cluster_ledger.h"
#include "actors/placement/cluster_ledger_parts.h"
#include "runtime/planted.h"

namespace qgpu {
namespace {

constexpr std::size_t kModelsMax = 64;  // that one ask may allow
constexpr std::size_t kModelsSaid = 8;  // of a cluster, where others are asked

std::string wanted(const Shape& shape) {
  std::string what;
  if (shape.card.whole && shape.cards != 0)
    what = std::to_string(shape.cards) + " whole card(s)";
  else if (shape.cards != 0)
    what = gibText(shape.card.mem);
  if (shape.cards != 0 && !shape.card.whole && shape.card.share.value != 0) {
    what += " and " + percentText(shape.card.share) + " percent";
  }
  if (shape.cpuMilli != 0) {
    what += (what.empty() ? "" : ", ") + std::to_string(shape.cpuMilli) + "m of processors";
  }
  if (shape.hostMem.value != 0) {
    what += (what.empty() ? "" : ", ") + gibText(shape.hostMem) + " of host memory";
  }
  return what;
}

Score resolve(Score asked, TaskClass taskClass, Score priority) {
  if (asked != Score::ClassDefault) return asked;
  if (taskClass == TaskClass::Online) return Score::Spread;
  return taskClass == TaskClass::Offline ? Score::Binpack : priority;
}

}  // namespace

Status ClusterLedger::check(const ClusterAsk& ask) const {
  const auto invalid = [](std::string text) {
    return Status(fail(ErrorCode::InvalidArgument, std::move(text)));
  };
  if (ask.cpuMilli < 0 || ask.hostMem.value < 0) return invalid("less than no host resources");
  if (ask.models.size() > kModelsMax) {
    return invalid("at most " + std::to_string(kModelsMax) + " card models may be named");
  }
  if (!ask.task.card.empty() && ask.node.empty()) {
    return invalid("card '" + ask.task.card + "' is of some node: name that as well");
  }
  if (ask.task.cards != 0) return checkAsk(ask.task);
  if (ask.task.mem.value != 0 || ask.task.share.value != 0 || !ask.task.card.empty()) {
    return invalid("memory and share are of a card, and no card is asked");
  }
  if (ask.cpuMilli == 0 && ask.hostMem.value == 0) return invalid("nothing is asked at all");
  return ok();
}

Shape ClusterLedger::Parts::shapeOf(const ClusterAsk& ask) const {
  Shape shape;
  const TaskClass taskClass = ask.task.taskClass;
  shape.cards = 0;
  if (ask.task.cards != 0) {
    const LedgerAsk normal = normalAsk(ask.task);
    shape.card = cardAsk(normal);
    if (shape.card.whole) shape.card.mem = Bytes(0);  // all of it, whatever it is
    shape.cards = normal.cards;
    shape.anyModel = ask.models.empty();
    for (const std::string& name : ask.models) {
      const auto known = models.find(name);
      if (known != models.end()) shape.models.push_back(known->second);
    }
    std::sort(shape.models.begin(), shape.models.end());
  }
  shape.cpuMilli = ask.cpuMilli;
  shape.hostMem = ask.hostMem;
  shape.nodeScore = resolve(ask.nodeScore, taskClass, options.priority);
  shape.cardScore = resolve(ask.cardScore, taskClass, options.priority);
  return shape;
}

const Replicas* ClusterLedger::Parts::replicasOf(const ClusterAsk& ask, const Shape& shape,
                                                 NodeId node) const {
  if (shape.nodeScore != Score::Spread && shape.cardScore != Score::Spread) return nullptr;
  if (ask.application.empty()) return nullptr;
  const auto application = applications.find(ask.application);
  if (application == applications.end()) return nullptr;
  const auto on = application->second.find(node);
  return on == application->second.end() ? nullptr : &on->second;
}

std::size_t ClusterLedger::Parts::cardOf(const Node& node, const std::string& text) {
  for (std::size_t i = 0; i < node.facts.cards.size(); ++i) {
    const ClusterCard& card = node.facts.cards[i];
    if (text == card.id || text == std::to_string(card.index)) return i;
  }
  return SIZE_MAX;
}

std::uint64_t ClusterLedger::Parts::rank(NodeId node, const ClusterAsk& ask, const Shape& shape,
                                         std::size_t card, Pick& pick) {
  ++evaluations;
  const Particulars particulars{replicasOf(ask, shape, node), card, options.seed + draws};
  return rankNode(room(node), raw(node), shape, fragments, particulars, pick);
}

Spot ClusterLedger::Parts::spotOf(NodeId node, const Shape& shape, const Pick& pick) const {
  Spot spot;
  spot.node = node;
  spot.cpuMilli = QGPU_PLANTED(CpuOverbooked) ? shape.cpuMilli / 2 : shape.cpuMilli;
  spot.hostMem = shape.hostMem;
  spot.placement.taskClass = shape.card.taskClass;
  if (pick.count == 0) return spot;
  spot.placement.exclusive = shape.card.whole;
  spot.placement.share = shape.card.share;
  for (std::size_t n = 0; n < pick.count; ++n) {
    const std::size_t card = pick.cards[n];
    spot.placement.cards.push_back(card);
    spot.placement.mem.push_back(shape.card.whole ? room(node).cards[card].mem : shape.card.mem);
  }
  return spot;
}

Error ClusterLedger::Parts::refuse(const ClusterAsk& ask, const Shape& shape,
                                   std::uint64_t rank) const {
  const std::string what = wanted(shape);
  switch (rank) {
    case kNeverRank:
      if (nodes.empty()) {
        return fail(ErrorCode::Infeasible,
                    "no node has joined this cluster yet: start qgpu-manager --scheduler on one");
      }
      if (!ask.models.empty() && shape.cards != 0) return refuseModels(ask, shape, what);
      return fail(ErrorCode::Infeasible,
                  "not even an empty cluster would do for " + what + "; ask for less");
    case kConflictRank:
      return fail(ErrorCode::Conflict, "every card that would do for " + what +
                                           " holds tasks of the other kind, or needs a share");
    case kCordonedRank:
      return fail(ErrorCode::Cordoned,
                  "every card that would do for " + what + " takes no new tasks: uncordon one");
    default:
      return fail(ErrorCode::NoRoom,
                  "no card has room for " + what + " now: wait until a task ends, or ask for less");
  }
}

// No node has such a card, or those that are would not do.
Error ClusterLedger::Parts::refuseModels(const ClusterAsk& ask, const Shape& shape,
                                         const std::string& what) const {
  std::string named;
  for (const std::string& model : ask.models) named += (named.empty() ? "" : " or ") + model;
  if (!shape.models.empty()) {
    return fail(ErrorCode::Infeasible, "not even an empty cluster would do for " + what +
                                           " on a card of model " + named +
                                           "; ask for less, or allow other models");
  }
  std::string known;
  std::size_t count = 0;
  for (const auto& [model, number] : models) {
    if (++count <= kModelsSaid) known += (known.empty() ? "" : ", ") + model;
  }
  if (count > kModelsSaid) known += ", and others";
  return fail(ErrorCode::Infeasible, "no node has a card of model " + named +
                                         "; the models that there are: " +
                                         (known.empty() ? "none" : known));
}

Result<Spot> ClusterLedger::Parts::placeOn(NodeId node, const ClusterAsk& ask, const Shape& shape) {
  std::size_t card = SIZE_MAX;
  if (!ask.task.card.empty()) {
    card = cardOf(at(node), ask.task.card);
    if (card == SIZE_MAX) {
      return fail(ErrorCode::NotFound, "no card '" + ask.task.card + "' on node " + ask.node);
    }
  }
  Pick pick;
  const std::uint64_t found = rank(node, ask, shape, card, pick);
  if (fitsAt(found)) return spotOf(node, shape, pick);
  Error error = refuse(ask, shape, found);
  Tally tally;
  error.message = "on node " + ask.node + ": " + textOf(nearest(node, ask, shape, tally), shape) +
                  "; " + error.message;
  return error;
}

Result<Spot> ClusterLedger::Parts::scan(const ClusterAsk& ask, const Shape& shape) {
  std::uint64_t least = kNeverRank;
  NodeId best{};
  Pick pick;
  Pick bestPick;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const std::uint64_t ranked = rank(NodeId{i}, ask, shape, SIZE_MAX, pick);
    if (ranked >= least) continue;
    least = ranked;
    best = NodeId{i};
    bestPick = pick;
  }
  if (!fitsAt(least)) return refuse(ask, shape, least);
  return spotOf(best, shape, bestPick);
}

// By the index. Nodes with replicas of the application rank lower than the shape alone says, so
// they are left out there and ranked one by one.
Result<Spot> ClusterLedger::Parts::search(const ClusterAsk& ask, const Shape& shape) {
  std::vector<std::size_t> apart;
  const bool spreads = shape.nodeScore == Score::Spread || shape.cardScore == Score::Spread;
  const auto application =
      spreads && !ask.application.empty() ? applications.find(ask.application) : applications.end();
  if (application != applications.end()) {
    for (const auto& [node, replicas] : application->second) apart.push_back(raw(node));
  }
  PlacementIndex::Best best = index.best(shape, rooms, fragments, apart);
  // A node without replicas comes before all that have some, unless its class keeps off it.
  const bool isApart = shape.nodeScore == Score::Spread && !isAvoided(best.rank);
  if (isApart && fitsAt(best.rank)) apart.clear();
  Pick pick;
  for (const std::size_t i : apart) {
    const std::uint64_t ranked =
        rank(NodeId{static_cast<std::uint32_t>(i)}, ask, shape, SIZE_MAX, pick);
    if (ranked < best.rank || (ranked == best.rank && i < best.node)) best = {i, ranked};
  }
  if (!fitsAt(best.rank)) return refuse(ask, shape, best.rank);
  const NodeId node{static_cast<std::uint32_t>(best.node)};
  rank(node, ask, shape, SIZE_MAX, pick);
  return spotOf(node, shape, pick);
}

Result<Spot> ClusterLedger::scan(const ClusterAsk& ask) const {
  if (Status valid = check(ask); !valid) return valid.error();
  const Shape shape = parts_->shapeOf(ask);
  if (ask.node.empty()) return parts_->scan(ask, shape);
  const std::optional<NodeId> node = findNode(ask.node);
  if (!node) return fail(ErrorCode::NotFound, "no node '" + ask.node + "'");
  return parts_->placeOn(*node, ask, shape);
}

Result<Spot> ClusterLedger::place(const ClusterAsk& ask) {
  Parts& p = *parts_;
  if (!ask.node.empty() || !check(ask)) return scan(ask);
  const Shape shape = p.shapeOf(ask);
  const bool isRandom = shape.nodeScore == Score::Random || shape.cardScore == Score::Random;
  if (p.options.indexed && !isRandom) return p.search(ask, shape);
  Result<Spot> spot = p.scan(ask, shape);
  if (isRandom) ++p.draws;
  return spot;
}

Error ClusterLedger::refusalWithout(const ClusterAsk& ask, NodeId node,
                                    std::optional<std::size_t> card) const {
  Pick pick;
  std::uint64_t least = kNeverRank;
  if (card) {
    NodeRoom others = nodeRoom(node);
    others.cards[*card].healthy = false;
    others.cards[*card].mem = Bytes(0);
    least = rankIn(others, node, ask, pick);
  }
  for (std::uint32_t i = 0; i < parts_->nodes.size(); ++i) {
    if (NodeId{i} != node) least = std::min(least, rankOn(NodeId{i}, ask, pick));
  }
  return parts_->refuse(ask, parts_->shapeOf(ask), std::max(least, kNoRoomRank));
}

bool ClusterLedger::fitsOn(NodeId node, const ClusterAsk& ask) const {
  if (!check(ask)) return false;
  std::size_t card = SIZE_MAX;
  if (!ask.node.empty() && parts_->at(node).facts.name != ask.node) return false;
  if (!ask.task.card.empty()) {
    card = Parts::cardOf(parts_->at(node), ask.task.card);
    if (card == SIZE_MAX) return false;
  }
  Pick pick;
  return fitsAt(parts_->rank(node, ask, parts_->shapeOf(ask), card, pick));
}

Shape ClusterLedger::shape(const ClusterAsk& ask) const {
  return parts_->shapeOf(ask);
}
const NodeRoom& ClusterLedger::nodeRoom(NodeId node) const {
  return parts_->room(node);
}
const Fragments& ClusterLedger::fragments() const {
  return parts_->fragments;
}

const std::vector<std::uint64_t>& ClusterLedger::ranks(const ClusterAsk& ask) const {
  Parts& p = *parts_;
  return p.index.ranks(p.shapeOf(ask), p.rooms, p.fragments);
}

std::uint64_t ClusterLedger::rankOn(NodeId node, const ClusterAsk& ask, Pick& pick) const {
  return rankIn(parts_->room(node), node, ask, pick);
}

std::uint64_t ClusterLedger::rankIn(const NodeRoom& room, NodeId node, const ClusterAsk& ask,
                                    Pick& pick) const {
  const Shape shape = parts_->shapeOf(ask);
  const Particulars particulars{parts_->replicasOf(ask, shape, node), SIZE_MAX,
                                parts_->options.seed + parts_->draws};
  return rankNode(room, Parts::raw(node), shape, parts_->fragments, particulars, pick);
}

std::vector<NodeId> ClusterLedger::replicas(const std::string& application) const {
  std::vector<NodeId> nodes;
  const auto found = parts_->applications.find(application);
  if (application.empty() || found == parts_->applications.end()) return nodes;
  for (const auto& [node, replicas] : found->second) nodes.push_back(node);
  return nodes;
}

}  // namespace qgpu
