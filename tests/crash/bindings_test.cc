// The checker of tests/crash is checked itself: one that never complains proves nothing.

#include "tests/crash/bindings.h"

#include <gtest/gtest.h>

namespace qgpu::crash {
namespace {

constexpr std::uint64_t kGib = 1u << 30;

Wish wish(const std::string& name) {
  Wish asked;
  asked.name = name;
  return asked;
}

Listed listed(std::uint64_t task, const std::string& name) {
  return {task, name, "ordinary", "sim-0", kGib, 50};
}

class BindingsVerdict : public ::testing::Test {
 protected:
  BindingsVerdict() {
    bindings.asked(wish("asked"));
    bindings.asked(wish("bound"));
    bindings.bound("bound", 2, "token");
    bindings.asked(wish("ending"));
    bindings.bound("ending", 3, "token");
    bindings.endAsked("ending");
    bindings.asked(wish("ended"));
    bindings.bound("ended", 4, "token");
    bindings.endAsked("ended");
    bindings.ended("ended");
  }

  std::optional<std::string> of(const std::vector<Listed>& list) const {
    return Bindings::compare(bindings.entries(), bindings.entries(), list);
  }

  Bindings bindings;
};

TEST_F(BindingsVerdict, WhatWasOnlyAskedMayBeThereOrNot) {
  EXPECT_EQ(of({listed(2, "bound")}), std::nullopt);
  EXPECT_EQ(of({listed(1, "asked"), listed(2, "bound"), listed(3, "ending")}), std::nullopt);
  EXPECT_EQ(bindings.acknowledged(), 4u);
}

TEST_F(BindingsVerdict, D1_ALostAcknowledgementIsSeen) {
  EXPECT_NE(of({listed(1, "asked")}), std::nullopt);
}

TEST_F(BindingsVerdict, P9_WhatHasEndedMustNotComeBack) {
  EXPECT_NE(of({listed(2, "bound"), listed(4, "ended")}), std::nullopt);
}

TEST_F(BindingsVerdict, P6_OneRequestWithTwoTasksIsSeen) {
  EXPECT_NE(of({listed(2, "bound"), listed(1, "asked"), listed(9, "asked")}), std::nullopt);
}

TEST_F(BindingsVerdict, WhatNobodyAskedForIsSeen) {
  EXPECT_NE(of({listed(2, "bound"), listed(9, "stranger")}), std::nullopt);
}

TEST_F(BindingsVerdict, AnotherIdOrOtherFiguresAreSeen) {
  EXPECT_NE(of({listed(7, "bound")}), std::nullopt);
  EXPECT_NE(of({Listed{2, "bound", "ordinary", "sim-0", 2 * kGib, 50}}), std::nullopt);
  EXPECT_NE(of({Listed{2, "bound", "ordinary", "sim-0", kGib, 60}}), std::nullopt);
  EXPECT_NE(of({Listed{2, "bound", "online", "sim-0", kGib, 50}}), std::nullopt);
}

TEST_F(BindingsVerdict, WhatChangedWhileTheListWasAskedForMayStandOnEitherSide) {
  const Bindings::Entries before = bindings.entries();
  bindings.endAsked("bound");
  EXPECT_EQ(Bindings::compare(before, bindings.entries(), {}), std::nullopt);
  EXPECT_EQ(Bindings::compare(before, bindings.entries(), {listed(2, "bound")}), std::nullopt);
}

}  // namespace
}  // namespace qgpu::crash
