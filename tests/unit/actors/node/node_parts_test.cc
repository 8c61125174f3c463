// The parts of the node without the actor over them: each one's state and what it tells others, in
// turns and over a journal that the test decides.

#include <capnp/serialize.h>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::testing::node_parts_test {
namespace {

using enum TaskClass;
using Kind = NodeChange::Kind;
using Which = schema::Envelope::Which;

// Two cards of 8 GiB, two task actors, the attach server and a client, all played by probes.
struct Parts final : Actor {
  explicit Parts(NodeOptions chosen = {}) : options(std::move(chosen)) {}
  ~Parts() noexcept override = default;

  void handle(schema::Envelope::Reader message, Turn& turn) override {
    node.setNow(turn.now());
    if (next) {
      std::exchange(next, nullptr)(turn);
    } else if (message.isTick()) {
      const NodeTick kind{message.getTick().getKind()};
      if (kind == NodeTick::Gather)
        reports.onGatherDue(message.getTick().getValue());
      else
        life.onTick(kind, message.getTick().getValue());
    } else if (message.isRequest()) {
      requests.onRequest(message.getRequest(), turn);
    }
    shell.outbox().flush(turn);
  }
  void inTurn(std::function<void(Turn&)> what) {
    next = std::move(what);
    fixture.tellUrgent(clientId, self, [](schema::Envelope::Builder e) { e.initTick(); });
    fixture.run();
  }
  void flush() {
    inTurn([](Turn&) {});
  }
  std::size_t heardBy(const Probe& probe, Which which) {
    flush();
    return probe.count(which);
  }
  // What the client got, as words: "done ...", a code, or "bound".
  std::vector<std::string> answers() {
    flush();
    std::vector<std::string> found;
    for (const auto message : heard(client, Which::REPLY)) {
      const auto reply = message.getReply();
      found.push_back(reply.isDone()     ? text(reply.getDone())
                      : reply.isFailed() ? text(reply.getFailed().getCode())
                      : reply.isBound()  ? "bound"
                                         : "report");
    }
    return found;
  }
  std::vector<std::string> events() {
    std::vector<std::string> found;
    for (const EventRecord& event : feed.after(0)) found.push_back(event.kind);
    return found;
  }

  NodeChange change(Kind kind) {
    NodeChange made;
    made.kind = kind;
    made.asker = Asker{clientId, ++lastCorr};
    made.who = {0, 12, true, ""};
    return made;
  }
  NodeChange bind(TaskSpec spec) {
    NodeChange made = change(Kind::Bind);
    made.spec = std::move(spec);
    return made;
  }
  NodeChange end(std::uint64_t task, Kind kind = Kind::End) {
    NodeChange made = change(kind);
    made.task = task;
    made.text = "over";
    return made;
  }
  // Checked, written and applied, as NodeActor does it; 0 where the check left nothing to do.
  std::uint64_t bound(const TaskSpec& spec) {
    NodeChange made = bind(spec);
    const Result<Need> need = bindings.check(made);
    EXPECT_TRUE(need) << need.error().message;
    if (!need.ok() || *need == Need::Nothing) return 0;
    inTurn([&](Turn& turn) { bindings.persist(made, turn); });
    bindings.apply(made);
    return made.task;
  }
  // Until its cards have heard of it.
  std::uint64_t live(const TaskSpec& spec) {
    const std::uint64_t task = bound(spec);
    inTurn([&](Turn& turn) { life.introduce(task, *bindings.find(task), turn); });
    fact(task, 0);
    gateOpened(task);
    return task;
  }
  void fact(std::uint64_t task, std::uint32_t processes) {
    capnp::MallocMessageBuilder message;
    auto said = message.initRoot<schema::TaskFact>();
    said.setTask(task);
    said.setProcesses(processes);
    life.onTaskFact(said);
    flush();
  }
  void gateOpened(std::uint64_t task, const char* failed = "") {
    capnp::MallocMessageBuilder message;
    auto opened = message.initRoot<schema::GateRegistered>();
    opened.setTask(task);
    opened.setFailed(failed);
    inTurn([&](Turn& turn) { life.onGateOpened(opened, turn); });
  }
  void ownerGone(std::uint64_t task) {
    capnp::MallocMessageBuilder message;
    message.initRoot<schema::Left>().setTask(task);
    inTurn([&](Turn& turn) { life.onOwnerGone(message.getRoot<schema::Left>(), turn); });
  }
  // What a check finds is to be done.
  Result<Need> made(NodeChange ended) {
    const Result<Need> need = life.check(ended);
    if (!need.ok() || *need == Need::Nothing) return need;
    inTurn([&](Turn& turn) { life.persist(ended, turn); });
    inTurn([&](Turn& turn) { life.apply(ended, turn); });
    return need;
  }
  void request(const World::Fill& fill, ActorId from) {
    const SendResult sent = fixture.tell(from, self, [&](schema::Envelope::Builder envelope) {
      envelope.initRequest().setCorr(++lastCorr);
      envelope.getRequest().setMayChange(true);
      fill(envelope.getRequest());
    });
    EXPECT_EQ(sent, SendResult::Sent);
    fixture.run();
  }
  // The second is of a driver that is not known.
  static std::vector<CardFacts> cardFacts() {
    std::vector<CardFacts> list(2);
    list[0].counting = schema::Counting::DRIVER;
    list[1].counting = schema::Counting::DRIVER_UNKNOWN;
    list[1].memoryCounted = "at calls: driver 615.71 is not known";
    for (std::uint32_t i = 0; i < 2; ++i) {
      list[i].id = "sim-" + std::to_string(i);
      list[i].index = i;
      list[i].mem = gibibytes(8);
      list[i].suspend = schema::Suspend::RM;
    }
    return list;
  }

  Fixture fixture;
  Probe client, attach, member, card0, card1, task0, task1;
  const ActorId self = fixture.add(*this);
  const ActorId clientId = fixture.add(client);
  const NodeOptions options;
  const NodePeers peers{fixture.add(attach),
                        {fixture.add(card0), fixture.add(card1)},
                        {fixture.add(task0), fixture.add(task1)},
                        fixture.add(member)};
  CountingTokens tokens;
  DurableShell shell{options.probeEvery};
  EventSource feed{shell.outbox(), 64};
  NodeContext node{options, peers, shell, feed};
  Ledger ledger{
      {true, {8}}, {{"sim-0", 0, gibibytes(8)}, {"sim-1", 1, gibibytes(8)}}, Policy::BestEffort};
  NodeNumbers numbers{node};
  NodeCards cards{node, ledger, cardFacts()};
  Bindings bindings{node, ledger, numbers, tokens};
  TaskLife life{node, cards, bindings};
  NodeRecovery recovery{node, numbers, cards, bindings, life};
  NodeReports reports{node, numbers, cards, bindings};
  NodeRequests requests{node, reports};
  std::function<void(Turn&)> next;
  std::uint64_t lastCorr = 0;
};

TaskSpec named(const std::string& requestId) {
  TaskSpec spec = World::spec(Ordinary, 1, 10);
  spec.requestId = requestId;
  return spec;
}

TaskSpec ordered(std::uint64_t task, std::uint32_t epoch) {
  TaskSpec spec = World::spec(Ordinary, 1, 10);
  spec.clusterTask = task;
  spec.clusterEpoch = epoch;
  return spec;
}

StoredRow stored(RowKey key, const std::function<void(schema::Row::Builder)>& fill) {
  capnp::MallocMessageBuilder message;
  fill(message.initRoot<schema::Row>());
  return {key, flatten(message.getRoot<schema::Row>().asReader())};
}

StoredRow nodeRow(std::uint64_t nextTask) {
  return stored({RowKind::Node, 0},
                [&](schema::Row::Builder row) { row.initNode().setNextTask(nextTask); });
}

StoredRow taskRow(std::uint64_t task, const char* card, bool evicting = false, int gib = 1) {
  return stored({RowKind::Task, task}, [&](schema::Row::Builder row) {
    auto made = row.initTask();
    made.setId(task);
    writeSpec(World::spec(Ordinary, gib, 10), made.initSpec());
    made.initCards(1).set(0, card);
    made.setEvicting(evicting);
  });
}

// --- what leaves ---

TEST(NodeContext, D2_NumbersWhatHappensDuringACommitAfterIt) {
  Parts parts;
  parts.inTurn([&](Turn& turn) {
    EXPECT_TRUE(parts.shell.announce(turn));
    parts.shell.persisted();
  });
  parts.node.note("task-exited", 1, "", "");
  EXPECT_TRUE(parts.events().empty());
  parts.feed.tellNotes();
  EXPECT_EQ(parts.events(), std::vector<std::string>{"task-exited"});
}

TEST(NodeContext, C5_AClientThatDoesNotReadHasSoManyAnswersAndNoMore) {
  Parts parts;
  for (std::size_t i = 0; i < NodeContext::kRepliesPerClient + 5; ++i) {
    parts.node.replyDone(Asker{parts.clientId, i}, "done");
  }
  parts.node.replyDone(std::nullopt, "nobody asked");
  EXPECT_EQ(parts.shell.outbox().size(), NodeContext::kRepliesPerClient);
}

// --- the node's row ---

TEST(NodeNumbers, A10_PassAnIncarnationThatAGuestHasMet) {
  Parts parts;
  parts.numbers.start();
  parts.feed.toStore();
  parts.feed.stored();
  EXPECT_FALSE(parts.numbers.rowDue());
  parts.numbers.onIncarnationSeen(7);
  EXPECT_TRUE(parts.numbers.rowDue());
  NodeChange row;
  row.incarnation = parts.numbers.incarnationToStore();
  EXPECT_EQ(row.incarnation, 8u);
  EXPECT_EQ(parts.numbers.incarnation(), 1u) << "not yet committed";
  parts.numbers.stored(row);
  EXPECT_EQ(parts.numbers.incarnation(), 8u);
  EXPECT_EQ(parts.heardBy(parts.attach, Which::INCARNATION_CHOSEN), 2u) << "and at the start";
  EXPECT_EQ(parts.events(), std::vector<std::string>{"incarnation-raised"});
}

TEST(NodeNumbers, GiveNoNumberOfATaskTwice) {
  NodeOptions options;
  options.lastTask = 12;  // by the run dir
  Parts parts(options);
  parts.numbers.load({nodeRow(9)});
  EXPECT_TRUE(parts.numbers.gaveOut(8));
  EXPECT_FALSE(parts.numbers.gaveOut(12));
  EXPECT_EQ(parts.numbers.takeTask(), 13u);
  parts.inTurn([&](Turn& turn) { parts.numbers.write({}, turn); });
  const auto row = parts.fixture.journal().row({RowKind::Node, 0}).getNode();
  EXPECT_EQ(row.getNextTask(), 14u);
  EXPECT_EQ(row.getUnknownFrom(), 12u);
  EXPECT_EQ(row.getUnknownTo(), 13u);
}

TEST(NodeNumbers, C1_ObeyTheHighestTermOnceItIsStored) {
  Parts parts;
  NodeChange term = parts.change(Kind::Term);
  term.term = 5;
  EXPECT_EQ(*parts.numbers.check(term), Need::Commit);
  parts.inTurn([&](Turn& turn) { parts.numbers.write(term, turn); });
  EXPECT_EQ(parts.fixture.journal().row({RowKind::Node, 0}).getNode().getClusterTerm(), 5u);
  EXPECT_EQ(parts.numbers.term(), 0u);
  parts.inTurn([&](Turn& turn) { parts.numbers.apply(term, turn); });
  EXPECT_EQ(parts.numbers.term(), 5u);
  EXPECT_EQ(*parts.numbers.check(term), Need::Nothing);
  EXPECT_EQ(parts.answers().size(), 2u);
}

// --- cards ---

NodeChange mark(Parts& parts, CardMark wanted, const char* card) {
  NodeChange change = parts.change(Kind::Mark);
  change.mark = wanted;
  change.cardText = card;
  return change;
}

TEST(NodeCards, P8_MarkACardOnceThatIsStoredUnderARowOfItsOwn) {
  Parts parts;
  parts.cards.load({stored({RowKind::Card, 0},
                           [](schema::Row::Builder row) { row.initCard().setId("elsewhere"); })});
  NodeChange cordon = mark(parts, CardMark::Cordoned, "0");
  EXPECT_EQ(*parts.cards.check(cordon), Need::Commit);
  parts.inTurn([&](Turn& turn) { parts.cards.persist(cordon, turn); });
  EXPECT_EQ(parts.ledger.mark(0), CardMark::Ready);
  EXPECT_FALSE(parts.fixture.journal().has({RowKind::Card, 0})) << "that row is another card's";
  EXPECT_TRUE(parts.fixture.journal().row({RowKind::Card, 1}).getCard().getCordoned());
  parts.inTurn([&](Turn& turn) { parts.cards.apply(cordon, turn); });
  EXPECT_EQ(parts.ledger.mark(0), CardMark::Cordoned);
  EXPECT_EQ(*parts.cards.check(cordon), Need::Nothing);
}

TEST(NodeCards, QueueWhoLeavesADrainedCardOfflineTasksFirst) {
  Parts parts;
  const std::uint64_t online = parts.bound(World::spec(Online, 1, 0, "0"));
  const std::uint64_t offline = parts.bound(World::spec(Offline, 1, 10, "0"));
  NodeChange drain = mark(parts, CardMark::Draining, "sim-0");
  EXPECT_EQ(*parts.cards.check(drain), Need::Commit);
  parts.inTurn([&](Turn& turn) { parts.cards.apply(drain, turn); });
  EXPECT_TRUE(parts.cards.isDraining(parts.bindings.placement(online)));
  EXPECT_EQ(parts.cards.takeLeaving(), offline);
  parts.cards.leavesAgain(offline);
  EXPECT_EQ(parts.cards.takeLeaving(), offline);
  EXPECT_EQ(parts.cards.takeLeaving(), online);
  EXPECT_FALSE(parts.cards.anyLeaves());
}

TEST(NodeCards, TellAPolicyOnceItIsChosen) {
  Parts parts;
  NodeChange change = parts.change(Kind::Policy);
  change.policy = Policy::FixedShare;
  change.cardText = "all";
  EXPECT_EQ(*parts.cards.check(change), Need::Commit);
  EXPECT_EQ(parts.heardBy(parts.card1, Which::POLICY_CHOSEN), 0u);
  parts.inTurn([&](Turn& turn) { parts.cards.apply(change, turn); });
  EXPECT_EQ(parts.heardBy(parts.card1, Which::POLICY_CHOSEN), 1u);
  EXPECT_EQ(parts.ledger.policy(1), Policy::FixedShare);
}

TEST(NodeCards, AddUpWhatCardsSayOfATaskAndForgetItWhenItLeaves) {
  Parts parts;
  TaskSpec spec = World::spec(Ordinary, 0, 100);
  spec.cards = 2;
  const std::uint64_t task = parts.bound(spec);
  const Placement placement = parts.bindings.placement(task);
  for (std::uint32_t index = 0; index < 3; ++index) {
    capnp::MallocMessageBuilder message;
    auto report = message.initRoot<schema::CardReport>();
    report.initStatus().initInfo().setIndex(index);
    auto shares = report.initShares(2);
    shares[0].setTask(task);
    shares[0].setTurns(10 + index);
    shares[1].setTask(task + 1);  // of nobody who is here
    const auto card = parts.cards.onReport(report);
    EXPECT_EQ(card.has_value(), index < 2);
  }
  EXPECT_EQ(parts.cards.sharesOf(task, placement).turns, 21u);
  EXPECT_EQ(parts.cards.sharesOf(task + 1, placement).turns, 0u);
  parts.cards.leave(task, placement, "over");
  EXPECT_EQ(parts.cards.sharesOf(task, placement).turns, 0u);
  EXPECT_EQ(parts.heardBy(parts.card0, Which::LEFT), 1u);
  EXPECT_EQ(parts.heardBy(parts.card1, Which::LEFT), 1u);
}

TEST(NodeCards, TellOnceThatASuspendIsLost) {
  Parts parts;
  capnp::MallocMessageBuilder message;
  auto lost = message.initRoot<schema::SuspendLost>();
  lost.setCard(1);
  lost.setWhy("the driver said no");
  parts.cards.onSuspendLost(lost);
  parts.cards.onSuspendLost(lost);
  EXPECT_EQ(parts.cards.facts(0).suspend, schema::Suspend::RM);
  EXPECT_EQ(parts.cards.facts(1).suspend, schema::Suspend::GATE);
  EXPECT_EQ(parts.events(), std::vector<std::string>{"card-suspend-lost"});
}

TEST(NodeCards, TellWhatAReportSaysWhereItSaysSomethingElse) {
  Parts parts;
  const auto read = [&](const char* card, std::uint64_t made, const char* why) {
    capnp::MallocMessageBuilder message;
    auto report = message.initRoot<schema::ReportRead>();
    report.setCard(card);
    report.setMadeUnixMs(made);
    report.setWhy(why);
    parts.cards.onReportRead(report);
  };
  const auto madeOf = [&](std::size_t card) {
    capnp::MallocMessageBuilder message;
    auto status = message.initRoot<schema::CardStatus>();
    parts.cards.write(card, status);
    return status.getReportUnixMs();
  };
  const std::string id = parts.cards.facts(1).id;
  EXPECT_EQ(madeOf(1), 0u);
  read(id.c_str(), 1'000, "");
  read(id.c_str(), 1'000, "");
  read("no such card", 1'000, "");
  EXPECT_EQ(madeOf(0), 0u);
  EXPECT_EQ(madeOf(1), 1'000u);
  EXPECT_EQ(parts.events(), std::vector<std::string>{"card-report"});
  read(id.c_str(), 0, "driver 1 is 2");
  read(id.c_str(), 0, "driver 1 is 2");
  EXPECT_EQ(madeOf(1), 0u);
  EXPECT_EQ(parts.events(), (std::vector<std::string>{"card-report", "card-report"}));
}

// --- bindings ---

TEST(Bindings, P6_ARequestIsOneTaskAlsoForAWhileAfterItsEnd) {
  Parts parts;
  const std::uint64_t task = parts.bound(named("r"));
  EXPECT_EQ(parts.bound(named("r")), 0u);
  EXPECT_TRUE(parts.answers().empty()) << "it is not introduced";
  parts.bindings.answerWaiting(task, *parts.bindings.find(task));
  EXPECT_EQ(parts.answers(), (std::vector<std::string>{"bound", "bound"}));
  parts.bindings.release(task);
  NodeChange again = parts.bind(named("r"));
  EXPECT_EQ(parts.bindings.check(again).error().code, ErrorCode::Conflict);
  for (std::size_t i = 0; i < Bindings::kFinishedKept; ++i) {
    parts.bindings.release(parts.bound(named("r" + std::to_string(i))));
  }
  EXPECT_NE(parts.bound(named("r")), 0u) << "so many have ended since";
}

TEST(Bindings, P6_AnEpochThatEndedStaysEnded) {
  Parts parts;
  const std::uint64_t task = parts.bound(ordered(9, 2));
  EXPECT_EQ(parts.bound(ordered(9, 2)), 0u) << "one binding";
  NodeChange later = parts.bind(ordered(9, 3));
  EXPECT_EQ(parts.bindings.check(later).error().code, ErrorCode::Conflict);
  parts.bindings.release(task);
  NodeChange same = parts.bind(ordered(9, 2));
  EXPECT_EQ(parts.bindings.check(same).error().code, ErrorCode::Conflict);
  EXPECT_EQ(*parts.bindings.check(later), Need::Commit);
}

TEST(Bindings, C5_AreAsManyAsThereAreTaskActors) {
  Parts parts;
  parts.bound(World::spec(Ordinary, 1, 10));
  const std::uint64_t second = parts.bound(World::spec(Ordinary, 1, 10));
  NodeChange third = parts.bind(World::spec(Ordinary, 1, 10));
  EXPECT_EQ(parts.bindings.check(third).error().code, ErrorCode::Overloaded);
  parts.bindings.release(second);
  EXPECT_EQ(*parts.bindings.check(third), Need::Commit);
}

TEST(Bindings, P4_AreTheSameOnceTheyAreRead) {
  Parts parts;
  TaskSpec spec = World::spec(Ordinary, 0, 100);
  spec.cards = 2;
  spec.requestId = "r";
  const std::uint64_t task = parts.bound(spec);
  Parts next;
  const auto row = parts.fixture.journal().row({RowKind::Task, task}).getTask();
  EXPECT_TRUE(next.bindings.load(task, row, Bindings::Taking::AsItIs));
  EXPECT_EQ(next.ledger.digest(), parts.ledger.digest());
  EXPECT_EQ(next.bindings.find(task)->token, parts.bindings.find(task)->token);
  EXPECT_EQ(next.bound(spec), 0u) << "its request is known";
  EXPECT_EQ(next.numbers.takeTask(), task + 1);
  EXPECT_FALSE(next.bindings.load(7, row, Bindings::Taking::IfItFits)) << "the cards are taken";
}

// --- the life of a task ---

TEST(TaskLife, IntroducesToTheTaskThenToTheAttachServerThenToTheCards) {
  Parts parts;
  const std::uint64_t task = parts.bound(World::spec(Ordinary, 1, 10, "0"));
  parts.inTurn([&](Turn& turn) { parts.life.introduce(task, *parts.bindings.find(task), turn); });
  EXPECT_EQ(parts.task0.count(Which::TASK_KNOWN), 1u);
  EXPECT_EQ(parts.attach.count(Which::TASK_KNOWN), 0u);
  parts.fact(task, 0);
  EXPECT_EQ(parts.attach.count(Which::TASK_KNOWN), 1u);
  EXPECT_EQ(parts.card0.count(Which::JOINED), 0u);
  EXPECT_TRUE(parts.answers().empty());
  parts.gateOpened(task);
  EXPECT_EQ(parts.card0.count(Which::JOINED), 1u);
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"bound"});
}

TEST(TaskLife, C2_AnswersABindWhoseIntroductionIsLateAndNeverTwice) {
  Parts parts;
  const std::uint64_t task = parts.bound(World::spec(Ordinary, 1, 10));
  parts.inTurn([&](Turn& turn) { parts.life.introduce(task, *parts.bindings.find(task), turn); });
  parts.fixture.advance(parts.options.introduceMax);
  EXPECT_EQ(parts.answers().size(), 1u);
  parts.fact(task, 0);
  parts.gateOpened(task);
  EXPECT_EQ(parts.answers().size(), 1u);
}

TEST(TaskLife, EndsAtOnceWhereNobodyIsAttachedAndTellsAll) {
  Parts parts;
  const std::uint64_t task = parts.live(World::spec(Ordinary, 1, 10, "0"));
  EXPECT_EQ(*parts.made(parts.end(task)), Need::Commit);
  EXPECT_EQ(parts.bindings.find(task), nullptr);
  EXPECT_TRUE(parts.fixture.journal().row({RowKind::Task, task}).isErased());
  for (const Probe* probe : {&parts.attach, &parts.task0}) {
    EXPECT_EQ(probe->count(Which::TASK_CLOSED), 1u);
  }
  EXPECT_EQ(parts.card0.count(Which::LEFT), 1u);
  EXPECT_EQ(parts.made(parts.end(task)).error().code, ErrorCode::NotFound);
}

TEST(TaskLife, GivesProcessesAGraceAndKillsThemAfterIt) {
  Parts parts;
  const std::uint64_t task = parts.live(World::spec(Ordinary, 1, 10));
  parts.fact(task, 1);
  EXPECT_EQ(*parts.made(parts.end(task)), Need::Commit);
  EXPECT_TRUE(parts.fixture.journal().row({RowKind::Task, task}).getTask().getEvicting());
  EXPECT_EQ(*parts.made(parts.end(task)), Need::Nothing) << "it is being evicted already";
  const auto closed = [&] { return heard(parts.attach, Which::TASK_CLOSED); };
  ASSERT_EQ(closed().size(), 1u);
  EXPECT_FALSE(closed()[0].getTaskClosed().getKill());
  parts.fixture.advance(parts.options.evictGrace);
  ASSERT_EQ(closed().size(), 2u);
  EXPECT_TRUE(closed()[1].getTaskClosed().getKill());
  EXPECT_FALSE(parts.life.anyToClose());
  parts.fact(task, 0);
  ASSERT_TRUE(parts.life.anyToClose());
  EXPECT_EQ(parts.life.nextToClose(), task);
  EXPECT_EQ(*parts.made(parts.end(task, Kind::Close)), Need::Commit);
  EXPECT_FALSE(parts.life.anyToClose());
}

TEST(TaskLife, P9_ReleasesATaskWhoseOwnerIsDeadOnceNobodyIsAttached) {
  Parts parts;
  const std::uint64_t task = parts.live(World::spec(Ordinary, 1, 10));
  parts.fact(task, 1);
  parts.ownerGone(task);
  parts.fixture.advance(parts.options.ownerGrace);
  EXPECT_FALSE(parts.life.anyToClose());
  parts.fact(task, 0);
  EXPECT_TRUE(parts.life.anyToClose());
}

TEST(TaskLife, ClosesATaskWhosePagesCanNotBeMade) {
  Parts parts;
  const std::uint64_t task = parts.bound(World::spec(Ordinary, 1, 10));
  parts.inTurn([&](Turn& turn) { parts.life.introduce(task, *parts.bindings.find(task), turn); });
  parts.fact(task, 0);
  parts.gateOpened(task, "no descriptors left");
  ASSERT_TRUE(parts.life.anyToClose());
  EXPECT_EQ(*parts.made(parts.end(task, Kind::Close)), Need::Commit);
  EXPECT_EQ(parts.answers(), (std::vector<std::string>{"unavailable", "task 1 ended"}));
}

// --- the start ---

TEST(NodeRecovery, D5_TakesWhatLivesAndEndsWhatHadEnded) {
  Parts parts;
  const std::vector<StoredRow> rows = {nodeRow(6), taskRow(1, "sim-0", false, 6),
                                       taskRow(2, "gone")};
  parts.numbers.load(rows);
  parts.recovery.load(rows);
  parts.recovery.takeOver({taskRow(3, "sim-0", true, 4), taskRow(4, "sim-1")});
  parts.recovery.findOutlived({1, 2, 3, 4, 5, 7});
  parts.inTurn([&](Turn& turn) { parts.recovery.persist({}, turn); });
  EXPECT_TRUE(parts.fixture.journal().row({RowKind::Task, 2}).isErased());
  EXPECT_TRUE(parts.fixture.journal().has({RowKind::Task, 4}));
  EXPECT_EQ(parts.attach.size(), 0u);
  for (int i = 0; i < 2; ++i) {
    parts.inTurn([&](Turn& turn) { parts.recovery.apply({}, turn); });
  }
  EXPECT_EQ(parts.events(),
            (std::vector<std::string>{"node-started", "task-lost", "task-taken-over",
                                      "task-not-taken-over", "task-outlived", "task-outlived",
                                      "driver-unknown"}));
  EXPECT_EQ(parts.task0.count(Which::TASK_KNOWN), 1u);
  EXPECT_EQ(parts.card0.count(Which::POLICY_CHOSEN), 1u);
  std::vector<std::uint64_t> killed;
  for (const auto message : heard(parts.attach, Which::TASK_CLOSED)) {
    killed.push_back(message.getTaskClosed().getTask());
  }
  EXPECT_EQ(killed, (std::vector<std::uint64_t>{2, 3, 5})) << "7 is unknown, and stays";
}

TEST(NodeRecovery, TellsOnceOfEachCardWhoseDriverIsNotKnown) {
  Parts parts;
  for (int i = 0; i < 2; ++i) {
    parts.inTurn([&](Turn& turn) { parts.recovery.apply({}, turn); });
  }
  ASSERT_EQ(parts.events(), (std::vector<std::string>{"node-started", "driver-unknown"}));
  const EventRecord told = parts.feed.after(0).back();
  EXPECT_EQ(told.card, "sim-1");
  EXPECT_TRUE(told.text.starts_with(
      "memory counts at calls: driver 615.71 is not known; no rm, and no cap of memory. Install "))
      << told.text;
}

// --- questions and requests ---

TEST(NodeReports, C2_AnswersWithWhatItHasWhenTimeIsUp) {
  Parts parts;
  parts.live(World::spec(Ordinary, 1, 10));
  parts.inTurn([&](Turn& turn) {
    parts.reports.gather({parts.clientId, 1}, NodeReports::About::Tasks, turn);
  });
  EXPECT_EQ(parts.card0.count(Which::REPORT_ASKED), 1u);
  EXPECT_EQ(parts.task0.count(Which::REPORT_ASKED), 1u);
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"bound"});
  parts.fixture.advance(parts.options.gatherMax);
  EXPECT_EQ(parts.answers().size(), 2u);
}

TEST(NodeReports, C5_AreBounded) {
  Parts parts;
  for (std::size_t i = 0; i <= NodeReports::kGathersMax; ++i) {
    parts.inTurn([&](Turn& turn) {
      parts.reports.gather({parts.clientId, i}, NodeReports::About::Cards, turn);
    });
  }
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"overloaded"});
}

TEST(NodeReports, TellAnEventWhereTheWordOfTheStandingChanges) {
  Parts parts;
  parts.reports.setStanding("joined: term 1");
  parts.reports.setStanding("joined: term 2");
  parts.reports.setStanding("lease over: no beat");
  EXPECT_EQ(parts.events(), (std::vector<std::string>{"cluster", "cluster"}));
}

TEST(NodeRequests, TakeOrdersFromTheMemberAlone) {
  Parts parts;
  const World::Fill order = [](schema::Request::Builder r) { r.initEnd().setTask(4); };
  parts.request(order, parts.clientId);
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"unsupported"});
  EXPECT_FALSE(parts.requests.anyChange());
  parts.request(order, parts.peers.member);
  ASSERT_TRUE(parts.requests.anyChange());
  const NodeChange change = parts.requests.takeChange();
  EXPECT_TRUE(change.ordered);
  EXPECT_EQ(change.spec.clusterTask, 4u);
}

TEST(NodeRequests, C5_MakeNoMoreThanSoManyWaitAndTellAllThatAreRefused) {
  Parts parts;
  const World::Fill evict = [](schema::Request::Builder r) { r.setEvict(1); };
  for (std::size_t i = 0; i <= NodeRequests::kChangesMax; ++i) {
    parts.request(evict, parts.clientId);
  }
  EXPECT_EQ(parts.answers(), std::vector<std::string>{"overloaded"});
  parts.requests.refuseChanges(fail(ErrorCode::Unavailable, "the disk is full"));
  EXPECT_FALSE(parts.requests.anyChange());
  EXPECT_EQ(parts.answers().size(), NodeRequests::kChangesMax + 1);
}

}  // namespace
}  // namespace qgpu::testing::node_parts_test
