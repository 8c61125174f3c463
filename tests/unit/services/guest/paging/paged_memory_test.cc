// The way of a process's memory off the card and back, step by step. Whole programs, with kills at
// each step, are the simulator's (tests/sim/paging).

#include "services/guest/paging/paged_memory.h"

#include <gtest/gtest.h>
#include <string>

namespace qgpu::guest::paged_memory_test {
namespace {

using paging::Answer;
using paging::Phase;
using paging::Word;
using Kind = PagedMemory::Step::Kind;

constexpr std::uint64_t kMib = 1 << 20;

// Makes steps until there is none. `fails`: the kind of step that fails, so many times.
struct Thread {
  std::string run(PagedMemory& memory, Kind fails = Kind::None, int times = 1000) {
    std::string done;
    for (auto step = memory.next(); step.kind != Kind::None; step = memory.next()) {
      const bool well = step.kind != fails || times-- <= 0;
      if (!done.empty()) done += ' ';
      done += name(step.kind);
      if (step.chunk != PagedMemory::kNone) done += std::to_string(step.chunk);
      if (!well) done += '!';
      memory.done(step, well);
      if (step.kind == Kind::AskIdle && !well) break;
    }
    return done;
  }
  static const char* name(Kind kind) {
    switch (kind) {
      case Kind::AskIdle:
        return "idle?";
      case Kind::CopyOut:
        return "copy";
      case Kind::Release:
        return "release";
      case Kind::Make:
        return "make";
      case Kind::CopyIn:
        return "fill";
      case Kind::DropCopy:
        return "drop";
      case Kind::Gone:
        return "gone";
      default:
        return "";
    }
  }
};

struct PagedMemoryTest : ::testing::Test {
  PagedMemoryTest() {
    for (int i = 0; i < 4; ++i) memory.add(64 * kMib, false);
  }
  void tell(Phase phase, std::uint32_t permille = 0) { memory.follow({++epoch, phase, permille}); }

  PagedMemory memory;
  Thread thread;
  std::uint32_t epoch = 0;
};

TEST_F(PagedMemoryTest, LeavesInPartAndComesBack) {
  tell(Phase::Drain);
  EXPECT_EQ(thread.run(memory), "idle?");
  EXPECT_EQ(memory.answer(), Answer::Idle);
  EXPECT_EQ(memory.bytesOut(), 0u);
  tell(Phase::Out, 300);
  EXPECT_EQ(thread.run(memory), "copy0 release0 copy1 release1") << "idle is proven already";
  EXPECT_EQ(memory.answer(), Answer::Left);
  EXPECT_EQ(memory.bytesOut(), 128 * kMib);
  tell(Phase::Out, 1000);
  EXPECT_EQ(thread.run(memory), "copy2 release2 copy3 release3");
  EXPECT_EQ(memory.bytesIn(), 0u);
  tell(Phase::In);
  EXPECT_EQ(thread.run(memory),
            "make0 fill0 make1 fill1 make2 fill2 make3 fill3 drop0 drop1 drop2 drop3")
      << "copies are kept until everything is in";
  EXPECT_EQ(memory.answer(), Answer::In);
  EXPECT_EQ(memory.bytesIn(), 256 * kMib);
  EXPECT_TRUE(memory.isIn());
}

TEST_F(PagedMemoryTest, M1_NothingBeginsUntilAllIsIn) {
  EXPECT_TRUE(memory.enter());
  memory.leave();
  tell(Phase::Drain);
  EXPECT_FALSE(memory.enter());
  thread.run(memory);
  tell(Phase::Out, 1000);
  thread.run(memory);
  EXPECT_FALSE(memory.enter());
  tell(Phase::In);
  for (auto step = memory.next(); step.kind != Kind::None; step = memory.next()) {
    EXPECT_FALSE(memory.enter());
    memory.done(step, true);
  }
  EXPECT_TRUE(memory.enter());
}

TEST_F(PagedMemoryTest, M2_NothingLeavesBeforeCallsAreOverAndTheDriverSaysIdle) {
  ASSERT_TRUE(memory.enter());
  tell(Phase::Out, 1000);
  EXPECT_EQ(thread.run(memory), "") << "a call is inside";
  memory.leave();
  EXPECT_EQ(thread.run(memory, Kind::AskIdle), "idle?!");
  EXPECT_EQ(memory.answer(), Answer::None);
  EXPECT_EQ(thread.run(memory).substr(0, 11), "idle? copy0");
  tell(Phase::In);
  thread.run(memory);
  ASSERT_TRUE(memory.enter());
  memory.leave();
  tell(Phase::Drain);
  EXPECT_EQ(thread.run(memory), "idle?") << "it is proven anew";
}

TEST_F(PagedMemoryTest, WhatTheHostHasNoPlaceForStays) {
  tell(Phase::Out, 1000);
  EXPECT_EQ(thread.run(memory, Kind::CopyOut, 2),
            "idle? copy0! copy1! copy2 release2 copy3 release3");
  EXPECT_EQ(memory.answer(), Answer::Left);
  EXPECT_EQ(memory.bytesIn(), 128 * kMib);
  tell(Phase::Out, 1000);
  EXPECT_EQ(thread.run(memory), "copy0 release0 copy1 release1") << "another word tries again";
}

TEST_F(PagedMemoryTest, WhatCantBeReleasedStaysAndItsCopyGoes) {
  tell(Phase::Out, 500);
  EXPECT_EQ(thread.run(memory, Kind::Release, 1),
            "idle? copy0 release0! drop0 copy1 release1 copy2 release2");
  EXPECT_EQ(memory.bytesIn(), 128 * kMib);
}

TEST_F(PagedMemoryTest, M5_AReturnWithoutRoomIsTakenBackByTheCopiesThatAreKept) {
  tell(Phase::Out, 1000);
  thread.run(memory);
  tell(Phase::In);
  PagedMemory::Step step;
  for (int made = 0; made < 2; ++made) {
    for (const Kind kind : {Kind::Make, Kind::CopyIn}) {
      step = memory.next();
      ASSERT_EQ(step.kind, kind);
      memory.done(step, true);
    }
  }
  EXPECT_EQ(thread.run(memory, Kind::Make), "make2! release0 release1");
  EXPECT_EQ(memory.answer(), Answer::NoRoom);
  EXPECT_EQ(memory.bytesOut(), 256 * kMib);
  EXPECT_FALSE(memory.enter());
  tell(Phase::Out, 1000);
  EXPECT_EQ(thread.run(memory), "");
  EXPECT_EQ(memory.answer(), Answer::Left);
}

TEST_F(PagedMemoryTest, AFillThatFailsIsMemoryThatLeavesAgain) {
  tell(Phase::Out, 1000);
  thread.run(memory);
  tell(Phase::In);
  EXPECT_EQ(thread.run(memory, Kind::CopyIn), "make0 fill0! release0");
  EXPECT_EQ(memory.answer(), Answer::NoRoom);
  EXPECT_EQ(memory.bytesOut(), 256 * kMib);
}

TEST_F(PagedMemoryTest, WhatWasMadeAndCantBeReleasedStaysMadeUntilTheNextWord) {
  tell(Phase::Out, 1000);
  thread.run(memory);
  tell(Phase::In);
  for (const Kind kind : {Kind::Make, Kind::CopyIn}) {
    const auto step = memory.next();
    ASSERT_EQ(step.kind, kind);
    memory.done(step, kind == Kind::Make);
  }
  EXPECT_EQ(thread.run(memory, Kind::Release), "release0!");
  EXPECT_EQ(memory.answer(), Answer::NoRoom);
  EXPECT_EQ(memory.bytesIn(), 64 * kMib);
  tell(Phase::In);
  EXPECT_EQ(thread.run(memory).substr(0, 11), "fill0 make1");
  EXPECT_TRUE(memory.isIn());
}

TEST_F(PagedMemoryTest, AFreeThatTheDriverRefusesCountsUntilItIsReleased) {
  memory.freed(1);
  EXPECT_EQ(thread.run(memory, Kind::Release), "release1!");
  EXPECT_EQ(memory.bytesIn(), 256 * kMib);
  tell(Phase::In);
  EXPECT_EQ(thread.run(memory), "release1 gone1");
  EXPECT_EQ(memory.bytesIn(), 192 * kMib);
}

TEST_F(PagedMemoryTest, StayingAsItIsNeedsNoProof) {
  ASSERT_TRUE(memory.enter());
  tell(Phase::Out, 0);
  EXPECT_EQ(thread.run(memory), "");
  EXPECT_EQ(memory.answer(), Answer::Left);
  EXPECT_FALSE(memory.enter());
}

TEST_F(PagedMemoryTest, AnotherWordInTheMiddleLosesNothing) {
  tell(Phase::Out, 1000);
  auto step = memory.next();
  memory.done(step, true);
  step = memory.next();
  ASSERT_EQ(step.kind, Kind::CopyOut);
  memory.done(step, true);  // a chunk has both
  tell(Phase::In);
  EXPECT_EQ(thread.run(memory), "drop0");
  EXPECT_TRUE(memory.isIn());
}

TEST_F(PagedMemoryTest, WhatIsFreedGoesWhereverItIs) {
  memory.freed(0);
  EXPECT_EQ(thread.run(memory), "release0 gone0");
  tell(Phase::Out, 1000);
  thread.run(memory);
  memory.freed(2);
  EXPECT_EQ(thread.run(memory), "drop2 gone2");
  EXPECT_EQ(memory.bytesOut(), 128 * kMib);
  EXPECT_EQ(memory.add(kMib, false), 0u) << "a number that is free is used again";
}

TEST_F(PagedMemoryTest, M8_FirmMemoryNeverMovesAndCountsNowhere) {
  PagedMemory firm;
  firm.add(64 * kMib, true);
  firm.add(64 * kMib, false);
  EXPECT_EQ(firm.bytesIn(), 64 * kMib);
  firm.follow({1, Phase::Out, 1000});
  EXPECT_EQ(thread.run(firm), "idle? copy1 release1");
  EXPECT_EQ(firm.answer(), Answer::Left);
  firm.freed(0);
  EXPECT_EQ(thread.run(firm), "release0 gone0");
}

TEST_F(PagedMemoryTest, M7_WithoutAManagerWhoHasAllGoesOnAndWhoIsOutStays) {
  tell(Phase::Drain);
  thread.run(memory);
  memory.orphaned();
  thread.run(memory);
  EXPECT_TRUE(memory.isIn());
  tell(Phase::Out, 500);
  thread.run(memory);
  memory.orphaned();
  EXPECT_EQ(thread.run(memory), "");
  EXPECT_FALSE(memory.enter());
  tell(Phase::In);  // of the next manager
  thread.run(memory);
  EXPECT_TRUE(memory.enter());
}

TEST_F(PagedMemoryTest, TheSameWordAgainChangesNothing) {
  tell(Phase::Out, 500);
  thread.run(memory);
  memory.follow(memory.word());
  EXPECT_EQ(memory.answer(), Answer::Left);
  EXPECT_EQ(thread.run(memory), "");
}

TEST(PagingWords, AreOneWordOfThePageAndNonsenseIsIn) {
  const Word word{7, Phase::Out, 999};
  EXPECT_EQ(paging::unpack(paging::pack(word)), word);
  EXPECT_EQ(paging::unpack(0), Word()) << "what an older manager's page says";
  EXPECT_EQ(paging::unpack(0x7'0003'0001), (Word{7, Phase::In, 0}));
  EXPECT_EQ(paging::unpack(0x7'0002'03e9), (Word{7, Phase::In, 0})) << "1001 permille";
}

}  // namespace
}  // namespace qgpu::guest::paged_memory_test
