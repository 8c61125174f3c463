// What a fork's child must do is kept once and never lost, whoever adds at the same time.

#include "services/guest/gate/fork_handlers.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <utility>
#include <vector>

namespace qgpu::guest {
namespace {

using Handler = ForkHandlers::Handler;

std::vector<int> ran;

// As many different ones as a test wants.
template <int kNumber>
void note() {
  ran.push_back(kNumber);
}
template <int... kNumbers>
std::vector<Handler> handlers(std::integer_sequence<int, kNumbers...>) {
  return {note<kNumbers>...};
}
std::vector<Handler> handlers() {
  return handlers(std::make_integer_sequence<int, ForkHandlers::kMost + 1>());
}

std::vector<int> runOf(const ForkHandlers& all) {
  ran.clear();
  all.run();
  return ran;
}

TEST(ForkHandlers, EachIsRunOnceInItsOrder) {
  const auto some = handlers();
  ForkHandlers all;
  EXPECT_EQ(runOf(all), std::vector<int>());
  for (const int each : {2, 0, 2, 1, 0}) EXPECT_TRUE(all.add(some[static_cast<std::size_t>(each)]));
  EXPECT_EQ(runOf(all), (std::vector<int>{2, 0, 1}));
}

TEST(ForkHandlers, OneMoreThanThereIsRoomForIsRefused) {
  const auto some = handlers();
  ForkHandlers all;
  for (int i = 0; i < ForkHandlers::kMost; ++i) {
    EXPECT_TRUE(all.add(some[static_cast<std::size_t>(i)]));
  }
  EXPECT_FALSE(all.add(some.back()));
  EXPECT_TRUE(all.add(some.front())) << "it is there already";
  EXPECT_EQ(runOf(all).size(), std::size_t{ForkHandlers::kMost});
}

TEST(ForkHandlers, WhatTwoThreadsAddAtOnceIsAllKept) {
  constexpr int kRounds = 2'000;
  std::vector<ForkHandlers> all(kRounds);
  const auto some = handlers();
  std::atomic<int> round{0};
  const auto addIn = [&](std::size_t first) {
    for (int i = 0; i < kRounds; ++i) {
      round.fetch_add(1);
      while (round.load() < 2 * (i + 1)) {  // a turn of the processor would part the two
      }
      for (std::size_t each = first; each < ForkHandlers::kMost; each += 2) {
        EXPECT_TRUE(all[static_cast<std::size_t>(i)].add(some[each]));
      }
    }
  };
  std::thread other(addIn, 1);
  addIn(0);
  other.join();
  for (const ForkHandlers& each : all) {
    ASSERT_EQ(runOf(each).size(), std::size_t{ForkHandlers::kMost});
  }
}

}  // namespace
}  // namespace qgpu::guest
