#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/placement/what_if.h"

namespace qgpu {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kPercent = 10;   // permille

const char* nameOf(TaskClass taskClass) {
  switch (taskClass) {
    case TaskClass::Online: return "online";
    case TaskClass::Offline: return "offline";
    case TaskClass::Ordinary: break;
  }
  return "ordinary";
}

std::string numberOf(TaskId task) { return std::to_string(static_cast<std::uint64_t>(task)); }

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
  static constexpr NodeId kOnly{};     // of a copy of one node

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
        if (mark == CardMark::Ready || mark == CardMark::Starting) continue;
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
           gibText(eviction->mem) + ") from " + cardName(eviction->spot.node, eviction->card) +
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
           gibText(memOf(held)) + ") on " + ledger_.facts(node).name + ": it fits there then";
  }

  // The most that fits, of one amount alone: what fits with more fits with less (P10).
  std::string askForLess() {
    if (ask_.task.cards == 0) return {};
    if (isWhole(ask_.task)) return fewerCards();
    const auto withMem = [this](std::int64_t gib) {
      ClusterAsk less = ask_;
      less.task.mem = Bytes(gib * kGiB);
      return less;
    };
    const std::int64_t gib = most(ask_.task.mem.value / kGiB - 1, withMem);
    if (gib > 0) return lessText(std::to_string(gib) + " GiB", withMem(gib));
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

std::string remedyOf(const ClusterLedger& ledger, const ClusterAsk& ask, const Permits& permits) {
  return Remedies(ledger, ask, permits).first();
}

}  // namespace qgpu
