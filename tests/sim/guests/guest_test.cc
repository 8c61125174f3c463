// Tenants, the attach room with its real gate port, and a real card actor, on the simulated host.
#include "tests/sim/guests/guest.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

#include "actors/card/card_actor.h"
#include "tests/sim/guests/sim_attach.h"

namespace qgpu::sim::guest_test {
namespace {

// Counts what tenants do, and whether they and their gates agree.
class Ledger final : public Watch {
 public:
  void onGate(const GateStore& store, Nanos now) override {
    Gate& gate = gates_[store.task];
    gate.open = (store.flags & QGPU_GATE_OPEN) != 0;
    gate.shutAt = now;
  }
  void onGuest(const GuestNews& news, Nanos) override {
    using Kind = GuestNews::Kind;
    counts[static_cast<std::size_t>(news.kind)]++;
    const bool less = news.kind == Kind::Freed || news.kind == Kind::BytesReturned;
    if (news.kind == Kind::Allocated || less) bytes[news.task] += less ? -news.amount : news.amount;
    EXPECT_GE(bytes[news.task], 0);
    if (news.kind == Kind::Lies) liars_.insert(news.task);
    EXPECT_TRUE(bytes[news.task] <= gibibytes(1).value || liars_.contains(news.task)) << "A14";
    if (news.kind == Kind::Disobeys || news.kind == Kind::Orphaned) excused_[news.process] = true;
    if (!judging || news.kind != Kind::Submitted || online.contains(news.task)) return;
    EXPECT_TRUE(gates_[news.task].open || excused_[news.process]) << "task " << news.task;
  }
  std::uint64_t count(GuestNews::Kind kind) const { return counts[static_cast<std::size_t>(kind)]; }

  bool judging = true;  // false: an earlier manager's open pages may still be obeyed
  std::set<std::uint64_t> online;
  std::map<std::uint64_t, std::int64_t> bytes;
  std::array<std::uint64_t, 32> counts{};

 private:
  struct Gate {
    bool open = false;
    Nanos shutAt{0};
  };
  std::map<std::uint64_t, Gate> gates_;
  std::map<std::uint32_t, bool> excused_;
  std::set<std::uint64_t> liars_;
};

// Knows some tasks and introduces them, again after each restart.
class PlainNode final : public Actor {
 public:
  struct Known {
    std::uint64_t task = 0;
    Class taskClass = Class::Ordinary;
    std::uint32_t share = 0;
  };
  void handle(schema::Envelope::Reader message, Turn& turn) override {
    if (message.isIncarnationSeen()) raised++;
    if (!message.isGateOpened()) return;
    const std::uint64_t id = message.getGateOpened().getTask();
    opened.insert(id);
    for (const Known& known : tasks) {
      if (known.task != id) continue;
      turn.sendUrgent(card, [&](schema::Envelope::Builder envelope) {
        auto joined = envelope.initJoined();
        joined.setTask(id);
        joined.setClass(static_cast<schema::TaskClass>(known.taskClass));
        joined.setSharePermille(known.share);
        joined.setActor(static_cast<std::uint32_t>(sink));
      });
    }
  }
  std::vector<Known> tasks;
  std::set<std::uint64_t> opened;
  ActorId card{}, sink{};
  int raised = 0;
};

class Sink final : public Actor {
 public:
  void handle(schema::Envelope::Reader, Turn&) override {}
};

std::string tokenOf(std::uint64_t task) {
  std::string token = std::to_string(task);
  return std::string(QGPU_TOKEN_LEN - token.size(), '0') + token;
}

class GuestWorld {
 public:
  explicit GuestWorld(std::uint64_t seed, std::uint32_t faults = 0, bool freeze = false)
      : host({.seed = seed}, ledger), tenants(host, ledger, options, Dice(seed)), dice_(seed) {
    options.faults = faults;
    options.freeze = freeze;
    options.kernelMin = micros(20);
    options.kernelMax = millis(20);
    options.lifeMax = seconds(60);
    options.lifeMin = seconds(20);
  }
  ~GuestWorld() { crash(); }

  void bind(std::uint64_t task, Class taskClass, std::uint32_t share = 300) {
    node.tasks.push_back({task, taskClass, share});
    if (taskClass == Class::Online) ledger.online.insert(task);
    tell(node.tasks.back());
    tenants.bound({task, tokenOf(task), taskClass, gibibytes(1)});
  }
  void boot() {
    const ActorId nodeId = host.add(node, Home::Main);
    node.sink = host.add(sink, Home::Card);
    attachId_ = host.reserve(Home::Card);
    card =
        std::make_unique<CardActor>(0, ArbiterConfig(), CardPeers{attachId_, nodeId}, host.now());
    node.card = host.add(*card, Home::Card);
    SimAttachOptions attachOptions;
    attachOptions.life = ++lives_;
    attachOptions.incarnation = lives_;
    attachOptions.node = nodeId;
    attachOptions.cards = {node.card};
    attachOptions.suspend = options.freeze ? schema::Suspend::FREEZE : schema::Suspend::GATE;
    attach = std::make_unique<SimAttach>(host, ledger, attachId_, runDir, tenants, attachOptions,
                                         Dice(dice_.word()));
    tenants.managerBack(*attach);
    for (const PlainNode::Known& known : node.tasks) tell(known);
  }
  void crash() {
    tenants.managerGone();
    attach.reset();
    card.reset();
    host.clearManager();
  }
  void close(std::uint64_t task) {
    std::erase_if(node.tasks, [&](const auto& known) { return known.task == task; });
    host.sendUrgent(node.sink, attachId_, [&](schema::Envelope::Builder envelope) {
      auto closed = envelope.initTaskClosed();
      closed.setTask(task);
      closed.setKill(true);
    });
    host.sendUrgent(node.sink, node.card,
                    [&](schema::Envelope::Builder envelope) { envelope.initLeft().setTask(task); });
  }
  void run(Nanos time) {
    const Nanos until = host.now() + time;
    while (host.step(until)) {
    }
  }
  template <typename Done>
  bool until(Done done, Nanos limit = seconds(30)) {
    const Nanos end = host.now() + limit;
    while (!done()) {
      if (!host.step(end)) return done();
    }
    return true;
  }
  std::uint64_t count(GuestNews::Kind kind) const { return ledger.count(kind); }

  Options options;
  Ledger ledger;
  Host host;
  RunDir runDir;
  Tenants tenants;
  PlainNode node;
  Sink sink;
  std::unique_ptr<CardActor> card;
  std::unique_ptr<SimAttach> attach;

 private:
  void tell(const PlainNode::Known& known) {
    host.sendUrgent(node.sink, attachId_, [&](schema::Envelope::Builder envelope) {
      auto told = envelope.initTaskKnown();
      told.setTask(known.task);
      told.setToken(tokenOf(known.task));
      told.setClass(static_cast<schema::TaskClass>(known.taskClass));
      told.setQuotaBytes(static_cast<std::uint64_t>(gibibytes(1).value));
      told.initCards(1).set(0, 0);
      told.setActor(static_cast<std::uint32_t>(node.sink));
    });
  }
  Dice dice_;
  ActorId attachId_{};
  std::uint32_t lives_ = 0;
};

using Kind = GuestNews::Kind;

void bindSome(GuestWorld& world) {
  world.boot();
  world.bind(1, Class::Online);
  world.bind(2, Class::Ordinary);
  world.bind(3, Class::Offline);
  world.bind(4, Class::Ordinary, 100);
}

TEST(SimulatedGuests, HonestOnesShareACardThroughTheirGates) {
  for (std::uint64_t seed = 1; seed <= 20; seed++) {
    GuestWorld world(seed, 0, seed % 2 == 0);
    bindSome(world);
    world.run(seconds(3));
    EXPECT_GT(world.count(Kind::Attached), 0u) << seed;
    EXPECT_GT(world.count(Kind::Retired), 0u) << seed;
    for (std::uint64_t task = 1; task <= 4; task++) world.close(task);
    EXPECT_TRUE(world.until([&] { return world.tenants.quiet(); }))
        << seed << ": " << world.tenants.waitsFor();
    world.run(millis(1));
    EXPECT_EQ(world.attach->tasks(), 0u) << seed;
    EXPECT_TRUE(world.runDir.attached.empty()) << seed;
  }
}

TEST(SimulatedGuests, C9_TheyLiveThroughTheEndOfAManagerAndComeBackToTheNext) {
  for (std::uint64_t seed = 1; seed <= 10; seed++) {
    GuestWorld world(seed);
    bindSome(world);
    for (int life = 0; life < 5; life++) {
      world.run(millis(400));
      world.crash();
      world.run(millis(30));
      world.boot();
    }
    const std::uint64_t before = world.count(Kind::Retired);
    world.run(seconds(2));
    EXPECT_GT(world.count(Kind::Retired), before) << seed;
    EXPECT_EQ(world.count(Kind::Orphaned), 0u) << seed;
    for (std::uint64_t task = 1; task <= 4; task++) world.close(task);
    EXPECT_TRUE(world.until([&] { return world.tenants.quiet(); }))
        << seed << ": " << world.tenants.waitsFor();
  }
}

TEST(SimulatedGuests, WithoutAManagerTheyRunOnAfterTheOrphanGrace) {
  GuestWorld world(3);
  bindSome(world);
  world.run(millis(500));
  world.crash();
  const std::uint64_t before = world.count(Kind::Retired);
  world.run(seconds(8));
  EXPECT_GT(world.count(Kind::Orphaned), 0u);
  EXPECT_GT(world.count(Kind::Retired), before);
  world.boot();
}

TEST(SimulatedGuests, WhateverTheyDoTheMachineComesToRest) {
  std::array<std::uint64_t, 32> counts{};
  for (std::uint64_t seed = 1; seed <= 40; seed++) {
    GuestWorld world(seed, ~0u, seed % 2 == 0);
    bindSome(world);
    world.run(seconds(2));
    if (seed % 3 == 0) {
      world.crash();
      world.ledger.judging = false;  // the pages of the one before may still be obeyed
      world.run(millis(100));
      world.boot();
    }
    world.run(seconds(1));
    world.tenants.calm();
    for (std::uint64_t task = 1; task <= 4; task++) world.close(task);
    EXPECT_TRUE(world.until([&] { return world.tenants.quiet(); }))
        << seed << ": " << world.tenants.waitsFor();
    for (std::size_t i = 0; i < counts.size(); i++) counts[i] += world.ledger.counts[i];
  }
  for (const Kind kind : {Kind::Lies, Kind::Silent, Kind::Disobeys, Kind::Died, Kind::Frozen,
                          Kind::Thawed, Kind::Refused}) {
    EXPECT_GT(counts[static_cast<std::size_t>(kind)], 0u) << static_cast<int>(kind);
  }
}

TEST(SimulatedGuests, TheSameSeedIsTheSameRun) {
  const auto hashOf = [](std::uint64_t seed) {
    GuestWorld world(seed, ~0u, true);
    world.ledger.judging = false;
    bindSome(world);
    world.run(seconds(1));
    world.crash();
    world.run(millis(50));
    world.boot();
    world.run(seconds(1));
    return world.host.hash();
  };
  EXPECT_EQ(hashOf(5), hashOf(5));
  EXPECT_NE(hashOf(5), hashOf(6));
}

}  // namespace
}  // namespace qgpu::sim::guest_test
