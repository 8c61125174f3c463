#include "actors/card/card_actor.h"

#include <gtest/gtest.h>

#include "runtime/testing/fixture.h"

namespace qgpu::card_actor_test {
namespace {

using testing::Fixture;
using testing::Probe;

constexpr std::uint64_t kOnline = 1;
constexpr std::uint64_t kOffline = 2;

struct Card {
  explicit Card(ArbiterConfig chosen = {}) : config(chosen) {}

  const ArbiterConfig config;
  Fixture fixture;
  Probe port, node, task;
  ActorId portId = fixture.add(port);
  ActorId nodeId = fixture.add(node);
  ActorId taskId = fixture.add(task);
  CardActor actor{3, config, {portId, nodeId}, fixture.now()};
  ActorId id = fixture.add(actor);

  std::uint64_t ns() const { return static_cast<std::uint64_t>(fixture.now().value); }
  void joined(std::uint64_t taskNumber, schema::TaskClass taskClass, std::uint32_t permille) {
    ASSERT_EQ(fixture.tell(nodeId, id,
                           [&](schema::Envelope::Builder e) {
                             auto word = e.initJoined();
                             word.setTask(taskNumber);
                             word.setClass(taskClass);
                             word.setSharePermille(permille);
                             word.setActor(static_cast<std::uint32_t>(taskId));
                           }),
              SendResult::Sent);
    fixture.run();
  }
  void busy(std::uint64_t taskNumber, std::uint64_t since) {
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      e.initBusy().setTask(taskNumber);
      e.getBusy().setSinceNs(since);
    });
  }
  void quiet(std::uint64_t taskNumber) {
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      e.initQuiet().setTask(taskNumber);
      e.getQuiet().setSinceNs(ns());
    });
    fixture.run();
  }
  void settled(std::uint64_t taskNumber, std::uint32_t epoch) {
    fixture.tellUrgent(portId, id, [&](schema::Envelope::Builder e) {
      e.initSettled().setTask(taskNumber);
      e.getSettled().setEpoch(epoch);
      e.getSettled().setAtNs(ns());
    });
    fixture.run();
  }
  void hybrid() {  // an offline task runs, an online one is idle
    joined(kOnline, schema::TaskClass::ONLINE, 0);
    joined(kOffline, schema::TaskClass::OFFLINE, 500);
    busy(kOffline, ns());
    fixture.run();
    fixture.advance(millis(5));
  }
  schema::GateOrder::Reader lastOrder(std::uint64_t taskNumber) {
    schema::GateOrder::Reader last;
    for (std::size_t i = 0; i < port.size(); ++i) {
      if (port[i].isGateOrder() && port[i].getGateOrder().getTask() == taskNumber) {
        last = port[i].getGateOrder();
      }
    }
    return last;
  }
  schema::CardReport::Reader report() {
    EXPECT_EQ(fixture.tell(nodeId, id,
                           [](schema::Envelope::Builder e) { e.initReportAsked().setCorr(4); }),
              SendResult::Sent);
    fixture.run();
    EXPECT_TRUE(node.last().isCardReport());
    return node.last().getCardReport();
  }
};

using Order = schema::GateOrder::Order;
using Kind = CardTrace::Kind;

// The trace of one task, or with 0 of none.
std::vector<CardTrace::Entry> traceOf(const Card& card, std::uint64_t task) {
  const CardTrace& trace = card.actor.trace();
  std::vector<CardTrace::Entry> found;
  for (std::uint64_t i = 1; i <= trace.newest(); ++i) {
    if (trace[i].task == task) found.push_back(trace[i]);
  }
  return found;
}
std::vector<Kind> kindsOf(const Card& card, std::uint64_t task) {
  std::vector<Kind> kinds;
  for (const CardTrace::Entry& entry : traceOf(card, task)) kinds.push_back(entry.kind);
  return kinds;
}

TEST(CardActor, A3_TheHoldLeavesInTheTurnOfTheFirstOnlineSubmit) {
  Card card;
  card.hybrid();
  ASSERT_EQ(card.lastOrder(kOffline).getOrder(), Order::OPEN);
  card.port.clear();
  const std::uint64_t submit = card.ns();
  card.fixture.advanceOnly(micros(20));
  card.busy(kOnline, submit);
  ASSERT_TRUE(card.fixture.deliver(card.portId, card.id));  // one turn of the card

  bool holds = false;
  for (const auto& pending : card.fixture.pending()) {
    if (pending.to != card.portId) continue;
    EXPECT_EQ(pending.lane, Lane::Control);
    EXPECT_EQ(pending.which, schema::Envelope::GATE_ORDER);
    holds = true;
  }
  EXPECT_TRUE(holds);
  card.fixture.run();
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  EXPECT_EQ(card.lastOrder(kOffline).getCauseNs(), submit);
}

TEST(CardActor, TheGatePortGetsAFirstOrderForATaskThatStartsShut) {
  Card card;
  card.joined(kOffline, schema::TaskClass::OFFLINE, 500);
  ASSERT_EQ(card.port.size(), 1u);
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  EXPECT_EQ(card.lastOrder(kOffline).getEpoch(), 0u);
  card.settled(kOffline, 0);
  card.busy(kOffline, card.ns());
  card.fixture.run();
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::OPEN);
}

TEST(CardActor, RecordsHowLongPreemptionSettlingAndReleaseTook) {
  Card card;
  card.hybrid();
  card.busy(kOnline, card.ns());
  card.fixture.run();
  const auto hold = card.lastOrder(kOffline);
  const std::uint64_t cause = hold.getCauseNs();
  const std::uint32_t epoch = hold.getEpoch();
  const auto done = [&] {
    card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
      auto gate = e.initGateDone();
      gate.setTask(kOffline);
      gate.setEpoch(epoch);
      gate.setStoredNs(cause + 30'000);
      gate.setCauseNs(cause);
    });
    card.fixture.run();
  };
  card.fixture.advance(micros(50));
  done();
  done();  // told twice, counted once
  card.settled(kOffline, epoch);
  card.fixture.advance(millis(10));
  card.quiet(kOnline);
  card.fixture.advance(millis(150));
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::OPEN) << "online idle is over";

  const auto status = card.report().getStatus();
  EXPECT_EQ(status.getInfo().getIndex(), 3u);
  EXPECT_EQ(status.getPreemptCount(), 1u);
  EXPECT_EQ(status.getPreemptP50Ns(), 30'000u);
  EXPECT_EQ(status.getSettleCount(), 1u);
  EXPECT_EQ(status.getSettleP99Ns(), 50'000u);
  EXPECT_EQ(status.getReleaseCount(), 1u);
  EXPECT_EQ(status.getReleaseP50Ns(), 100'000'000u);
  const LatencyTimes preempted = readTimes(status.getPreemptTimes());
  EXPECT_EQ(preempted.sumNs, 30'000u);
  EXPECT_EQ(preempted.counts[2], 1u) << "above 20 us, at most 50 us";
  const LatencyTimes released = readTimes(status.getReleaseTimes());
  EXPECT_EQ(released.counts[12], 1u) << "100 ms and no more";
  EXPECT_EQ(kLatencyBounds[12], millis(100));
}

TEST(CardActor, APreemptionThatTookLongIsRecordedAsLongAndNonsenseNotAtAll) {
  Card card;
  card.hybrid();
  const auto preemptedIn = [&](Nanos took) {
    card.busy(kOnline, card.ns());
    card.fixture.run();
    const auto hold = card.lastOrder(kOffline);
    const std::uint64_t stored = hold.getCauseNs() + static_cast<std::uint64_t>(took.value);
    const std::uint32_t epoch = hold.getEpoch();
    card.fixture.advance(took);
    card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
      e.initGateDone().setTask(kOffline);
      e.getGateDone().setEpoch(epoch);
      e.getGateDone().setStoredNs(stored);
    });
    card.settled(kOffline, epoch);
    card.quiet(kOnline);
    card.fixture.advance(millis(150));
  };
  preemptedIn(micros(61));
  EXPECT_EQ(card.report().getStatus().getPreemptP99Ns(), 61'000u);
  preemptedIn(millis(7));
  EXPECT_EQ(card.report().getStatus().getPreemptP99Ns(), 7'000'000u);
  EXPECT_EQ(card.report().getStatus().getPreemptP50Ns(), 61'000u);
  preemptedIn(CardActor::kPreemptMax + millis(1));
  EXPECT_EQ(card.report().getStatus().getPreemptCount(), 2u);
}

TEST(CardActor, A10_IgnoresTasksThatAreNotHereAndOrdersThatWereReplaced) {
  Card card;
  card.hybrid();
  card.port.clear();
  card.busy(77, card.ns());
  card.fixture.run();
  card.quiet(77);
  card.settled(77, 1);
  card.settled(kOffline, 9'999);
  card.fixture.tellUrgent(card.portId, card.id, [](schema::Envelope::Builder e) {
    e.initGateDone().setTask(kOffline);
    e.getGateDone().setEpoch(9'999);
    e.getGateDone().setStoredNs(UINT64_MAX);
  });
  card.fixture.tellUrgent(card.portId, card.id,
                          [](schema::Envelope::Builder e) { e.initOwnerDied().setTask(77); });
  card.fixture.run();
  EXPECT_TRUE(card.port.empty());
  EXPECT_EQ(card.actor.arbiter().card(card.fixture.now()).holder, TaskId{kOffline});
  EXPECT_EQ(card.actor.tasks(), 2u);
  EXPECT_EQ(card.report().getStatus().getPreemptCount(), 0u);
}

TEST(CardActor, C7_ClampsStampsThatCannotBe) {
  Card card;
  card.hybrid();
  card.busy(kOnline, UINT64_MAX);
  card.fixture.run();
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  EXPECT_EQ(card.lastOrder(kOffline).getCauseNs(), card.ns());
  const auto epoch = card.lastOrder(kOffline).getEpoch();
  card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
    e.initSettled().setTask(kOffline);
    e.getSettled().setEpoch(epoch);
    e.getSettled().setAtNs(0);
  });
  card.fixture.run();
  EXPECT_EQ(card.report().getStatus().getSettleP99Ns(), 0u);
}

TEST(CardActor, C5_KeepsTheNewestMoveOfATaskWhoseMailboxIsFull) {
  Card card;
  card.fixture.setMailboxMax(card.taskId, 0);
  card.hybrid();
  card.busy(kOnline, card.ns());
  card.fixture.run();
  card.settled(kOffline, card.lastOrder(kOffline).getEpoch());
  EXPECT_TRUE(card.task.empty());
  card.fixture.setMailboxMax(card.taskId, 100);
  card.fixture.advance(CardActor::kResend);
  std::size_t moves = 0;
  schema::TaskState last{};
  for (std::size_t i = 0; i < card.task.size(); ++i) {
    if (card.task[i].getMoved().getTask() != kOffline) continue;
    ++moves;
    last = card.task[i].getMoved().getState();
  }
  EXPECT_EQ(moves, 1u);
  EXPECT_EQ(last, schema::TaskState::SUSPENDED);
}

TEST(CardActor, ATaskThatSettledTooLateIsReadyAgainOnceItsQuarantineIsOver) {
  Card card;
  card.hybrid();
  card.busy(kOnline, card.ns());
  card.fixture.run();
  const auto newest = [&] {
    schema::TaskState last{};
    for (std::size_t i = 0; i < card.task.size(); ++i) {
      const auto moved = card.task[i].getMoved();
      if (moved.getTask() == kOffline) last = moved.getState();
    }
    return last;
  };
  card.fixture.advance(seconds(2));  // longer than any hold may take
  EXPECT_EQ(newest(), schema::TaskState::SUSPENDING);
  card.settled(kOffline, card.lastOrder(kOffline).getEpoch());
  EXPECT_EQ(newest(), schema::TaskState::READY) << "it waits as others do";
}

TEST(CardActor, A3_OnlineHastensAPatientHoldWithItsCause) {
  ArbiterConfig config;
  config.patience = millis(15);
  Card card(config);
  card.hybrid();
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  card.busy(5, card.ns());
  card.fixture.run();
  for (int i = 0; i < 100 && card.lastOrder(kOffline).getOrder() == Order::OPEN; ++i) {
    card.fixture.advance(micros(100));
  }
  const auto hold = card.lastOrder(kOffline);
  ASSERT_EQ(hold.getOrder(), Order::HOLD);
  EXPECT_GT(hold.getPatienceNs(), 0u);
  const std::uint32_t epoch = hold.getEpoch();
  const std::uint64_t cause = card.ns();
  card.busy(kOnline, cause);
  card.fixture.run();
  const auto hasten = card.lastOrder(kOffline);
  EXPECT_EQ(hasten.getOrder(), Order::HASTEN);
  EXPECT_EQ(hasten.getEpoch(), epoch);
  EXPECT_EQ(hasten.getCauseNs(), cause);
}

TEST(CardActor, A11_TheNextIsGrantedInTheTurnThatHearsOfTheHoldersDeath) {
  Card card;
  card.joined(kOffline, schema::TaskClass::OFFLINE, 500);
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  card.busy(kOffline, card.ns());
  card.busy(5, card.ns());
  card.fixture.run();
  ASSERT_EQ(card.lastOrder(kOffline).getOrder(), Order::OPEN);
  card.fixture.tellUrgent(card.portId, card.id,
                          [](schema::Envelope::Builder e) { e.initOwnerDied().setTask(kOffline); });
  card.fixture.run();
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  EXPECT_EQ(card.lastOrder(5).getOrder(), Order::OPEN);
  EXPECT_EQ(card.actor.arbiter().card(card.fixture.now()).holder, TaskId{5});
  EXPECT_EQ(card.report().getStatus().getSettleCount(), 0u) << "a dead task settles nothing";
}

TEST(CardActor, A3_TheCardIsReleasedOnlineIdleAfterTheOnlineTasksProcessDied) {
  Card card;
  card.hybrid();
  card.busy(kOnline, card.ns());
  card.fixture.run();
  card.settled(kOffline, card.lastOrder(kOffline).getEpoch());
  card.fixture.tellUrgent(card.portId, card.id,
                          [](schema::Envelope::Builder e) { e.initOwnerDied().setTask(kOnline); });
  card.fixture.run();
  card.fixture.advance(millis(99));
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  card.fixture.advance(millis(2));
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::OPEN);
}

TEST(CardActor, A11_WhoDoesNotSettleIsQuarantinedAndSaidSoUntilItRetiresWork) {
  Card card;
  card.hybrid();
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  card.busy(5, card.ns());
  card.fixture.run();
  card.fixture.advance(millis(150));  // kOffline is held and never settles
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::HOLD);
  EXPECT_EQ(card.lastOrder(5).getOrder(), Order::OPEN);
  const auto shareOf = [&](std::uint64_t task) {
    for (const auto share : card.report().getShares()) {
      if (share.getTask() == task) return share;
    }
    return schema::TaskShare::Reader();
  };
  EXPECT_TRUE(shareOf(kOffline).getQuarantined());
  EXPECT_NE(std::string(shareOf(kOffline).getNote().cStr()).find("until it retires"),
            std::string::npos);
  EXPECT_FALSE(shareOf(5).getQuarantined());
  bool told = false;
  for (std::size_t i = 0; i < card.task.size(); ++i) {
    told = told || (card.task[i].isMoved() && card.task[i].getMoved().getTask() == kOffline &&
                    card.task[i].getMoved().getQuarantined());
  }
  EXPECT_TRUE(told) << "the task's own table has it too";

  const auto retired = [&](std::uint64_t task) {
    card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
      e.initRetiredLate().setTask(task);
    });
    card.fixture.run();
  };
  retired(77);  // not here
  EXPECT_TRUE(shareOf(kOffline).getQuarantined());
  retired(kOffline);
  EXPECT_FALSE(shareOf(kOffline).getQuarantined());
}

TEST(CardActor, SaysThatATaskWithoutAShareLivesOnIdleTimeUnderBurstShare) {
  Card card;
  card.joined(kOffline, schema::TaskClass::OFFLINE, 0);
  card.joined(kOnline, schema::TaskClass::ONLINE, 0);
  const auto notes = [&] {
    std::string all;
    for (const auto share : card.report().getShares()) all += share.getNote().cStr();
    return all;
  };
  EXPECT_EQ(notes(), "");
  ASSERT_EQ(card.fixture.tell(card.nodeId, card.id,
                              [](schema::Envelope::Builder e) {
                                e.initPolicyChosen().setPolicy(schema::Policy::BURST_SHARE);
                              }),
            SendResult::Sent);
  card.fixture.run();
  EXPECT_EQ(notes(), "share 0 under burst-share: lives on idle time only") << "online has no note";
}

TEST(CardActor, WaitsWithOneTimerAtMost) {
  Card card;
  card.hybrid();
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  card.busy(5, card.ns());
  card.fixture.run();
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(card.fixture.timers(), 1u);
    card.fixture.advance(millis(3));
    const auto hold = card.lastOrder(kOffline);
    if (hold.getOrder() == Order::HOLD) card.settled(kOffline, hold.getEpoch());
  }
}

TEST(CardActor, ATaskThatLeavesIsClosedAndTheNextIsGranted) {
  Card card;
  card.hybrid();
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  card.busy(5, card.ns());
  card.fixture.run();
  const auto leave = [&](std::uint64_t task) {
    ASSERT_EQ(card.fixture.tell(card.nodeId, card.id,
                                [&](schema::Envelope::Builder e) { e.initLeft().setTask(task); }),
              SendResult::Sent);
    card.fixture.run();
  };
  leave(kOffline);
  EXPECT_EQ(card.lastOrder(kOffline).getOrder(), Order::CLOSE);
  EXPECT_EQ(card.lastOrder(5).getOrder(), Order::OPEN);
  const std::size_t said = card.port.size();
  leave(kOffline);
  EXPECT_EQ(card.port.size(), said) << "a second leave says nothing";
}

TEST(CardActor, ItsTraceHasTheSliceThatOnlineEndedAndWhen) {
  Card card;
  card.hybrid();
  const Nanos began = traceOf(card, kOffline).back().at;
  const Nanos submit = card.fixture.now();
  card.fixture.advanceOnly(micros(20));
  card.busy(kOnline, static_cast<std::uint64_t>(submit.value));
  card.fixture.run();
  const Nanos heldAt = card.fixture.now();
  const std::uint32_t epoch = card.lastOrder(kOffline).getEpoch();
  card.fixture.advance(micros(50));
  const Nanos shut = heldAt + micros(5), stopped = heldAt + micros(30);
  card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
    e.initGateDone().setTask(kOffline);
    e.getGateDone().setEpoch(epoch);
    e.getGateDone().setStoredNs(static_cast<std::uint64_t>(shut.value));
  });
  card.fixture.tellUrgent(card.portId, card.id, [&](schema::Envelope::Builder e) {
    e.initSettled().setTask(kOffline);
    e.getSettled().setEpoch(epoch);
    e.getSettled().setAtNs(static_cast<std::uint64_t>(stopped.value));
  });
  card.fixture.run();
  const Nanos retired = card.fixture.now();
  card.quiet(kOnline);
  card.fixture.advance(millis(150));

  const auto offline = traceOf(card, kOffline);
  EXPECT_EQ(kindsOf(card, kOffline),
            (std::vector<Kind>{Kind::JOINED, Kind::READY, Kind::RUNNING, Kind::SUSPENDING,
                               Kind::GATE_SHUT, Kind::SUSPENDED, Kind::RUNNING}));
  ASSERT_EQ(offline.size(), 7u);
  EXPECT_EQ(offline[2].at, began);
  EXPECT_EQ(offline[3].at, heldAt);
  EXPECT_EQ(offline[3].since, submit) << "whose submit it was held for";
  EXPECT_EQ(offline[4].at, shut);
  EXPECT_EQ(offline[4].since, submit);
  EXPECT_EQ(offline[5].at, stopped) << "when it stopped, not when the card heard of it";
  const auto online = traceOf(card, kOnline);
  EXPECT_EQ(kindsOf(card, kOnline),
            (std::vector<Kind>{Kind::JOINED, Kind::ONLINE_ACTIVE, Kind::RUNNING, Kind::IDLE}));
  EXPECT_EQ(online.at(2).since, submit);
  const auto released = traceOf(card, 0);
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].kind, Kind::RELEASED);
  EXPECT_EQ(released[0].since, retired);
  EXPECT_EQ(offline[6].at, released[0].at) << "resumed in the turn of the release";
}

TEST(CardActor, ItsTraceSaysWhoLeftWhoWasDrainedAndWhoseMemoryWasRefused) {
  Card card;
  card.joined(kOffline, schema::TaskClass::OFFLINE, 500);
  card.joined(5, schema::TaskClass::OFFLINE, 300);
  const auto refused = [&](std::uint64_t task) {
    ASSERT_EQ(card.fixture.tell(card.portId, card.id,
                                [&](schema::Envelope::Builder e) {
                                  e.initMemoryRefused().setTask(task);
                                  e.getMemoryRefused().setAtNs(UINT64_MAX);
                                }),
              SendResult::Sent);
    card.fixture.run();
  };
  refused(kOffline);
  refused(77);
  for (const std::uint64_t task : {kOffline, std::uint64_t{5}}) {
    ASSERT_EQ(card.fixture.tell(card.nodeId, card.id,
                                [&](schema::Envelope::Builder e) {
                                  e.initLeft().setTask(task);
                                  e.getLeft().setDrained(task == 5);
                                }),
              SendResult::Sent);
  }
  card.fixture.run();
  EXPECT_EQ(kindsOf(card, kOffline),
            (std::vector<Kind>{Kind::JOINED, Kind::MEMORY_REFUSED, Kind::LEFT}));
  EXPECT_EQ(traceOf(card, kOffline)[1].at, card.fixture.now()) << "no stamp is later than now";
  EXPECT_EQ(kindsOf(card, 5), (std::vector<Kind>{Kind::JOINED, Kind::DRAINED}));
  EXPECT_TRUE(kindsOf(card, 77).empty()) << "it is not here";
}

TEST(CardActor, AnswersAClientWithItsTraceAndTheNamesInIt) {
  Card card;
  Probe client;
  const ActorId clientId = card.fixture.add(client);
  ASSERT_EQ(card.fixture.tell(card.nodeId, card.id,
                              [&](schema::Envelope::Builder e) {
                                auto word = e.initJoined();
                                word.setTask(5);
                                word.setClass(schema::TaskClass::OFFLINE);
                                word.setSharePermille(300);
                                word.setActor(static_cast<std::uint32_t>(card.taskId));
                                word.setName("batch");
                              }),
            SendResult::Sent);
  card.fixture.run();
  card.busy(5, card.ns());
  card.fixture.run();
  const auto ask = [&](std::uint64_t since, ActorId to) {
    ASSERT_EQ(card.fixture.tell(card.nodeId, card.id,
                                [&](schema::Envelope::Builder e) {
                                  auto asked = e.initTraceAsked();
                                  asked.setClient(static_cast<std::uint32_t>(to));
                                  asked.setCorr(9);
                                  asked.initQuery().setCard("sim-3");
                                  asked.getQuery().setSince(since);
                                }),
              SendResult::Sent);
    card.fixture.run();
  };
  ask(0, ActorId::kNobody);
  EXPECT_TRUE(client.empty());
  ask(1, clientId);
  ASSERT_EQ(client.size(), 1u);
  ASSERT_TRUE(client.last().isReply());
  EXPECT_EQ(client.last().getReply().getCorr(), 9u);
  const auto trace = client.last().getReply().getTrace();
  EXPECT_STREQ(trace.getCard().cStr(), "sim-3");
  EXPECT_EQ(trace.getNowNs(), card.ns());
  EXPECT_EQ(trace.getFirst(), 2u);
  EXPECT_EQ(trace.getNewest(), 3u);
  EXPECT_EQ(trace.getLost(), 0u);
  ASSERT_EQ(trace.getEntries().size(), 2u);
  EXPECT_EQ(trace.getEntries()[0].getKind(), Kind::READY);
  EXPECT_EQ(trace.getEntries()[1].getKind(), Kind::RUNNING);
  EXPECT_EQ(trace.getEntries()[1].getTask(), 5u);
  ASSERT_EQ(trace.getTasks().size(), 1u);
  EXPECT_EQ(trace.getTasks()[0].getId(), 5u);
  EXPECT_STREQ(trace.getTasks()[0].getName().cStr(), "batch");
  EXPECT_EQ(trace.getTasks()[0].getClass(), schema::TaskClass::OFFLINE);
}

}  // namespace
}  // namespace qgpu::card_actor_test
