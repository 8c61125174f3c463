#include "actors/ledger/near.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace qgpu {
namespace {

// A card for each letter: '0' to '9' its group of links, and behind it the node of memory.
std::vector<NearCard> cardsOf(const std::string& places) {
  std::vector<NearCard> cards;
  for (std::size_t i = 0; i + 1 < places.size(); i += 3) {
    const std::int32_t numa = places[i + 1] == '-' ? -1 : places[i + 1] - '0';
    cards.push_back({i / 3, {static_cast<std::uint32_t>(places[i] - '0'), numa}, gibibytes(16)});
  }
  return cards;
}

std::string chosen(std::vector<NearCard> cards, std::size_t count) {
  chooseNear(cards, count);
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < count; ++i) positions.push_back(cards[i].position);
  std::sort(positions.begin(), positions.end());
  std::string text;
  for (const std::size_t position : positions) {
    text += (text.empty() ? "" : " ") + std::to_string(position);
  }
  return text + " apart " + std::to_string(apart(std::span(cards).first(count)));
}

TEST(Near, WhereNothingIsKnownTheFirstOnesAreTaken) {
  EXPECT_EQ(chosen(cardsOf("0- 0- 0- 0-"), 2), "0 1 apart 0");
}

TEST(Near, LinkedCardsBeforeThoseOfOneMemory) {
  EXPECT_EQ(chosen(cardsOf("00 10 01 11"), 2), "1 3 apart 1");
}

TEST(Near, OfOneMemoryWhereNothingIsLinked) {
  EXPECT_EQ(chosen(cardsOf("00 01 00 01"), 2), "0 2 apart 0");
  EXPECT_EQ(chosen(cardsOf("0- 01 00 01"), 2), "1 3 apart 0");
}

TEST(Near, TheSmallestGroupThatIsLargeEnoughSoThatLargerOnesStayWhole) {
  EXPECT_EQ(chosen(cardsOf("10 10 10 10 21 21"), 2), "4 5 apart 0");
  EXPECT_EQ(chosen(cardsOf("10 10 11 11 11"), 2), "0 1 apart 0") << "of one memory within a group";
}

TEST(Near, OfAsFewGroupsAsMayBeWhereNoneIsLargeEnough) {
  EXPECT_EQ(chosen(cardsOf("10 20 20 20 30 10"), 4), "1 2 3 4 apart 4");
  EXPECT_EQ(chosen(cardsOf("10 20 30 40"), 4), "0 1 2 3 apart 12");
}

TEST(Near, OfEqualOnesThoseWithTheLeastMemory) {
  std::vector<NearCard> cards = cardsOf("10 10 10");
  cards[1].mem = gibibytes(8);
  EXPECT_EQ(chosen(cards, 1), "1 apart 0");
}

// Whatever the machine is like: that many, each once, and no set of one group is passed over.
TEST(Near, TakesOneGroupWhereverOneIsLargeEnough) {
  std::mt19937 random(7);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<NearCard> cards(1 + random() % 16);
    std::vector<std::size_t> sizes(4);
    for (std::size_t i = 0; i < cards.size(); ++i) {
      const CardPlace place{static_cast<std::uint32_t>(random() % 4),
                            static_cast<std::int32_t>(random() % 3) - 1};
      cards[i] = {i, place, gibibytes(1 + static_cast<std::int64_t>(random() % 2))};
      ++sizes[place.links];
    }
    const std::size_t count = 1 + random() % cards.size();
    chooseNear(cards, count);
    std::vector<bool> seen(cards.size());
    for (const NearCard& card : cards) seen[card.position] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<long>(cards.size()));
    const bool could =
        std::any_of(sizes.begin(), sizes.end(), [&](std::size_t size) { return size >= count; });
    EXPECT_EQ(apart(std::span(cards).first(count)) < 4, could) << round;
  }
}

}  // namespace
}  // namespace qgpu
