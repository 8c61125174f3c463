// The restart protocol by itself: events in, orders out, with pages and a platform that are tables.
#include "services/attach/roster/roster.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qgpu::roster_test {
namespace {

using Orders = std::vector<std::string>;

constexpr std::uint64_t kTask = 1;

// The slots of one report page and what its processes write into them.
class Pages final : public RosterPages {
 public:
  struct Slot {
    std::uint32_t pid = 0;
    std::uint64_t start = 0;
    std::uint32_t obeys = 0;
    bool used = false;
    bool dead = false;
  };

  Result<std::uint32_t> takeSlot(std::uint32_t pid, std::uint64_t start) override {
    for (std::uint32_t i = 0; i < slots.size(); i++) {
      if (slots[i].used) continue;
      slots[i] = {pid, start, 0, true, false};
      return i;
    }
    return fail(ErrorCode::NoRoom, "all slots are taken");
  }
  Status claimSlot(std::uint32_t i, std::uint32_t pid, std::uint64_t start) override {
    if (slots[i].used && !slots[i].dead) return fail(ErrorCode::Conflict, "another process's");
    if (slots[i].pid != pid || slots[i].start != start) return fail(ErrorCode::Denied, "not its");
    slots[i].used = true;
    slots[i].dead = false;
    return ok();
  }
  void freeSlot(std::uint32_t i) override {
    slots[i] = {};
    freed++;
  }
  void reserveSlot(std::uint32_t i) override { slots[i].used = slots[i].dead = true; }
  std::uint64_t usedSlots() const override {
    return mask([](const Slot& slot) { return slot.used; });
  }
  bool slotDead(std::uint32_t i) const override { return slots[i].dead; }
  bool adopted() const override { return isAdopted; }
  std::uint64_t markedSlots() const override {
    return mask([](const Slot& slot) { return slot.pid != 0; });
  }
  std::uint32_t slotPid(std::uint32_t i) const override { return slots[i].pid; }
  std::uint64_t slotStart(std::uint32_t i) const override { return slots[i].start; }
  std::uint32_t obeys(std::uint32_t i) const override { return slots[i].obeys; }
  void setIncarnation(std::uint32_t value) override { incarnation = value; }

  std::vector<Slot> slots = std::vector<Slot>(64);
  bool isAdopted = false;
  int freed = 0;
  std::uint32_t incarnation = 0;

 private:
  template <typename Has>
  std::uint64_t mask(Has has) const {
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < slots.size(); i++) found |= std::uint64_t{has(slots[i])} << i;
    return found;
  }
};

// Writes down what it is ordered. A process sees itself under its pid plus kInside.
constexpr std::uint32_t kInside = 10'000;

class Machine final : public RosterPlatform {
 public:
  Result<Peer> identify(std::uint64_t hello) override {
    const AttachedEntry& who = comes.at(hello);
    if (std::count(deadPids.begin(), deadPids.end(), who.pid) != 0) {
      return fail(ErrorCode::Denied, "it is dead");
    }
    return Peer{who.pid, who.start};
  }
  Status adoptPage(std::uint64_t hello) override {
    Pages& page = *pages.at(comes.at(hello).task);
    const auto left = leftPages.find(comes.at(hello).task);
    if (page.isAdopted || left == leftPages.end()) return ok();
    page.slots = left->second;
    page.isAdopted = true;
    return ok();
  }
  bool welcome(std::uint64_t hello, std::uint32_t slot) override {
    say("welcome " + name(hello) + " to slot " + std::to_string(slot));
    return listens;
  }
  void attached(std::uint64_t hello, const AttachedEntry& process, std::uint32_t slot,
                bool isNew) override {
    EXPECT_EQ(process.pid, comes.at(hello).pid);
    answered[hello]++;
    say((isNew ? "attached " : "connected ") + name(hello) + " in slot " + std::to_string(slot));
  }
  void drop(std::uint64_t hello) override {
    answered[hello]++;
    say("drop " + name(hello));
  }
  void refuse(std::uint64_t hello, const std::string& reason) override {
    answered[hello]++;
    say("refuse " + name(hello) + ": " + reason);
  }
  bool connected(std::uint64_t, std::uint32_t) override { return areConnected; }
  void gone(std::uint64_t task, std::uint32_t slot, Leaves how, bool last) override {
    say("gone " + std::to_string(task) + "/" + std::to_string(slot) +
        (how == Leaves::Died ? " died" : " executed another") + (last ? ", the last" : ""));
  }
  std::uint32_t ownPid(const AttachedEntry& process) override { return process.pid + kInside; }
  FoundPage findPage(std::uint64_t task, const std::vector<AttachedEntry>& among) override {
    if (hidden) return {false, among};
    if (!findable) return {};
    Pages& page = *pages.at(task);
    page.slots = leftPages.at(task);
    page.isAdopted = true;
    return {true, {}};
  }
  void cameBack(const AttachedEntry& process) override {
    say("back " + std::to_string(process.pid));
  }
  void announce(std::uint64_t task) override { say("announce " + std::to_string(task)); }
  void ending(std::uint64_t task) override { say("ending " + std::to_string(task)); }
  void kill(std::uint64_t task, Kill how) override {
    say((how == Kill::Ask ? "term " : "kill ") + std::to_string(task));
  }
  void ended(std::uint64_t task) override { say("ended " + std::to_string(task)); }
  void askIncarnationAbove(std::uint32_t seen) override { say("above " + std::to_string(seen)); }

  // What was ordered since it was asked the last time.
  Orders said() { return std::exchange(orders_, {}); }

  std::map<std::uint64_t, AttachedEntry> comes;  // by hello
  std::map<std::uint64_t, std::unique_ptr<Pages>> pages;
  std::map<std::uint64_t, std::vector<Pages::Slot>> leftPages;  // of an earlier manager
  std::map<std::uint64_t, int> answered;
  std::vector<std::uint32_t> deadPids;
  bool listens = true;
  bool areConnected = true;
  bool findable = false;
  bool hidden = false;

 private:
  std::string name(std::uint64_t hello) const { return std::to_string(comes.at(hello).pid); }
  void say(std::string order) { orders_.push_back(std::move(order)); }
  Orders orders_;
};

// Pids are of the manager's namespace; each process started at ten times its pid.
class RosterTest : public ::testing::Test {
 protected:
  static AttachedEntry entry(std::uint32_t pid, std::uint64_t task = kTask,
                             std::vector<std::uint32_t> cards = {0}) {
    return {pid, pid * 10ull, task, std::move(cards)};
  }
  // As an earlier manager left it: in that slot, and not obeying this one.
  void leave(std::uint32_t pid, std::uint32_t slot, std::uint64_t task = kTask) {
    machine.leftPages.try_emplace(task, 64);
    machine.leftPages[task][slot] = {pid + kInside, pid * 10ull, 1, false, false};
  }
  Pages& know(std::uint64_t task = kTask, bool online = false,
              std::vector<std::uint32_t> cards = {0}) {
    auto& made = machine.pages[task] = std::make_unique<Pages>();
    roster.known({task, online, std::move(cards)}, *made);
    return *made;
  }
  std::uint64_t come(std::uint32_t pid, Roster::Said said = {}) {
    const std::uint64_t id = ++lastHello_;
    if (said.task == 0) said.task = kTask;
    machine.comes[id] = entry(pid, said.task);
    said.pid = pid + kInside;
    roster.hello(id, said);
    return id;
  }
  std::uint64_t comeBack(std::uint32_t pid, std::uint32_t slot, std::uint64_t task = kTask) {
    return come(pid, {task, 0, true, slot, 0});
  }
  static constexpr std::uint32_t kIncarnation = 7;
  void obey(Pages& pages, std::uint32_t slot) {
    pages.slots[slot].obeys = kIncarnation;
    roster.reported();
  }
  Orders said() { return machine.said(); }

  Machine machine;
  Roster roster{machine, kIncarnation};

 private:
  std::uint64_t lastHello_ = 0;
};

// --- without a restart ---

TEST_F(RosterTest, AProcessGetsTheLowestFreeSlotOfItsTask) {
  know();
  EXPECT_EQ(said(), Orders{"announce 1"});
  come(11);
  come(12);
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 0", "attached 11 in slot 0", "welcome 12 to slot 1",
                            "attached 12 in slot 1"}));
  EXPECT_EQ(roster.counters().attached, 2u);
  EXPECT_EQ(roster.waiting(), 0u);
}

TEST_F(RosterTest, WhoHasNoTaskOrADeadProcessIsRefusedWithAReason) {
  come(11);
  know();
  machine.deadPids = {12};
  come(12);
  roster.closed(kTask, false);
  come(13);
  EXPECT_EQ(said(), (Orders{"refuse 11: the task has ended", "announce 1", "refuse 12: it is dead",
                            "ending 1", "refuse 13: the task was unbound or evicted"}));
  EXPECT_EQ(roster.counters().refused, 3u);
}

TEST_F(RosterTest, AProcessAttachesOnceUnlessItExecutedAnotherProgram) {
  Pages& pages = know();
  come(11);
  said();
  come(11);
  EXPECT_EQ(said(), Orders{"refuse 11: this process is attached already"});
  machine.areConnected = false;
  come(11);
  EXPECT_EQ(said(), (Orders{"gone 1/0 executed another, the last", "welcome 11 to slot 0",
                            "attached 11 in slot 0"}));
  EXPECT_EQ(pages.freed, 1);
}

TEST_F(RosterTest, WhoIsGoneBeforeItsAnswerHasNoSlot) {
  Pages& pages = know();
  machine.listens = false;
  come(11);
  EXPECT_EQ(said(), (Orders{"announce 1", "welcome 11 to slot 0", "drop 11"}));
  EXPECT_EQ(pages.usedSlots(), 0u);
}

TEST_F(RosterTest, A14_WhoComesBackAndTakesNoAnswerKeepsItsSlot) {
  Pages& pages = know();
  come(11);
  said();
  machine.listens = false;
  comeBack(11, 0);
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 0", "connected 11 in slot 0"}));
  EXPECT_EQ(pages.usedSlots(), 1u);
  comeBack(11, 3);
  EXPECT_EQ(said(), Orders{"refuse 11: this process has another slot"});
}

TEST_F(RosterTest, HAZARDS7_OnlyItsDeathEndsAProcess) {
  Pages& pages = know();
  come(11);
  come(12);
  said();
  roster.died(kTask, 0);
  roster.died(kTask, 0);
  EXPECT_EQ(said(), Orders{"gone 1/0 died"});
  EXPECT_EQ(pages.freed, 1);
  roster.died(kTask, 1);
  EXPECT_EQ(said(), Orders{"gone 1/1 died, the last"});
}

TEST_F(RosterTest, ATaskThatIsSaidAgainIsAnnouncedAgain) {
  know();
  roster.knownAgain(kTask);
  EXPECT_EQ(said(), (Orders{"announce 1", "announce 1"}));
}

// --- the end of a task ---

TEST_F(RosterTest, P9_ATaskEndsWithItsLastProcess) {
  know();
  come(11);
  come(12);
  said();
  roster.closed(kTask, true);
  roster.closed(kTask, true);
  EXPECT_EQ(said(), (Orders{"ending 1", "term 1", "ending 1"}));
  roster.died(kTask, 0);
  roster.killDue(kTask);
  EXPECT_EQ(said(), (Orders{"gone 1/0 died", "kill 1"}));
  roster.died(kTask, 1);
  EXPECT_EQ(said(), (Orders{"gone 1/1 died, the last", "ended 1"}));
  EXPECT_FALSE(roster.knows(kTask));
  roster.killDue(kTask);
  EXPECT_EQ(said(), Orders{});
}

TEST_F(RosterTest, P9_ATaskThatWasNeverKnownEndsWithWhomAnEarlierManagerHadAttached) {
  roster.expect(entry(11));
  roster.closed(kTask, true);
  EXPECT_EQ(said(), (Orders{"ending 1", "term 1"}));
  roster.expectedDied(entry(11));
  EXPECT_EQ(said(), Orders{"ended 1"});
  roster.closed(2, true);
  EXPECT_EQ(said(), Orders{"ended 2"});
}

// --- after a restart ---

TEST_F(RosterTest, HAZARDS8_ATaskIsAnnouncedWhenTheListedProcessObeysItsNewPage) {
  leave(11, 5);
  roster.expect(entry(11));
  Pages& pages = know();
  EXPECT_EQ(said(), Orders{});
  comeBack(11, 5);
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 5", "back 11", "attached 11 in slot 5"}));
  obey(pages, 5);
  EXPECT_EQ(said(), Orders{"announce 1"});
  EXPECT_EQ(roster.counters().reattached, 1u);
}

TEST_F(RosterTest, HAZARDS8_TheDeathOfWhoIsExpectedOrDisobeysEndsTheWait) {
  leave(11, 5);
  roster.expect(entry(11));
  roster.expect(entry(12));
  know();
  comeBack(11, 5);
  said();
  roster.expectedDied(entry(12));
  EXPECT_EQ(said(), Orders{});
  roster.died(kTask, 5);
  EXPECT_EQ(said(), (Orders{"gone 1/5 died, the last", "announce 1"}));
}

TEST_F(RosterTest, HAZARDS8_TheTimeOfRecoveryEndsTheWait) {
  roster.expect(entry(11));
  know();
  EXPECT_EQ(said(), Orders{});
  EXPECT_TRUE(roster.recovering());
  roster.recoveryOver();
  EXPECT_EQ(said(), Orders{"announce 1"});
  EXPECT_FALSE(roster.recovering());
}

TEST_F(RosterTest, HAZARDS8_AnOnlineTaskAndAnotherCardNeverWait) {
  roster.expect(entry(11, kTask, {0, 2}));
  know(2, true, {0});
  know(3, false, {1});
  know(4, false, {1, 2});
  EXPECT_EQ(said(), (Orders{"announce 2", "announce 3"}));
  roster.knownAgain(4);
  EXPECT_EQ(said(), Orders{});
}

TEST_F(RosterTest, HAZARDS8_WhoComesNewWaitsForThoseWhoBringThePage) {
  leave(11, 0);
  roster.expect(entry(11));
  know();
  const std::uint64_t waits = come(12);
  const std::uint64_t impatient = come(13);
  EXPECT_EQ(roster.waiting(), 2u);
  roster.giveUp(impatient);
  comeBack(11, 0);
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 0", "back 11", "attached 11 in slot 0",
                            "welcome 12 to slot 1", "attached 12 in slot 1"}));
  EXPECT_EQ(machine.answered[waits], 1);
  EXPECT_EQ(machine.answered[impatient], 0);
}

TEST_F(RosterTest, C7_ThoseWhoWaitAreBounded) {
  roster.expect(entry(11));
  know();
  for (std::uint32_t i = 0; i < kWaitingMax; i++) come(100 + i);
  EXPECT_EQ(said(), Orders{});
  come(50);
  EXPECT_EQ(said(), Orders{"refuse 50: " + tooManyWait()});
  EXPECT_EQ(roster.waiting(), kWaitingMax);
}

TEST_F(RosterTest, A14_SlotsAreKeptForTheLivingAndTheOthersGiveTheirBytesBack) {
  leave(11, 3);
  leave(12, 4);
  leave(99, 5);  // dead, and so not listed
  roster.expect(entry(11));
  roster.expect(entry(12));
  machine.findable = true;
  Pages& pages = know();
  EXPECT_EQ(pages.usedSlots(), 1u << 3 | 1u << 4);
  EXPECT_EQ(pages.freed, 1);
  roster.expectedDied(entry(12));
  EXPECT_EQ(pages.usedSlots(), 1u << 3);
  EXPECT_EQ(pages.freed, 2);
  comeBack(11, 4);
  EXPECT_EQ(said(), Orders{"refuse 11: not its"});
  comeBack(11, 3);
  EXPECT_EQ(pages.freed, 2) << "the slot is its own now";
}

TEST_F(RosterTest, A14_WhoBringsThePageBringsTheSlotsOfTheOthers) {
  leave(11, 3);
  leave(12, 4);
  leave(99, 5);  // dead, and so not listed
  roster.expect(entry(11));
  roster.expect(entry(12));
  Pages& pages = know();
  comeBack(11, 3);
  EXPECT_EQ(pages.usedSlots(), 1u << 3 | 1u << 4);
  EXPECT_EQ(pages.markedSlots(), pages.usedSlots());
}

TEST_F(RosterTest, A14_OfTwoThatStartedTogetherEachHasItsOwnSlot) {
  const AttachedEntry older{11, 500, kTask, {0}};
  const AttachedEntry younger{12, 500, kTask, {0}};
  machine.leftPages[kTask].resize(64);
  machine.leftPages[kTask][1] = {younger.pid + kInside, 500, 1, false, false};
  machine.leftPages[kTask][0] = {older.pid + kInside, 500, 1, false, false};
  roster.expect(older);
  roster.expect(younger);
  machine.findable = true;
  Pages& pages = know();
  roster.expectedDied(older);
  EXPECT_EQ(pages.usedSlots(), 1u << 1);
}

TEST_F(RosterTest, A14_WhoExecutedAnotherProgramGivesItsKeptSlotBack) {
  leave(11, 3);
  roster.expect(entry(11));
  machine.findable = true;
  Pages& pages = know();
  come(11);
  roster.recoveryOver();
  EXPECT_EQ(said(),
            (Orders{"announce 1", "welcome 11 to slot 0", "back 11", "attached 11 in slot 0"}));
  EXPECT_EQ(pages.usedSlots(), 1u);
}

TEST_F(RosterTest, A14_WhoIsInTwoTasksComesBackToOneOfThemOnly) {
  leave(11, 3, 1);
  leave(11, 3, 2);
  roster.expect(entry(11, 1));
  roster.expect(entry(11, 2));
  machine.findable = true;
  Pages& left = know(1);
  Pages& pages = know(2);
  comeBack(11, 3, 2);
  EXPECT_EQ(left.usedSlots(), 1u << 3) << "it is expected there as long as it lives";
  said();
  roster.died(2, 3);
  come(12, {2, 0, false, 0, 0});
  roster.expectedDied(entry(11, 2));  // nobody waits for it there: the slot is another's now
  EXPECT_EQ(pages.usedSlots(), 1u);
  roster.expectedDied(entry(11, 1));
  EXPECT_EQ(left.usedSlots(), 0u);
}

TEST_F(RosterTest, A14_WhileAPageIsHiddenNobodyNewIsGivenAnother) {
  roster.expect(entry(11));
  machine.hidden = true;
  Pages& pages = know();
  roster.recoveryOver();
  said();
  come(12);
  const Orders refused = said();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_TRUE(refused[0].starts_with("refuse 12: process 11 of this task has not come back"));
  come(11);  // it has executed another program, and holds nothing any more
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 0", "back 11", "attached 11 in slot 0"}));
  EXPECT_EQ(pages.usedSlots(), 1u);
  come(12);
  EXPECT_EQ(said(), (Orders{"welcome 12 to slot 1", "attached 12 in slot 1"}));
}

// --- incarnations ---

TEST_F(RosterTest, A10_WhoMetOurIncarnationWaitsForOneAboveIt) {
  Pages& pages = know();
  said();
  come(11, {kTask, 0, false, 0, 9});
  come(12, {kTask, 0, false, 0, 8});
  come(13, {kTask, 0, false, 0, kIncarnation});
  EXPECT_EQ(said(), Orders{"above 9"});
  roster.incarnationChosen(9);
  EXPECT_EQ(said(), (Orders{"welcome 12 to slot 0", "attached 12 in slot 0", "welcome 13 to slot 1",
                            "attached 13 in slot 1"}));
  EXPECT_EQ(pages.incarnation, 9u);
  roster.incarnationChosen(8);
  EXPECT_EQ(roster.incarnation(), 9u);
  roster.incarnationChosen(10);
  EXPECT_EQ(said(), (Orders{"welcome 11 to slot 2", "attached 11 in slot 2"}));
}

TEST_F(RosterTest, A10_ALieIsTooSmallToUseTheIncarnationsUp) {
  know();
  said();
  for (const std::uint32_t seen :
       {kIncarnation + kIncarnationRaise, kIncarnationSeenMax, UINT32_MAX}) {
    come(11, {kTask, 0, false, 0, seen});
    const Orders refused = said();
    ASSERT_EQ(refused.size(), 1u) << seen;
    EXPECT_TRUE(refused[0].starts_with("refuse 11: this process says it met incarnation")) << seen;
  }
  come(11, {kTask, 0, false, 0, kIncarnation + kIncarnationRaise - 1});
  EXPECT_EQ(said(), Orders{"above " + std::to_string(kIncarnation + kIncarnationRaise - 1)});
}

TEST_F(RosterTest, A10_ItsTaskMayEndWhileItWaits) {
  know();
  come(11, {kTask, 0, false, 0, 9});
  said();
  roster.closed(kTask, true);
  roster.incarnationChosen(10);
  EXPECT_EQ(said(), (Orders{"ended 1", "refuse 11: the task has ended"}));
}

}  // namespace
}  // namespace qgpu::roster_test
