// Node, card and task actors as a daemon composes them; the test plays who asks and the gate
// port.
#include <gtest/gtest.h>

#include "actors/card/card_actor.h"
#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::actors_together_test {
namespace {

using testing::AttachDouble;
using testing::CountingTokens;
using testing::Fixture;
using testing::heard;
using testing::Probe;
using testing::World;
using enum TaskClass;
using Which = schema::Envelope::Which;

struct Daemon {
  explicit Daemon(std::uint64_t seed) : fixture(seed) {
    NodeOptions options;
    options.name = "here";
    options.mixed = true;
    CardFacts facts;
    facts.id = "sim-0";
    facts.mem = gibibytes(32);
    for (int i = 0; i < 4; ++i) {
      tasks.push_back(std::make_unique<TaskActor>(nodeId, portId));
      taskIds.push_back(fixture.add(*tasks.back()));
    }
    node = std::make_unique<NodeActor>(options, NodePeers{portId, {cardId}, taskIds},
                                       std::vector<CardFacts>{facts}, tokens,
                                       std::vector<StoredRow>());
    fixture.attach(nodeId, *node);
    card =
        std::make_unique<CardActor>(0, ArbiterConfig(), CardPeers{portId, nodeId}, fixture.now());
    fixture.attach(cardId, *card);
    fixture.tellUrgent(clientId, nodeId, [](schema::Envelope::Builder e) { e.initStart(); });
    fixture.runRandom();
  }

  std::uint64_t bind(const TaskSpec& spec) {
    const std::uint64_t corr = ++lastCorr;
    EXPECT_EQ(fixture.tell(clientId, nodeId,
                           [&](schema::Envelope::Builder e) {
                             auto request = e.initRequest();
                             request.setCorr(corr);
                             request.setMayChange(true);
                             writeSpec(spec, request.initBind());
                           }),
              SendResult::Sent);
    fixture.runRandom();
    const auto replies = heard(actor, Which::REPLY);
    EXPECT_TRUE(replies.back().getReply().isBound());
    const std::uint64_t task = replies.back().getReply().getBound().getTask();
    fixture.tellUrgent(portId, taskIds[task - 1],
                       [&](schema::Envelope::Builder e) { e.initProcessAttached().setTask(task); });
    fixture.runRandom();
    return task;
  }
  void busy(std::uint64_t task) {
    fixture.tellUrgent(portId, cardId, [&](schema::Envelope::Builder e) {
      e.initBusy().setTask(task);
      e.getBusy().setSinceNs(static_cast<std::uint64_t>(fixture.now().value));
    });
    fixture.runRandom();
  }
  schema::GateOrder::Reader lastOrder(std::uint64_t task) {
    schema::GateOrder::Reader last;
    for (const auto message : heard(port.heard, Which::GATE_ORDER)) {
      if (message.getGateOrder().getTask() == task) last = message.getGateOrder();
    }
    return last;
  }

  Fixture fixture;
  Probe actor;
  AttachDouble port;
  CountingTokens tokens;
  ActorId nodeId = fixture.reserve();
  ActorId cardId = fixture.reserve();
  ActorId clientId = fixture.add(actor);
  ActorId portId = fixture.add(port);
  std::vector<std::unique_ptr<TaskActor>> tasks;
  std::vector<ActorId> taskIds;
  std::unique_ptr<NodeActor> node;
  std::unique_ptr<CardActor> card;
  std::uint64_t lastCorr = 0;
};

TEST(ActorsTogether, A3_FromABindToAPreemptionInAnyOrderOfDelivery) {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    Daemon daemon(seed);
    const std::uint64_t offline = daemon.bind(World::spec(Offline, 1, 50));
    const std::uint64_t online = daemon.bind(World::spec(Online, 1, 0));
    daemon.busy(offline);
    EXPECT_EQ(daemon.lastOrder(offline).getOrder(), schema::GateOrder::Order::OPEN);
    EXPECT_EQ(daemon.tasks[offline - 1]->phase(), TaskPhase::Running);
    daemon.fixture.advanceOnly(millis(1));
    daemon.busy(online);
    const auto hold = daemon.lastOrder(offline);
    EXPECT_EQ(hold.getOrder(), schema::GateOrder::Order::HOLD) << "seed " << seed;
    EXPECT_NE(hold.getCauseNs(), 0u);
    EXPECT_EQ(daemon.lastOrder(online).getOrder(), schema::GateOrder::Order::OPEN);
    EXPECT_EQ(daemon.tasks[offline - 1]->phase(), TaskPhase::Suspending);
    daemon.fixture.tellUrgent(daemon.portId, daemon.cardId, [&](schema::Envelope::Builder e) {
      e.initSettled().setTask(offline);
      e.getSettled().setEpoch(hold.getEpoch());
    });
    daemon.fixture.runRandom();
    EXPECT_EQ(daemon.tasks[offline - 1]->phase(), TaskPhase::Suspended);
  }
}

}  // namespace
}  // namespace qgpu::actors_together_test
