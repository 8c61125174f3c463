#include <gtest/gtest.h>
#include <set>

#include "runtime/dispatcher.h"
#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::node_actor_test {
namespace {

using testing::heard;
using testing::World;
using testing::WorldOptions;
using enum TaskClass;
using Which = schema::Envelope::Which;

World::Fill unbind(std::uint64_t task) {
  return [task](schema::Request::Builder r) { r.setUnbind(task); };
}
World::Fill evict(std::uint64_t task) {
  return [task](schema::Request::Builder r) { r.setEvict(task); };
}
World::Fill policy(const char* card, schema::Policy policy) {
  return [=](schema::Request::Builder r) {
    r.initPolicy().setCard(card);
    r.getPolicy().setPolicy(policy);
  };
}
World::Fill cordon(const char* card) {
  return [card](schema::Request::Builder r) { r.setCordon(card); };
}
World::Fill uncordon(const char* card) {
  return [card](schema::Request::Builder r) { r.setUncordon(card); };
}
World::Fill drain(const char* card) {
  return [card](schema::Request::Builder r) { r.setDrain(card); };
}
const World::Fill kCards = [](schema::Request::Builder r) { r.setCards(); };
const World::Fill kTasks = [](schema::Request::Builder r) { r.setTasks(); };
const World::Fill kInfo = [](schema::Request::Builder r) { r.setInfo(); };
World::Fill events(std::uint64_t since) {
  return [since](schema::Request::Builder r) { r.setEvents(since); };
}

std::set<std::string> kinds(schema::Reply::Reader reply) {
  std::set<std::string> found;
  for (const auto event : reply.getEvents()) found.insert(text(event.getKind()));
  return found;
}

TEST(NodeActor, TellsHowNearItIsToItsBounds) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 2, 30));
  const auto reply = world.reply(world.ask([](schema::Request::Builder r) { r.setLimits(); }));
  ASSERT_TRUE(reply.isLimits());
  const auto limits = reply.getLimits();
  ASSERT_EQ(limits.size(), 3u);
  EXPECT_EQ(text(limits[0].getWhat()), "tasks");
  EXPECT_EQ(limits[0].getNow(), 1u);
  for (const auto limit : limits) {
    EXPECT_LE(limit.getNow(), limit.getMost()) << text(limit.getWhat());
    EXPECT_NE(text(limit.getBeyond()), "");
  }
}

TEST(NodeActor, D2_ABindIsAnsweredAndToldOnlyAfterItsCommit) {
  World world;
  world.start();
  world.fixture.journal().holdCommits();
  const std::uint64_t corr = world.ask(World::bind(World::spec(Ordinary, 2, 30)));
  EXPECT_FALSE(world.answered(corr));
  EXPECT_EQ(world.attach.heard.count(Which::TASK_KNOWN), 0u);
  EXPECT_EQ(world.cards[0]->heard.count(Which::JOINED), 0u);
  world.fixture.journal().commitNext();
  world.run();
  ASSERT_TRUE(world.reply(corr).isBound());
  const auto bound = world.reply(corr).getBound();
  EXPECT_EQ(bound.getToken().size(), 32u);
  EXPECT_STREQ(bound.getCards()[0].cStr(), "sim-0");
  EXPECT_STREQ(bound.getAttachSocket().cStr(), "/run/qgpu/attach.sock");
  const auto joined = heard(world.cards[0]->heard, Which::JOINED);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined[0].getJoined().getSharePermille(), 300u);
  EXPECT_EQ(joined[0].getJoined().getQuotaBytes(), 2ull << 30);
  world.fixture.journal().commitAutomatically();
}

TEST(NodeActor, D4_AFailedCommitLeavesNothingAndServiceResumesByItself) {
  World world;
  world.start();
  const std::uint64_t before = world.node->ledger().digest();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  const std::uint64_t corr = world.ask(World::bind(World::spec(Ordinary, 2, 30)));
  EXPECT_EQ(world.code(corr), "unavailable");
  EXPECT_NE(world.message(corr).find("disk full"), std::string::npos);
  EXPECT_EQ(world.node->ledger().digest(), before);
  EXPECT_EQ(world.attach.heard.count(Which::TASK_KNOWN), 0u);
  EXPECT_EQ(world.taskRows(), 0u);

  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 2, 30))), "unavailable") << "at once";
  EXPECT_STREQ(world.reply(world.ask(kInfo)).getInfo().getStorage().cStr(), "disk full");
  world.fixture.advance(seconds(3));
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 2, 30))), "unavailable");

  world.fixture.journal().commitAutomatically();
  world.fixture.advance(seconds(1));
  EXPECT_STREQ(world.reply(world.ask(kInfo)).getInfo().getStorage().cStr(), "ok");
  EXPECT_NE(world.bound(World::spec(Ordinary, 2, 30)), 0u);
}

TEST(NodeActor, D4_AProbeThatFindsTheNodesMailboxFullIsMadeLater) {
  World world;
  world.start();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 2, 30))), "unavailable");
  world.fixture.journal().commitAutomatically();

  world.fixture.setMailboxMax(world.nodeId, 1);
  world.fixture.advanceOnly(seconds(1));  // the probe is due ...
  world.send(kInfo);                      // ... and the mailbox full
  ASSERT_TRUE(world.fixture.deliver(world.nodeId, world.nodeId));
  world.run();
  world.fixture.advance(seconds(1));
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 2, 30))), "ok");
}

TEST(NodeActor, D4_ATaskWhoseOwnerDiesWhileNothingCanBeStoredIsReleasedLater) {
  World world;
  world.start();
  const std::uint64_t empty = world.node->ledger().digest();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 2, 30));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.ownerGone(task);
  world.fixture.advance(seconds(2));
  EXPECT_EQ(world.node->tasks(), 1u);
  world.fixture.journal().commitAutomatically();
  world.fixture.advance(seconds(2));
  EXPECT_EQ(world.node->ledger().digest(), empty);
  EXPECT_EQ(world.taskRows(), 0u);
}

TEST(NodeActor, P6_ARepeatedRequestIsOneTaskAndOneAnswer) {
  World world;
  world.start();
  TaskSpec spec = World::spec(Ordinary, 2, 30);
  spec.requestId = "again";
  const std::uint64_t first = world.send(World::bind(spec));
  const std::uint64_t second = world.send(World::bind(spec));
  world.run();
  const std::uint64_t third = world.ask(World::bind(spec));
  const std::uint64_t task = world.reply(first).getBound().getTask();
  for (const std::uint64_t corr : {first, second, third}) {
    EXPECT_EQ(world.answers(corr), 1u);
    EXPECT_EQ(world.reply(corr).getBound().getTask(), task);
    EXPECT_STREQ(world.reply(corr).getBound().getToken().cStr(),
                 world.reply(first).getBound().getToken().cStr());
  }
  EXPECT_EQ(world.node->tasks(), 1u);
  EXPECT_EQ(world.taskRows(), 1u);

  TaskSpec other = spec;
  other.mem = gibibytes(3);
  EXPECT_EQ(world.order(World::bind(other)), "conflict");
  EXPECT_NE(world.bound(other, {77, false}), 0u) << "another user's requests are its own";
  EXPECT_EQ(world.order(unbind(task)), "ok");
  EXPECT_EQ(world.order(World::bind(spec)), "conflict") << "its task has ended";
}

TEST(NodeActor, IntroducesABindingStepByStepInAnyOrderOfDelivery) {
  for (std::uint64_t seed = 2; seed < 60; ++seed) {
    WorldOptions options;
    options.seed = seed;
    World world(options);
    world.start();
    std::vector<std::uint64_t> corrs;
    for (int i = 0; i < 4; ++i) {
      corrs.push_back(world.send(World::bind(World::spec(Ordinary, 1, 10))));
    }
    world.run();
    for (const std::uint64_t corr : corrs) {
      ASSERT_EQ(world.answers(corr), 1u) << "seed " << seed;
      const std::uint64_t task = world.reply(corr).getBound().getTask();
      world.attached(task);
      world.send(evict(task));
    }
    world.run();
    for (const std::uint64_t corr : corrs) world.gone(world.reply(corr).getBound().getTask());
    EXPECT_EQ(world.node->tasks(), 0u) << "seed " << seed;
    EXPECT_EQ(world.node->ledger().use(0).memBound, Bytes(0));
  }
}

TEST(NodeActor, ABindWhosePagesCanNotBeMadeIsUndoneAndSaysWhy) {
  World world;
  world.start();
  const std::uint64_t empty = world.node->ledger().digest();
  world.attach.failing = "no descriptors left";
  const std::uint64_t corr = world.ask(World::bind(World::spec(Ordinary, 2, 30)));
  EXPECT_EQ(world.code(corr), "unavailable");
  EXPECT_NE(world.message(corr).find("no descriptors left"), std::string::npos);
  EXPECT_EQ(world.node->ledger().digest(), empty);
  EXPECT_EQ(world.taskRows(), 0u);
}

TEST(NodeActor, ABindIsAnsweredEvenIfTheAttachServerIsSlowButNoCardHearsOfItBefore) {
  World world;
  world.start();
  world.attach.silent = true;
  const std::uint64_t corr = world.ask(World::bind(World::spec(Ordinary, 2, 30)));
  EXPECT_FALSE(world.answered(corr));
  world.fixture.advance(seconds(1));
  ASSERT_TRUE(world.reply(corr).isBound());
  EXPECT_EQ(world.cards[0]->heard.count(Which::JOINED), 0u);
  world.fixture.tellUrgent(world.attachId, world.nodeId, [&](schema::Envelope::Builder e) {
    e.initGateOpened().setTask(world.reply(corr).getBound().getTask());
  });
  world.run();
  EXPECT_EQ(world.cards[0]->heard.count(Which::JOINED), 1u);
  EXPECT_EQ(world.answers(corr), 1u);
}

TEST(NodeActor, RefusesWordsThatAreTooLongOrNotPrintable) {
  World world;
  world.start();
  const auto refused = [&](auto change) {
    TaskSpec spec = World::spec(Ordinary, 1, 10);
    change(spec);
    return world.order(World::bind(spec));
  };
  EXPECT_EQ(refused([](TaskSpec& s) { s.name = ""; }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.name = std::string(65, 'a'); }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.name = "a\nb"; }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.requestId = std::string(65, 'a'); }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.card = "\x01"; }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.mem = Bytes(-1); }), "invalid-argument");
  EXPECT_EQ(refused([](TaskSpec& s) { s.name = std::string(64, 'a'); }), "ok");
}

TEST(NodeActor, OnlyThePrivilegedChangeANodeAndOthersTheirOwnTasks) {
  World world;
  world.start();
  const World::As alice{1001, false};
  const World::As bob{1002, false};
  for (const auto& order :
       {policy("all", schema::Policy::FIXED_SHARE), cordon("0"), uncordon("0"), drain("0")}) {
    EXPECT_EQ(world.order(order, alice), "denied");
  }
  TaskSpec spec = World::spec(Ordinary, 1, 10);
  spec.ownerUid = 0;  // claims to be root
  const std::uint64_t task = world.bound(spec, alice);
  EXPECT_EQ(world.order(unbind(task), bob), "denied");
  EXPECT_EQ(world.order(evict(task), bob), "denied");
  EXPECT_EQ(world.order(kTasks, bob), "ok");
  EXPECT_EQ(world.order(unbind(task), alice), "ok");
  const std::uint64_t again = world.bound(spec, alice);
  EXPECT_EQ(world.order(evict(again), {0, true}), "ok");
}

TEST(NodeActor, ATaskOfSeveralCardsGetsThoseThatItNames) {
  WorldOptions options;
  options.cards = 4;
  World world(options);
  world.start();
  const auto several = [](const char* cards) {
    TaskSpec spec = World::spec(Ordinary, 1, 100, cards);
    spec.cards = 2;
    return World::bind(spec);
  };
  const auto bound = world.reply(world.ask(several("3,1"))).getBound();
  ASSERT_EQ(bound.getCards().size(), 2u);
  EXPECT_STREQ(bound.getCards()[0].cStr(), "sim-1");
  EXPECT_STREQ(bound.getCards()[1].cStr(), "sim-3");
  EXPECT_EQ(world.code(world.ask(several("0,1"))), "no-room");
  EXPECT_EQ(world.code(world.ask(several("0,7"))), "not-found");
  EXPECT_EQ(world.code(world.ask(several("0,0"))), "invalid-argument");
  EXPECT_EQ(world.code(world.ask(several("0,2,1"))), "invalid-argument");
  EXPECT_TRUE(world.reply(world.ask(several("0,2"))).isBound());
}

TEST(NodeActor, UnbindReturnsEverythingOnceAndTellsEverybody) {
  World world;
  world.start();
  const std::uint64_t empty = world.node->ledger().digest();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 2, 30));
  EXPECT_EQ(world.order(unbind(task)), "ok");
  EXPECT_EQ(world.order(unbind(task)), "not-found");
  EXPECT_EQ(world.node->ledger().digest(), empty);
  EXPECT_EQ(world.taskRows(), 0u);
  EXPECT_EQ(world.cards[0]->heard.count(Which::LEFT), 1u);
  EXPECT_EQ(world.attach.heard.count(Which::TASK_CLOSED), 1u);
  EXPECT_EQ(world.tasks[0]->phase(), TaskPhase::Pending);
}

TEST(NodeActor, ATaskWithProcessesEndsAfterAGraceAndThenByForce) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 2, 30));
  world.attached(task);
  EXPECT_EQ(world.order(evict(task)), "ok");
  auto closed = heard(world.attach.heard, Which::TASK_CLOSED);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_FALSE(closed[0].getTaskClosed().getKill());
  EXPECT_TRUE(world.reply(world.ask(kTasks)).getTasks()[0].getEvicting());
  EXPECT_EQ(world.cards[0]->heard.count(Which::LEFT), 0u) << "its work is still on the card";
  world.fixture.advance(seconds(6));
  closed = heard(world.attach.heard, Which::TASK_CLOSED);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_TRUE(closed[1].getTaskClosed().getKill());
  world.gone(task);
  EXPECT_EQ(world.node->tasks(), 0u);
  EXPECT_EQ(world.cards[0]->heard.count(Which::LEFT), 1u);
  EXPECT_EQ(world.taskRows(), 0u);
}

TEST(NodeActor, P9_ATaskIsReleasedAfterItsOwnersDeathUnlessAProcessIsAttached) {
  World world;
  world.start();
  const std::uint64_t alone = world.bound(World::spec(Ordinary, 1, 10));
  const std::uint64_t used = world.bound(World::spec(Ordinary, 1, 10));
  const std::uint64_t kept = world.bound(World::spec(Ordinary, 1, 10));
  world.attached(used);
  world.ownerGone(alone);
  world.ownerGone(used);
  EXPECT_EQ(world.node->tasks(), 3u);
  world.fixture.advance(seconds(1));
  EXPECT_EQ(world.node->ledger().placement(TaskId{alone}), nullptr);
  EXPECT_NE(world.node->ledger().placement(TaskId{used}), nullptr);
  world.gone(used);
  EXPECT_EQ(world.node->ledger().placement(TaskId{used}), nullptr);
  EXPECT_NE(world.node->ledger().placement(TaskId{kept}), nullptr) << "nobody ended it";
}

TEST(NodeActor, PolicyChangesLive) {
  World world;
  world.start();
  world.cards[0]->heard.clear();
  world.cards[1]->heard.clear();
  EXPECT_EQ(world.order(policy("sim-1", schema::Policy::BURST_SHARE)), "ok");
  EXPECT_EQ(world.cards[0]->heard.size(), 0u);
  ASSERT_EQ(world.cards[1]->heard.count(Which::POLICY_CHOSEN), 1u);
  EXPECT_EQ(world.cards[1]->heard.last().getPolicyChosen().getPolicy(),
            schema::Policy::BURST_SHARE);
  EXPECT_EQ(world.order(policy("all", schema::Policy::FIXED_SHARE)), "ok");
  EXPECT_EQ(world.cards[0]->heard.count(Which::POLICY_CHOSEN), 1u);
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 1, 0))), "conflict");
  EXPECT_EQ(world.order(policy("sim-9", schema::Policy::BEST_EFFORT)), "not-found");
  const auto cards = world.reply(world.ask(kCards)).getCards();
  EXPECT_EQ(cards[0].getPolicy(), schema::Policy::FIXED_SHARE);
  EXPECT_EQ(cards[0].getHolds(), 7u) << "fresh from the card";
}

TEST(NodeActor, P8_ACordonedCardTakesNoNewTasksAndKeepsTheOldOnes) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10, "sim-0"));
  EXPECT_EQ(world.order(cordon("0")), "ok");
  EXPECT_EQ(world.order(cordon("sim-0")), "ok") << "already";
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 1, 10, "sim-0"))), "cordoned");
  const auto cards = world.reply(world.ask(kCards)).getCards();
  EXPECT_EQ(cards[0].getState(), schema::CardState::CORDONED);
  EXPECT_EQ(cards[0].getTasks(), 1u);
  EXPECT_EQ(world.order(uncordon("0")), "ok");
  EXPECT_NE(world.bound(World::spec(Ordinary, 1, 10, "sim-0")), 0u);
}

TEST(NodeActor, TheLabelOfALabelledNodeSaysWhichTasksItTakes) {
  WorldOptions options;
  options.mixed = false;
  options.labelled = true;
  World world(options);
  world.start();
  const auto label = [&](bool mixed) {
    world.fixture.tellUrgent(world.clientId, world.nodeId, [&](schema::Envelope::Builder envelope) {
      envelope.initNodeLabelled().setMixed(mixed);
    });
    world.run();
  };
  const auto offline = [&] { return world.order(World::bind(World::spec(Offline, 1, 10))); };
  EXPECT_EQ(offline(), "infeasible");
  label(true);
  EXPECT_EQ(offline(), "ok");
  label(false);
  EXPECT_EQ(offline(), "infeasible");
  EXPECT_EQ(world.node->tasks(), 1u) << "what is bound runs on";
}

TEST(NodeActor, ADrainedCardLosesItsOfflineTasksFirst) {
  World world;
  world.start();
  const std::uint64_t online = world.bound(World::spec(Online, 1, 0, "sim-0"));
  const std::uint64_t offline = world.bound(World::spec(Offline, 1, 10, "sim-0"));
  const std::uint64_t other = world.bound(World::spec(Ordinary, 1, 10, "sim-1"));
  world.attached(online);
  EXPECT_EQ(world.order(drain("sim-0")), "ok");
  EXPECT_EQ(world.node->ledger().placement(TaskId{offline}), nullptr);
  const auto closed = heard(world.attach.heard, Which::TASK_CLOSED);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(closed[0].getTaskClosed().getTask(), offline);
  EXPECT_EQ(closed[1].getTaskClosed().getTask(), online);
  EXPECT_EQ(world.reply(world.ask(kCards)).getCards()[0].getState(), schema::CardState::DRAINING);
  world.gone(online);
  EXPECT_EQ(world.reply(world.ask(kCards)).getCards()[0].getState(), schema::CardState::CORDONED);
  EXPECT_NE(world.node->ledger().placement(TaskId{other}), nullptr);
  EXPECT_EQ(world.order(unbind(other)), "ok");
  const auto drained = heard(world.cards[0]->heard, Which::LEFT);
  ASSERT_EQ(drained.size(), 2u);
  EXPECT_TRUE(drained[0].getLeft().getDrained() && drained[1].getLeft().getDrained());
  const auto ended = heard(world.cards[1]->heard, Which::LEFT);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].getLeft().getDrained());
}

TEST(NodeActor, M6_ATaskThatGaveNoRoomEndsWithoutGraceAndBothAreNamed) {
  World world;
  world.start();
  const std::uint64_t online = world.bound(World::spec(Online, 1, 0, "sim-0"));
  const std::uint64_t offline = world.bound(World::spec(Offline, 1, 10, "sim-0"));
  world.attached(offline);
  world.fixture.tellUrgent(world.clientId, world.nodeId, [&](schema::Envelope::Builder e) {
    auto room = e.initRoomNeeded();
    room.setTask(offline);
    room.setNeeds(online);
    room.setBytes(3ull << 30);
  });
  world.run();
  world.fixture.advance(Nanos(1));
  const auto closed = heard(world.attach.heard, Which::TASK_CLOSED);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_EQ(closed[1].getTaskClosed().getTask(), offline);
  EXPECT_TRUE(closed[1].getTaskClosed().getKill());
  bool told = false;
  const auto reply = world.reply(world.ask(events(0)));
  for (const auto event : reply.getEvents()) {
    if (text(event.getKind()) != "task-gave-no-room") continue;
    told = true;
    EXPECT_EQ(event.getTask(), offline);
    EXPECT_NE(text(event.getText()).find("task " + std::to_string(online)), std::string::npos);
    EXPECT_NE(text(event.getText()).find("3 GiB"), std::string::npos);
  }
  EXPECT_TRUE(told);
  world.gone(offline);
  EXPECT_EQ(world.node->ledger().placement(TaskId{offline}), nullptr);
}

TEST(NodeActor, M6_ATaskThatGaveNoRoomWhileNothingCanBeStoredEndsLater) {
  World world;
  world.start();
  const std::uint64_t offline = world.bound(World::spec(Offline, 1, 10, "sim-0"));
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.fixture.tellUrgent(world.clientId, world.nodeId, [&](schema::Envelope::Builder e) {
    e.initRoomNeeded().setTask(offline);
  });
  world.run();
  EXPECT_NE(world.node->ledger().placement(TaskId{offline}), nullptr);
  world.fixture.journal().commitAutomatically();
  world.fixture.advance(seconds(1));
  EXPECT_EQ(world.node->ledger().placement(TaskId{offline}), nullptr);
}

TEST(NodeActor, ATraceIsAskedOfItsCardWhichAnswersTheClientItself) {
  World world;
  world.start();
  TaskSpec spec = World::spec(Ordinary, 1, 10, "sim-1");
  spec.name = "train";
  world.bound(spec);
  const auto joined = heard(world.cards[1]->heard, Which::JOINED);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_STREQ(joined[0].getJoined().getName().cStr(), "train");
  const auto trace = [](const char* card) {
    return [card](schema::Request::Builder r) {
      r.initTrace().setCard(card);
      r.getTrace().setSince(12);
    };
  };
  const std::uint64_t corr = world.ask(trace("1"), {1000, false});
  const auto asked = heard(world.cards[1]->heard, Which::TRACE_ASKED);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].getTraceAsked().getClient(), static_cast<std::uint32_t>(world.clientId));
  EXPECT_EQ(asked[0].getTraceAsked().getCorr(), corr);
  EXPECT_STREQ(asked[0].getTraceAsked().getQuery().getCard().cStr(), "sim-1");
  EXPECT_EQ(asked[0].getTraceAsked().getQuery().getSince(), 12u);
  EXPECT_EQ(world.cards[0]->heard.count(Which::TRACE_ASKED), 0u);
  EXPECT_EQ(world.order(trace("sim-9")), "not-found");
}

TEST(NodeActor, ACordonByTheManagerItselfEndsNoDrainAndAPersonsDoes) {
  World world;
  world.start();
  world.attached(world.bound(World::spec(Offline, 1, 10, "sim-0")));
  EXPECT_EQ(world.order(drain("sim-0")), "ok");
  const World::As manager{0, true, World::kPid};
  EXPECT_EQ(world.order(cordon("sim-0"), manager), "ok");
  EXPECT_EQ(world.node->ledger().mark(0), CardMark::Draining);
  EXPECT_EQ(world.order(cordon("sim-0")), "ok");
  EXPECT_EQ(world.node->ledger().mark(0), CardMark::Cordoned);
  EXPECT_EQ(world.order(cordon("sim-1"), manager), "ok");
  EXPECT_EQ(world.node->ledger().mark(1), CardMark::Cordoned) << "one that is not drained";
}

TEST(NodeActor, C2_AReportIsAnsweredInASecondWhateverACardDoes) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10));
  world.cards[1]->silent = true;
  const std::uint64_t corr = world.ask(kCards);
  EXPECT_FALSE(world.answered(corr));
  world.fixture.advance(seconds(1));
  ASSERT_EQ(world.answers(corr), 1u);
  EXPECT_EQ(world.reply(corr).getCards().size(), 2u);
  EXPECT_EQ(world.reply(corr).getCards()[0].getHolds(), 7u);

  std::vector<std::uint64_t> corrs;
  for (std::size_t i = 0; i <= NodeReports::kGathersMax; ++i) corrs.push_back(world.ask(kTasks));
  EXPECT_EQ(world.code(corrs.back()), "overloaded");
  world.fixture.advance(seconds(1));
  for (const std::uint64_t each : corrs) EXPECT_EQ(world.answers(each), 1u);
}

// Cards and tasks together are more than a mailbox holds, and several ask at once.
TEST(NodeActor, C2_ManyTasksOnManyCardsAreToldWithoutAWait) {
  constexpr std::size_t kCardsHere = 250;
  constexpr std::size_t kTasksHere = 1'000;
  static_assert(kCardsHere + kTasksHere > kMailboxMax);
  WorldOptions options;
  options.cards = kCardsHere;
  options.slots = kTasksHere;
  World world(options);
  world.start();
  for (std::size_t i = 0; i < kTasksHere; ++i) world.bound(World::spec(Ordinary, 1, 10));
  std::vector<std::uint64_t> corrs;
  for (int i = 0; i < 5; ++i) corrs.push_back(world.send(kTasks));
  world.run();
  for (const std::uint64_t corr : corrs) {
    ASSERT_TRUE(world.answered(corr)) << "reports were lost";
    EXPECT_EQ(world.reply(corr).getTasks().size(), kTasksHere);
  }
}

TEST(NodeActor, TasksShowWhatTheirActorsKnow) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 0, 200));
  world.attached(task);
  const auto tasks = world.reply(world.ask(kTasks)).getTasks();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_STREQ(tasks[0].getCard().cStr(), "sim-0,sim-1");
  EXPECT_EQ(tasks[0].getState(), schema::TaskState::ATTACHED);
  EXPECT_EQ(tasks[0].getUse().getProcesses(), 1u);
  EXPECT_EQ(tasks[0].getUse().getLaunches(), 11u) << "fresh from the report page";
  EXPECT_EQ(tasks[0].getSpec().getCards(), 2u);
  EXPECT_EQ(tasks[0].getSpec().getMemBytes(), 8ull << 30);
  const auto known = heard(world.attach.heard, Which::TASK_KNOWN)[0].getTaskKnown();
  EXPECT_EQ(known.getQuotaBytes(), 16ull << 30);
  EXPECT_EQ(known.getCards().size(), 2u);
}

TEST(NodeActor, RefusedMemoryIsNotedForATaskThatIsHereAndNothingElseIs) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  const auto tell = [&](const char* kind, std::uint64_t of, const std::string& text) {
    world.fixture.tellUrgent(world.attachId, world.nodeId, [&](schema::Envelope::Builder message) {
      auto event = message.initEventTold();
      event.setKind(kind);
      event.setTask(of);
      event.setText(text);
    });
    world.run();
  };
  tell("memory-refused", task, std::string(1000, 'x'));
  tell("memory-refused", task + 1, "of nobody");
  tell("task-ended", task, "invented");
  const auto all = world.reply(world.ask(events(0)));
  EXPECT_EQ(kinds(all), (std::set<std::string>{"node-started", "task-bound", "memory-refused"}));
  const auto last = all.getEvents()[all.getEvents().size() - 1];
  EXPECT_EQ(last.getTask(), task);
  EXPECT_EQ(last.getText().size(), 160u);
}

TEST(NodeActor, ACardThatLostItsSuspendIsShownWithGateAndWhyAndToldOnce) {
  WorldOptions options;
  options.suspend = schema::Suspend::RM;
  World world(options);
  world.start();
  const auto lose = [&](std::uint32_t card, const std::string& why) {
    world.fixture.tellUrgent(world.attachId, world.nodeId, [&](schema::Envelope::Builder message) {
      auto lost = message.initSuspendLost();
      lost.setCard(card);
      lost.setWhy(why);
    });
    world.run();
  };
  lose(1, std::string(1000, 'x'));
  lose(1, "again");
  lose(7, "no such card");
  const auto cards = world.reply(world.ask(kCards)).getCards();
  EXPECT_EQ(cards[0].getInfo().getSuspend(), schema::Suspend::RM);
  EXPECT_EQ(cards[0].getInfo().getSuspendWhy().size(), 0u);
  EXPECT_EQ(cards[1].getInfo().getSuspend(), schema::Suspend::GATE);
  EXPECT_EQ(cards[1].getInfo().getSuspendWhy().size(), kCardTextMax);
  const auto all = world.reply(world.ask(events(0))).getEvents();
  ASSERT_EQ(all.size(), 2u) << "node-started, and this";
  EXPECT_STREQ(all[1].getKind().cStr(), "card-suspend-lost");
  EXPECT_STREQ(all[1].getCard().cStr(), "sim-1");
  EXPECT_EQ(all[1].getText().size(), kCardTextMax);
}

TEST(NodeActor, WhatTheKernelKeptFromACardIsToldThoughItsTaskHasEnded) {
  World world;
  world.start();
  world.fixture.tell(world.attachId, world.nodeId, [&](schema::Envelope::Builder message) {
    auto event = message.initEventTold();
    event.setTask(99);
    event.setKind(kGuardRefused.name());
  });
  world.run();
  EXPECT_EQ(kinds(world.reply(world.ask(events(0)))),
            (std::set<std::string>{"node-started", "guard-refused"}));
}

TEST(NodeActor, WhatTheAttachRoomTellsOfItsTasksIsInTheStoryUnderItsKind) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  const auto tell = [&](std::uint64_t about, EventKind kind) {
    world.fixture.tell(world.attachId, world.nodeId, [&](schema::Envelope::Builder message) {
      auto event = message.initEventTold();
      event.setTask(about);
      event.setKind(kind.name());
      event.setText("why");
    });
    world.run();
  };
  const std::uint64_t before = world.reply(world.ask(events(0))).getEvents().size();
  const EventKind kinds[] = {kSuspendDoubted, kSuspendUndone, kTaskStopped, kTaskUnattached,
                             kTaskUnheld,     kMemoryRefused, kGuardRefused};
  for (const EventKind kind : kinds) tell(task, kind);
  tell(task, "card-cordoned");
  tell(99, kTaskStopped);
  const auto all = world.reply(world.ask(events(0))).getEvents();
  ASSERT_EQ(all.size(), before + std::size(kinds)) << "no other kind, and of no other task";
  for (std::size_t i = 0; i < std::size(kinds); i++) {
    const auto event = all[static_cast<unsigned>(before + i)];
    EXPECT_STREQ(event.getKind().cStr(), kinds[i].name());
    EXPECT_EQ(event.getTask(), task);
    EXPECT_STREQ(event.getText().cStr(), "why");
  }
}

TEST(NodeActor, EventsAreNumberedKeptWithinBoundsAndToldToDoorsThatWatch) {
  World world;
  world.start();
  EXPECT_EQ(world.order([](schema::Request::Builder r) { r.setWatch(true); }), "ok");
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  world.attached(task);
  world.gone(task);
  EXPECT_EQ(world.order(unbind(task), {0, true}), "ok");
  const auto told = heard(world.actor, Which::EVENT_TOLD);
  ASSERT_GE(told.size(), 4u);
  std::uint64_t seq = 0;
  for (const auto event : told) {
    EXPECT_GT(event.getEventTold().getSeq(), seq);
    seq = event.getEventTold().getSeq();
  }
  const auto all = world.reply(world.ask(events(0)));
  EXPECT_EQ(kinds(all), (std::set<std::string>{"node-started", "task-bound", "task-attached",
                                               "task-exited", "task-ended"}));
  EXPECT_STREQ(all.getEvents()[1].getActor().cStr(), "uid 0 pid 12");
  EXPECT_EQ(world.reply(world.ask(events(seq))).getEvents().size(), 0u);

  for (int i = 0; i < 700; ++i) {
    world.order(cordon("0"));
    world.order(uncordon("0"));
    world.actor.clear();
  }
  const auto first = world.reply(world.ask(events(0))).getEvents();
  EXPECT_EQ(first.size(), EventLog::kPerReply);
  EXPECT_GT(first[0].getSeq(), 300u) << "the oldest ones are gone";
  std::size_t audits = 0;
  for (const StoredRow& row : world.rows()) audits += row.key.kind == RowKind::Audit ? 1 : 0;
  EXPECT_EQ(audits, EventSource::kAuditKept);
}

TEST(NodeActor, C5_AFullMailboxOfACardDelaysItsWordsInOrderAndLosesNone) {
  World world;
  world.start();
  world.cards[0]->heard.clear();
  world.fixture.setMailboxMax(world.cardIds[0], 0);
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10, "sim-0"));
  EXPECT_EQ(world.order(unbind(task)), "ok");
  EXPECT_NE(world.bound(World::spec(Ordinary, 1, 10, "sim-1")), 0u) << "others are not delayed";
  EXPECT_EQ(world.cards[0]->heard.size(), 0u);
  world.fixture.setMailboxMax(world.cardIds[0], 100);
  world.fixture.advance(DurableShell::kResend);
  ASSERT_EQ(world.cards[0]->heard.size(), 2u);
  EXPECT_TRUE(world.cards[0]->heard[0].isJoined());
  EXPECT_TRUE(world.cards[0]->heard[1].isLeft());
}

TEST(NodeActor, C5_RefusesMoreTasksThanItHasRoomFor) {
  WorldOptions options;
  options.slots = 2;
  World world(options);
  world.start();
  const std::uint64_t first = world.bound(World::spec(Ordinary, 1, 10));
  world.bound(World::spec(Ordinary, 1, 10));
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 1, 10))), "overloaded");
  EXPECT_EQ(world.order(unbind(first)), "ok");
  EXPECT_NE(world.bound(World::spec(Ordinary, 1, 10)), 0u) << "its slot is free again";
}

TEST(NodeActor, A10_IgnoresWordsAboutTasksThatAreNotHere) {
  World world;
  world.start();
  const std::uint64_t before = world.node->ledger().digest();
  world.ownerGone(99);
  const auto tell = [&](auto build) {
    world.fixture.tellUrgent(world.attachId, world.nodeId, build);
    world.run();
  };
  tell([](schema::Envelope::Builder e) { e.initGateOpened().setTask(99); });
  tell([](schema::Envelope::Builder e) { e.initTaskFact().setTask(99); });
  tell([](schema::Envelope::Builder e) { e.initTaskReport().setTask(99); });
  tell([](schema::Envelope::Builder e) { e.initCommitted().setChange(99); });
  tell(
      [](schema::Envelope::Builder e) { e.initCardReport().initStatus().initInfo().setIndex(99); });
  world.fixture.advance(seconds(2));
  EXPECT_EQ(world.node->ledger().digest(), before);
}

}  // namespace
}  // namespace qgpu::node_actor_test
