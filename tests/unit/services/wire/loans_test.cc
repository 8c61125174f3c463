// Memory that several processes of a task hold: what counts of it, whoever ends first and wherever
// somebody is killed.

#include "services/wire/loans.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/testing/story_seeds.h"

namespace qgpu::loans::loans_test {
namespace {

constexpr std::uint64_t kAll = ~0ull, kKept = QGPU_LOANS;
constexpr std::uint32_t kLender = 3, kBorrower = 5, kOther = 9;
constexpr std::uint32_t kClient = 0xc1d00001;
constexpr std::uint64_t kName = nameOf(kClient, 7);

struct Page {
  // A lender with memory, and a borrower of it.
  std::uint32_t lend(std::uint64_t bytes, std::uint32_t borrower = kBorrower) {
    publish(page->slot[kLender], kClient);
    const std::uint32_t place = take(*page, kKept, borrower, kLender, kName);
    EXPECT_TRUE(settle(*page, place, bytes));
    return place;
  }
  std::uint64_t sum() const { return total(*page, kAll); }
  std::unique_ptr<qgpu_report_page> page = std::make_unique<qgpu_report_page>();
};

TEST(Loans, CostNothingWhileTheLenderPays) {
  Page p;
  p.page->slot[kLender].bytes = 100;
  p.lend(100);
  EXPECT_EQ(p.sum(), 100u);
}

TEST(Loans, CountOnceTheLenderFreedTheMemoryUntilTheLastBorrowerDoes) {
  Page p;
  p.page->slot[kLender].bytes = 100;
  const std::uint32_t one = p.lend(100), other = p.lend(100, kOther);
  mark(*p.page, kLender, kName, 100);
  EXPECT_EQ(p.sum(), 200u) << "too much for a moment, never too little";
  p.page->slot[kLender].bytes = 0;
  EXPECT_EQ(p.sum(), 100u);
  end(*p.page, one);
  EXPECT_EQ(p.sum(), 100u);
  end(*p.page, other);
  EXPECT_EQ(p.sum(), 0u);
}

TEST(Loans, OfADeadLenderCountAndItsOtherMemoryDoesNot) {
  Page p;
  p.page->slot[kLender].bytes = 250;
  p.lend(100);
  slotEnds(*p.page, kLender);
  p.page->slot[kLender].bytes = 0;
  EXPECT_EQ(p.sum(), 100u);
  EXPECT_EQ(lenderWith(*p.page, kClient), kNone);
  slotEnds(*p.page, kBorrower);
  EXPECT_EQ(p.sum(), 0u);
}

TEST(Loans, OfOneNameThatWasGivenToTwoMemoriesCountBoth) {
  Page p;
  p.lend(100);
  mark(*p.page, kLender, kName, 100);
  p.lend(30, kOther);
  EXPECT_EQ(p.sum(), 100u);
  mark(*p.page, kLender, kName, 30);
  EXPECT_EQ(p.sum(), 130u);
}

TEST(Loans, OfWhatWasBorrowedItselfCountOnceTheirLenderLetsGo) {
  constexpr std::uint32_t kSecond = 0xc1d00002;
  Page p;
  p.page->slot[kLender].bytes = 100;
  const std::uint32_t first = p.lend(100);
  publish(p.page->slot[kBorrower], kSecond);
  const std::uint32_t second = take(*p.page, kKept, kOther, kBorrower, nameOf(kSecond, 1));
  EXPECT_TRUE(settle(*p.page, second, 100));
  mark(*p.page, kLender, kName, 100);
  p.page->slot[kLender].bytes = 0;
  EXPECT_EQ(p.sum(), 100u);
  mark(*p.page, kBorrower, nameOf(kSecond, 1), 100);
  end(*p.page, first);
  EXPECT_EQ(p.sum(), 100u);
  end(*p.page, second);
  EXPECT_EQ(p.sum(), 0u);
}

TEST(Loans, WhoseSizeIsNotKnownYetCountAsAllThatADeadLenderPaid) {
  Page p;
  publish(p.page->slot[kLender], kClient);
  p.page->slot[kLender].bytes = 250;
  const std::uint32_t place = take(*p.page, kKept, kBorrower, kLender, kName);
  slotEnds(*p.page, kLender);
  p.page->slot[kLender].bytes = 0;
  EXPECT_EQ(p.sum(), 250u);
  EXPECT_TRUE(settle(*p.page, place, 100)) << "it counts, so it is paid for";
  EXPECT_EQ(p.sum(), 100u);
}

TEST(Loans, FromALenderThatEndedUnseenAreTheBorrowersToPay) {
  Page p;
  publish(p.page->slot[kLender], kClient);
  withdraw(p.page->slot[kLender], kClient);
  const std::uint32_t place = take(*p.page, kKept, kBorrower, kLender, kName);
  EXPECT_FALSE(settle(*p.page, place, 100));
}

TEST(Loans, AreNotGivenWhereTheManagerKeepsNoneOrAllPlacesAreTaken) {
  Page p;
  EXPECT_EQ(take(*p.page, 0, kBorrower, kLender, kName), kNone);
  std::set<std::uint32_t> places;
  for (std::uint32_t i = 0; i < QGPU_LOANS; i++) {
    places.insert(take(*p.page, ~0ull, kBorrower, kLender, i));
  }
  EXPECT_EQ(places.size(), QGPU_LOANS);
  EXPECT_EQ(take(*p.page, ~0ull, kBorrower, kLender, kName), kNone);
  end(*p.page, 11);
  EXPECT_EQ(take(*p.page, 11, kOther, kLender, kName), kNone);
  EXPECT_EQ(take(*p.page, 12, kOther, kLender, kName), 11u);
}

TEST(Loans, AClientThatFindsNoPlaceIsNotPublished) {
  Page p;
  for (std::uint32_t i = 1; i <= QGPU_CLIENTS + 1; i++) publish(p.page->slot[kLender], i);
  EXPECT_EQ(lenderWith(*p.page, QGPU_CLIENTS), kLender);
  EXPECT_EQ(lenderWith(*p.page, QGPU_CLIENTS + 1), kNone);
  withdraw(p.page->slot[kLender], 4);
  publish(p.page->slot[kLender], QGPU_CLIENTS + 1);
  EXPECT_EQ(lenderWith(*p.page, QGPU_CLIENTS + 1), kLender);
  EXPECT_EQ(lenderWith(*p.page, 0), kNone) << "an empty place is nobody's";
}

TEST(Loans, ASumThatWouldWrapIsFull) {
  Page p;
  p.lend(~0ull);
  mark(*p.page, kLender, kName, 1);
  EXPECT_EQ(p.sum(), kFull);
  p.page->slot[1].bytes = 5;
  EXPECT_EQ(p.sum(), kFull);
  EXPECT_EQ(total(*p.page, 1u << 1), 5u) << "only of the slots that were asked for";
}

TEST(Loans, InAPageOfNonsenseEveryCallEndsInBounds) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; round++) {
    Page p;
    auto* words = reinterpret_cast<std::uint64_t*>(p.page.get());
    for (std::size_t w = 0; w < sizeof(qgpu_report_page) / 8; w++) {
      words[w] = random() % 3 == 0 ? 0 : random() >> random() % 64;
    }
    p.sum();
    const std::uint32_t place = take(*p.page, kKept, kBorrower, kLender, kName);
    if (place != kNone) settle(*p.page, place, 1);
    mark(*p.page, kLender, kName, 1);
    for (std::uint32_t slot = 0; slot < QGPU_SLOTS; slot++) slotEnds(*p.page, slot);
    for (const qgpu_loan& loan : p.page->loan) {
      EXPECT_GE(borrowerOf(loan.state), QGPU_SLOTS) << "no slot's loan is left";
    }
  }
}

// --- a reader, and others that move between the words it loads ---

// Calls `move` when the reader is about to load its so manieth word.
struct At {
  void operator()() {
    if (left-- == 0) move();
  }
  int left;
  std::function<void()> move;
};
constexpr int kReads = QGPU_SLOTS + 12;  // enough for every place of these tests to come by

// B holds what A let go of, and C borrowed it of B: as B lets go, C's loan pays in its place. C's
// place is the lower one, so a reader may have passed it while it did not count yet.
struct Chain : Page {
  static constexpr std::uint64_t kSecond = nameOf(0xc1d00002, 1);
  Chain() {
    const std::uint32_t low = take(*page, kKept, kOther, kOther, kName);
    borrowed = lend(100);
    end(*page, low);
    publish(page->slot[kBorrower], 0xc1d00002);
    lent = take(*page, kKept, kOther, kBorrower, kSecond);
    EXPECT_TRUE(settle(*page, lent, 100));
    mark(*page, kLender, kName, 100);
    EXPECT_LT(lent, borrowed);
    EXPECT_EQ(sum(), 100u);
  }
  std::uint32_t borrowed, lent;
};

TEST(Loans, A14_APaymentThatMovesToALoanThatAReaderHasPassedIsNotMissed) {
  for (int when = 0; when < kReads; when++) {
    Chain freed, killed;
    EXPECT_EQ(total(*freed.page, kAll,
                    At{when,
                       [&] {
                         mark(*freed.page, kBorrower, Chain::kSecond, 100);
                         end(*freed.page, freed.borrowed);
                       }}),
              100u)
        << "at word " << when;
    EXPECT_EQ(total(*killed.page, kAll, At{when, [&] { slotEnds(*killed.page, kBorrower); }}), 100u)
        << "at word " << when;
  }
}

TEST(Loans, A14_PlacesThatEndForEverKeepNoReaderAndHideNothing) {
  Chain p;
  const std::uint32_t other = take(*p.page, kKept, kOther, kLender, kName + 1);
  p.page->loan[other].bytes = 7;
  int words = 0;
  const auto busy = [&] {
    if (words++ == QGPU_SLOTS + 1) {  // between the two places
      mark(*p.page, kBorrower, Chain::kSecond, 100);
      end(*p.page, p.borrowed);
    }
    end(*p.page, other);
  };
  EXPECT_GE(total(*p.page, kAll, busy), 100u);
  EXPECT_LT(words, kLooks * (QGPU_SLOTS + 4 * 3 * kLooks));
}

TEST(Loans, A14_ALoanThatGetsAnotherGroupUnderAReaderCounts) {
  for (int when = 0; when < kReads; when++) {
    Page p;
    const std::uint32_t place = p.lend(100);
    mark(*p.page, kLender, kName, 100);
    const At settling{when, [&] { EXPECT_TRUE(settle(*p.page, place, 100)); }};
    EXPECT_EQ(total(*p.page, kAll, settling), 100u) << "at word " << when;
  }
}

TEST(Loans, AManagerThatKeepsFewerLeavesTheOthersToCount) {
  Page p;
  p.page->slot[kLender].bytes = 100;
  const std::uint32_t own = p.lend(100), other = p.lend(100, kOther);
  countUnkept(*p.page, own + 1, kBorrower);
  EXPECT_EQ(p.sum(), 100u);
  countUnkept(*p.page, 0, kBorrower);
  EXPECT_EQ(p.sum(), 200u) << "nobody will say that the lender is dead";
  p.page->slot[kLender].bytes = 0;
  EXPECT_EQ(p.sum(), 100u);
  EXPECT_EQ(groupOf(p.page->loan[other].state), 0u) << "its borrower does that";
}

// --- stories: a driver and processes that each do one small step after the other ---

// Who holds what, as the driver has it: it keeps memory until its last holder lets go.
class Story {
 public:
  explicit Story(std::uint64_t seed) : random_(seed) {
    kept_ = random_() % 8 == 0 ? 1 : QGPU_LOANS;
  }

  void play() {
    for (int steps = 0; steps < 400; steps++) {
      step();
      ASSERT_GE(total(*page_, kAll), held()) << "at step " << steps;
      if (below(4) == 0) readAmidSteps();
    }
    for (std::uint32_t i = 0; i < kProcesses; i++) {
      while (!todo_[i].empty()) next(i);
    }
    ASSERT_GE(total(*page_, kAll), held());
    if (paidTwice_) return;
    ASSERT_EQ(total(*page_, kAll), held()) << "when all is quiet";
  }

 private:
  static constexpr std::uint32_t kProcesses = 4;
  struct Holding {
    std::uint64_t memory, name;
    std::uint32_t place;  // of a loan; kNone: paid by its slot
  };
  using Step = std::function<void()>;

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  qgpu_slot& slot(std::uint32_t i) { return page_->slot[i]; }
  std::uint32_t clientOf(std::uint32_t i) const { return 100 * (i + 1) + lives_.at(i); }

  using Memories = std::set<std::uint64_t>;
  Memories living() const {
    Memories found;
    for (const auto& each : holds_) {
      for (const Holding& one : each) found.insert(one.memory);
    }
    return found;
  }
  static std::uint64_t bytesOf(const Memories& memories) {
    std::uint64_t sum = 0;
    for (const std::uint64_t memory : memories) sum += memory % 1000;
    return sum;
  }
  std::uint64_t held() const { return bytesOf(living()); }

  // What lives all the time that a reader looks is in its sum.
  void readAmidSteps() {
    Memories throughout = living();
    const std::uint64_t sum = total(*page_, kAll, [&] {
      if (below(16) != 0) return;
      step();
      const Memories now = living();
      std::erase_if(throughout, [&](std::uint64_t memory) { return !now.contains(memory); });
    });
    ASSERT_GE(sum, bytesOf(throughout)) << "while others moved";
  }

  void next(std::uint32_t i) {
    const Step now = std::move(todo_[i].front());
    todo_[i].pop_front();
    now();
  }

  void step() {
    const auto i = static_cast<std::uint32_t>(below(kProcesses));
    if (below(40) == 0) return kill(i);
    if (!todo_[i].empty()) return next(i);
    const std::uint64_t what = below(3);
    if (what == 0) return allocate(i);
    if (what == 1 && !holds_[i].empty()) return letGo(i, below(holds_[i].size()));
    borrow(i, static_cast<std::uint32_t>(below(kProcesses)));
  }

  void allocate(std::uint32_t i) {
    const std::uint64_t bytes = 1 + below(999), memory = ++memories_ * 1000 + bytes;
    const std::uint64_t name = nameOf(clientOf(i), static_cast<std::uint32_t>(below(5)));
    for (const Holding& one : holds_[i]) {
      if (one.name == name) return;
    }
    todo_[i] = {[=, this] { slot(i).bytes += bytes; }, [=, this] { publish(slot(i), clientOf(i)); },
                [=, this] {
                  holds_[i].push_back({memory, name, kNone});
                }};
  }

  // The driver first, then the marks, then the bytes.
  void letGo(std::uint32_t i, std::size_t which) {
    const Holding one = holds_[i][which];
    const std::uint64_t bytes = one.memory % 1000;
    todo_[i] = {
        [=, this] { std::erase_if(holds_[i], [&](auto& h) { return h.name == one.name; }); },
        [=, this] { mark(*page_, i, one.name, bytes); },
        [=, this] {
          if (one.place != kNone) return end(*page_, one.place);
          slot(i).bytes -= bytes;
        }};
  }

  void borrow(std::uint32_t i, std::uint32_t from) {
    if (from == i || holds_[from].empty()) return;
    const std::uint64_t source = holds_[from][below(holds_[from].size())].name;
    const auto mine = nameOf(clientOf(i), static_cast<std::uint32_t>(1000 + ++memories_));
    const auto place = std::make_shared<std::uint32_t>(kNone);
    todo_[i] = {[=, this] {
                  const std::uint32_t lender =
                      lenderWith(*page_, static_cast<std::uint32_t>(source >> 32));
                  if (lender != kNone) *place = take(*page_, kept_, i, lender, source);
                },
                [=, this] { given(i, from, source, mine, *place); }};
  }

  void given(std::uint32_t i, std::uint32_t from, std::uint64_t source, std::uint64_t mine,
             std::uint32_t place) {
    const Holding* found = nullptr;
    for (const Holding& each : holds_[from]) {
      if (each.name == source) found = &each;
    }
    if (!found) {
      todo_[i].push_back([=, this] { end(*page_, place); });
      return;
    }
    // A lender that let go of what it had borrowed leaves both to count.
    if (found->place != kNone) paidTwice_ = true;
    const std::uint64_t memory = found->memory, bytes = memory % 1000;
    holds_[i].push_back({memory, mine, place});
    publish(slot(i), clientOf(i));
    todo_[i].push_back([=, this] {
      if (place != kNone && groupOf(page_->loan[place].state) != 0) paidTwice_ = true;
      if (settle(*page_, place, bytes)) return;
      paidTwice_ = true;
      slot(i).bytes += bytes;
      end(*page_, place);
      holds_[i].back().place = kNone;
    });
    // Paying is one step with the driver's answer here: until then the lender's end is unseen.
    if (place == kNone) next(i);
  }

  // The driver ends what it held at once; the manager hears of it later.
  void kill(std::uint32_t i) {
    holds_[i].clear();
    todo_[i] = {[=, this] { slotEnds(*page_, i); },
                [=, this] {
                  slot(i).bytes = 0;
                  lives_[i]++;
                }};
  }

  std::mt19937_64 random_;
  std::unique_ptr<qgpu_report_page> page_ = std::make_unique<qgpu_report_page>();
  std::vector<Holding> holds_[kProcesses];
  std::deque<Step> todo_[kProcesses];
  std::map<std::uint32_t, std::uint32_t> lives_{{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  std::uint64_t memories_ = 0, kept_;
  bool paidTwice_ = false;  // somewhere both ends paid, which is allowed
};

TEST(Loans, A14_TheSumIsNeverTooSmallWhoeverEndsOrIsKilledAtWhateverStep) {
  for (std::uint64_t seed = 1; seed <= testing::storySeeds(5'000); seed++) {
    Story story(seed);
    story.play();
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace qgpu::loans::loans_test
