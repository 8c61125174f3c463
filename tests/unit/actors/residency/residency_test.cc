// Who is on the card and who is not: the stories by themselves. What holds under every order of
// events is the simulator's (tests/sim/paging).

#include "actors/residency/residency.h"

#include <gtest/gtest.h>
#include <optional>

namespace qgpu::residency_test {
namespace {

using Kind = ResidencyOrder::Kind;
using Phase = PagingWord::Phase;
using State = Residency::State;

constexpr TaskId kA{1}, kB{2}, kC{3};
constexpr Bytes kCard = gibibytes(16);

// A card of 16 GiB, and what was ordered since the last look.
struct ResidencyTest : ::testing::Test {
  ResidencyTest() {
    ResidencyConfig config;
    config.memory = kCard;
    residency.emplace(config, now);
  }

  // Takes what it wants below its limit, by one process, 0.
  void joins(TaskId task, Bytes has, Bytes quota = kCard) {
    residency->join(task, quota, Bytes(0), Bytes(0), {}, now, orders);
    residency->trimmed(task, Bytes(0), Bytes(0), now, orders);
    residency->attached(task, 0, now, orders);
    wants(task, Bytes(0), has);
    holds(task, has);
  }
  void holds(TaskId task, Bytes in, Bytes out = Bytes(0)) {
    residency->holds(task, in, out, Bytes(0), now, orders);
  }
  void wants(TaskId task, Bytes has, Bytes more) {
    residency->holds(task, has, Bytes(0), more, now, orders);
  }
  void passes(Nanos time) {
    now += time;
    residency->expire(now, orders);
  }
  // The process says what is wanted of it by the newest word.
  void answers(TaskId task, PagingAnswer answer, std::uint32_t process = 0) {
    residency->answered(task, process, words[task].epoch, answer, now, orders);
    look();
  }
  // Its memory moves, and it says so.
  void leaves(TaskId task, Bytes in, Bytes out) {
    look();
    answers(task, PagingAnswer::Idle);
    holds(task, in, out);
    answers(task, PagingAnswer::Left);
  }
  void returns(TaskId task, Bytes in) {
    look();
    holds(task, in);
    answers(task, PagingAnswer::In);
  }
  // How many such orders came since the last clear().
  int count(Kind kind, TaskId task = TaskId::kNone) {
    look();
    int found = 0;
    for (const ResidencyOrder& order : seen) {
      found += order.kind == kind && (task == TaskId::kNone || order.task == task) ? 1 : 0;
    }
    return found;
  }
  std::optional<bool> answerTo(std::uint64_t request) {
    look();
    for (const ResidencyOrder& order : seen) {
      if (order.kind == Kind::Answered && order.request == request) return order.room;
    }
    return std::nullopt;
  }
  Phase told(TaskId task) {
    look();
    return words[task].phase;
  }
  void look() {
    for (const ResidencyOrder& order : orders) {
      seen.push_back(order);
      if (order.kind == Kind::Tell) words[order.task] = order.word;
    }
    orders.clear();
  }
  void clear() {
    look();
    seen.clear();
  }

  Nanos now = seconds(1);
  std::optional<Residency> residency;
  ResidencyOrders orders;
  std::vector<ResidencyOrder> seen;
  std::map<TaskId, PagingWord> words;
};

TEST_F(ResidencyTest, WhoIsNewGoesOnAtOnceAndItsLimitGrowsWithWhatItWants) {
  joins(kA, gibibytes(4));
  EXPECT_EQ(count(Kind::Back, kA), 1);
  EXPECT_EQ(told(kA), Phase::In);
  EXPECT_EQ(residency->limit(kA), gibibytes(4));
  EXPECT_EQ(residency->room(), gibibytes(12));
}

TEST_F(ResidencyTest, ANeedIsAnsweredAtOnceWhereThereIsRoomAndItsRoomIsKept) {
  residency->need(1, gibibytes(10), now, now, orders);
  residency->need(2, gibibytes(10), now, now, orders);
  EXPECT_EQ(answerTo(1), true);
  EXPECT_EQ(answerTo(2), std::nullopt);
  residency->othersHold(gibibytes(3), now, orders);
  residency->given(1, now, orders);
  EXPECT_EQ(answerTo(2), true);
}

TEST_F(ResidencyTest, ANeedSendsOutTheSmallestThatSufficesAndOnlyAsMuch) {
  joins(kA, gibibytes(8));
  joins(kB, gibibytes(4));
  joins(kC, gibibytes(2));
  clear();
  residency->need(7, gibibytes(5), now, now, orders);
  EXPECT_EQ(told(kA), Phase::In);
  EXPECT_EQ(told(kB), Phase::Drain) << "2 GiB are free and 3 missing: 4 suffice, 2 don't";
  EXPECT_EQ(told(kC), Phase::In);
  EXPECT_EQ(answerTo(7), std::nullopt);
  answers(kB, PagingAnswer::Idle);
  EXPECT_EQ(words[kB], (PagingWord{words[kB].epoch, Phase::Out, Permille(750)}));
  holds(kB, gibibytes(1), gibibytes(3));
  EXPECT_EQ(answerTo(7), true) << "as soon as the room is there";
  answers(kB, PagingAnswer::Left);
  EXPECT_EQ(residency->state(kB), State::Out);
  EXPECT_EQ(residency->room(), Bytes(0));
}

TEST_F(ResidencyTest, WhoIsOutInPartIsAskedFirstAndWhatIsOutAlreadyIsNoRoomToCome) {
  residency->othersHold(gibibytes(2), now, orders);
  joins(kA, gibibytes(6));
  joins(kB, gibibytes(4));
  joins(kC, gibibytes(4));
  residency->need(1, gibibytes(4), now, now, orders);
  leaves(kB, Bytes(0), gibibytes(4));
  residency->othersHold(gibibytes(6), now, orders);
  residency->given(1, now, orders);
  clear();
  residency->need(2, gibibytes(2), now, now, orders);
  EXPECT_EQ(told(kA), Phase::In);
  EXPECT_EQ(told(kC), Phase::Drain) << "one of them, the smallest";
  leaves(kC, gibibytes(2), gibibytes(2));
  EXPECT_EQ(answerTo(2), true);
  residency->othersHold(gibibytes(8), now, orders);
  residency->given(2, now, orders);
  residency->need(3, gibibytes(1), now, now, orders);
  look();
  EXPECT_EQ(words[kC].out, Permille(750));
  EXPECT_EQ(told(kA), Phase::In);
}

TEST_F(ResidencyTest, M1_ATaskIsBackOnceEachProcessIsIn) {
  joins(kA, gibibytes(16));
  residency->attached(kA, 1, now, orders);
  residency->attached(kA, 2, now, orders);
  residency->need(1, gibibytes(1), now, now, orders);
  look();
  for (const std::uint32_t process : {0u, 1u}) answers(kA, PagingAnswer::Idle, process);
  EXPECT_EQ(told(kA), Phase::Drain);
  residency->died(kA, 2, now, orders);  // of whom nothing is awaited any more
  EXPECT_EQ(told(kA), Phase::Out);
  holds(kA, gibibytes(15), gibibytes(1));
  for (const std::uint32_t process : {0u, 1u}) answers(kA, PagingAnswer::Left, process);
  residency->given(1, now, orders);
  clear();
  passes(seconds(1));
  EXPECT_EQ(told(kA), Phase::In);
  answers(kA, PagingAnswer::In, 1);
  EXPECT_EQ(count(Kind::Back, kA), 0);
  answers(kA, PagingAnswer::In, 0);
  EXPECT_EQ(count(Kind::Back, kA), 1);
}

TEST_F(ResidencyTest, WhoCantBecomeIdleGoesOnAndIsLetBeForTwiceAsLongEachTime) {
  joins(kA, gibibytes(16));
  const ResidencyConfig usual;
  clear();
  joins(kB, Bytes(0));
  wants(kB, Bytes(0), gibibytes(4));
  Nanos wait = usual.askEvery;
  passes(usual.stayMin);
  for (int vain = 0; vain < 3; ++vain, wait = wait * 2) {
    ASSERT_EQ(told(kA), Phase::Drain) << vain;
    passes(usual.idleFor);
    ASSERT_EQ(told(kA), Phase::In);
    answers(kA, PagingAnswer::In);
    EXPECT_EQ(residency->state(kA), State::In);
    passes(wait - Nanos(1));
    ASSERT_EQ(told(kA), Phase::In) << vain;
    passes(usual.stayMin);
  }
}

TEST_F(ResidencyTest, M6_WhoGaveNoRoomForANeedInTimeIsEnded) {
  joins(kA, gibibytes(12));
  joins(kB, gibibytes(4));
  const ResidencyConfig usual;
  clear();
  residency->need(1, gibibytes(2), now, now, orders);
  passes(usual.idleFor);
  answers(kB, PagingAnswer::In);
  passes(usual.endAfter - usual.idleFor - Nanos(1));
  EXPECT_EQ(count(Kind::End), 0);
  passes(Nanos(1));
  EXPECT_EQ(count(Kind::End, kB), 1) << "the smallest that suffices";
  EXPECT_EQ(count(Kind::End), 1);
  EXPECT_EQ(answerTo(1), std::nullopt) << "its memory is not free yet";
  residency->leave(kB, now, orders);
  EXPECT_EQ(answerTo(1), true);
}

TEST_F(ResidencyTest, M6_WhoGaveNoneIsEndedBeforeWhoIsAboutToGive) {
  joins(kA, gibibytes(10));
  joins(kB, gibibytes(6));
  const ResidencyConfig usual;
  residency->need(1, gibibytes(5), now, now, orders);
  ASSERT_EQ(told(kB), Phase::Drain);
  passes(usual.idleFor);
  ASSERT_EQ(told(kA), Phase::Drain) << "B is let be";
  answers(kB, PagingAnswer::In);
  answers(kA, PagingAnswer::Idle);
  passes(usual.endAfter - usual.idleFor);
  EXPECT_EQ(count(Kind::End, kB), 1);
  EXPECT_EQ(count(Kind::End), 1);
}

TEST_F(ResidencyTest, M6_WhoWasAskedAMomentAgoIsNotEndedYet) {
  joins(kA, gibibytes(16));
  const ResidencyConfig usual;
  residency->need(1, gibibytes(5), now - usual.endAfter, now, orders);
  EXPECT_EQ(told(kA), Phase::Drain);
  EXPECT_EQ(count(Kind::End), 0);
  passes(usual.idleFor);
  EXPECT_EQ(count(Kind::End, kA), 1);
}

TEST_F(ResidencyTest, M6_ADrainForANeedIsHurriedAtOnce) {
  joins(kA, gibibytes(10));
  clear();
  residency->need(1, gibibytes(8), now, now, orders);
  EXPECT_EQ(told(kA), Phase::Drain);
  EXPECT_EQ(count(Kind::Hurry, kA), 1);
  EXPECT_EQ(seen.back().kind, Kind::Hurry) << "after the word";
  residency->need(2, gibibytes(1), now, now, orders);
  EXPECT_EQ(count(Kind::Hurry), 1) << "once is enough";
}

TEST_F(ResidencyTest, M6_ADrainForWhoWantsMoreIsHurriedByANeedAndHasItsTimeAnew) {
  joins(kA, gibibytes(12));
  joins(kB, gibibytes(2));
  wants(kB, gibibytes(2), gibibytes(4));
  clear();
  passes(ResidencyConfig{}.stayMin);
  EXPECT_EQ(told(kA), Phase::Drain);
  const Nanos half = ResidencyConfig{}.idleFor / 2;
  passes(half);
  EXPECT_EQ(count(Kind::Hurry), 0);
  residency->need(1, gibibytes(4), now, now, orders);
  EXPECT_EQ(count(Kind::Hurry, kA), 1);
  passes(half);
  EXPECT_EQ(residency->state(kA), State::Draining);
  passes(half);
  EXPECT_NE(residency->state(kA), State::Draining);
}

TEST_F(ResidencyTest, M6_ANeedThatTheCardCantHaveKeepsNobodyElseWaiting) {
  joins(kA, gibibytes(4));
  residency->othersHold(gibibytes(11), now, orders);
  clear();
  residency->need(1, gibibytes(8), now, now, orders);
  EXPECT_EQ(told(kA), Phase::In) << "its 4 would not do";
  residency->need(2, gibibytes(3), now, now, orders);
  EXPECT_EQ(told(kA), Phase::Drain);
  leaves(kA, gibibytes(2), gibibytes(2));
  EXPECT_EQ(answerTo(2), true);
  EXPECT_EQ(answerTo(1), std::nullopt);
}

TEST_F(ResidencyTest, M6_ANeedThatNobodyCanMeetIsRefusedInTimeAndNobodyIsEndedForIt) {
  joins(kA, gibibytes(2));
  residency->othersHold(gibibytes(14), now, orders);
  const ResidencyConfig usual;
  residency->need(1, gibibytes(3), now, now, orders);
  passes(usual.waitFor - Nanos(1));
  EXPECT_EQ(answerTo(1), std::nullopt);
  EXPECT_EQ(residency->nextDeadline(), now + Nanos(1));
  passes(Nanos(1));
  EXPECT_EQ(answerTo(1), false);
  EXPECT_EQ(count(Kind::End), 0);
}

TEST_F(ResidencyTest, M6_WhoAsksAgainHasNoMoreTimeThanIsLeft) {
  residency->othersHold(kCard, now, orders);
  const ResidencyConfig usual;
  residency->need(1, gibibytes(1), now - usual.waitFor + Nanos(1), now, orders);
  EXPECT_EQ(answerTo(1), std::nullopt);
  passes(Nanos(1));
  EXPECT_EQ(answerTo(1), false);
}

TEST_F(ResidencyTest, M3_ALowerLimitMakesRoomOnceItWasSaid) {
  joins(kA, gibibytes(12));
  holds(kA, gibibytes(4));  // it freed 8
  clear();
  residency->need(1, gibibytes(10), now, now, orders);
  EXPECT_EQ(residency->limit(kA), gibibytes(4));
  EXPECT_EQ(answerTo(1), std::nullopt) << "a process of it may be about to allocate";
  EXPECT_EQ(told(kA), Phase::In);
  residency->trimmed(kA, gibibytes(4), gibibytes(5), now, orders);  // one was
  EXPECT_EQ(answerTo(1), true);
  EXPECT_EQ(residency->room(), gibibytes(1));
}

TEST_F(ResidencyTest, M3_WhoFreesAllThatWasOutHasALimitForWhatIsThere) {
  joins(kA, gibibytes(12));
  residency->need(1, gibibytes(8), now, now, orders);
  leaves(kA, gibibytes(8), gibibytes(4));
  residency->othersHold(gibibytes(8), now, orders);
  residency->given(1, now, orders);
  holds(kA, gibibytes(8));
  passes(seconds(1));
  EXPECT_EQ(residency->state(kA), State::Returning);
  EXPECT_EQ(residency->limit(kA), gibibytes(8));
  EXPECT_EQ(residency->room(), Bytes(0));
}

TEST_F(ResidencyTest, M3_AReturnThatIsGivenUpKeepsItsRoomUntilEachProcessHeardOfIt) {
  joins(kA, gibibytes(12));
  residency->attached(kA, 1, now, orders);
  residency->need(1, gibibytes(16), now, now, orders);
  look();
  answers(kA, PagingAnswer::Idle, 0);
  answers(kA, PagingAnswer::Idle, 1);
  holds(kA, Bytes(0), gibibytes(12));
  answers(kA, PagingAnswer::Left, 0);
  answers(kA, PagingAnswer::Left, 1);
  residency->given(1, now, orders);
  passes(seconds(1));
  ASSERT_EQ(told(kA), Phase::In);
  holds(kA, gibibytes(2), gibibytes(10));
  answers(kA, PagingAnswer::NoRoom, 1);
  EXPECT_EQ(residency->room(), gibibytes(4)) << "the other makes memory by the old word";
  answers(kA, PagingAnswer::Left, 1);
  answers(kA, PagingAnswer::Left, 0);
  EXPECT_EQ(residency->room(), gibibytes(14));
}

TEST_F(ResidencyTest, WhoLeavesAndGivesNothingForLongIsOutAsItIs) {
  joins(kA, gibibytes(16));
  const ResidencyConfig usual;
  residency->need(1, gibibytes(4), now, now, orders);
  look();
  answers(kA, PagingAnswer::Idle);
  holds(kA, gibibytes(14), gibibytes(2));
  residency->given(1, now, orders);
  EXPECT_EQ(residency->nextDeadline(), now + usual.stuckFor);
  passes(usual.stuckFor - Nanos(1));
  EXPECT_EQ(residency->state(kA), State::Leaving);
  passes(Nanos(1));
  EXPECT_EQ(residency->state(kA), State::Out);
  passes(usual.stayMin);
  EXPECT_EQ(told(kA), Phase::In) << "there is room";
}

TEST_F(ResidencyTest, M4_RoomForAReturnIsTakenWholeAndInTurn) {
  joins(kA, gibibytes(8));
  joins(kB, gibibytes(4));
  residency->need(1, gibibytes(16), now, now, orders);
  leaves(kA, Bytes(0), gibibytes(8));
  leaves(kB, Bytes(0), gibibytes(4));
  residency->othersHold(gibibytes(16), now, orders);
  residency->given(1, now, orders);
  clear();
  passes(seconds(8));
  EXPECT_EQ(residency->state(kA), State::Out);
  residency->othersHold(gibibytes(10), now, orders);
  EXPECT_EQ(residency->state(kA), State::Out) << "8 were before 4, and 6 are free";
  EXPECT_EQ(residency->state(kB), State::Returning) << "as long as the card can't have the 8";
  returns(kB, gibibytes(4));
  residency->othersHold(gibibytes(4), now, orders);
  EXPECT_EQ(residency->state(kA), State::Returning);
  residency->holds(kB, gibibytes(4), Bytes(0), gibibytes(1), now, orders);
  EXPECT_EQ(residency->limit(kB), gibibytes(4));
  EXPECT_EQ(residency->room(), Bytes(0));
}

TEST_F(ResidencyTest, AStayLastsAsLongAsItsWayWasWorth) {
  joins(kA, gibibytes(12));
  joins(kB, gibibytes(2));
  wants(kB, gibibytes(2), gibibytes(4));
  const ResidencyConfig usual;
  passes(usual.stayMin - Nanos(1));
  EXPECT_EQ(told(kA), Phase::In);
  passes(Nanos(1));
  EXPECT_EQ(told(kA), Phase::Drain);
  answers(kA, PagingAnswer::Idle);
  now += millis(300);  // of copies
  holds(kA, gibibytes(10), gibibytes(2));
  answers(kA, PagingAnswer::Left);
  EXPECT_EQ(residency->limit(kB), gibibytes(6));
  holds(kB, gibibytes(6));
  // Both stay as long as the other may wait: B's has begun before, A's begins with its return.
  passes(usual.askEvery);
  leaves(kB, gibibytes(4), gibibytes(2));
  now += millis(100);
  returns(kA, gibibytes(12));
  passes((millis(300) + millis(100)) * usual.worth - Nanos(1));
  EXPECT_EQ(told(kA), Phase::In);
  residency->online(true, now);
  passes(seconds(5));
  EXPECT_EQ(told(kA), Phase::In) << "its stay is counted while online is idle";
  residency->online(false, now);
  passes(Nanos(1));
  EXPECT_EQ(told(kA), Phase::Drain);
}

TEST_F(ResidencyTest, AStayThatIsOverStaysOverWhenOnlineComes) {
  joins(kA, gibibytes(12));
  joins(kB, Bytes(0));
  const ResidencyConfig usual;
  passes(usual.stayMin);
  residency->online(true, now);
  wants(kB, Bytes(0), gibibytes(8));
  EXPECT_EQ(told(kA), Phase::Drain);
}

TEST_F(ResidencyTest, AStayThatEndsWithOnlinesWorkIsADeadlineThen) {
  joins(kA, gibibytes(12));
  joins(kB, Bytes(0));
  const ResidencyConfig usual;
  passes(usual.stayMin - millis(1));
  residency->online(true, now);
  wants(kB, Bytes(0), gibibytes(8));
  EXPECT_EQ(residency->nextDeadline(), seconds(1) + usual.stayMax);
  residency->online(false, now);
  EXPECT_EQ(residency->nextDeadline(), now + millis(1));
}

TEST_F(ResidencyTest, AReturnThatFindsNoRoomIsOutAgainAndTriesLater) {
  joins(kA, gibibytes(8));
  residency->need(1, gibibytes(12), now, now, orders);
  leaves(kA, gibibytes(4), gibibytes(4));
  residency->given(1, now, orders);
  const ResidencyConfig usual;
  passes(usual.stayMin);
  ASSERT_EQ(told(kA), Phase::In);
  answers(kA, PagingAnswer::NoRoom);
  EXPECT_EQ(words[kA].phase, Phase::Out);
  EXPECT_EQ(words[kA].out, Permille(0)) << "what is in stays";
  clear();
  answers(kA, PagingAnswer::Left);
  passes(usual.stayMin * 2 - Nanos(1));
  EXPECT_EQ(told(kA), Phase::Out);
  passes(Nanos(1));
  EXPECT_EQ(told(kA), Phase::In);
  returns(kA, gibibytes(8));
  EXPECT_EQ(count(Kind::Back, kA), 1);
}

TEST_F(ResidencyTest, M7_WhoIsOutStaysOutForANewManagerUntilThereIsRoom) {
  residency->othersHold(gibibytes(10), now, orders);
  residency->join(kA, kCard, gibibytes(2), gibibytes(6), {0, 1}, now, orders);
  EXPECT_EQ(told(kA), Phase::Out);
  EXPECT_EQ(words[kA].out, Permille(0)) << "who is in stays so";
  EXPECT_EQ(count(Kind::Back), 0);
  residency->trimmed(kA, gibibytes(8), gibibytes(2), now, orders);
  answers(kA, PagingAnswer::Left, 0);
  answers(kA, PagingAnswer::Left, 1);
  EXPECT_EQ(told(kA), Phase::Out);
  residency->othersHold(gibibytes(8), now, orders);
  EXPECT_EQ(told(kA), Phase::In);
}

TEST_F(ResidencyTest, M3_TheNextProcessOfATaskAsksForWhatItMakes) {
  joins(kA, gibibytes(12));
  residency->died(kA, 0, now, orders);
  EXPECT_EQ(residency->limit(kA), Bytes(0)) << "nobody is there who may have more";
  residency->trimmed(kA, Bytes(0), gibibytes(12), now, orders);
  holds(kA, Bytes(0));
  joins(kB, gibibytes(16));
  EXPECT_EQ(residency->room(), Bytes(0));
  residency->attached(kA, 1, now, orders);
  wants(kA, Bytes(0), gibibytes(12));
  EXPECT_EQ(residency->limit(kA), Bytes(0)) << "another has the room";
  residency->leave(kB, now, orders);
  EXPECT_EQ(residency->limit(kA), gibibytes(12));
  EXPECT_EQ(residency->room(), gibibytes(4)) << "it may make what it was given";
}

TEST_F(ResidencyTest, WhatIsOldOrOfNobodyChangesNothing) {
  joins(kA, gibibytes(16));
  residency->need(1, gibibytes(1), now, now, orders);
  look();
  const std::uint32_t epoch = words[kA].epoch;
  residency->answered(kA, 0, epoch - 1, PagingAnswer::Idle, now, orders);
  residency->answered(kA, 5, epoch, PagingAnswer::Idle, now, orders);
  residency->answered(kA, 0, epoch, PagingAnswer::In, now, orders);
  residency->answered(kB, 0, epoch, PagingAnswer::Idle, now, orders);
  holds(kB, gibibytes(1));
  residency->leave(kB, now, orders);
  residency->given(9, now, orders);
  EXPECT_EQ(residency->state(kA), State::Draining);
  EXPECT_EQ(residency->room(), Bytes(0));
}

TEST_F(ResidencyTest, EpochsGrowBeyondWhatAnyProcessHasSeen) {
  residency.emplace(ResidencyConfig{.memory = kCard}, now, 41);
  joins(kA, gibibytes(1));
  look();
  EXPECT_EQ(words[kA].epoch, 42u);
}

}  // namespace
}  // namespace qgpu::residency_test
