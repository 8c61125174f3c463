#include "services/kubernetes/extender/pod_verdicts.h"

#include <gtest/gtest.h>
#include <utility>

#include "services/base/json.h"
#include "tests/unit/actors/placement/cluster_fixture.h"

namespace qgpu::pod_verdicts_test {
namespace {

using namespace cluster;

// Whether both say the same of every node; `judged` counts the nodes, `refused` those without room.
void expectEqual(PodVerdicts& verdicts, const ClusterLedger& ledger, const PodAsk& asked,
                 std::size_t& refused) {
  std::vector<std::uint64_t> ranks;
  {
    PodVerdicts::Pod pod = verdicts.of(asked);
    for (std::uint32_t i = 0; i < ledger.nodes(); ++i) ranks.push_back(pod.rank(NodeId{i}));
  }
  PodVerdicts::Pod pod = verdicts.of(asked);
  std::vector<const PodVerdicts::Refusal*> whys;
  for (std::uint32_t i = 0; i < ledger.nodes(); ++i) {
    whys.push_back(fitsAt(ranks[i]) ? nullptr : &pod.refusal(NodeId{i}));
  }
  PodFit fit(ledger, asked);
  for (std::uint32_t i = 0; i < ledger.nodes(); ++i) {
    ASSERT_EQ(ranks[i], fit.rank(NodeId{i})) << "node " << i;
    if (whys[i] == nullptr) continue;
    const PodRefusal wanted = fit.refusal(NodeId{i});
    std::string text;
    appendJsonString(text, wanted.text);
    ASSERT_EQ(whys[i]->why, text) << "node " << i;
    ASSERT_EQ(whys[i]->hopeless, wanted.hopeless) << "node " << i;
    ++refused;
  }
}

// Something of a cluster changes.
void change(ClusterLedger& ledger, Dice& dice, std::uint64_t& task) {
  const NodeId node{static_cast<std::uint32_t>(dice.below(ledger.nodes()))};
  const std::size_t cards = ledger.nodeRoom(node).cards.size();
  switch (dice.below(9)) {
    case 0:
      ledger.setLife(node, dice.below(3) == 0 ? NodeLife::Lost : NodeLife::Alive);
      return;
    case 1:
      ledger.setCordoned(node, dice.below(3) == 0);
      return;
    case 2:
      if (cards != 0) ledger.setMark(node, dice.below(cards), static_cast<CardMark>(dice.below(3)));
      return;
    case 3:
      ledger.setNode(anyNode(dice, static_cast<std::size_t>(node)));
      return;
    case 4:
      ledger.setPriority(static_cast<Score>(dice.below(3) + 1));
      return;
    case 5:
      ledger.setTypical({{{TaskClass::Ordinary, gibibytes(4), Permille(250), false},
                          1,
                          0,
                          Bytes(0),
                          {},
                          static_cast<std::int64_t>(dice.below(5) + 1)}});
      return;
    case 6:
      ledger.release(TaskId{dice.below(task) + 1});
      return;
    default: {
      const ClusterAsk some = anyAsk(dice);
      const Result<Spot> spot = ledger.place(some);
      if (spot) ledger.bind(TaskId{++task}, *spot, some.application);
    }
  }
}

TEST(PodVerdicts, P7_EqualThoseOfThisMomentWhateverChangesBetween) {
  std::size_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    ClusterLedger ledger({static_cast<Score>(dice.below(3) + 1)});
    for (std::size_t i = 0; i < 8; ++i) {
      ledger.setLife(ledger.setNode(anyNode(dice, i)).first, NodeLife::Alive);
    }
    // Little memory: kinds are also forgotten and found again.
    PodVerdicts verdicts(ledger, seed % 2 == 0 ? PodVerdicts::kBytesMax : 4'000);
    std::vector<PodAsk> kinds;
    for (int i = 0; i < 6; ++i) kinds.push_back(anyPod(dice));
    std::uint64_t task = 1;
    for (int step = 0; step < 80; ++step) {
      if (dice.below(20) == 0) {
        ledger.setNode(anyNode(dice, ledger.nodes()));
      } else {
        change(ledger, dice, task);
      }
      SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
      expectEqual(verdicts, ledger, kinds[dice.below(kinds.size())], refused);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(refused, 5000U);
}

TEST(PodVerdicts, OnlyNodesThatChangedAreJudgedAnew) {
  ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16)});
  PodVerdicts verdicts(ledger);
  PodAsk large;
  large.demands.push_back({"c", ask(TaskClass::Ordinary, 17, 10).task});
  const std::string* first = &verdicts.of(large).refusal(NodeId{0}).why;
  const char* const bytes = first->data();
  EXPECT_EQ(bound(ledger, 1, named(ask(TaskClass::Ordinary, 2, 10), "b")), "b-0");
  EXPECT_EQ(verdicts.of(large).refusal(NodeId{0}).why.data(), bytes) << "written once";
  EXPECT_EQ(verdicts.of(large).refusal(NodeId{0}).why,
            "\"CardTooSmall: card 0-1 CardTooSmall (has 16 GiB in all)\"");
}

TEST(PodVerdicts, NodesThatLookTheSameAreJudgedOnce) {
  ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16), node("c", 2, 24)});
  PodVerdicts verdicts(ledger);
  PodAsk large;
  large.demands.push_back({"c", ask(TaskClass::Ordinary, 25, 10).task});
  const auto told = [&](std::uint32_t at) { return &verdicts.of(large).refusal(NodeId{at}); };
  EXPECT_EQ(told(0), told(1));
  EXPECT_NE(told(0), told(2));
  EXPECT_EQ(told(2)->why, "\"CardTooSmall: card 0-1 CardTooSmall (has 24 GiB in all)\"");
  ledger.setLife(NodeId{1}, NodeLife::Lost);
  EXPECT_EQ(told(1)->why, "\"NodeLost: the node does not answer\"");
  EXPECT_EQ(told(0)->why, "\"CardTooSmall: card 0-1 CardTooSmall (has 16 GiB in all)\"");
  ledger.setLife(NodeId{1}, NodeLife::Alive);
  EXPECT_EQ(told(0), told(1));
}

TEST(RoomFaces, GoWithTheirLastNode) {
  ClusterLedger ledger = of({node("a", 2, 16), node("b", 2, 16)});
  RoomFaces faces(ledger);
  faces.refresh();
  EXPECT_EQ(faces.of(NodeId{0}).number, faces.of(NodeId{1}).number);
  std::uint64_t newest = faces.of(NodeId{0}).number;
  for (std::uint64_t task = 1; task <= 20; ++task) {
    EXPECT_EQ(bound(ledger, task, named(ask(TaskClass::Ordinary, 1, 1), "a")).substr(0, 2), "a-");
    faces.refresh();
    const RoomFaces::Face face = faces.of(NodeId{0});
    EXPECT_GT(face.number, std::exchange(newest, face.number)) << "none comes twice";
    EXPECT_NE(face.number, faces.of(NodeId{1}).number);
    EXPECT_LE(faces.places(), 3U) << "what is new comes before what goes";
    ledger.release(TaskId{task});
    faces.refresh();
    EXPECT_EQ(faces.of(NodeId{0}).number, faces.of(NodeId{1}).number);
  }
}

TEST(PodVerdicts, C5_AreForgottenBeyondTheirLimits) {
  const ClusterLedger ledger = of({node("a", 8, 16), node("b", 8, 16)});
  PodVerdicts many(ledger);
  PodVerdicts small(ledger, 2'000);
  for (std::int64_t gib = 1; gib <= 300; ++gib) {
    PodAsk asked;
    asked.demands.push_back({"c", ask(TaskClass::Ordinary, gib + 16, 10).task});
    for (PodVerdicts* verdicts : {&many, &small}) {
      PodVerdicts::Pod pod = verdicts->of(asked);
      for (std::uint32_t i = 0; i < ledger.nodes(); ++i)
        EXPECT_TRUE(pod.refusal(NodeId{i}).hopeless);
    }
    EXPECT_LE(many.kinds(), PodVerdicts::kKindsMax);
    EXPECT_LT(small.bytes(), 3'000U) << "the limit, and the kind that is asked about";
  }
  EXPECT_EQ(many.kinds(), PodVerdicts::kKindsMax);
  EXPECT_GT(small.kinds(), 1U);
}

}  // namespace
}  // namespace qgpu::pod_verdicts_test
