#include "actors/placement/preemption.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "actors/ledger/card_name.h"

namespace qgpu {
namespace {

constexpr std::size_t kSumsMax = 4'096;  // different sums that are kept for one number of tasks

struct Amount {
  std::int64_t mem = 0;
  std::int64_t cpuMilli = 0;
  std::int64_t hostMem = 0;
  auto operator<=>(const Amount&) const = default;
  bool covers(const Amount& need) const {
    return mem >= need.mem && cpuMilli >= need.cpuMilli && hostMem >= need.hostMem;
  }
};

struct Victim {
  TaskId task{};
  Amount gives;
  std::int64_t greedy = 0;
  CardAsk holds;
};

// A set of victims by their places in the list, ascending; better is less.
struct Chosen {
  std::int64_t greedy = 0;
  std::int64_t mem = 0;
  std::vector<std::size_t> places;
  auto operator<=>(const Chosen&) const = default;
};

// One alone, which most often is enough.
std::optional<Chosen> bestOne(const std::vector<Victim>& all, const Amount& need) {
  std::size_t best = all.size();
  const auto rank = [&](std::size_t i) { return std::pair(all[i].greedy, all[i].gives.mem); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].gives.covers(need) && (best == all.size() || rank(i) < rank(best))) best = i;
  }
  if (best == all.size()) return std::nullopt;
  return Chosen{all[best].greedy, all[best].gives.mem, {best}};
}

std::optional<Chosen> wholeOf(const std::vector<Victim>& all, const Amount& need) {
  Amount sum;
  Chosen chosen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    sum.mem += all[i].gives.mem;
    sum.cpuMilli += all[i].gives.cpuMilli;
    sum.hostMem += all[i].gives.hostMem;
    chosen.greedy += all[i].greedy;
    chosen.places.push_back(i);
  }
  chosen.mem = sum.mem;
  if (!sum.covers(need)) return std::nullopt;
  return chosen;
}

// The best set of exactly `count` that covers `need`, by all sums that such sets can have. More
// processors and host memory than needed are as good as just enough; memory is part of the order.
std::optional<Chosen> bestOf(const std::vector<Victim>& all, const Amount& need,
                             std::size_t count) {
  if (count == all.size()) return wholeOf(all, need);
  std::vector<std::map<Amount, Chosen>> bySize(count + 1);
  bySize[0].try_emplace(Amount{});
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t size = std::min(i + 1, count); size > 0; --size) {
      for (const auto& [sum, chosen] : bySize[size - 1]) {
        const Amount more{sum.mem + all[i].gives.mem,
                          std::min(sum.cpuMilli + all[i].gives.cpuMilli, need.cpuMilli),
                          std::min(sum.hostMem + all[i].gives.hostMem, need.hostMem)};
        Chosen with{chosen.greedy + all[i].greedy, more.mem, chosen.places};
        with.places.push_back(i);
        const auto known = bySize[size].find(more);
        if (known == bySize[size].end()) {
          if (bySize[size].size() < kSumsMax) bySize[size].emplace(more, std::move(with));
        } else if (with < known->second) {
          known->second = std::move(with);
        }
      }
    }
  }
  std::optional<Chosen> best;
  for (auto& [sum, chosen] : bySize[count]) {
    if (sum.covers(need) && (!best || chosen < *best)) best = std::move(chosen);
  }
  return best;
}

// How many of the largest amounts it takes to reach `need`; SIZE_MAX where all together do not.
std::size_t fewest(std::vector<std::int64_t> amounts, std::int64_t need) {
  std::sort(amounts.begin(), amounts.end(), std::greater<>());
  for (std::size_t n = 0; n < amounts.size(); ++n) {
    if (need <= 0) return n;
    need -= amounts[n];
  }
  return need <= 0 ? amounts.size() : SIZE_MAX;
}

// No set of fewer covers `need`.
std::size_t fewest(const std::vector<Victim>& all, const Amount& need) {
  std::vector<std::int64_t> mem, cpuMilli, hostMem;
  for (const Victim& one : all) {
    mem.push_back(one.gives.mem);
    cpuMilli.push_back(one.gives.cpuMilli);
    hostMem.push_back(one.gives.hostMem);
  }
  return std::max({fewest(std::move(mem), need.mem), fewest(std::move(cpuMilli), need.cpuMilli),
                   fewest(std::move(hostMem), need.hostMem)});
}

class Search {
 public:
  Search(const ClusterLedger& ledger, const ClusterAsk& ask, const MayEvict& mayEvict)
      : ledger_(ledger),
        ask_(ask),
        mayEvict_(mayEvict),
        normal_(normalAsk(ask.task)),
        onCard_(cardAsk(normal_)) {}

  std::optional<Eviction> run() {
    for (std::uint32_t i = 0; i < ledger_.nodes(); ++i) lookAt(NodeId{i});
    return std::move(best_);
  }

 private:
  // Smaller is better; what comes later in the order of nodes and cards must be better to win.
  using Key = std::tuple<std::size_t, std::int64_t, std::int64_t>;

  void lookAt(NodeId node) {
    const ClusterNodeFacts& facts = ledger_.facts(node);
    if (ledger_.life(node) != NodeLife::Alive || ledger_.cordoned(node)) return;
    if (isHybrid(onCard_.taskClass) && !facts.mixed) return;
    if (!ask_.node.empty() && facts.name != ask_.node) return;
    std::vector<std::size_t> free;  // cards that would do as they are
    for (std::size_t i = 0; i < facts.cards.size() && normal_.cards > 1; ++i) {
      if (mayUse(facts.cards[i]) && fitOf(ledger_.room(node, i), onCard_) == Reason::Fits) {
        free.push_back(i);
      }
    }
    if (free.size() + 1 != normal_.cards) return;
    for (std::size_t i = 0; i < facts.cards.size(); ++i) {
      if (mayUse(facts.cards[i])) lookAtCard(node, i, free);
    }
  }

  bool mayUse(const ClusterCard& card) const {
    const std::string& wanted = ask_.task.card;
    if (!wanted.empty() && !isCardCalled(wanted, card.id, card.index)) return false;
    const auto& models = ask_.models;
    return models.empty() || std::find(models.begin(), models.end(), card.model) != models.end();
  }

  void lookAtCard(NodeId node, std::size_t card, const std::vector<std::size_t>& free) {
    const CardRoom& room = ledger_.room(node, card);
    const bool online = onCard_.taskClass == TaskClass::Online;
    if (room.offline == 0 || (!online && room.offline != room.tasks)) return;
    const std::size_t slots = room.tasks < room.tasksMax ? 0 : room.tasks - room.tasksMax + 1;
    const std::size_t least = online ? std::max<std::size_t>(1, slots) : room.offline;
    const Key bound{least, online ? 0 : room.greedy.value, online ? 0 : room.memBound.value};
    if (least > kVictimsMax || (best_ && bound >= key_)) return;
    CardRoom empty = room;
    empty.memBound = Bytes(0);
    empty.ordinary = empty.greedy = Permille(0);
    empty.tasks = empty.online = empty.offline = 0;
    if (fitOf(empty, onCard_) != Reason::Fits) return;
    const Amount need = needOn(node, room);
    if (online && !mayWin(ledger_.offlineOn(node, card), need, least)) return;

    const std::vector<Victim> all = victimsOn(node, card);
    if (!online && all.size() != room.offline) return;
    const std::size_t most =
        std::min({all.size(), kVictimsMax, best_ ? std::get<0>(key_) : SIZE_MAX});
    std::size_t count = least;
    if (count == 1) {
      if (const std::optional<Chosen> one = bestOne(all, need)) {
        return take(node, card, free, all, *one);
      }
      ++count;
    }
    if (count > most) return;
    for (count = std::max(count, fewest(all, need)); count <= most; ++count) {
      const std::optional<Chosen> chosen = bestOf(all, need, count);
      if (chosen) return take(node, card, free, all, *chosen);
    }
  }

  // Whether sets of these can cover `need` and may be better than the best so far, by what no set
  // of them is below. Most cards are passed over by it, before anybody is asked who may go.
  bool mayWin(const std::vector<OfflineHeld>& on, const Amount& need, std::size_t least) {
    Amount sum;
    Key one{SIZE_MAX, 0, 0};  // the best that covers it alone
    for (const OfflineHeld& held : on) {
      const Amount gives{held.mem.value, held.cpuMilli, held.hostMem.value};
      sum.mem += gives.mem;
      sum.cpuMilli += gives.cpuMilli;
      sum.hostMem += gives.hostMem;
      if (gives.covers(need)) one = std::min(one, Key{1, held.share.value, gives.mem});
    }
    if (!sum.covers(need) || on.size() < least) return false;
    if (!best_) return true;
    if (least == 1 && std::get<0>(one) == 1) return one < key_;
    if (std::get<0>(key_) == 1) return false;
    shares_.clear();
    amounts_.clear();
    for (const OfflineHeld& held : on) {
      shares_.push_back(held.share.value);
      amounts_.push_back(held.mem.value);
    }
    std::sort(shares_.begin(), shares_.end());
    std::sort(amounts_.begin(), amounts_.end());
    std::size_t count = 0;
    std::int64_t most = 0;
    while (most < need.mem) most += amounts_[amounts_.size() - ++count];
    count = std::max({count, least, std::size_t{2}});
    if (count > on.size()) return false;
    const auto smallest = [count](const std::vector<std::int64_t>& values) {
      return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                             std::int64_t{0});
    };
    return Key{count, smallest(shares_), std::max(need.mem, smallest(amounts_))} < key_;
  }

  // What the ask lacks on this card and node. An ordinary task gets the whole card's memory.
  Amount needOn(NodeId node, const CardRoom& room) const {
    const ClusterNodeFacts& facts = ledger_.facts(node);
    const auto lacks = [](std::int64_t asked, std::int64_t free) {
      return std::max<std::int64_t>(0, asked - free);
    };
    Amount need;
    if (!onCard_.whole) need.mem = lacks(onCard_.mem.value, (room.mem - room.memBound).value);
    if (facts.cpuMilli != 0) {
      need.cpuMilli = lacks(ask_.cpuMilli, facts.cpuMilli - ledger_.cpuBound(node));
    }
    if (facts.hostMem.value != 0) {
      need.hostMem = lacks(ask_.hostMem.value, (facts.hostMem - ledger_.hostMemBound(node)).value);
    }
    return need;
  }

  // Those that may go, the youngest first.
  std::vector<Victim> victimsOn(NodeId node, std::size_t card) {
    std::vector<Victim> all;
    const std::vector<OfflineHeld>& on = ledger_.offlineOn(node, card);
    for (auto held = on.rbegin(); held != on.rend(); ++held) {
      if (!mayEvict_(held->task)) continue;
      const Amount gives{held->mem.value, held->cpuMilli, held->hostMem.value};
      const CardAsk holds{TaskClass::Offline, held->mem, held->share, false};
      all.push_back({held->task, gives, held->share.value, holds});
    }
    return all;
  }

  void take(NodeId node, std::size_t card, const std::vector<std::size_t>& free,
            const std::vector<Victim>& all, const Chosen& chosen) {
    const Key key{chosen.places.size(), chosen.greedy, chosen.mem};
    if (best_ && key >= key_) return;
    Eviction eviction;
    CardRoom after = ledger_.room(node, card);
    for (const std::size_t place : chosen.places) {
      eviction.victims.push_back(all[place].task);
      account(after, all[place].holds, -1);
    }
    if (fitOf(after, onCard_) != Reason::Fits) return;
    std::sort(eviction.victims.begin(), eviction.victims.end());
    eviction.card = card;
    eviction.greedy = Permille(chosen.greedy);
    eviction.mem = Bytes(chosen.mem);
    Spot& spot = eviction.spot;
    spot.node = node;
    spot.cpuMilli = ask_.cpuMilli;
    spot.hostMem = ask_.hostMem;
    spot.placement.taskClass = onCard_.taskClass;
    spot.placement.exclusive = onCard_.whole;
    spot.placement.share = onCard_.share;
    spot.placement.cards = free;
    spot.placement.cards.push_back(card);
    std::sort(spot.placement.cards.begin(), spot.placement.cards.end());
    for (const std::size_t of : spot.placement.cards) {
      spot.placement.mem.push_back(onCard_.whole ? ledger_.room(node, of).mem : onCard_.mem);
    }
    best_ = std::move(eviction);
    key_ = key;
  }

  const ClusterLedger& ledger_;
  const ClusterAsk& ask_;
  const MayEvict& mayEvict_;
  const LedgerAsk normal_;
  const CardAsk onCard_;
  std::vector<std::int64_t> shares_;  // of mayWin(), kept for their memory
  std::vector<std::int64_t> amounts_;
  std::optional<Eviction> best_;
  Key key_{};
};

}  // namespace

std::optional<Eviction> leastEviction(const ClusterLedger& ledger, const ClusterAsk& ask,
                                      const MayEvict& mayEvict) {
  if (ask.task.cards == 0 || ask.task.taskClass == TaskClass::Offline) return std::nullopt;
  return Search(ledger, ask, mayEvict).run();
}

}  // namespace qgpu
