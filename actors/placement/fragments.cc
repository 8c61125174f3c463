#include "actors/placement/fragments.h"

#include <algorithm>
#include <utility>

#include "actors/placement/placement.h"
#include "actors/policies.h"

namespace qgpu {
namespace {

constexpr std::int64_t kWeightMax = std::int64_t{1} << 31;  // of all, so that sums stay exact

// Where 100 times the logistic curve of x reaches 51, 52, ... 99: x in millionths of a card,
// ln(q / (100 - q)). Below 50 it is symmetrical.
constexpr std::array<std::int64_t, 49> kLogistic = {
    40005,   80043,   120144,  160343,  200671,  241162,  281851,  322773,  363965,  405465,
    447312,  489548,  532217,  575364,  619039,  663294,  708185,  753772,  800119,  847298,
    895384,  944462,  994623,  1045969, 1098612, 1152680, 1208311, 1265666, 1324925, 1386294,
    1450010, 1516347, 1585627, 1658228, 1734601, 1815290, 1900959, 1992430, 2090741, 2197225,
    2313635, 2442347, 2586689, 2751535, 2944439, 3178054, 3476099, 3891820, 4595120};

std::int64_t poolLeft(const CardRoom& card) {
  return (kWholeCard - (card.tenancy() == Tenancy::Hybrid ? card.greedy : card.ordinary)).value;
}

}  // namespace

void Fragments::setTypical(std::vector<TypicalShape> typical) {
  *this = Fragments();
  std::stable_sort(typical.begin(), typical.end(),
                   [](const auto& a, const auto& b) { return a.weight > b.weight; });
  if (typical.size() > kTypicalMax) typical.resize(kTypicalMax);
  const std::int64_t heaviest = kWeightMax / static_cast<std::int64_t>(kTypicalMax);
  std::uint32_t models = 0;
  for (const TypicalShape& shape : typical) {
    for (const std::uint32_t model : shape.models) models = std::max(models, model + 1);
  }
  byModel_.assign(models, 0);
  for (std::size_t i = 0; i < typical.size(); ++i) {
    const TypicalShape& shape = typical[i];
    const TypicalMask bit = TypicalMask{1} << i;
    const std::int64_t weight = std::clamp<std::int64_t>(shape.weight, 0, heaviest);
    weight_ += weight;
    for (std::size_t n = 0; n < 256; ++n) {
      if ((n >> (i % 8) & 1) != 0) weights_[i / 8][n] += weight;
    }
    byCpu_.push_back({shape.cpuMilli, bit});
    byHostMem_.push_back({shape.hostMem.value, bit});
    if (shape.cards == 0) continue;
    (isHybrid(shape.card.taskClass) ? hybrid_ : ordinary_) |= bit;
    if (shape.card.whole)
      whole_ |= bit;
    else if (shape.card.share.value == 0 && shape.card.taskClass != TaskClass::Online) {
      shareless_ |= bit;
    }
    if (shape.anyModel) anyModel_ |= bit;
    for (const std::uint32_t model : shape.models) byModel_[model] |= bit;
    for (std::int64_t p = shape.card.share.value; p <= 1000; ++p) {
      byShare_[static_cast<std::size_t>(p)] |= bit;
    }
    if (!shape.card.whole) byMem_.push_back({shape.card.mem.value, bit});
    const std::size_t least = shape.card.whole ? shape.cards : 0;
    for (std::size_t n = least; n < byWholeFree_.size(); ++n) byWholeFree_[n] |= bit;
  }
  for (std::vector<Step>* steps : {&byMem_, &byCpu_, &byHostMem_}) {
    std::sort(steps->begin(), steps->end(),
              [](const Step& a, const Step& b) { return a.amount < b.amount; });
    TypicalMask more = 0;
    for (std::size_t i = steps->size(); i-- > 0;) more |= std::exchange((*steps)[i].asksMore, more);
    // The step before the first: all who ask for anything above nothing.
    steps->insert(steps->begin(), Step{INT64_MIN, more});
  }
}

// Those who ask for more than is left.
TypicalMask Fragments::tooMuch(const std::vector<Step>& steps, std::int64_t left) {
  if (steps.empty()) return 0;
  const auto above = std::upper_bound(steps.begin(), steps.end(), left,
                                      [](std::int64_t l, const Step& s) { return l < s.amount; });
  return std::prev(above)->asksMore;
}

std::int64_t Fragments::weightOf(TypicalMask mask) const {
  std::int64_t sum = 0;
  for (std::size_t byte = 0; byte < 8; ++byte) sum += weights_[byte][mask >> (byte * 8) & 255];
  return sum;
}

TypicalMask Fragments::hostable(std::int64_t cpuFree, Bytes hostMemFree,
                                std::size_t wholeFree) const {
  return byWholeFree_[std::min(wholeFree, byWholeFree_.size() - 1)] & ~tooMuch(byCpu_, cpuFree) &
         ~tooMuch(byHostMem_, hostMemFree.value);
}

CardFragments Fragments::lookAt(const CardRoom& card, bool mixed) const {
  if (!card.healthy || card.mark != CardMark::Ready || card.exclusive) return {};
  CardFragments seen{0, std::max<std::int64_t>(0, poolLeft(card)), card.tasks == 0};
  if (card.tasks >= card.tasksMax) return seen;
  seen.hosts = byShare_[static_cast<std::size_t>(seen.free)] &
               ~tooMuch(byMem_, (card.mem - card.memBound).value) &
               (card.model < byModel_.size() ? byModel_[card.model] | anyModel_ : anyModel_);
  if (card.tenancy() == Tenancy::Ordinary || !mixed) seen.hosts &= ~hybrid_;
  if (card.tenancy() == Tenancy::Hybrid) seen.hosts &= ~ordinary_;
  if (card.tasks != 0) seen.hosts &= ~whole_;
  if (rulesOf(card.policy).caps) seen.hosts &= ~shareless_;
  return seen;
}

void Fragments::look(NodeRoom& node) const {
  node.fragments.cards.resize(node.cards.size());
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    node.fragments.cards[i] = lookAt(node.cards[i], node.mixed);
  }
  node.fragments.amount = amountWith(node, CardAsk{}, nullptr, 0, 0, Bytes(0));
}

std::int64_t Fragments::amountWith(const NodeRoom& node, const CardAsk& ask,
                                   const std::uint16_t* cards, std::size_t count,
                                   std::int64_t cpuMilli, Bytes hostMem) const {
  std::array<CardFragments, kPickMax> taken;
  for (std::size_t n = 0; n < count; ++n) {
    CardRoom after = node.cards[cards[n]];
    account(after, ask, 1);
    taken[n] = lookAt(after, node.mixed);
  }
  const std::size_t all = node.fragments.cards.size();
  std::size_t wholeFree = 0;
  for (const CardFragments& card : node.fragments.cards) wholeFree += card.whole ? 1 : 0;
  for (std::size_t n = 0; n < count; ++n) {
    wholeFree -= node.fragments.cards[cards[n]].whole ? 1 : 0;
  }
  const TypicalMask may =
      hostable(node.cpuFree() - cpuMilli, node.hostMemFree() - hostMem, wholeFree);
  std::int64_t amount = 0;
  std::size_t next = 0;  // of `cards`, which ascend
  for (std::size_t i = 0; i < all; ++i) {
    const bool isTaken = next < count && cards[next] == i;
    const CardFragments& card = isTaken ? taken[next++] : node.fragments.cards[i];
    if (card.free != 0) amount += card.free * (weight_ - weightOf(card.hosts & may));
  }
  return amount;
}

std::int64_t Fragments::grade(std::int64_t before, std::int64_t after) const {
  if (weight_ == 0) return 50;
  // Compared as products: fewer fragments by x cards is (before - after) / weight permille.
  const std::int64_t change = (before - after) * 1000;
  const auto reached = [&](std::int64_t x) { return change >= x * weight_; };
  if (change >= 0) {
    const auto above = std::partition_point(kLogistic.begin(), kLogistic.end(), reached);
    return 50 + (above - kLogistic.begin());
  }
  // Rounded down: just below nothing is 49.
  const auto lost = [&](std::int64_t x) { return -change > x * weight_; };
  const auto below = std::partition_point(kLogistic.begin(), kLogistic.end(), lost);
  return 49 - (below - kLogistic.begin());
}

}  // namespace qgpu
