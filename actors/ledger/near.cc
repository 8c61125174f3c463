#include "actors/ledger/near.h"

#include <algorithm>
#include <tuple>

namespace qgpu {
namespace {

constexpr std::uint32_t kMemoriesMax = 3;  // further ones that count
constexpr std::uint32_t kApartMax = 63;

enum class Level : std::uint8_t { Links, Memory, Card };

std::int64_t groupOf(const NearCard& card, Level level) {
  return level == Level::Links ? std::int64_t{card.place.links} : std::int64_t{card.place.numa};
}

void sortBy(std::span<NearCard> cards, Level level) {
  std::sort(cards.begin(), cards.end(), [&](const NearCard& a, const NearCard& b) {
    const std::int64_t groupA = level == Level::Card ? 0 : groupOf(a, level);
    const std::int64_t groupB = level == Level::Card ? 0 : groupOf(b, level);
    return std::tie(groupA, a.mem, a.position) < std::tie(groupB, b.mem, b.position);
  });
}

// Where the group that begins there ends.
std::size_t endOf(std::span<const NearCard> cards, std::size_t from, Level level) {
  std::size_t to = from;
  while (to < cards.size() && groupOf(cards[to], level) == groupOf(cards[from], level)) ++to;
  return to;
}

// The group to take from: the smallest that is large enough, else the largest. Cards that nothing
// is known of are taken last.
std::pair<std::size_t, std::size_t> bestGroup(std::span<const NearCard> cards, std::size_t count,
                                              Level level) {
  std::pair<std::size_t, std::size_t> best{0, 0};
  const auto rank = [&](std::size_t from, std::size_t to) {
    const std::size_t size = to - from;
    const bool enough = size >= count;
    const std::int64_t group = groupOf(cards[from], level);
    const bool known = level == Level::Links ? group != 0 : group >= 0;
    return std::tuple(enough ? 0 : 1, enough && known ? 0 : 1, enough ? size : cards.size() - size,
                      cards[from].mem, cards[from].position);
  };
  for (std::size_t from = 0; from < cards.size();) {
    const std::size_t to = endOf(cards, from, level);
    if (best.second == 0 || rank(from, to) < rank(best.first, best.second)) best = {from, to};
    from = to;
  }
  return best;
}

void choose(std::span<NearCard> cards, std::size_t count, Level level) {
  sortBy(cards, level);
  if (level == Level::Card) return;
  while (count != 0) {
    const auto [from, to] = bestGroup(cards, count, level);
    const std::size_t size = to - from;
    std::rotate(cards.begin(), cards.begin() + static_cast<std::ptrdiff_t>(from),
                cards.begin() + static_cast<std::ptrdiff_t>(to));
    if (size >= count) {
      return choose(cards.first(size), count, level == Level::Links ? Level::Memory : Level::Card);
    }
    cards = cards.subspan(size);
    count -= size;
  }
}

}  // namespace

void chooseNear(std::span<NearCard> cards, std::size_t count) {
  choose(cards, std::min(count, cards.size()), Level::Links);
}

std::uint32_t apart(std::span<const NearCard> cards) {
  std::uint32_t links = 0;
  std::uint32_t memories = 0;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const auto before = cards.first(i);
    const auto has = [&](auto same) { return std::any_of(before.begin(), before.end(), same); };
    if (!has([&](const NearCard& c) { return c.place.links == cards[i].place.links; })) ++links;
    if (!has([&](const NearCard& c) { return c.place.numa == cards[i].place.numa; })) ++memories;
  }
  if (links == 0) return 0;
  return std::min(kApartMax, (links - 1) * 4 + std::min(memories - 1, kMemoriesMax));
}

}  // namespace qgpu
