#include "actors/placement/pod_fit.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>
#include <utility>

#include "runtime/check.h"

namespace qgpu {
namespace {

// How hard a demand is to place.
std::tuple<bool, std::uint32_t, std::int64_t, std::int64_t> sizeOf(const Shape& shape) {
  return {shape.card.whole, shape.cards, shape.card.mem.value, shape.card.share.value};
}

// The node as it would be without a task or a mark.
NodeRoom emptied(NodeRoom room) {
  for (CardRoom& card : room.cards) {
    card.memBound = Bytes(0);
    card.ordinary = card.greedy = Permille(0);
    card.tasks = card.online = card.offline = 0;
    card.mark = CardMark::Ready;
    card.exclusive = false;
    card.healthy = true;
  }
  return room;
}

std::string nodeText(Reason reason) {
  switch (reason) {
    case Reason::NoQgpuNode:
      return "the node has no cards of qgpu";
    case Reason::NotMixedNode:
      return "online and offline pods need a node with label mixed-qgpu-enable=enable";
    case Reason::NodeLost:
      return "the node does not answer";
    case Reason::StaleState:
      return "the node has not said yet what it holds";
    case Reason::NodeCordoned:
      return "its cards take no new tasks: qgpuctl uncordon";
    default:
      return reasonName(reason);
  }
}

constexpr std::size_t kTextUsual = 160;  // bytes of what the cards of one node say

void appendNumber(std::string& text, std::size_t number) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

void appendCards(std::string& text, std::size_t from, std::size_t to) {
  text += text.empty() ? "card " : "; card ";
  appendNumber(text, from);
  if (to == from) return;
  text += '-';
  appendNumber(text, to);
}

}  // namespace

bool asksTheSame(const PodAsk& one, const PodAsk& other) {
  return one.models == other.models &&
         std::equal(one.demands.begin(), one.demands.end(), other.demands.begin(),
                    other.demands.end(),
                    [](const auto& a, const auto& b) { return a.ask == b.ask; });
}

std::vector<std::size_t> askingOrder(const PodCards& cards) {
  std::vector<std::size_t> order(cards.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t i) { return cards[i].size() > 1; });
  return order;
}

PodFit::PodFit(const ClusterLedger& ledger, const PodAsk& ask) : ledger_(ledger), ask_(ask) {
  QGPU_CHECK(!ask.demands.empty() && ask.demands.size() <= PodAsk::kDemandsMax,
             "a pod has 1 to 64 demands here");
  for (const PodAsk::Demand& demand : ask.demands) {
    ClusterAsk one;
    one.task = demand.ask;
    one.models = ask.models;
    one.application = ask.application;
    order_.push_back(asks_.size());
    shapes_.push_back(ledger.shape(one));
    asks_.push_back(std::move(one));
  }
  std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
    return sizeOf(shapes_[a]) > sizeOf(shapes_[b]);
  });
  const Shape& shape = shapes_.front();
  if (shape.nodeScore == Score::Spread || shape.cardScore == Score::Spread) {
    apart_ = ledger.replicas(ask.application);
  }
  if (single()) ranks_ = &ledger.ranks(asks_.front());
}

bool PodFit::isApart(NodeId node) const {
  return std::binary_search(apart_.begin(), apart_.end(), node);
}

// The node as it is, and nothing placed.
PodFit::Way& PodFit::fresh(NodeId node) {
  way_.room = ledger_.nodeRoom(node);
  way_.cards.resize(asks_.size());
  for (std::vector<std::size_t>& cards : way_.cards) cards.clear();
  way_.rank = 0;
  return way_;
}

std::uint64_t PodFit::rank(NodeId node) {
  if (single() && !isApart(node)) return (*ranks_)[static_cast<std::size_t>(node)];
  Pick pick;
  if (single()) return ledger_.rankOn(node, asks_.front(), pick);
  if (placeInTurn(node, fresh(node))) return way_.rank;
  std::size_t steps = 0;
  // The node is a makeshift: after all others of its kind, and before those that are avoided.
  if (judgeNode(way_.room, shapes_.front()) == Reason::Fits && search(fresh(node), 0, steps)) {
    return (std::uint64_t{1} << 63) - 1;
  }
  return kNoRoomRank;
}

std::optional<PodCards> PodFit::cards(NodeId node) {
  if (placeInTurn(node, fresh(node))) return way_.cards;
  if (single() || judgeNode(way_.room, shapes_.front()) != Reason::Fits) return std::nullopt;
  std::size_t steps = 0;
  if (!search(fresh(node), 0, steps)) return std::nullopt;
  return way_.cards;
}

// Each as the ledger would place it, were it alone.
bool PodFit::placeInTurn(NodeId node, Way& way) const {
  for (const std::size_t demand : order_) {
    Pick pick;
    const std::uint64_t rank = ledger_.rankIn(way.room, node, asks_[demand], pick);
    if (!fitsAt(rank)) {
      way.failed = demand;
      return false;
    }
    way.rank = std::max(way.rank, rank);
    take(way, demand, {pick.cards.begin(), pick.cards.begin() + pick.count});
    if (!single()) ledger_.fragments().look(way.room);
  }
  return true;
}

// All ways to place order_[next] and what follows it. Cards without a task that are equal, and
// equal demands, are told apart by nobody, so one of them is tried.
bool PodFit::search(Way& way, std::size_t next, std::size_t& steps) const {
  if (next == order_.size()) return true;
  const std::size_t demand = order_[next];
  const Shape& shape = shapes_[demand];
  if (shape.cards == 1 && !shape.card.whole) return searchPart(way, next, steps);
  // Whole cards come first and take the smallest that are free: larger ones are worth more to
  // others.
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < way.room.cards.size(); ++i) {
    if (judgeCard(way.room.cards[i], shape) == Reason::Fits) free.push_back(i);
  }
  if (free.size() < shape.cards || ++steps > kStepsMax) return false;
  std::stable_sort(free.begin(), free.end(), [&](std::size_t a, std::size_t b) {
    return way.room.cards[a].mem < way.room.cards[b].mem;
  });
  free.resize(shape.cards);
  std::sort(free.begin(), free.end());
  take(way, demand, free);
  if (search(way, next + 1, steps)) return true;
  giveBack(way, demand);
  return false;
}

bool PodFit::searchPart(Way& way, std::size_t next, std::size_t& steps) const {
  const std::size_t demand = order_[next];
  const Shape& shape = shapes_[demand];
  const bool again = next != 0 && shapes_[order_[next - 1]] == shape;
  const std::size_t from = again ? way.cards[order_[next - 1]].front() : 0;
  std::vector<std::size_t> tried;
  for (std::size_t i = from; i < way.room.cards.size(); ++i) {
    const CardRoom card = way.room.cards[i];
    if (judgeCard(card, shape) != Reason::Fits) continue;
    const bool seen = !again && std::any_of(tried.begin(), tried.end(), [&](std::size_t at) {
      return way.room.cards[at] == card;
    });
    if (seen) continue;
    tried.push_back(i);
    if (++steps > kStepsMax) return false;
    take(way, demand, {i});
    if (search(way, next + 1, steps)) return true;
    giveBack(way, demand);
  }
  return false;
}

CardAsk PodFit::held(const Way& way, std::size_t demand, std::size_t card) const {
  CardAsk ask = shapes_[demand].card;
  if (ask.whole) ask.mem = way.room.cards[card].mem;
  return ask;
}

void PodFit::take(Way& way, std::size_t demand, std::vector<std::size_t> cards) const {
  for (const std::size_t card : cards) {
    account(way.room.cards[card], held(way, demand, card), 1);
  }
  way.cards[demand] = std::move(cards);
}

void PodFit::giveBack(Way& way, std::size_t demand) const {
  for (const std::size_t card : way.cards[demand]) {
    account(way.room.cards[card], held(way, demand, card), -1);
  }
  way.cards[demand].clear();
}

bool PodFit::couldFitEmpty(NodeId node) const {
  const NodeRoom& room = ledger_.nodeRoom(node);
  for (const Shape& shape : shapes_) {
    if (!couldFit(room, shape)) return false;
  }
  if (single()) return true;
  Way way{emptied(room), PodCards(asks_.size())};
  std::size_t steps = 0;
  return search(way, 0, steps) || steps > kStepsMax;
}

PodRefusal PodFit::refusal(NodeId node) {
  PodRefusal refusal;
  const NodeRoom& room = ledger_.nodeRoom(node);
  refusal.reason = judgeNode(room, shapes_.front());
  if (refusal.reason != Reason::Fits) {
    refusal.hopeless = !couldFitEmpty(node);
    refusal.text = reasonName(refusal.reason);
    refusal.text += ": " + nodeText(refusal.reason);
    return refusal;
  }
  if (single()) {
    refusal.hopeless = refuseCards(room, 0, refusal) < shapes_.front().cards;
    return refusal;
  }
  refusal.hopeless = !couldFitEmpty(node);
  Way& way = fresh(node);
  if (placeInTurn(node, way)) way.failed = order_.back();
  refuseCards(way.room, way.failed, refusal);
  return refusal;
}

// What each card says; equal ones that follow each other say it once. Returns how many would do,
// were they empty.
std::size_t PodFit::refuseCards(const NodeRoom& room, std::size_t demand,
                                PodRefusal& refusal) const {
  const Shape& shape = shapes_[demand];
  const std::vector<CardRoom>& cards = room.cards;
  std::size_t hopeful = 0;
  std::string said;
  said.reserve(kTextUsual);
  for (std::size_t i = 0; i < cards.size();) {
    std::size_t last = i;
    while (last + 1 < cards.size() && cards[last + 1] == cards[i]) ++last;
    const Reason reason = judgeCard(cards[i], shape);
    if (!isHopeless(reason)) hopeful += last + 1 - i;
    appendCards(said, i, last);
    said += ' ';
    said += reasonName(reason);
    if (reason != Reason::Fits) {
      said += " (";
      said += describe(cards[i], shape.card, reason);
      said += ')';
      // What the node is said to lack: the reason of its first card that has one.
      if (refusal.reason == Reason::Fits) refusal.reason = reason;
    }
    i = last + 1;
  }
  const bool few = shape.cards > 1;
  if (few || refusal.reason == Reason::Fits) refusal.reason = Reason::NotEnoughCards;
  refusal.text = reasonName(refusal.reason);
  refusal.text += ": ";
  if (!single()) refusal.text += "container '" + ask_.demands[demand].container + "': ";
  if (few) refusal.text += std::to_string(shape.cards) + " free cards are asked: ";
  refusal.text += said;
  return hopeful;
}

}  // namespace qgpu
