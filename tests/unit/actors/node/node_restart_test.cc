#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>

#include "tests/unit/actors/base/actors_world.h"

namespace qgpu::node_restart_test {
namespace {

using testing::heard;
using testing::World;
using testing::WorldOptions;
using enum TaskClass;
using Which = schema::Envelope::Which;

// A second manager on the rows that the first one left.
WorldOptions restarted(World& world) {
  WorldOptions options;
  options.incarnation = 2;
  options.rows = world.rows();
  return options;
}

// Whose processes the attach server was told to end, in order.
std::vector<std::uint64_t> killed(World& world) {
  std::vector<std::uint64_t> tasks;
  for (const auto message : heard(world.attach.heard, Which::TASK_CLOSED)) {
    if (message.getTaskClosed().getKill()) tasks.push_back(message.getTaskClosed().getTask());
  }
  return tasks;
}

// What the run dir has of the tasks: their rows.
std::vector<StoredRow> recordsOf(World& world) {
  std::vector<StoredRow> rows;
  for (const StoredRow& row : world.rows()) {
    if (row.key.kind == RowKind::Task) rows.push_back(row);
  }
  return rows;
}

// A manager on a new database, whose run dir has these tasks.
WorldOptions rebuilt(World& world) {
  WorldOptions options;
  options.survivors = recordsOf(world);
  for (const StoredRow& row : options.survivors) {
    options.lastTask = std::max(options.lastTask, row.key.id);
  }
  return options;
}

TEST(NodeRestart, FindsTasksQuotasPolicyAndCordonsAsTheyWere) {
  World world;
  world.start();
  const std::uint64_t first = world.bound(World::spec(Online, 2, 0, "sim-0"));
  const std::uint64_t second = world.bound(World::spec(Offline, 1, 40, "sim-0"));
  world.bound(World::spec(Ordinary, 0, 100, "sim-1"));
  world.order([](schema::Request::Builder r) {
    r.initPolicy().setCard("0");
    r.getPolicy().setPolicy(schema::Policy::FIXED_SHARE);
  });
  world.order([](schema::Request::Builder r) { r.setCordon("1"); });

  World next(restarted(world));
  EXPECT_EQ(next.node->ledger().digest(), world.node->ledger().digest());
  EXPECT_EQ(next.attach.heard.size(), 0u) << "nobody hears before the incarnation is committed";
  next.start();
  const auto before = heard(world.attach.heard, Which::TASK_KNOWN);
  const auto after = heard(next.attach.heard, Which::TASK_KNOWN);
  ASSERT_EQ(after.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after[i].getTaskKnown().getTask(), before[i].getTaskKnown().getTask());
    EXPECT_STREQ(after[i].getTaskKnown().getToken().cStr(),
                 before[i].getTaskKnown().getToken().cStr());
    EXPECT_EQ(after[i].getTaskKnown().getQuotaBytes(), before[i].getTaskKnown().getQuotaBytes());
  }
  const auto chosen = heard(next.cards[0]->heard, Which::POLICY_CHOSEN);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0].getPolicyChosen().getPolicy(), schema::Policy::FIXED_SHARE);
  const auto joined = heard(next.cards[0]->heard, Which::JOINED);
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].getJoined().getTask(), first);
  EXPECT_EQ(joined[1].getJoined().getTask(), second);
  EXPECT_EQ(next.order(World::bind(World::spec(Ordinary, 1, 10, "sim-1"))), "cordoned");
}

World::Fill cordon(const char* card) {
  return [card](schema::Request::Builder r) { r.setCordon(card); };
}
World::Fill uncordon(const char* card) {
  return [card](schema::Request::Builder r) { r.setUncordon(card); };
}

// A manager that finds these cards and no others, and what was stored `before` the last one with
// what that one has written.
WorldOptions finding(World& world, std::vector<std::string> ids,
                     std::vector<StoredRow> before = {}) {
  WorldOptions options = restarted(world);
  const auto written = [&](const StoredRow& row) { return world.fixture.journal().has(row.key); };
  std::copy_if(before.begin(), before.end(), std::back_inserter(options.rows),
               [&](const StoredRow& row) { return !written(row); });
  options.cards = ids.size();
  options.ids = std::move(ids);
  return options;
}

CardMark markOf(World& world, const char* card) {
  return world.node->ledger().mark(*world.node->ledger().findCard(card));
}

TEST(NodeRestart, P8_ACardThatComesBackIsAsItWasWhateverBecameOfTheOthersMeanwhile) {
  WorldOptions both;
  both.ids = {"GPU-a", "GPU-b"};
  World first(both);
  first.start();
  first.order(cordon("GPU-a"));
  World alone(finding(first, {"GPU-b", "GPU-c"}));  // b has a's index now, and c has b's
  alone.start();
  alone.order(cordon("GPU-b"));
  alone.order(uncordon("GPU-b"));
  alone.order(cordon("GPU-c"));
  World again(finding(alone, {"GPU-c", "GPU-b", "GPU-a"}, first.rows()));
  again.start();
  EXPECT_EQ(markOf(again, "GPU-a"), CardMark::Cordoned);
  EXPECT_EQ(markOf(again, "GPU-b"), CardMark::Ready);
  EXPECT_EQ(markOf(again, "GPU-c"), CardMark::Cordoned);
}

TEST(NodeRestart, ItIsKnownWhereTheNewestReportOfACardLies) {
  const auto reported = [](const char* card, const char* path) -> World::Fill {
    return [=](schema::Request::Builder r) {
      auto report = r.initReport();
      report.setCard(card);
      report.setPath(path);
    };
  };
  World world;
  world.start();
  EXPECT_EQ(world.order(reported("1", "report.json")), "invalid-argument") << "from where?";
  EXPECT_EQ(world.order(reported("1", "")), "invalid-argument");
  EXPECT_EQ(world.order(reported("9", "/a/report.json")), "not-found");
  world.order(reported("1", "/a/report.json"));
  world.order(cordon("1"));
  World again(restarted(world));
  again.start();
  const auto cards = again.reply(again.ask([](schema::Request::Builder r) { r.setCards(); }));
  EXPECT_STREQ(cards.getCards()[0].getReport().cStr(), "");
  EXPECT_STREQ(cards.getCards()[1].getReport().cStr(), "/a/report.json");
  EXPECT_EQ(markOf(again, "sim-1"), CardMark::Cordoned);
}

TEST(NodeRestart, P8_ACardWithTwoRowsOfOldIsAsTheStricterSaysUntilItsNextChange) {
  WorldOptions old;
  old.cards = 1;
  old.ids = {"GPU-b"};
  World earlier(old);
  earlier.start();
  earlier.order(cordon("GPU-b"));
  WorldOptions two = restarted(earlier);
  two.cards = 1;
  two.ids = old.ids;
  const auto ofCard = [](const StoredRow& row) { return row.key.kind == RowKind::Card; };
  StoredRow copy = *std::find_if(two.rows.begin(), two.rows.end(), ofCard);
  copy.key.id = 1;  // as a release did that kept rows by index
  two.rows.push_back(std::move(copy));
  World world(two);
  world.start();
  EXPECT_EQ(markOf(world, "GPU-b"), CardMark::Cordoned);
  world.order(uncordon("GPU-b"));
  EXPECT_TRUE(world.fixture.journal().row({RowKind::Card, 1}).isErased());
  World next(finding(world, {"GPU-b"}));
  next.start();
  EXPECT_EQ(markOf(next, "GPU-b"), CardMark::Ready);
}

TEST(NodeRestart, A10_GivesNoNumberTwice) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  world.order([task](schema::Request::Builder r) { r.setUnbind(task); });
  World next(restarted(world));
  next.start();
  EXPECT_GT(next.bound(World::spec(Ordinary, 1, 10)), task);
  const auto story = next.reply(next.ask([](schema::Request::Builder r) { r.setEvents(0); }));
  std::uint64_t seq = 0;
  bool old = false;
  for (const auto event : story.getEvents()) {
    EXPECT_GT(event.getSeq(), seq);
    seq = event.getSeq();
    old = old || text(event.getKind()) == "task-ended";
  }
  EXPECT_TRUE(old) << "the audited story survives";
}

// The incarnations that the attach server was told of, in order.
std::vector<std::uint32_t> chosen(World& world) {
  std::vector<std::uint32_t> values;
  for (const auto message : heard(world.attach.heard, Which::INCARNATION_CHOSEN)) {
    values.push_back(message.getIncarnationChosen().getValue());
  }
  return values;
}

std::uint32_t shown(World& world) {
  return world.reply(world.ask([](schema::Request::Builder r) { r.setInfo(); }))
      .getInfo()
      .getIncarnation();
}

TEST(NodeRestart, A10_AnIncarnationThatAGuestHasMetIsPassedBeforeItIsAnswered) {
  World world;
  world.start();
  EXPECT_EQ(world.storedIncarnation(), 1u);
  world.fixture.journal().holdCommits();
  world.incarnationSeen(6);
  EXPECT_EQ(chosen(world), (std::vector<std::uint32_t>{1})) << "told before it was durable";
  EXPECT_EQ(world.storedIncarnation(), 1u);
  world.incarnationSeen(8);  // while the first one is being written
  world.fixture.journal().commitAutomatically();
  world.fixture.journal().commitNext();
  world.run();
  EXPECT_EQ(world.storedIncarnation(), 9u);
  ASSERT_EQ(chosen(world), (std::vector<std::uint32_t>{1, 7, 9}));
  EXPECT_EQ(shown(world), 9u);
  world.incarnationSeen(5);  // asked again after it was passed
  EXPECT_EQ(chosen(world).back(), 9u);
  EXPECT_EQ(world.storedIncarnation(), 9u);
  world.bound(World::spec(Ordinary, 1, 10));
  EXPECT_EQ(world.storedIncarnation(), 9u) << "later rows keep it";
}

TEST(NodeRestart, HAZARDS8_TheAttachServerHearsThatTheNodeStartedOnceItsRowIsDurable) {
  World world;
  world.fixture.journal().holdCommits();
  world.start();
  EXPECT_TRUE(chosen(world).empty());
  world.fixture.journal().commitAutomatically();
  world.fixture.journal().commitNext();
  world.run();
  EXPECT_EQ(chosen(world), (std::vector<std::uint32_t>{1}));
}

TEST(NodeRestart, A10_AFailedCommitGivesOutNoIncarnationUntilStorageTakesIt) {
  World world;
  world.start();
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.incarnationSeen(6);
  EXPECT_EQ(chosen(world), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(shown(world), 1u);
  world.fixture.journal().commitAutomatically();
  world.fixture.advance(seconds(2));
  EXPECT_EQ(chosen(world), (std::vector<std::uint32_t>{1, 7}));
  EXPECT_EQ(world.storedIncarnation(), 7u);
}

TEST(NodeRestart, P6_RemembersTheRequestsOfBoundTasks) {
  World world;
  world.start();
  TaskSpec spec = World::spec(Ordinary, 1, 10);
  spec.requestId = "again";
  const std::uint64_t task = world.bound(spec);
  World next(restarted(world));
  next.start();
  EXPECT_EQ(next.bound(spec), task);
  EXPECT_EQ(next.node->tasks(), 1u);
}

TEST(NodeRestart, GoesOnWithAnEviction) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  world.attached(task);
  world.order([task](schema::Request::Builder r) { r.setEvict(task); });
  World next(restarted(world));
  next.start();
  EXPECT_EQ(next.attach.heard.count(Which::TASK_CLOSED), 1u);
  next.fixture.advance(seconds(6));  // no process came back
  EXPECT_EQ(next.node->tasks(), 0u);
  EXPECT_EQ(next.taskRows(), 0u);
}

TEST(NodeRestart, GoesOnWithADrain) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10, "sim-0"));
  world.fixture.journal().holdCommits();
  world.ask([](schema::Request::Builder r) { r.setDrain("sim-0"); });
  world.fixture.journal().commitNext();  // the mark is durable, the eviction is not
  world.fixture.dropPending();
  const WorldOptions options = restarted(world);
  World next(options);
  next.start();
  EXPECT_EQ(next.node->tasks(), 0u);
  EXPECT_EQ(next.node->ledger().mark(0), CardMark::Draining);
}

TEST(NodeRestart, GivesUpATaskWhoseCardIsGoneAndKeepsTheOthers) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10, "sim-1"));
  const std::uint64_t kept = world.bound(World::spec(Ordinary, 1, 10, "sim-0"));
  WorldOptions options = restarted(world);
  options.cards = 1;
  World next(options);
  next.start();
  EXPECT_EQ(next.node->tasks(), 1u);
  EXPECT_NE(next.node->ledger().placement(TaskId{kept}), nullptr);
  bool told = false;
  const auto story = next.reply(next.ask([](schema::Request::Builder r) { r.setEvents(0); }));
  for (const auto event : story.getEvents()) told = told || text(event.getKind()) == "task-lost";
  EXPECT_TRUE(told);
  ASSERT_EQ(killed(next).size(), 1u) << "nobody lives of a binding that is over";
  EXPECT_NE(killed(next).front(), kept);
}

// A driver's next version may keep more of a card for itself.
TEST(NodeRestart, ACardThatIsSmallerThanWhatIsBoundKeepsItAndTakesNoMore) {
  World world;
  world.start();
  const std::uint64_t first = world.bound(World::spec(Ordinary, 5, 10, "sim-0"));
  const std::uint64_t second = world.bound(World::spec(Ordinary, 3, 10, "sim-0"));
  const std::uint64_t whole = world.bound(World::spec(Ordinary, 0, 100, "sim-1"));
  WorldOptions options = restarted(world);
  options.gib = 7;
  World next(options);
  next.start();
  for (const std::uint64_t task : {first, second, whole}) {
    EXPECT_NE(next.node->ledger().placement(TaskId{task}), nullptr) << task;
  }
  const std::uint64_t more = next.ask(World::bind(World::spec(Ordinary, 1, 10, "sim-0")));
  EXPECT_EQ(next.code(more), "no-room");
  EXPECT_NE(next.message(more).find(" 0 GiB free of 7 GiB"), std::string::npos)
      << next.message(more);
}

// --- P9: a manager that ended a task was killed before its processes were ---

TEST(NodeRestart, P9_EndsWhatOutlivedItsTask) {
  World world;
  world.start();
  const std::uint64_t ended = world.bound(World::spec(Ordinary, 1, 10));
  const std::uint64_t kept = world.bound(World::spec(Ordinary, 1, 10));
  world.order([ended](schema::Request::Builder r) { r.setUnbind(ended); });
  WorldOptions options = restarted(world);
  options.living = {ended, kept};
  options.lastTask = kept;
  World next(options);
  next.fixture.journal().holdCommits();
  next.start();
  EXPECT_TRUE(killed(next).empty()) << "before the number of this manager is durable";
  next.fixture.journal().commitAutomatically();
  next.fixture.journal().commitNext();
  next.run();
  EXPECT_EQ(killed(next), std::vector<std::uint64_t>{ended});
  bool told = false;
  const auto story = next.reply(next.ask([](schema::Request::Builder r) { r.setEvents(0); }));
  for (const auto event : story.getEvents()) {
    told = told || (text(event.getKind()) == "task-outlived" && event.getTask() == ended);
  }
  EXPECT_TRUE(told);
}

TEST(NodeRestart, P9_WhatLivedBeforeAnOlderCopyNumberedItIsLeftAlone) {
  World world;
  world.start();
  const std::uint64_t ended = world.bound(World::spec(Ordinary, 1, 10));
  world.order([ended](schema::Request::Builder r) { r.setUnbind(ended); });
  WorldOptions older = restarted(world);
  older.living = {ended, ended + 4, ended + 6};  // two are of a time after this copy
  older.lastTask = ended + 6;
  World next(older);
  next.start();
  EXPECT_EQ(killed(next), std::vector<std::uint64_t>{ended});

  // Numbers go on above theirs; they are no more known to have ended than before.
  const std::uint64_t later = next.bound(World::spec(Ordinary, 1, 10));
  EXPECT_EQ(later, ended + 7);
  next.order([later](schema::Request::Builder r) { r.setUnbind(later); });
  WorldOptions again = restarted(next);
  again.living = {ended + 4, ended + 6, later};
  again.lastTask = later;
  World last(again);
  last.start();
  EXPECT_EQ(killed(last), std::vector<std::uint64_t>{later});
}

TEST(NodeRestart, D5_ALostDatabaseEndsNobodyThatItDoesNotTakeOver) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10));
  WorldOptions options = rebuilt(world);
  options.living = {1, 5};  // the record of 5 is of a newer version
  options.lastTask = 5;
  World next(options);
  next.start();
  EXPECT_TRUE(killed(next).empty());
  WorldOptions again = restarted(next);
  again.living = options.living;
  again.lastTask = 5;
  World last(again);
  last.start();
  EXPECT_TRUE(killed(last).empty()) << "nor does the next manager";
}

TEST(NodeRestart, StopsNobodyBecauseTheRulesChanged) {
  World world;
  world.start();
  world.bound(World::spec(Online, 2, 0));
  world.bound(World::spec(Offline, 2, 40));
  WorldOptions options = restarted(world);
  options.mixed = false;
  options.tasksMax = 1;
  World next(options);
  next.start();
  EXPECT_EQ(next.node->tasks(), 2u);
  EXPECT_EQ(next.order(World::bind(World::spec(Online, 1, 0))), "infeasible");
}

// --- D5: the database is gone, tasks live ---

schema::TaskRow::Reader taskOf(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data()).getTask();
}

std::string words(schema::TaskRow::Reader row) {
  return row.toString().flatten().cStr();
}

TEST(NodeRestart, D5_TheAttachServerIsToldTheRowAsItIsStored) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Offline, 2, 40, "sim-0"));
  const auto known = heard(world.attach.heard, Which::TASK_KNOWN);
  ASSERT_EQ(known.size(), 1u);
  const StoredRow stored = recordsOf(world).at(0);
  const auto row = taskOf(stored);
  EXPECT_EQ(row.getId(), task);
  EXPECT_EQ(words(known[0].getTaskKnown().getStored()), words(row));
}

TEST(NodeRestart, D5_ANewDatabaseIsRebuiltFromTheTasksThatLive) {
  World world;
  world.start();
  TaskSpec spec = World::spec(Online, 2, 0, "sim-0");
  spec.ownerUid = 1000;
  spec.requestId = "again";
  const std::uint64_t first = world.bound(spec);
  world.bound(World::spec(Offline, 1, 40, "sim-0"));
  world.bound(World::spec(Ordinary, 0, 100, "sim-1"));
  const std::vector<StoredRow> before = recordsOf(world);

  World next(rebuilt(world));
  EXPECT_EQ(next.node->ledger().digest(), world.node->ledger().digest());
  next.fixture.journal().holdCommits();
  next.start();
  EXPECT_EQ(next.attach.heard.size(), 0u) << "nobody hears of what is not durable (D2)";
  next.fixture.journal().commitAutomatically();
  next.fixture.journal().commitNext();
  next.run();
  const std::vector<StoredRow> after = recordsOf(next);
  ASSERT_EQ(after.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(after[i].key, before[i].key);
    EXPECT_EQ(words(taskOf(after[i])), words(taskOf(before[i])));
  }
  EXPECT_EQ(next.attach.heard.count(Which::TASK_KNOWN), 3u);
  EXPECT_EQ(heard(next.cards[0]->heard, Which::JOINED).size(), 2u);
  EXPECT_EQ(next.bound(spec), first) << "a request is remembered with its task (P6)";

  World third(restarted(next));
  EXPECT_EQ(third.node->ledger().digest(), world.node->ledger().digest());
}

TEST(NodeRestart, D5_ItSaysWhomItTookOver) {
  World world;
  world.start();
  const std::uint64_t task = world.bound(World::spec(Ordinary, 1, 10));
  World next(rebuilt(world));
  next.start();
  std::vector<std::uint64_t> told;
  const auto story = next.reply(next.ask([](schema::Request::Builder r) { r.setEvents(0); }));
  for (const auto event : story.getEvents()) {
    if (text(event.getKind()) == "task-taken-over") told.push_back(event.getTask());
  }
  EXPECT_EQ(told, std::vector<std::uint64_t>{task});
}

// An ended task may die slowly while its room is another's already: both are in the run dir.
TEST(NodeRestart, D5_WhatWasEndingIsTakenOverOnlyWhereItFits) {
  World world;
  world.start();
  const std::uint64_t dying = world.bound(World::spec(Ordinary, 8, 60, "sim-0"));
  world.attached(dying);
  world.order([dying](schema::Request::Builder r) { r.setUnbind(dying); });
  const StoredRow record = recordsOf(world).at(0);
  ASSERT_TRUE(taskOf(record).getEvicting());
  world.gone(dying);
  const std::uint64_t heir = world.bound(World::spec(Ordinary, 0, 100, "sim-0"));

  WorldOptions options = rebuilt(world);
  options.survivors.insert(options.survivors.begin(), record);
  World next(options);
  next.start();
  EXPECT_EQ(next.node->ledger().placement(TaskId{dying}), nullptr);
  ASSERT_NE(next.node->ledger().placement(TaskId{heir}), nullptr);
  EXPECT_EQ(next.node->ledger().use(0).tasks, 1u);
  EXPECT_EQ(heard(next.cards[0]->heard, Which::JOINED).size(), 1u);
  EXPECT_EQ(killed(next), std::vector<std::uint64_t>{dying}) << "its end goes on";
}

// A task may end before anybody wrote that down in its record.
TEST(NodeRestart, D5_WhereTwoWantOneRoomTheNewerTaskIsTakenOver) {
  World world;
  world.start();
  const std::uint64_t older = world.bound(World::spec(Ordinary, 8, 60, "sim-0"));
  const StoredRow record = recordsOf(world).at(0);
  world.order([older](schema::Request::Builder r) { r.setUnbind(older); });
  const std::uint64_t newer = world.bound(World::spec(Ordinary, 1, 60, "sim-0"));

  WorldOptions options = rebuilt(world);
  options.survivors.insert(options.survivors.begin(), record);
  World next(options);
  next.start();
  EXPECT_EQ(next.node->ledger().placement(TaskId{older}), nullptr);
  EXPECT_NE(next.node->ledger().placement(TaskId{newer}), nullptr);
}

TEST(NodeRestart, D5_NumbersOfLivingTasksAreNotGivenOutAgain) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10));
  WorldOptions options = rebuilt(world);
  options.lastTask = 9;  // its processes are dying, it has no row
  World next(options);
  next.start();
  EXPECT_EQ(next.bound(World::spec(Ordinary, 1, 10)), 10u);
  WorldOptions older = restarted(world);  // the store is an older copy
  older.lastTask = 20;
  World last(older);
  last.start();
  EXPECT_EQ(last.bound(World::spec(Ordinary, 1, 10)), 21u);
}

TEST(NodeRestart, D5_AnEvictionGoesOnAndATaskWithoutItsCardIsGivenUp) {
  World world;
  world.start();
  const std::uint64_t evicted = world.bound(World::spec(Ordinary, 1, 10, "sim-0"));
  world.bound(World::spec(Ordinary, 1, 10, "sim-1"));
  world.attached(evicted);
  world.order([evicted](schema::Request::Builder r) { r.setEvict(evicted); });
  WorldOptions options = rebuilt(world);
  options.cards = 1;
  World next(options);
  next.start();
  EXPECT_EQ(next.node->tasks(), 1u);
  EXPECT_EQ(next.attach.heard.count(Which::TASK_CLOSED), 1u);
  next.fixture.advance(seconds(6));
  EXPECT_EQ(next.taskRows(), 0u);
}

TEST(NodeRestart, D5_AFailedFirstCommitIsTriedAgainWithAllOfThem) {
  World world;
  world.start();
  world.bound(World::spec(Ordinary, 1, 10));
  World next(rebuilt(world));
  next.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  next.start();
  EXPECT_EQ(next.attach.heard.count(Which::TASK_KNOWN), 0u);
  next.fixture.journal().commitAutomatically();
  next.fixture.advance(seconds(1));
  EXPECT_EQ(next.attach.heard.count(Which::TASK_KNOWN), 1u);
  EXPECT_EQ(next.taskRows(), 1u);
}

TEST(NodeRestart, StartsOnceStorageTakesItsRow) {
  World world;
  world.fixture.journal().failAutomatically(fail(ErrorCode::Unavailable, "disk full"));
  world.start();
  EXPECT_EQ(world.order(World::bind(World::spec(Ordinary, 1, 10))), "unavailable");
  world.fixture.journal().commitAutomatically();
  world.fixture.advance(seconds(1));
  EXPECT_NE(world.bound(World::spec(Ordinary, 1, 10)), 0u);
}

}  // namespace
}  // namespace qgpu::node_restart_test
