// A card whose memory may be overcommitted, before a gate port that is played here.

#include <capnp/message.h>
#include <gtest/gtest.h>

#include "actors/card/card_actor.h"
#include "runtime/testing/fixture.h"

namespace qgpu::card_paging_test {
namespace {

using testing::Fixture;
using testing::Probe;
using Order = schema::GateOrder::Order;
using What = schema::PagingOrder::What;
using Phase = PagingWord::Phase;

constexpr std::uint64_t kTraining = 1, kServing = 2, kOther = 3;

// One task as the gate port tells of it; sizes in GiB.
struct Told {
  std::int64_t firm = 0, held = 0, out = 0, more = 0;
  struct Process {
    std::uint32_t number = 1;
    PagingAnswer answer = PagingAnswer::None;
    std::int64_t out = 0, need = 0;
    std::uint64_t since = 0;
    std::uint32_t epoch = 0;  // 0: of the last word
  };
  std::vector<Process> processes{Process{}};
};

class CardPagingTest : public ::testing::Test {
 protected:
  explicit CardPagingTest(bool overcommitted = true)
      : card(0, {}, {portId, nodeId}, fixture.now(), CardTrace::kKept,
             overcommitted ? std::optional(ResidencyConfig{.memory = gib(80)}) : std::nullopt) {
    id = fixture.add(card);
    fixture.advance(seconds(1000));
  }
  ~CardPagingTest() noexcept override = default;

  static Bytes gib(std::int64_t n) { return mebibytes(1024) * n; }
  static std::uint64_t bytesOf(std::int64_t gibs) {
    return static_cast<std::uint64_t>(gib(gibs).value);
  }
  std::uint64_t ns() const { return static_cast<std::uint64_t>(fixture.now().value); }

  void joined(std::uint64_t task, schema::TaskClass taskClass, std::int64_t pageable) {
    static_cast<void>(fixture.tell(nodeId, id, [&](schema::Envelope::Builder e) {
      auto word = e.initJoined();
      word.setTask(task);
      word.setClass(taskClass);
      word.setSharePermille(taskClass == schema::TaskClass::ONLINE ? 0 : 300);
      word.setActor(static_cast<std::uint32_t>(taskId));
      word.setPageableBytes(bytesOf(pageable));
    }));
    fixture.run();
  }
  void told(std::uint64_t task, const Told& said) {
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      auto paged = e.initPaged();
      paged.setTask(task);
      paged.setFirmBytes(bytesOf(said.firm));
      paged.setHeldBytes(bytesOf(said.held));
      paged.setOutBytes(bytesOf(said.out));
      paged.setMoreBytes(bytesOf(said.more));
      paged.setLimitOrder(limitOrder(task));
      auto list = paged.initProcesses(static_cast<unsigned>(said.processes.size()));
      for (unsigned i = 0; i < list.size(); ++i) {
        const Told::Process& process = said.processes[i];
        list[i].setProcess(process.number);
        list[i].setEpoch(process.epoch != 0 ? process.epoch : word(task).epoch);
        list[i].setAnswer(static_cast<std::uint32_t>(process.answer));
        list[i].setOutBytes(bytesOf(process.out));
        list[i].setNeedBytes(bytesOf(process.need));
        list[i].setNeedSinceNs(process.since);
      }
    });
    fixture.run();
  }
  void busy(std::uint64_t task) {
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      e.initBusy().setTask(task);
      e.getBusy().setSinceNs(ns());
    });
    fixture.run();
  }
  void settled(std::uint64_t task) {
    const std::uint32_t epoch = lastGate(task).getEpoch();
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      e.initSettled().setTask(task);
      e.getSettled().setEpoch(epoch);
      e.getSettled().setAtNs(ns());
    });
    fixture.run();
  }

  // --- what the port heard ---
  template <typename Take>
  void eachPaging(std::uint64_t task, What what, Take take) const {
    for (std::size_t i = 0; i < port.size(); ++i) {
      if (!port[i].isPagingOrder()) continue;
      const auto order = port[i].getPagingOrder();
      if (order.getTask() == task && order.getWhat() == what) take(order);
    }
  }
  PagingWord word(std::uint64_t task) const {
    PagingWord last;
    eachPaging(task, What::WORD, [&](auto order) {
      last = {order.getEpoch(), static_cast<Phase>(order.getPhase()),
              Permille(order.getPermille())};
    });
    return last;
  }
  std::uint64_t limitOrder(std::uint64_t task) const {
    std::uint64_t last = 0;
    eachPaging(task, What::LIMIT, [&](auto order) { last = order.getOrder(); });
    return last;
  }
  Bytes limit(std::uint64_t task) const {
    Bytes last{0};
    eachPaging(task, What::LIMIT,
               [&](auto order) { last = Bytes(static_cast<std::int64_t>(order.getLimitBytes())); });
    return last;
  }
  schema::GateOrder::Reader lastGate(std::uint64_t task) const {
    schema::GateOrder::Reader last;
    for (std::size_t i = 0; i < port.size(); ++i) {
      if (port[i].isGateOrder() && port[i].getGateOrder().getTask() == task) {
        last = port[i].getGateOrder();
      }
    }
    return last;
  }

  // Training that has 70 GiB of the card and runs, beside an online task that has 5.
  void trainingFillsTheCard() {
    joined(kServing, schema::TaskClass::ONLINE, 0);
    told(kServing, {.firm = 5});
    joined(kTraining, schema::TaskClass::OFFLINE, 70);
    told(kTraining, {});
    fixture.advance(CardPaging::kGather);
    told(kTraining, {.processes = {{.answer = PagingAnswer::In}}});
    told(kTraining, {.more = 70});
    told(kTraining, {.held = 70});
    busy(kTraining);
    ASSERT_EQ(lastGate(kTraining).getOrder(), Order::OPEN);
    fixture.advance(seconds(30));
  }
  void servingNeeds(std::int64_t gibs) {
    told(kServing, {.firm = 5, .processes = {{.need = gibs, .since = ns()}}});
  }

  Fixture fixture;
  Probe port, node, taskActor;
  ActorId portId = fixture.add(port);
  ActorId nodeId = fixture.add(node);
  ActorId taskId = fixture.add(taskActor);
  CardActor card;
  ActorId id{};
};

TEST_F(CardPagingTest, M1_ATaskIsGrantedTheCardOnceEachOfItsProcessesIsIn) {
  joined(kTraining, schema::TaskClass::OFFLINE, 40);
  busy(kTraining);
  told(kTraining, {});
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::HOLD);
  fixture.advance(CardPaging::kGather);
  EXPECT_EQ(word(kTraining).phase, Phase::In);
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::HOLD);
  told(kTraining, {.processes = {{.answer = PagingAnswer::In}}});
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::OPEN);
}

TEST_F(CardPagingTest, ALimitGrowsWhereThereIsRoom) {
  joined(kTraining, schema::TaskClass::OFFLINE, 40);
  fixture.advance(CardPaging::kGather);
  told(kTraining, {});
  EXPECT_EQ(limit(kTraining), Bytes(0));
  told(kTraining, {.processes = {{.answer = PagingAnswer::In}}});
  told(kTraining, {.more = 12, .processes = {{.answer = PagingAnswer::In}}});
  EXPECT_EQ(limit(kTraining), gib(12));
}

TEST_F(CardPagingTest, M6_TrainingGivesWhatOnlineIsRefusedAndComesBack) {
  trainingFillsTheCard();
  servingNeeds(10);
  EXPECT_EQ(word(kTraining).phase, Phase::Drain);
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::HOLD) << "in the same turn";
  settled(kTraining);
  told(kTraining, {.held = 70, .processes = {{.answer = PagingAnswer::Idle}}});
  ASSERT_EQ(word(kTraining).phase, Phase::Out);
  EXPECT_EQ(word(kTraining).out, Permille(72)) << "5 of 70, rounded up";
  told(kTraining, {.held = 70, .out = 6, .processes = {{.answer = PagingAnswer::Left, .out = 6}}});
  told(kServing, {.firm = 15});
  fixture.advance(seconds(20));
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::HOLD) << "there is no room for it";

  told(kServing, {.firm = 5});
  EXPECT_EQ(word(kTraining).phase, Phase::In);
  told(kTraining, {.held = 70, .processes = {{.answer = PagingAnswer::In}}});
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::OPEN);
  EXPECT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 0u);
}

TEST_F(CardPagingTest, M6_WhoGivesNoRoomInTimeIsEndedForWhoNeedsIt) {
  trainingFillsTheCard();
  servingNeeds(10);
  fixture.advance(seconds(1));
  EXPECT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 0u);
  fixture.advance(millis(600));
  ASSERT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 1u);
  const auto room = node.last().getRoomNeeded();
  EXPECT_EQ(room.getTask(), kTraining);
  EXPECT_EQ(room.getNeeds(), kServing);
  EXPECT_EQ(room.getBytes(), bytesOf(10));
}

TEST_F(CardPagingTest, M6_WhoWasAnsweredAndFoundTheRoomTakenAsksAgain) {
  trainingFillsTheCard();
  servingNeeds(4);
  EXPECT_EQ(word(kTraining).phase, Phase::In) << "there are 5";
  joined(kOther, schema::TaskClass::ORDINARY, 0);
  told(kOther, {.firm = 4});
  EXPECT_EQ(word(kTraining).phase, Phase::In);
  fixture.advance(CardPaging::kAskAgain);
  EXPECT_EQ(word(kTraining).phase, Phase::Drain);
}

TEST_F(CardPagingTest, A10_ANeedIsNoOlderThanTheManagersLookAtIt) {
  trainingFillsTheCard();
  told(kServing, {.firm = 5, .processes = {{.need = 10, .since = 1}}});
  fixture.advance(seconds(1));
  EXPECT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 0u);
}

TEST_F(CardPagingTest, ANeedThatIsOverAsksNobody) {
  trainingFillsTheCard();
  servingNeeds(10);
  told(kServing, {.firm = 5});
  fixture.advance(seconds(3));
  EXPECT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 0u);
}

// Whatever else is told at that moment.
TEST(CardPagingDeadlines, NoneIsLost) {
  Nanos now = seconds(1000);
  CardPaging paging(ResidencyConfig{.memory = mebibytes(1024)});
  const auto told = [&](std::int64_t held, std::uint32_t epoch, PagingAnswer answer) {
    capnp::MallocMessageBuilder message;
    auto paged = message.initRoot<schema::Paged>();
    paged.setTask(kTraining);
    paged.setHeldBytes(static_cast<std::uint64_t>(mebibytes(held).value));
    auto list = paged.initProcesses(1);
    list[0].setProcess(1);
    list[0].setEpoch(epoch);
    list[0].setAnswer(static_cast<std::uint32_t>(answer));
    paging.told(paged.asReader(), now);
  };
  const auto lastWord = [&] {
    PagingWord last;
    for (const ResidencyOrder& order : paging.orders()) {
      if (order.kind == ResidencyOrder::Kind::Tell) last = order.word;
    }
    return last;
  };
  paging.join(TaskId{kTraining}, mebibytes(1024), now);
  told(1024, 0, PagingAnswer::None);
  now += CardPaging::kGather;
  paging.expire(now);
  told(1024, lastWord().epoch, PagingAnswer::In);
  now += seconds(30);
  paging.join(TaskId{kServing}, Bytes(0), now);
  capnp::MallocMessageBuilder message;
  auto needs = message.initRoot<schema::Paged>();
  needs.setTask(kServing);
  needs.initProcesses(1)[0].setNeedBytes(1 << 20);
  paging.told(needs.asReader(), now);
  ASSERT_EQ(lastWord().phase, Phase::Drain);
  now += millis(101);  // the drain is in vain, and something else comes first
  paging.online(true, now);
  EXPECT_EQ(lastWord().phase, Phase::In);
}

TEST_F(CardPagingTest, M3_ALimitIsNotBelievedInTheTurnThatOrdersIt) {
  trainingFillsTheCard();
  servingNeeds(12);
  ASSERT_EQ(word(kTraining).phase, Phase::Drain);
  fixture.advance(millis(150));
  ASSERT_EQ(word(kTraining).phase, Phase::In) << "in vain";
  told(kTraining, {.held = 70, .processes = {{.answer = PagingAnswer::In}}});
  told(kTraining, {.held = 60, .processes = {{.answer = PagingAnswer::In}}});
  EXPECT_EQ(limit(kTraining), gib(60));
  EXPECT_EQ(card.paging().core()->room(), gib(5)) << "it may have 70 still";
  told(kTraining, {.held = 60, .processes = {{.answer = PagingAnswer::In}}});
  EXPECT_EQ(card.paging().core()->room(), gib(3)) << "15, of which 12 are promised";
}

TEST_F(CardPagingTest, M3_AfterARestartNothingIsGivenBeforeAllAreKnown) {
  constexpr std::uint32_t kSeen = 5'000'000;
  const auto out = [](std::int64_t held) {
    return Told{.held = held,
                .out = held,
                .processes = {{.answer = PagingAnswer::Left, .out = held, .epoch = kSeen}}};
  };
  joined(kTraining, schema::TaskClass::OFFLINE, 60);
  told(kTraining, out(60));
  fixture.advance(millis(200));
  joined(kOther, schema::TaskClass::OFFLINE, 60);
  told(kOther, {.held = 60, .processes = {{.answer = PagingAnswer::In, .epoch = kSeen}}});
  EXPECT_EQ(word(kTraining).epoch, 0u);
  EXPECT_EQ(word(kOther).epoch, 0u);
  fixture.advance(millis(400));
  EXPECT_GT(word(kTraining).epoch, kSeen);
  EXPECT_EQ(word(kTraining).phase, Phase::Out) << "as it is";
  EXPECT_EQ(word(kTraining).out, Permille(0));
  EXPECT_EQ(word(kOther).phase, Phase::In);
}

TEST_F(CardPagingTest, WhoComesBackLateWithMemoryOffTheCardIsTakenInAnew) {
  joined(kTraining, schema::TaskClass::OFFLINE, 60);
  told(kTraining, {.processes = {}});
  fixture.advance(CardPaging::kGather);
  busy(kTraining);
  ASSERT_EQ(lastGate(kTraining).getOrder(), Order::OPEN);
  told(kTraining, {.held = 60, .out = 60, .processes = {{.number = 4, .out = 60, .epoch = 1}}});
  EXPECT_EQ(word(kTraining).phase, Phase::Out);
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::HOLD);
}

TEST_F(CardPagingTest, AnswersToWordsOfBeforeAndNonsenseChangeNothing) {
  trainingFillsTheCard();
  servingNeeds(10);
  const std::uint32_t epoch = word(kTraining).epoch;
  told(kTraining, {.held = 70, .processes = {{.answer = PagingAnswer::Idle, .epoch = epoch - 1}}});
  told(kTraining, {.held = 70, .processes = {{.answer = PagingAnswer{77}}}});
  EXPECT_EQ(word(kTraining).phase, Phase::Drain);
  EXPECT_EQ(word(kTraining).epoch, epoch);
}

TEST_F(CardPagingTest, ATaskThatLeavesWhileItIsOutIsForgotten) {
  trainingFillsTheCard();
  servingNeeds(10);
  static_cast<void>(fixture.tell(
      nodeId, id, [&](schema::Envelope::Builder e) { e.initLeft().setTask(kTraining); }));
  fixture.run();
  fixture.advance(seconds(5));
  EXPECT_EQ(node.count(schema::Envelope::ROOM_NEEDED), 0u);
  EXPECT_EQ(card.paging().core()->room(), gib(65)) << "75 are free, and 10 were promised";
}

class CardWithoutOvercommitTest : public CardPagingTest {
 protected:
  CardWithoutOvercommitTest() : CardPagingTest(false) {}
};

TEST_F(CardWithoutOvercommitTest, NothingIsSaidOfMemoryAndATaskRunsAtOnce) {
  joined(kTraining, schema::TaskClass::OFFLINE, 40);
  told(kTraining, {});
  busy(kTraining);
  EXPECT_EQ(lastGate(kTraining).getOrder(), Order::OPEN);
  EXPECT_EQ(port.count(schema::Envelope::PAGING_ORDER), 0u);
}

}  // namespace
}  // namespace qgpu::card_paging_test
