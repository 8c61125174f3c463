#include "actors/placement/placement.h"

#include <algorithm>
#include <span>

namespace qgpu {
namespace {

// What best fit measures by: the largest nodes of today.
constexpr std::int64_t kCpuSpec = 128'000;
constexpr std::int64_t kShareSpec = 8'000;
constexpr std::int64_t kLeftWhole = 2 * kCpuSpec * kShareSpec;

// A rank's bits: 63 what the class keeps off; 51 to 62 replicas; 44 to 49 how far apart the cards
// of one task are; below that the score.
constexpr int kAvoidShift = 63;
constexpr int kReplicaShift = 51;
constexpr std::int64_t kReplicasMax = (1 << 12) - 2;
constexpr int kApartShift = 44;  // 6 bits, above every score but that of a draw
constexpr std::uint64_t kScoreMask = (std::uint64_t{1} << kReplicaShift) - 1;

std::uint64_t field(std::int64_t value, int bits, int shift) {
  const std::int64_t most = (std::int64_t{1} << bits) - 1;
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(value, 0, most)) << shift;
}

std::uint64_t shuffled(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

bool keepsOff(const CardRoom& card, TaskClass taskClass) {
  if (taskClass == TaskClass::Online) return card.offline != 0;
  return taskClass == TaskClass::Offline && card.online != 0;
}

std::int64_t memFreePermille(const CardRoom& card) {
  return card.mem.value == 0 ? 0 : mulDiv(card.memFree().value, 1000, card.mem.value);
}

// What is free of memory and share together, 0 to 2000.
std::int64_t freeOf(const CardRoom& card, TaskClass taskClass) {
  return poolFree(card, taskClass).value + memFreePermille(card);
}

// One decision on one node.
class Ranking {
 public:
  Ranking(const NodeRoom& node, std::size_t position, const Shape& shape,
          const Fragments& fragments, const Particulars& particulars)
      : node_(node),
        position_(position),
        shape_(shape),
        fragments_(fragments),
        particulars_(particulars) {}

  // The cards, ascending; false where there are fewer than asked.
  bool choose(Pick& pick) {
    if (shape_.cards == 0) return true;
    return shape_.cards == 1 ? chooseOne(pick) : chooseSeveral(pick);
  }

  std::uint64_t rank(const Pick& pick) const {
    bool avoided = false;
    for (std::size_t n = 0; n < pick.count; ++n) {
      avoided = avoided || keepsOff(node_.cards[pick.cards[n]], shape_.card.taskClass);
    }
    std::uint64_t rank = field(avoided ? 1 : 0, 1, kAvoidShift);
    if (shape_.nodeScore == Score::Spread && particulars_.replicas != nullptr) {
      rank |= field(std::min<std::int64_t>(particulars_.replicas->onNode, kReplicasMax), 12,
                    kReplicaShift);
    }
    if (shape_.nodeScore != Score::Random) rank |= field(apart_, 6, kApartShift);
    return rank | (scoreOf(pick) & kScoreMask);
  }

 private:
  bool chooseOne(Pick& pick) {
    std::uint64_t least = UINT64_MAX;
    std::size_t last = SIZE_MAX;  // looked at before; its like fits and ranks the same
    const bool alike = particulars_.replicas == nullptr && shape_.cardScore != Score::Random;
    for (std::size_t i = 0; i < node_.cards.size(); ++i) {
      if (particulars_.card != SIZE_MAX && particulars_.card != i) continue;
      if (alike && last != SIZE_MAX && node_.cards[i] == node_.cards[last]) continue;
      last = i;
      if (judgeCard(node_.cards[i], shape_) != Reason::Fits) continue;
      const std::uint64_t rank = cardRank(static_cast<std::uint16_t>(i));
      if (rank >= least) continue;
      least = rank;
      pick.cards[0] = static_cast<std::uint16_t>(i);
      pick.count = 1;
    }
    return pick.count == 1;
  }

  // Whole cards are all empty: those that are near each other, and of these the smallest.
  bool chooseSeveral(Pick& pick) {
    std::array<NearCard, kNodeCardsMax> fitting;
    std::size_t count = 0;
    for (std::size_t i = 0; i < node_.cards.size() && count < fitting.size(); ++i) {
      if (judgeCard(node_.cards[i], shape_) == Reason::Fits) fitting[count++] = nearCard(i);
    }
    if (count < shape_.cards) return false;
    pick.count = shape_.cards;
    chooseNear(std::span(fitting).first(count), pick.count);
    apart_ = apart(std::span(fitting).first(pick.count));
    for (std::size_t n = 0; n < pick.count; ++n) {
      pick.cards[n] = static_cast<std::uint16_t>(fitting[n].position);
    }
    std::sort(pick.cards.begin(), pick.cards.begin() + pick.count);
    return true;
  }

  // Under Random the draw stands for what is known of the card.
  NearCard nearCard(std::size_t card) const {
    if (shape_.cardScore == Score::Random) {
      return {card, {}, Bytes(static_cast<std::int64_t>(randomOf(card) >> 1))};
    }
    return {card, node_.cards[card].place, node_.cards[card].mem};
  }

  std::uint64_t randomOf(std::uint64_t card) const {
    return shuffled(shuffled(particulars_.draw, position_), card);
  }

  // What the card would hold of the task.
  CardAsk taken(std::uint16_t card) const {
    CardAsk ask = shape_.card;
    if (ask.whole) ask.mem = node_.cards[card].mem;
    return ask;
  }

  std::int64_t gradeOf(const std::uint16_t* cards, std::size_t count) const {
    const CardAsk ask = count == 0 ? shape_.card : taken(cards[0]);
    const std::int64_t after =
        fragments_.amountWith(node_, ask, cards, count, shape_.cpuMilli, shape_.hostMem);
    return fragments_.grade(node_.fragments.amount, after);
  }

  std::uint64_t cardRank(std::uint16_t i) {
    const CardRoom& card = node_.cards[i];
    const TaskClass taskClass = shape_.card.taskClass;
    std::uint64_t rank = field(keepsOff(card, taskClass) ? 1 : 0, 1, kAvoidShift);
    const std::int64_t left = freeOf(card, taskClass);
    switch (shape_.cardScore) {
      case Score::Spread:
        if (particulars_.replicas != nullptr && i < particulars_.replicas->onCard.size()) {
          rank |= field(particulars_.replicas->onCard[i], 12, kReplicaShift);
        }
        return rank | field(2000 - left, 12, 32) | field(card.tasks, 32, 0);
      case Score::Random:
        return rank | (randomOf(i) & kScoreMask);
      case Score::Fgd:
        return rank | field(100 - gradeOf(&i, 1), 7, 0);
      case Score::BestFit:
        return rank | field(left, 12, 12) | field(memFreePermille(card), 12, 0);
      default:
        return rank | field(100 - gradeOf(&i, 1), 7, 24) | field(left, 12, 12) |
               field(memFreePermille(card), 12, 0);
    }
  }

  // What is left of the node: half of it processors, half of it cards.
  std::int64_t leftWith(const Pick& pick) const {
    std::int64_t free = 0;
    for (const CardRoom& card : node_.cards) free += freeOf(card, shape_.card.taskClass);
    for (std::size_t n = 0; n < pick.count; ++n) {
      const CardRoom& card = node_.cards[pick.cards[n]];
      const CardAsk ask = taken(pick.cards[n]);
      const bool online = ask.taskClass == TaskClass::Online;
      free -= (online ? 0 : ask.share.value) + mulDiv(ask.mem.value, 1000, card.mem.value);
    }
    const std::int64_t cpu = node_.cpu == 0 ? 0 : node_.cpuFree() - shape_.cpuMilli;
    return cpu * kShareSpec + free * kCpuSpec / 2;
  }

  // Permille used, of cards or, where none are asked, of processors and memory; times 1000.
  std::int64_t used() const {
    if (shape_.cards == 0) {
      const std::int64_t cpu = node_.cpu == 0 ? 0 : mulDiv(node_.cpuBound, 500'000, node_.cpu);
      const std::int64_t mem = node_.hostMem.value == 0
                                   ? 0
                                   : mulDiv(node_.hostMemBound.value, 500'000, node_.hostMem.value);
      return cpu + mem;
    }
    std::int64_t free = 0;
    for (const CardRoom& card : node_.cards) free += freeOf(card, shape_.card.taskClass);
    return 1'000'000 - free * 500 / static_cast<std::int64_t>(node_.cards.size());
  }

  std::uint64_t scoreOf(const Pick& pick) const {
    switch (shape_.nodeScore) {
      case Score::Spread:
        return field(used(), 20, 24) | field(node_.tasks, 24, 0);
      case Score::Random:
        return randomOf(UINT64_MAX);
      case Score::Fgd:
        return field(100 - gradeOf(pick.cards.data(), pick.count), 7, 0);
      case Score::BestFit:
        return field(100 - (kLeftWhole - leftWith(pick)) * 100 / kLeftWhole, 7, 0);
      default:
        return field(100 - gradeOf(pick.cards.data(), pick.count), 7, 33) |
               field(node_.tasks == 0 ? 1 : 0, 1, 32) | field(leftWith(pick), 32, 0);
    }
  }

  const NodeRoom& node_;
  std::size_t position_;
  const Shape& shape_;
  const Fragments& fragments_;
  const Particulars& particulars_;
  std::uint32_t apart_ = 0;  // of several cards
};

// Cards aside.
bool couldHost(const NodeRoom& node, const Shape& shape) {
  if (isHybrid(shape.card.taskClass) && shape.cards != 0 && !node.mixed) return false;
  if (node.cpu != 0 && shape.cpuMilli > node.cpu) return false;
  return node.hostMem.value == 0 || shape.hostMem <= node.hostMem;
}

// Nobody fits: how hopeful it is to wait. One look at each card, since a question that fits nowhere
// comes here for every node.
std::uint64_t rankRefusal(const NodeRoom& node, const Shape& shape,
                          const Particulars& particulars) {
  if (!couldHost(node, shape)) return kNeverRank;
  std::size_t hopeful = 0;
  bool waits = false;
  bool cordoned = false;
  bool conflict = false;
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    if (particulars.card != SIZE_MAX && particulars.card != i) continue;
    const Reason reason = judgeCard(node.cards[i], shape);
    if (isHopeless(reason)) continue;
    ++hopeful;
    if (reason == Reason::CardCordoned)
      cordoned = true;
    else if (reason == Reason::WrongTenancy || reason == Reason::ShareNeeded)
      conflict = true;
    else
      waits = true;
  }
  if (hopeful < shape.cards) return kNeverRank;
  if (node.life != NodeLife::Alive) return kNoRoomRank;
  if (node.cordoned) return kCordonedRank;
  if (waits) return kNoRoomRank;
  if (cordoned) return kCordonedRank;
  return conflict ? kConflictRank : kNoRoomRank;
}

}  // namespace

const char* scoreName(Score score) {
  constexpr std::array<const char*, 6> kNames = {"default", "binpack", "spread",
                                                 "fgd",     "random",  "best-fit"};
  return kNames[static_cast<std::size_t>(score)];
}

Reason judgeNode(const NodeRoom& node, const Shape& shape) {
  if (shape.cards != 0 && node.cards.empty()) return Reason::NoQgpuNode;
  if (isHybrid(shape.card.taskClass) && shape.cards != 0 && !node.mixed) {
    return Reason::NotMixedNode;
  }
  if (node.life == NodeLife::Joining) return Reason::StaleState;
  if (node.life != NodeLife::Alive) return Reason::NodeLost;
  if (node.cordoned) return Reason::NodeCordoned;
  if (shape.cpuMilli > node.cpuFree()) return Reason::CpuShort;
  if (shape.hostMem > node.hostMemFree()) return Reason::HostMemShort;
  return Reason::Fits;
}

Reason judgeCard(const CardRoom& card, const Shape& shape) {
  if (!shape.anyModel &&
      !std::binary_search(shape.models.begin(), shape.models.end(), card.model)) {
    return Reason::ModelMismatch;
  }
  return fitOf(card, shape.card);
}

bool couldFit(const NodeRoom& node, const Shape& shape, std::size_t card) {
  if (!couldHost(node, shape)) return false;
  std::size_t fitting = 0;
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    if (card != SIZE_MAX && card != i) continue;
    if (!isHopeless(judgeCard(node.cards[i], shape))) ++fitting;
  }
  return fitting >= shape.cards;
}

std::uint64_t rankNode(const NodeRoom& node, std::size_t position, const Shape& shape,
                       const Fragments& fragments, const Particulars& particulars, Pick& pick) {
  pick.count = 0;
  Ranking ranking(node, position, shape, fragments, particulars);
  if (judgeNode(node, shape) != Reason::Fits || !ranking.choose(pick)) {
    return rankRefusal(node, shape, particulars);
  }
  return ranking.rank(pick);
}

}  // namespace qgpu
