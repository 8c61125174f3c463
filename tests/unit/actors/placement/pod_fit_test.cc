#include "actors/placement/pod_fit.h"

#include <functional>
#include <gtest/gtest.h>

#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::pod_fit_test {
namespace {

using namespace cluster;

PodAsk pod(std::vector<ClusterAsk> asks, std::string application = "") {
  PodAsk pod;
  for (const ClusterAsk& one : asks) {
    pod.demands.push_back({"c" + std::to_string(pod.demands.size()), one.task});
  }
  pod.application = std::move(application);
  return pod;
}

ClusterAsk ordinary(std::int64_t gib, std::int64_t percent) {
  return ask(TaskClass::Ordinary, gib, percent);
}

// "0,1 2" for the cards of two demands; "-" where it does not fit.
std::string placed(const ClusterLedger& ledger, const PodAsk& asked, std::uint32_t node = 0) {
  PodFit fit(ledger, asked);
  const auto cards = fit.cards(NodeId{node});
  EXPECT_EQ(cards.has_value(), fitsAt(fit.rank(NodeId{node})));
  if (!cards) return "-";
  std::string text;
  for (const auto& of : *cards) {
    if (!text.empty()) text += " ";
    for (const std::size_t& card : of) {
      text += (&card == &of.front() ? "" : ",") + std::to_string(card);
    }
  }
  return text;
}

TEST(PodFit, ContainersOfOnePodMaySitOnOneCardOrOnSeveral) {
  const ClusterLedger ledger = of({node("a", 2, 16)});
  EXPECT_EQ(placed(ledger, pod({ordinary(8, 50), ordinary(8, 50)})), "0 0");
  EXPECT_EQ(placed(ledger, pod({ordinary(12, 50), ordinary(12, 50)})), "0 1");
  EXPECT_EQ(placed(ledger, pod({ordinary(12, 50), ordinary(12, 50), ordinary(12, 50)})), "-");
  EXPECT_EQ(placed(ledger, pod({ordinary(12, 50), ask(TaskClass::Ordinary, 0, 100)})), "1 0");
}

// Placed one by one, the two large ones would be given no room by the small ones.
TEST(PodFit, FindsTheWayThatPlacingInTurnMisses) {
  ClusterNodeFacts facts = node("a", 2, 16);
  facts.cards[0].mem = gibibytes(10);
  facts.cards[1].mem = gibibytes(10);
  const ClusterLedger ledger = of({facts});
  // 5+5 and 4+3+3: best fit by size puts 5 and 4 together.
  EXPECT_NE(placed(ledger, pod({ordinary(4, 10), ordinary(3, 10), ordinary(3, 10), ordinary(5, 10),
                                ordinary(5, 10)})),
            "-");
}

TEST(PodFit, WholeCardsTakeTheSmallestThatAreFree) {
  ClusterNodeFacts facts = node("a", 3, 16);
  facts.cards[0].mem = gibibytes(32);
  const ClusterLedger ledger = of({facts});
  EXPECT_EQ(placed(ledger, pod({ordinary(20, 10), ask(TaskClass::Ordinary, 0, 200)})), "0 1,2");
  EXPECT_EQ(placed(ledger, pod({ask(TaskClass::Ordinary, 0, 300)})), "0,1,2");
  EXPECT_EQ(placed(ledger, pod({ask(TaskClass::Ordinary, 0, 400)})), "-");
}

TEST(PodFit, ARefusalSaysWhyForEachCard) {
  ClusterLedger ledger = of({node("a", 3, 16)});
  EXPECT_EQ(bound(ledger, 1, named(ordinary(12, 50), "a", "a-0")), "a-0");
  ledger.setMark(NodeId{0}, 2, CardMark::Cordoned);
  EXPECT_EQ(bound(ledger, 2, named(ordinary(2, 90), "a", "a-1")), "a-1");
  const PodAsk asked = pod({ordinary(8, 30)});
  const PodRefusal refusal = PodFit(ledger, asked).refusal(NodeId{0});
  EXPECT_EQ(refusal.reason, Reason::MemShort);
  EXPECT_FALSE(refusal.hopeless);
  EXPECT_EQ(refusal.text,
            "MemShort: card 0 MemShort (4 GiB free of 16 GiB); card 1 CoreShort (10 percent free); "
            "card 2 CardCordoned (takes no new tasks)");
}

TEST(PodFit, AJointRefusalNamesTheContainerThatFindsNoCard) {
  const ClusterLedger ledger = of({node("a", 2, 16)});
  const PodAsk asked = pod({ordinary(12, 50), ordinary(10, 50), ordinary(11, 50)});
  const PodRefusal refusal = PodFit(ledger, asked).refusal(NodeId{0});
  EXPECT_TRUE(refusal.hopeless) << "not even empty";
  EXPECT_EQ(refusal.text,
            "MemShort: container 'c1': card 0 MemShort (4 GiB free of 16 GiB); card 1 MemShort "
            "(5 GiB free of 16 GiB)");
}

TEST(PodFit, OnlyWhatWaitingCannotHelpIsHopeless) {
  ClusterNodeFacts plain = node("plain", 1, 16);
  plain.mixed = false;
  ClusterLedger ledger = of({plain, node("a", 1, 16), node("none", 0, 16)});
  const PodAsk online = pod({ask(TaskClass::Online, 4, 0)});
  EXPECT_TRUE(PodFit(ledger, online).refusal(NodeId{0}).hopeless);
  EXPECT_EQ(PodFit(ledger, online).refusal(NodeId{0}).reason, Reason::NotMixedNode);
  const PodAsk large = pod({ordinary(32, 10)});
  EXPECT_TRUE(PodFit(ledger, large).refusal(NodeId{1}).hopeless);
  EXPECT_TRUE(PodFit(ledger, large).refusal(NodeId{2}).hopeless);
  EXPECT_EQ(PodFit(ledger, large).refusal(NodeId{2}).reason, Reason::NoQgpuNode);
  ledger.setLife(NodeId{1}, NodeLife::Lost);
  EXPECT_FALSE(PodFit(ledger, online).refusal(NodeId{1}).hopeless);
  EXPECT_EQ(PodFit(ledger, online).refusal(NodeId{1}).reason, Reason::NodeLost);
}

TEST(PodFit, ReplicasKeepApartUnderSpread) {
  ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16)}, {Score::Spread});
  ClusterAsk one = ordinary(2, 10);
  one.application = "web";
  EXPECT_EQ(bound(ledger, 1, one), "a-0");
  EXPECT_EQ(bound(ledger, 2, ordinary(8, 80)), "b-0");
  const PodAsk replica = pod({ordinary(2, 10)}, "web");
  PodFit fit(ledger, replica);
  EXPECT_LT(fit.rank(NodeId{1}), fit.rank(NodeId{0})) << "b is fuller, but has no replica";
  const PodAsk other = pod({ordinary(2, 10)}, "db");
  PodFit apart(ledger, other);
  EXPECT_LT(apart.rank(NodeId{0}), apart.rank(NodeId{1}));
}

// --- against a search of everything ---

using Rooms = std::vector<CardRoom>;

// Every way to give the demands cards, whole ones every set of cards.
bool anyWay(const std::vector<Shape>& shapes, std::size_t next, Rooms& cards) {
  if (next == shapes.size()) return true;
  const Shape& shape = shapes[next];
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (judgeCard(cards[i], shape) == Reason::Fits) fitting.push_back(i);
  }
  for (std::size_t set = 0; set < (std::size_t{1} << fitting.size()); ++set) {
    if (static_cast<std::size_t>(__builtin_popcountll(set)) != shape.cards) continue;
    Rooms with = cards;
    for (std::size_t n = 0; n < fitting.size(); ++n) {
      if ((set >> n & 1U) != 0) account(with[fitting[n]], shape.card, 1);
    }
    if (anyWay(shapes, next + 1, with)) return true;
  }
  return false;
}

// Whether these cards hold it all, one demand after the other.
bool holds(const std::vector<Shape>& shapes, const PodCards& given, Rooms cards) {
  for (std::size_t n = 0; n < shapes.size(); ++n) {
    if (given[n].size() != shapes[n].cards) return false;
    for (const std::size_t card : given[n]) {
      if (judgeCard(cards[card], shapes[n]) != Reason::Fits) return false;
    }
    for (const std::size_t card : given[n]) account(cards[card], shapes[n].card, 1);
  }
  return true;
}

TEST(PodFit, P8_AgreesWithASearchOfEverything) {
  std::size_t fitted = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({static_cast<Score>(dice.below(3) + 1)});
    for (std::size_t i = 0; i < 6; ++i) {
      ledger.setLife(ledger.setNode(anyNode(dice, i)).first,
                     dice.below(10) == 0 ? NodeLife::Lost : NodeLife::Alive);
    }
    for (std::uint64_t task = 1; task <= dice.below(20); ++task) {
      const ClusterAsk some = anyAsk(dice);
      if (const Result<Spot> spot = ledger.place(some)) {
        ledger.bind(TaskId{task}, *spot, some.application);
      }
    }
    for (int n = 0; n < 10; ++n) {
      const PodAsk asked = anyPod(dice);
      PodFit fit(ledger, asked);
      std::vector<Shape> shapes;
      for (const auto& demand : asked.demands) {
        ClusterAsk one;
        one.task = demand.ask;
        shapes.push_back(ledger.shape(one));
      }
      for (std::uint32_t i = 0; i < ledger.nodes(); ++i) {
        const NodeRoom& room = ledger.nodeRoom(NodeId{i});
        Rooms cards = room.cards;
        const bool wanted =
            judgeNode(room, shapes.front()) == Reason::Fits && anyWay(shapes, 0, cards);
        ASSERT_EQ(fitsAt(fit.rank(NodeId{i})), wanted) << "seed " << seed << " node " << i;
        const auto given = fit.cards(NodeId{i});
        ASSERT_EQ(given.has_value(), wanted) << "seed " << seed << " node " << i;
        if (given)
          ASSERT_TRUE(holds(shapes, *given, room.cards)) << "seed " << seed;
        else
          ASSERT_NE(fit.refusal(NodeId{i}).reason, Reason::Fits) << "seed " << seed;
        ++(wanted ? fitted : refused);
      }
    }
  }
  EXPECT_GT(fitted, 1000U);
  EXPECT_GT(refused, 1000U);
}

// What prioritize puts on top is where the scheduler itself would place a single task.
TEST(PodFit, P7_TheBestNodeOfASingleDemandIsThatOfTheLedger) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({static_cast<Score>(dice.below(3) + 1)});
    for (std::size_t i = 0; i < 12; ++i) {
      ledger.setLife(ledger.setNode(anyNode(dice, i)).first, NodeLife::Alive);
    }
    for (std::uint64_t task = 1; task <= 30; ++task) {
      PodAsk asked = anyPod(dice);
      asked.demands.resize(1);
      ClusterAsk one;
      one.task = asked.demands.front().ask;
      one.application = asked.application;
      PodFit fit(ledger, asked);
      std::uint32_t best = 0;
      for (std::uint32_t i = 1; i < ledger.nodes(); ++i) {
        if (fit.rank(NodeId{i}) < fit.rank(NodeId{best})) best = i;
      }
      const bool fits = fitsAt(fit.rank(NodeId{best}));
      const auto cards = fit.cards(NodeId{best});
      const Result<Spot> spot = ledger.place(one);
      ASSERT_EQ(spot.ok(), fits) << "seed " << seed;
      if (!spot) continue;
      ASSERT_EQ(spot->node, NodeId{best}) << "seed " << seed;
      ASSERT_EQ(cards->front(), spot->placement.cards) << "seed " << seed;
      ledger.bind(TaskId{task}, *spot, one.application);
    }
  }
}

}  // namespace
}  // namespace qgpu::pod_fit_test
