#include "services/attach/guard_news.h"

#include <gtest/gtest.h>

namespace qgpu {
namespace {

GuardRefusal refusal(std::uint64_t task, std::uint32_t card = 0) {
  GuardRefusal one;
  one.task = task;
  one.pid = 4711;
  one.card = card;
  one.program = "python3";
  return one;
}

class GuardNewsTest : public ::testing::Test {
 protected:
  GuardNewsTest() : cards_(1) { cards_[0].id = "GPU-1"; }
  std::vector<Card> cards_;
  GuardNews news_{cards_};
};

TEST_F(GuardNewsTest, SaysWhoWasKeptFromWhatAndWhy) {
  EXPECT_EQ(news_.textOf(refusal(1), millis(1)),
            "process 4711 (python3) was not let to open GPU-1: it has not attached");
  GuardRefusal other = refusal(2, kGuardShared);
  other.way = GuardRefusal::Way::Map;
  other.attached = true;
  EXPECT_EQ(news_.textOf(other, millis(1)),
            "process 4711 (python3) was not let to map what all cards share: it is no card of its "
            "task");
}

TEST_F(GuardNewsTest, SaysOfTheCapWhatToMakeOfIt) {
  GuardRefusal one = refusal(1);
  one.attached = true;
  const auto textOf = [&](GuardRefusal::Way way) {
    one.way = way;
    ++one.task;
    return news_.textOf(one, millis(1));
  };
  EXPECT_NE(textOf(GuardRefusal::Way::Quota).find("its task's quota has no room"),
            std::string::npos);
  EXPECT_NE(textOf(GuardRefusal::Way::Closed).find("nobody counts"), std::string::npos);
  EXPECT_NE(textOf(GuardRefusal::Way::Altered).find("was ended, and its task"), std::string::npos);
}

TEST_F(GuardNewsTest, OneThatTriesAgainAndAgainIsToldOfOnceInAWhile) {
  EXPECT_NE(news_.textOf(refusal(1), millis(1)), "");
  EXPECT_EQ(news_.textOf(refusal(1), seconds(5)), "");
  EXPECT_NE(news_.textOf(refusal(2), seconds(5)), "") << "each task for itself";
  EXPECT_NE(news_.textOf(refusal(1), millis(1) + GuardNews::kTellEach), "");
}

TEST_F(GuardNewsTest, AFloodOfTasksIsBounded) {
  for (std::uint64_t task = 1; task <= GuardNews::kTasksMost; ++task) {
    EXPECT_NE(news_.textOf(refusal(task), millis(1)), "");
  }
  EXPECT_EQ(news_.textOf(refusal(GuardNews::kTasksMost + 1), millis(1)), "");
}

}  // namespace
}  // namespace qgpu
