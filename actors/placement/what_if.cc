#include "actors/placement/what_if.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/check.h"

namespace qgpu {
namespace {

// Imagined tasks have numbers that no task has.
constexpr std::uint64_t kImagined = std::uint64_t{3} << 62;

WhatIf::Levels levelsOf(const ClusterLedger& ledger) {
  const ClusterSums sums = ledger.sums();
  WhatIf::Levels levels;
  levels.fragments = ledger.fragmentPermille();
  // A card's tasks take from one pool only: ordinary ones from the first, offline ones from the
  // second, and online ones from none.
  if (sums.cards != 0) levels.allocated = (sums.ordinary + sums.greedy).value / sums.cards;
  return levels;
}

constexpr std::int64_t kPercent = 10;  // permille

const char* nameOf(TaskClass taskClass) {
  switch (taskClass) {
    case TaskClass::Online:
      return "online";
    case TaskClass::Offline:
      return "offline";
    case TaskClass::Ordinary:
      break;
  }
  return "ordinary";
}

std::string numberOf(TaskId task) {
  return std::to_string(static_cast<std::uint64_t>(task));
}

class Remedies {
 public:
  Remedies(const ClusterLedger& ledger, const ClusterAsk& ask, const Permits& permits)
      : ledger_(ledger), ask_(ask), permits_(permits) {}

  std::string first() {
    std::string found = uncordon();
    if (found.empty()) found = evict();
    if (found.empty()) found = endOne();
    if (found.empty()) found = askForLess();
    if (found.empty()) found = wait();
    return found;
  }

 private:
  static constexpr NodeId kOnly{};  // of a copy of one node

  // A copy to try things on, while the bound allows.
  std::optional<ClusterLedger> copy(NodeId node) {
    if (copies_ >= kRemedyCopies) return std::nullopt;
    ++copies_;
    return copyOfNode(ledger_, node);
  }

  bool isCandidate(NodeId node) const {
    return ask_.node.empty() || ledger_.facts(node).name == ask_.node;
  }

  std::string cardName(NodeId node, std::size_t card) const {
    const ClusterNodeFacts& facts = ledger_.facts(node);
    return facts.name + "/" + std::to_string(facts.cards[card].index);
  }
  std::string placeName(const Spot& spot) const {
    const auto& cards = spot.placement.cards;
    return cards.size() == 1 ? cardName(spot.node, cards.front()) : ledger_.facts(spot.node).name;
  }

  std::string uncordon() {
    for (std::uint32_t i = 0; i < ledger_.nodes(); ++i) {
      const NodeId node{i};
      if (!isCandidate(node) || ledger_.life(node) != NodeLife::Alive) continue;
      const std::size_t cards = ledger_.facts(node).cards.size();
      std::vector<std::size_t> marked;
      for (std::size_t card = 0; card < cards; ++card) {
        const CardMark mark = ledger_.room(node, card).mark;
        if (mark != CardMark::Cordoned && mark != CardMark::Draining) continue;
        if (permits_.mayUncordon(node, card)) marked.push_back(card);
      }
      if (marked.empty() && !ledger_.cordoned(node)) continue;
      std::optional<ClusterLedger> trial = copy(node);
      if (!trial) return {};
      if (ledger_.cordoned(node)) {
        trial->setCordoned(kOnly, false);
        if (trial->fitsOn(kOnly, ask_)) return uncordonText(ledger_.facts(node).name);
        continue;
      }
      for (const std::size_t card : marked) {
        const CardMark mark = ledger_.room(node, card).mark;
        trial->setMark(kOnly, card, CardMark::Ready);
        if (trial->fitsOn(kOnly, ask_)) return uncordonText(cardName(node, card));
        trial->setMark(kOnly, card, mark);
      }
    }
    return {};
  }
  static std::string uncordonText(const std::string& what) {
    return "uncordon " + what + ": it fits there then";
  }

  std::string evict() {
    const std::optional<Eviction> eviction = leastEviction(ledger_, ask_, permits_.mayEvict);
    if (!eviction) return {};
    std::optional<ClusterLedger> trial = copy(eviction->spot.node);
    if (!trial) return {};
    std::string numbers;
    for (const TaskId victim : eviction->victims) {
      trial->release(victim);
      numbers += (numbers.empty() ? "" : ", ") + numberOf(victim);
    }
    if (!trial->fitsOn(kOnly, ask_)) return {};
    const bool one = eviction->victims.size() == 1;
    return "evict " + std::string(one ? "offline task " : "offline tasks ") + numbers + " (" +
           sizeText(eviction->mem) + ") from " + cardName(eviction->spot.node, eviction->card) +
           ": it fits there then, and does so itself where it is submitted with preempt";
  }

  // On the nearest node where the end of one task is enough: offline before ordinary before
  // online, then who holds least.
  std::string endOne() {
    for (const NodeVerdict& verdict : ledger_.explain(ask_).nodes) {
      if (isHopeless(verdict.reason) || !isCandidate(verdict.node)) continue;
      if (ledger_.life(verdict.node) != NodeLife::Alive || ledger_.cordoned(verdict.node)) continue;
      std::optional<ClusterLedger> trial = copy(verdict.node);
      if (!trial) return {};
      for (const TaskId task : byWorth(verdict.node)) {
        const Spot spot = *trial->spot(task);
        trial->release(task);
        if (trial->fitsOn(kOnly, ask_)) return endText(verdict.node, task, spot.placement);
        trial->bind(task, spot, "");
      }
    }
    return {};
  }

  std::vector<TaskId> byWorth(NodeId node) const {
    using Worth = std::tuple<int, std::int64_t, std::int64_t, TaskId>;
    std::vector<Worth> order;
    for (const TaskId task : ledger_.tasksOn(node)) {
      if (!permits_.mayEnd(task)) continue;
      const Placement& held = ledger_.spot(task)->placement;
      const int rank = held.taskClass == TaskClass::Offline    ? 0
                       : held.taskClass == TaskClass::Ordinary ? 1
                                                               : 2;
      const auto cards = static_cast<std::int64_t>(held.cards.size());
      order.emplace_back(rank, held.share.value * cards, memOf(held).value, task);
    }
    std::sort(order.begin(), order.end());
    std::vector<TaskId> tasks;
    for (const Worth& worth : order) tasks.push_back(std::get<TaskId>(worth));
    return tasks;
  }
  static Bytes memOf(const Placement& held) {
    Bytes all(0);
    for (const Bytes mem : held.mem) all += mem;
    return all;
  }
  std::string endText(NodeId node, TaskId task, const Placement& held) const {
    return "end task " + numberOf(task) + " (" + nameOf(held.taskClass) + ", " +
           sizeText(memOf(held)) + ") on " + ledger_.facts(node).name + ": it fits there then";
  }

  // The most that fits, of one amount alone: what fits with more fits with less (P10).
  std::string askForLess() {
    if (ask_.task.cards == 0) return {};
    if (isWhole(ask_.task)) return fewerCards();
    const auto withMem = [this](std::int64_t steps) {
      ClusterAsk less = ask_;
      less.task.mem = kMemoryStep * steps;
      less.task.pageable = std::min(less.task.pageable, less.task.mem);
      return less;
    };
    const std::int64_t steps = most(ask_.task.mem / kMemoryStep - 1, withMem);
    if (steps > 0) return lessText(sizeText(kMemoryStep * steps), withMem(steps));
    const auto withShare = [this](std::int64_t percent) {
      ClusterAsk less = ask_;
      less.task.share = Permille(percent * kPercent);
      return less;
    };
    const std::int64_t percent = most(ask_.task.share.value / kPercent - 1, withShare);
    if (percent > 0) return lessText(std::to_string(percent) + " percent", withShare(percent));
    return {};
  }

  std::string fewerCards() {
    ClusterAsk less = ask_;
    less.task = normalAsk(ask_.task);
    while (--less.task.cards > 0) {
      if (less.task.cards == 1) less.task.share = kWholeCard;
      if (ledger_.scan(less)) {
        return lessText(std::to_string(less.task.cards) + " whole card(s)", less);
      }
    }
    return {};
  }

  // The largest of 1 to `limit` that fits; 0 where none does.
  template <typename With>
  std::int64_t most(std::int64_t limit, With with) const {
    std::int64_t fits = 0;
    std::int64_t least = 1;
    while (least <= limit) {
      const std::int64_t middle = least + (limit - least) / 2;
      if (ledger_.scan(with(middle))) {
        fits = middle;
        least = middle + 1;
      } else {
        limit = middle - 1;
      }
    }
    return fits;
  }

  std::string lessText(const std::string& amount, const ClusterAsk& less) const {
    const Result<Spot> spot = ledger_.scan(less);
    if (!spot) return {};
    return "ask for at most " + amount + ": " + placeName(*spot) + " has room for that";
  }

  std::string wait() {
    for (std::uint32_t i = 0; i < ledger_.nodes(); ++i) {
      const NodeId node{i};
      if (!isCandidate(node) || ledger_.life(node) == NodeLife::Alive) continue;
      std::optional<ClusterLedger> trial = copy(node);
      if (!trial) return {};
      trial->setLife(kOnly, NodeLife::Alive);
      if (!trial->fitsOn(kOnly, ask_)) continue;
      return "node " + ledger_.facts(node).name +
             " is not heard of: it fits there once that is back";
    }
    return {};
  }

  const ClusterLedger& ledger_;
  const ClusterAsk& ask_;
  const Permits& permits_;
  std::size_t copies_ = 0;
};

}  // namespace

ClusterLedger copyOfNode(const ClusterLedger& ledger, NodeId node) {
  ClusterLedger copy{ClusterLedger::Options{}};
  const NodeId only = copy.setNode(ledger.facts(node)).first;
  copy.setLife(only, ledger.life(node));
  copy.setCordoned(only, ledger.cordoned(node));
  for (const TaskId task : ledger.tasksOn(node)) {
    Spot spot = *ledger.spot(task);
    spot.node = only;
    copy.bind(task, spot, "");
  }
  return copy;
}

WhatIf::WhatIf(const ClusterLedger& ledger) : trial_(ledger.clone()), before_(levelsOf(ledger)) {}

WhatIf WhatIf::place(const ClusterLedger& ledger, const ClusterAsk& ask, std::uint32_t count) {
  QGPU_CHECK(count >= 1 && count <= kCountMax, "the caller has checked how many are asked");
  WhatIf trial(ledger);
  trial.ask_ = ask;
  trial.count_ = count;
  return trial;
}

WhatIf WhatIf::drain(const ClusterLedger& ledger, NodeId node, std::optional<std::size_t> card,
                     std::vector<Mover> movers) {
  WhatIf trial(ledger);
  if (card) {
    trial.trial_.setMark(node, *card, CardMark::Draining);
  } else {
    trial.trial_.setCordoned(node, true);
  }
  trial.drained_.emplace(node, card);
  trial.movers_ = std::move(movers);
  return trial;
}

WhatIf WhatIf::evict(const ClusterLedger& ledger, TaskId task, const ClusterAsk& ask,
                     const Eviction& eviction, std::vector<Mover> victims) {
  WhatIf trial(ledger);
  for (const TaskId victim : eviction.victims) trial.trial_.release(victim);
  trial.trial_.bind(task, eviction.spot, ask.application);
  trial.landed_.push_back({task, eviction.spot, eviction.victims});
  trial.movers_ = std::move(victims);
  return trial;
}

bool WhatIf::step(std::size_t tasks) {
  for (std::size_t n = 0; n < tasks; ++n) {
    const bool went = placed_ < count_ ? placeOne() : moveOne();
    if (!went) break;
  }
  if (placed_ < count_ || next_ < movers_.size()) return false;
  after_ = levelsOf(trial_);
  return true;
}

// Where one fits no more, none of those that are left does.
bool WhatIf::placeOne() {
  Result<Spot> spot = trial_.place(ask_);
  if (!spot) {
    stay_.push_back({TaskId{0}, count_ - placed_, spot.error().message});
    placed_ = count_;
    return true;
  }
  trial_.bind(TaskId{kImagined | placed_}, *spot, ask_.application);
  landed_.push_back({TaskId{0}, std::move(*spot), {}});
  ++placed_;
  return true;
}

// That what is drained takes no new tasks is no news, and to uncordon it no help.
std::string WhatIf::whyStays(const ClusterAsk& ask, const Error& error) const {
  if (!drained_ || error.code != ErrorCode::Cordoned) return error.message;
  const Error elsewhere = trial_.refusalWithout(ask, drained_->first, drained_->second);
  if (elsewhere.code != ErrorCode::Infeasible) return elsewhere.message;
  return "no other card of the cluster would do for it, even if it were empty";
}

// Its new place is chosen while it holds the old one, as in earnest.
bool WhatIf::moveOne() {
  if (next_ >= movers_.size()) return false;
  Mover& mover = movers_[next_++];
  if (!mover.stays.empty()) {
    stay_.push_back({mover.task, 1, std::move(mover.stays)});
    return true;
  }
  Result<Spot> spot = trial_.place(mover.ask);
  if (!spot) {
    stay_.push_back({mover.task, 1, whyStays(mover.ask, spot.error())});
    return true;
  }
  trial_.release(mover.task);
  trial_.bind(mover.task, *spot, mover.ask.application);
  landed_.push_back({mover.task, std::move(*spot), {}});
  return true;
}

std::string remedyOf(const ClusterLedger& ledger, const ClusterAsk& ask, const Permits& permits) {
  return Remedies(ledger, ask, permits).first();
}

}  // namespace qgpu
