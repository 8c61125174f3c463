#include "actors/card/task_actor.h"

#include <gtest/gtest.h>

#include "runtime/enum_names.h"
#include "runtime/testing/fixture.h"

namespace qgpu::task_actor_test {
namespace {

using testing::Fixture;
using testing::Probe;

struct Slot {
  Fixture fixture;
  Probe node, attach, card;
  ActorId nodeId = fixture.add(node);
  ActorId attachId = fixture.add(attach);
  ActorId cardId = fixture.add(card);
  TaskActor actor{nodeId, attachId};
  ActorId id = fixture.add(actor);

  template <typename Build>
  void tell(ActorId from, Build build) {
    ASSERT_EQ(fixture.tell(from, id, build), SendResult::Sent);
    fixture.run();
  }
  void known(std::uint64_t task) {
    tell(nodeId, [=](schema::Envelope::Builder e) { e.initTaskKnown().setTask(task); });
  }
  void closed(std::uint64_t task) {
    tell(nodeId, [=](schema::Envelope::Builder e) { e.initTaskClosed().setTask(task); });
  }
  void attached(std::uint64_t task, std::uint32_t slot) {
    tell(attachId, [=](schema::Envelope::Builder e) {
      e.initProcessAttached().setTask(task);
      e.getProcessAttached().setSlot(slot);
    });
  }
  void gone(std::uint64_t task, std::uint32_t slot) {
    tell(attachId, [=](schema::Envelope::Builder e) {
      e.initProcessGone().setTask(task);
      e.getProcessGone().setSlot(slot);
    });
  }
  void moved(std::uint64_t task, schema::TaskState state) {
    tell(cardId, [=](schema::Envelope::Builder e) {
      e.initMoved().setTask(task);
      e.getMoved().setState(state);
    });
  }
  void used(std::uint64_t task, std::uint64_t bytes, const char* fault = "") {
    tell(attachId, [=](schema::Envelope::Builder e) {
      e.initUsed().setTask(task);
      e.getUsed().setMemBytes(bytes);
      e.getUsed().setLaunches(bytes / 10);
      e.getUsed().setFault(fault);
    });
  }
  schema::TaskFact::Reader lastFact() { return node.last().getTaskFact(); }
};

TEST(TaskStates, TheTableAllowsTheLifeOfATaskAndNothingElse) {
  const auto all = [](auto visit) {
    for (std::size_t a = 0; a < kTaskPhases; ++a) {
      for (std::size_t b = 0; b < kTaskPhases; ++b) {
        visit(static_cast<TaskPhase>(a), static_cast<TaskPhase>(b));
      }
    }
  };
  all([](TaskPhase from, TaskPhase to) {
    const bool over = from == TaskPhase::Exited || from == TaskPhase::Lost;
    bool legal = false;
    if (from == TaskPhase::Pending)
      legal = to == TaskPhase::Bound;
    else if (over)
      legal = to == TaskPhase::Pending;
    else if (to == TaskPhase::Exited || to == TaskPhase::Lost)
      legal = true;
    else if (from == TaskPhase::Bound)
      legal = to == TaskPhase::Attached;
    else
      legal = isActive(to) || to == TaskPhase::Bound;
    EXPECT_EQ(mayMove(from, to), legal) << enumName(word(from)) << " to " << enumName(word(to));
  });
}

TEST(TaskActor, FollowsATaskFromItsBindingToItsEnd) {
  Slot slot;
  slot.known(5);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Bound);
  EXPECT_EQ(slot.lastFact().getState(), schema::TaskState::BOUND);
  slot.attached(5, 0);
  EXPECT_EQ(slot.lastFact().getProcesses(), 1u);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Attached);
  slot.moved(5, schema::TaskState::RUNNING);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Running);
  slot.attached(5, 1);
  slot.gone(5, 0);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Running);
  slot.gone(5, 1);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Bound);
  EXPECT_EQ(slot.lastFact().getProcesses(), 0u);
  slot.closed(5);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Pending);
}

TEST(TaskActor, KeepsTheCardsWordUntilTheProcessIsAnnounced) {
  Slot slot;
  slot.known(5);
  slot.moved(5, schema::TaskState::READY);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Bound);
  slot.attached(5, 0);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Ready);
}

TEST(TaskActor, A10_IgnoresWordsAboutAnEarlierTaskOfItsSlot) {
  Slot slot;
  slot.known(5);
  slot.attached(5, 0);
  slot.closed(5);
  slot.known(6);
  slot.attached(5, 0);
  slot.moved(5, schema::TaskState::RUNNING);
  slot.used(5, 100);
  slot.gone(5, 0);
  slot.closed(5);
  EXPECT_EQ(slot.actor.task(), 6u);
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Bound);
}

TEST(TaskActor, C7_NothingFromOutsideTripsTheStateTable) {
  Slot slot;
  for (std::uint16_t state = 0; state < 12; ++state) {
    slot.moved(0, static_cast<schema::TaskState>(state));
    slot.moved(5, static_cast<schema::TaskState>(state));
  }
  slot.gone(5, 0);
  slot.attached(5, 0);
  slot.closed(5);
  slot.known(5);
  slot.gone(5, 3);
  slot.attached(5, 64);
  slot.attached(5, UINT32_MAX);
  for (std::uint16_t state = 0; state < 12; ++state) {
    slot.moved(5, static_cast<schema::TaskState>(state));
  }
  EXPECT_EQ(slot.actor.phase(), TaskPhase::Bound);
}

TEST(TaskActor, TellsAFaultOfItsPageOnce) {
  Slot slot;
  slot.known(5);
  slot.attached(5, 0);
  slot.node.clear();
  slot.used(5, 10, "a counter ran backwards");
  slot.used(5, 10, "a counter ran backwards");
  slot.used(5, 10);
  ASSERT_EQ(slot.node.size(), 1u);
  EXPECT_STREQ(slot.lastFact().getText().cStr(), "a counter ran backwards");
}

TEST(TaskActor, C5_TellsTheNewestFactOnceTheNodesMailboxHasRoom) {
  Slot slot;
  slot.known(5);
  slot.node.clear();
  slot.fixture.setMailboxMax(slot.nodeId, 0);
  slot.attached(5, 0);
  slot.attached(5, 1);
  slot.fixture.advance(TaskActor::kResend);
  EXPECT_TRUE(slot.node.empty());
  slot.fixture.setMailboxMax(slot.nodeId, 10);
  slot.fixture.advance(TaskActor::kResend);
  ASSERT_EQ(slot.node.size(), 1u);
  EXPECT_EQ(slot.lastFact().getProcesses(), 2u);
}

TEST(TaskActor, ReportsWithFreshCountersOrWithTheLastOnesAfterAMoment) {
  Slot slot;
  slot.known(5);
  slot.attached(5, 0);
  slot.used(5, 100);
  const auto ask = [](schema::Envelope::Builder e) { e.initReportAsked().setCorr(9); };
  slot.tell(slot.nodeId, ask);
  ASSERT_EQ(slot.attach.count(schema::Envelope::REPORT_ASKED), 1u);
  slot.used(5, 200);
  ASSERT_TRUE(slot.node.last().isTaskReport());
  EXPECT_EQ(slot.node.last().getTaskReport().getCorr(), 9u);
  EXPECT_EQ(slot.node.last().getTaskReport().getUse().getMemBytes(), 200u);

  slot.node.clear();
  slot.tell(slot.nodeId, ask);
  EXPECT_TRUE(slot.node.empty());
  slot.fixture.advance(TaskActor::kUseMax);
  ASSERT_EQ(slot.node.size(), 1u);
  EXPECT_EQ(slot.node.last().getTaskReport().getUse().getMemPeak(), 200u);
}

}  // namespace
}  // namespace qgpu::task_actor_test
