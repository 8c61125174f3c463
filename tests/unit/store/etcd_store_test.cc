// Rows in etcd, and who may change them: EtcdStore and Seat over a modelled etcd that loses calls
// and answers, and delivers calls late.

#include "store/etcd/etcd_store.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "runtime/actor.h"
#include "store/etcd/seat.h"
#include "store/etcd/seat_rounds.h"
#include "store/row_copy.h"
#include "store/testing/model_etcd.h"
#include "tests/testing/story_seeds.h"
#include "tests/unit/store/store_fixture.h"

namespace qgpu {
namespace {

using ::testing::Test;
using Fate = ModelClient::Fate;
using Commit = RowStore::Commit;

constexpr const char* kPrefix = "/qgpu/test/";

Seat seatOf(Kv& kv, const std::string& identity) {
  return Seat(kv, {.prefix = kPrefix, .identity = identity, .address = identity + ":12346"});
}

class EtcdStoreTest : public Test {
 protected:
  // The next scheduler: the one before is gone, and its lease with it.
  std::unique_ptr<EtcdStore> open(ModelClient& client) {
    auto store = tryOpen(client);
    EXPECT_TRUE(store.ok()) << (store ? "" : store.error().message);
    return store ? std::move(*store) : nullptr;
  }
  Result<std::unique_ptr<EtcdStore>> tryOpen(ModelClient& client) {
    etcd_.advanceTo(etcd_.now() + seconds(3));
    Seat seat = seatOf(client, "life " + std::to_string(++lives_));
    seat.step(etcd_.now());
    EXPECT_EQ(seat.state(), Seat::State::Seated);
    return EtcdStore::open(
        client, {kPrefix, seat.guard(), [this](const std::string& why) { lost_.push_back(why); }});
  }
  std::vector<StoredRow> reopened() {
    const auto store = open(client_);
    auto rows = store->load();
    EXPECT_TRUE(rows.ok());
    return rows ? std::move(*rows) : std::vector<StoredRow>();
  }
  static void commit(EtcdStore& store, const std::vector<StoredRow>& rows) {
    for (const StoredRow& row : rows) ASSERT_TRUE(store.add(row).ok());
    ASSERT_EQ(store.commit(), Commit::Done) << store.why().message;
  }
  void put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(etcd_.txn({{}, {{KvChange::Does::Put, kPrefix + key, {}, value, 0}}})->done);
  }
  std::vector<KvPair> keys(const std::string& below) {
    return etcd_.list(kPrefix + below, endOfPrefix(kPrefix + below), 100'000);
  }

  ModelEtcd etcd_;
  ModelClient client_{etcd_};
  std::vector<std::string> lost_;
  int lives_ = 0;
};

TEST_F(EtcdStoreTest, D1_TheNewestRowOfEachKeyIsThereAgain) {
  const auto store = open(client_);
  commit(*store, {nodeRow(1), taskRow(1, "a"), taskRow(2, "b")});
  commit(*store, {taskRow(1, "c"), erasedTask(2)});
  const auto rows = reopened();
  EXPECT_EQ(taskNames(rows), std::vector<std::string>{"c"});
  EXPECT_EQ(rows.size(), 2U);
}

RowCopy copyOf(std::vector<StoredRow> rows) {
  return {"scheduler", "host", 1, "0.1.0", std::move(rows)};
}

TEST_F(EtcdStoreTest, D1_ARestoreWithoutAnAnswerIsAskedForAgain) {
  const auto store = open(client_);
  int asked = 0;
  client_.setFate([] { return Fate::AnswerLost; });
  const auto askAgain = [&] {
    if (++asked == 2) client_.setFate(nullptr);
    return true;
  };
  EXPECT_TRUE(restoreInto(*store, copyOf({nodeRow(1), taskRow(1, "a")}), 5, askAgain).ok());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(taskNames(reopened()), std::vector<std::string>{"a"});
}

TEST_F(EtcdStoreTest, D1_ARestoreThatMayBeDoneSaysSo) {
  const auto store = open(client_);
  client_.setFate([] { return Fate::AnswerLost; });
  const Status done = restoreInto(*store, copyOf({taskRow(1, "a")}), 5);
  client_.setFate(nullptr);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("nobody can tell"), std::string::npos);
  const auto next = open(client_);
  EXPECT_EQ(restoreInto(*next, copyOf({taskRow(1, "a")}), 5).error().code,
            ErrorCode::AlreadyExists);
}

TEST_F(EtcdStoreTest, D1_ARestoreIsDoneOnceItIsStoredWhateverBecomesOfTheSnapshot) {
  const auto store = open(client_);
  int calls = 0;
  client_.setFate([&calls] { return ++calls == 1 ? Fate::Answered : Fate::Lost; });
  EXPECT_TRUE(restoreInto(*store, copyOf({taskRow(1, "a")}), 5).ok());
  EXPECT_GT(calls, 1);
  client_.setFate(nullptr);
  EXPECT_EQ(taskNames(reopened()), std::vector<std::string>{"a"});
}

TEST_F(EtcdStoreTest, ACommitIsOneKey) {
  const auto store = open(client_);
  commit(*store, {taskRow(1, "a"), taskRow(2, "b"), taskRow(3, "c")});
  EXPECT_EQ(keys("journal/").size(), 1U);
  EXPECT_EQ(store->journalRows(), 3U);
}

TEST_F(EtcdStoreTest, D3_ASnapshotFoldsTheJournal) {
  const auto store = open(client_);
  std::vector<StoredRow> rows;
  for (std::uint64_t id = 1; id <= 2 * EtcdStore::kChangesMax; ++id)
    rows.push_back(taskRow(id, "t"));
  commit(*store, rows);
  commit(*store, {erasedTask(1), taskRow(2, "again")});
  ASSERT_TRUE(store->snapshot().ok());
  EXPECT_TRUE(keys("journal/").empty());
  EXPECT_EQ(store->journalRows(), 0U);
  commit(*store, {taskRow(3, "later")});
  const auto found = reopened();
  EXPECT_EQ(found.size(), 2 * EtcdStore::kChangesMax - 1);
  EXPECT_EQ(taskNames(found)[0], "again");
  EXPECT_EQ(taskNames(found)[1], "later");
}

TEST_F(EtcdStoreTest, D3_ASnapshotThatStopsAnywhereLosesNothing) {
  for (int calls = 0; calls < 6; ++calls) {
    const auto store = open(client_);
    std::vector<StoredRow> rows;
    for (std::uint64_t id = 1; id <= 250; ++id) {
      rows.push_back(id % 7 == 0 ? erasedTask(id) : taskRow(id, std::to_string(calls)));
    }
    commit(*store, rows);
    int left = calls;
    client_.setFate([&left] { return left-- > 0 ? Fate::Answered : Fate::AnswerLost; });
    EXPECT_EQ(store->snapshot().ok(), calls >= 4) << calls;
    client_.setFate(nullptr);
    const auto found = reopened();
    EXPECT_EQ(found.size(), 250U - 35U);
    EXPECT_EQ(taskNames(found)[0], std::to_string(calls));
  }
}

TEST_F(EtcdStoreTest, AuditRowsBeyondTheNewestAreForgotten) {
  const auto store = open(client_);
  const auto count = static_cast<std::uint64_t>(kAuditRowsMax) + 5;
  for (std::uint64_t seq = 1; seq <= count; ++seq) ASSERT_TRUE(store->add(auditRow(seq)).ok());
  ASSERT_EQ(store->commit(), Commit::Done);
  ASSERT_TRUE(store->snapshot().ok());
  const auto found = reopened();
  EXPECT_EQ(found.size(), static_cast<std::size_t>(kAuditRowsMax));
  EXPECT_EQ(found.front().key.id, 6U);
}

TEST_F(EtcdStoreTest, D1_ALargeTransactionIsWholeOrAbsent) {
  const std::string name(10'000, 'x');  // twice in a row
  std::vector<StoredRow> rows;
  for (std::uint64_t id = 1; id <= 120; ++id) rows.push_back(taskRow(id, name));
  {
    const auto store = open(client_);
    int left = 2;
    client_.setFate([&left] { return left-- > 0 ? Fate::Answered : Fate::Lost; });
    for (const StoredRow& row : rows) ASSERT_TRUE(store->add(row).ok());
    EXPECT_EQ(store->commit(), Commit::Unsure);
    client_.setFate(nullptr);
  }
  EXPECT_EQ(keys("journal/").size(), 2U);
  EXPECT_TRUE(reopened().empty());
  EXPECT_TRUE(keys("journal/").empty());
  commit(*open(client_), rows);
  EXPECT_EQ(reopened().size(), rows.size());
}

TEST_F(EtcdStoreTest, ACommitWithoutAnAnswerIsAskedForAgain) {
  const auto store = open(client_);
  for (const Fate fate : {Fate::AnswerLost, Fate::Lost, Fate::Late}) {
    ASSERT_TRUE(store->add(taskRow(static_cast<std::uint64_t>(fate), "t")).ok());
    client_.setFate([fate] { return fate; });
    EXPECT_EQ(store->commit(), Commit::Unsure);
    EXPECT_EQ(store->commit(), Commit::Unsure);
    client_.setFate(nullptr);
    EXPECT_EQ(store->commit(), Commit::Done);
    client_.deliver();
  }
  EXPECT_EQ(reopened().size(), 3U);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(EtcdStoreTest, D4_WhatEtcdRefusesIsUndoneAndTheNextChangeCounts) {
  const auto store = open(client_);
  commit(*store, {taskRow(1, "a")});
  client_.setFate([] { return Fate::Refused; });
  ASSERT_TRUE(store->add(taskRow(2, "b")).ok());
  EXPECT_EQ(store->commit(), Commit::Undone);
  EXPECT_NE(store->why().message.find("space"), std::string::npos);
  EXPECT_FALSE(store->probe().ok());
  client_.setFate(nullptr);
  EXPECT_TRUE(store->probe().ok());
  commit(*store, {taskRow(3, "c")});
  EXPECT_EQ(taskNames(reopened()), (std::vector<std::string>{"a", "c"}));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(EtcdStoreTest, WhatMayBeStoredIsNeverToldAsUndone) {
  const auto store = open(client_);
  ASSERT_TRUE(store->add(taskRow(1, "a")).ok());
  client_.setFate([] { return Fate::Late; });
  EXPECT_EQ(store->commit(), Commit::Unsure);
  client_.setFate([] { return Fate::Refused; });
  EXPECT_EQ(store->commit(), Commit::Unsure);
  EXPECT_EQ(lost_.size(), 1U);
}

TEST_F(EtcdStoreTest, C1_WhoLostTheSeatChangesNothing) {
  ModelClient before(etcd_);
  const auto old = open(before);
  commit(*old, {taskRow(1, "a")});
  before.setFate([] { return Fate::Late; });
  ASSERT_TRUE(old->add(taskRow(1, "late")).ok());
  EXPECT_EQ(old->commit(), Commit::Unsure);
  const auto now = open(client_);
  commit(*now, {taskRow(1, "b")});
  before.deliver();
  before.setFate(nullptr);
  EXPECT_EQ(old->commit(), Commit::Unsure);
  EXPECT_FALSE(old->probe().ok());
  EXPECT_EQ(lost_, std::vector<std::string>{"another scheduler acts"});
  EXPECT_EQ(taskNames(reopened()), std::vector<std::string>{"b"});
}

TEST_F(EtcdStoreTest, D5_DamageIsToldAndNotServed) {
  {
    const auto store = open(client_);
    commit(*store, {taskRow(1, "a")});
    ASSERT_TRUE(store->snapshot().ok());
    commit(*store, {taskRow(2, "b")});
    commit(*store, {taskRow(3, "c")});
  }
  const auto refused = [this](const std::string& key, const std::string& value) {
    const auto all = keys("");
    const auto was = std::find_if(all.begin(), all.end(),
                                  [&](const KvPair& pair) { return pair.key == kPrefix + key; });
    ASSERT_NE(was, all.end()) << key;
    put(key, value.empty() ? was->value.substr(0, was->value.size() - 1) + "?" : value);
    const auto opened = tryOpen(client_);
    ASSERT_FALSE(opened.ok()) << key;
    EXPECT_EQ(opened.error().code, ErrorCode::Corrupt) << opened.error().message;
    EXPECT_NE(opened.error().message.find(kPrefix), std::string::npos);
    put(key, was->value);
  };
  refused("journal/0000000000000002", "");
  refused("journal/0000000000000003", "qgp");
  refused("rows/3/0000000000000001", "");
  refused("folded", "first");
  EXPECT_EQ(reopened().size(), 3U);
  ASSERT_TRUE(etcd_
                  .txn({{},
                        {{KvChange::Does::Delete,
                          std::string(kPrefix) + "journal/0000000000000002",
                          {},
                          {},
                          0}}})
                  ->done);
  const auto hole = tryOpen(client_);
  ASSERT_FALSE(hole.ok());
  EXPECT_EQ(hole.error().code, ErrorCode::Corrupt);
}

TEST_F(EtcdStoreTest, D6_ANewerFormatIsRefused) {
  commit(*open(client_), {taskRow(1, "a")});
  put("format", "2");
  const auto opened = tryOpen(client_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::Unsupported);
  EXPECT_NE(opened.error().message.find("newer qgpu"), std::string::npos);
}

TEST_F(EtcdStoreTest, D6_RowsThatNeedALaterReaderAreRefusedByItsVersion) {
  commit(*open(client_), {taskRow(1, "a")});
  EXPECT_EQ(keys("reader").size(), 1U);
  put("reader", "2 3.1.0");
  const auto opened = tryOpen(client_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::Unsupported);
  EXPECT_NE(opened.error().message.find("needs qgpu 3.1.0 or newer"), std::string::npos)
      << opened.error().message;
  put("reader", "1 0.1.0");
  EXPECT_TRUE(tryOpen(client_).ok());
}

TEST_F(EtcdStoreTest, ItIsReadAgainWhileItIsSeatedAndNotAfter) {
  const auto store = open(client_);
  commit(*store, {taskRow(1, "a"), taskRow(2, "b")});
  ASSERT_TRUE(store->load().ok()) << "what open() read";
  EXPECT_EQ(taskNames(store->load().value()), (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(store->snapshot().ok());
  commit(*store, {taskRow(2, "c")});
  EXPECT_EQ(taskNames(store->load().value()), (std::vector<std::string>{"a", "c"}));
  commit(*store, {taskRow(3, "d")});
  EXPECT_EQ(taskNames(reopened()), (std::vector<std::string>{"a", "c", "d"}));
  EXPECT_FALSE(store->load().ok()) << "another one is seated";
}

// --- seat ---

TEST(Seat, OneIsSeatedAndTheOtherSeesWho) {
  ModelEtcd etcd;
  ModelClient one(etcd), two(etcd);
  Seat first = seatOf(one, "one"), second = seatOf(two, "two");
  first.step(Nanos(0));
  second.step(Nanos(0));
  EXPECT_EQ(first.state(), Seat::State::Seated);
  EXPECT_EQ(second.state(), Seat::State::Waiting);
  ASSERT_TRUE(second.other().has_value());
  EXPECT_EQ(second.other()->address, "one:12346");
  EXPECT_EQ(first.heldUntil(), seconds(2));
}

TEST(Seat, ItMovesWithinTheLeaseAndALook) {
  ModelEtcd etcd;
  ModelClient one(etcd), two(etcd);
  Seat first = seatOf(one, "one"), second = seatOf(two, "two");
  first.step(Nanos(0));
  Nanos at;
  while (second.state() != Seat::State::Seated && at < seconds(10)) {
    etcd.advanceTo(at);
    at += second.step(at);
  }
  EXPECT_LE(at, seconds(2) + millis(600));
  EXPECT_EQ(first.step(at), kNever);
  EXPECT_EQ(first.state(), Seat::State::Lost);
}

TEST(Seat, GivenBackItMovesAtOnce) {
  ModelEtcd etcd;
  ModelClient one(etcd), two(etcd);
  Seat first = seatOf(one, "one"), second = seatOf(two, "two");
  first.step(Nanos(0));
  first.leave();
  second.step(Nanos(0));
  EXPECT_EQ(second.state(), Seat::State::Seated);
}

TEST(Seat, WhoseProcessHasEndedIsNotWaitedFor) {
  ModelEtcd etcd;
  ModelClient one(etcd), two(etcd);
  Seat first = seatOf(one, "one"), second = seatOf(two, "two");
  first.step(Nanos(0));
  second.step(Nanos(0));
  second.ended("one");
  two.setFate([] { return Fate::Lost; });
  second.step(millis(1));
  EXPECT_EQ(second.state(), Seat::State::Waiting);
  two.setFate(nullptr);
  second.step(millis(2));
  EXPECT_EQ(second.state(), Seat::State::Seated);
}

TEST(Seat, C1_TheEndOfOneEndsNoOther) {
  ModelEtcd etcd;
  ModelClient one(etcd), two(etcd), three(etcd);
  Seat first = seatOf(one, "one"), second = seatOf(two, "two"), third = seatOf(three, "three");
  first.step(Nanos(0));
  for (Seat* waiting : {&second, &third}) {
    waiting->step(Nanos(0));
    waiting->ended("one");
    waiting->step(millis(1));
  }
  EXPECT_EQ(second.state(), Seat::State::Seated);
  EXPECT_EQ(third.other()->identity, "two");
  third.step(millis(2));
  EXPECT_EQ(third.state(), Seat::State::Waiting);
  EXPECT_TRUE(etcd.txn({{second.guard()}, {}})->done);
}

TEST(Seat, AnAnswerThatWasLostIsFoundAgain) {
  ModelEtcd etcd;
  ModelClient one(etcd);
  Seat seat = seatOf(one, "one");
  int call = 0;
  one.setFate([&call] { return ++call == 3 ? Fate::AnswerLost : Fate::Answered; });
  seat.step(Nanos(0));
  EXPECT_EQ(seat.state(), Seat::State::Waiting);
  seat.step(millis(100));
  EXPECT_EQ(seat.state(), Seat::State::Seated);
  EXPECT_EQ(seat.heldUntil(), millis(100) + seconds(2));
  EXPECT_TRUE(etcd.txn({{seat.guard()}, {}})->done);
}

TEST(Seat, WithoutAnAnswerItIsHeldNoLongerThanItsLease) {
  ModelEtcd etcd;
  ModelClient one(etcd);
  Seat seat = seatOf(one, "one");
  seat.step(Nanos(0));
  one.setFate([] { return Fate::AnswerLost; });
  for (Nanos at = millis(500); at < seconds(4); at += millis(100)) seat.step(at);
  EXPECT_EQ(seat.state(), Seat::State::Seated);
  EXPECT_EQ(seat.heldUntil(), seconds(2));
  EXPECT_FALSE(seat.health().ok());
  one.setFate(nullptr);
  seat.step(seconds(4));
  EXPECT_EQ(seat.heldUntil(), seconds(6));
}

// --- its rounds ---

struct SeatRoundsTest : Test {
  SeatRounds roundsOf(Kv& kv, const std::string& identity) {
    SeatRounds::Calls calls;
    calls.seated = [this, identity](const KvCondition&) { told.push_back(identity + " seated"); };
    calls.lost = [this, identity](const std::string&) { told.push_back(identity + " lost"); };
    calls.other = [this, identity](const SeatHolder& other) {
      told.push_back(identity + " sees " + (other.address.empty() ? "nobody" : other.address));
    };
    calls.health = [this, identity](const Status& health) {
      told.push_back(identity + (health ? " has answers" : " has none"));
    };
    const SeatOptions options{.prefix = kPrefix, .identity = identity, .address = identity};
    return {kv, options, [](const std::function<void()>& work) { work(); }, std::move(calls)};
  }

  ModelEtcd etcd;
  std::vector<std::string> told;
};

TEST_F(SeatRoundsTest, WhatChangesIsToldOnce) {
  ModelClient first(etcd), second(etcd);
  SeatRounds one = roundsOf(first, "one"), two = roundsOf(second, "two");
  for (int i = 0; i < 3; ++i) one.round(millis(100) * i);
  for (int i = 0; i < 3; ++i) two.round(millis(300) + millis(100) * i);
  EXPECT_EQ(told, (std::vector<std::string>{"one seated", "two sees one"}));
  told.clear();
  etcd.advanceTo(seconds(3));
  for (int i = 0; i < 2; ++i) two.round(seconds(3) + millis(i));
  for (int i = 0; i < 2; ++i) one.round(seconds(3) + millis(i));
  EXPECT_EQ(told, (std::vector<std::string>{"two seated", "one has none", "one lost"}));
}

TEST_F(SeatRoundsTest, C1_ItHoldsUntilItsLeaseMayBeOverWhetherItKnowsOrNot) {
  ModelClient first(etcd);
  SeatRounds one = roundsOf(first, "one");
  EXPECT_FALSE(one.holds(Nanos(0)));
  one.round(Nanos(0));
  EXPECT_TRUE(one.holds(seconds(2) - Nanos(1)));
  EXPECT_FALSE(one.holds(seconds(2))) << "it slept, and nobody has told it yet";
  one.leave();
  EXPECT_FALSE(one.holds(Nanos(1)));
}

// --- both, by seeds ---

// Three schedulers on one etcd: each looks, is seated, adds numbered tasks, stops for a while, and
// loses calls. What counts at the end is what was told as done, in order, and nothing twice.
class Story {
 public:
  explicit Story(std::uint64_t seed) : dice_(seed) {}

  void run() {
    for (int step = 0; step < 400; ++step) {
      now_ += millis(static_cast<std::int64_t>(dice_.next() % 300));
      etcd_.advanceTo(now_);
      Life& life = lives_[dice_.next() % lives_.size()];
      if (!life.seat) life.begin(*this, ++born_);
      if (dice_.next() % 40 == 0)
        life.end();
      else if (dice_.next() % 30 == 0)
        life.client.deliver();
      else
        life.act(*this);
      int held = 0;
      for (const Life& each : lives_) held += each.holds(now_) ? 1 : 0;
      ASSERT_LE(held, 1) << "two schedulers may speak at once";
    }
    judge();
  }

 private:
  struct Life {
    explicit Life(ModelEtcd& etcd) : client(etcd) {}
    bool holds(Nanos now) const {
      return seat && seat->state() == Seat::State::Seated && now < seat->heldUntil();
    }
    void begin(Story& story, int number) {
      client.setFate([&story] { return story.fate(); });
      seat.emplace(seatOf(client, "life " + std::to_string(number)));
    }
    void end() {
      store.reset();
      seat.reset();
      open.clear();
    }
    void act(Story& story) {
      seat->step(story.now_);
      if (seat->state() == Seat::State::Lost || over) {
        over = false;
        return end();
      }
      if (seat->state() != Seat::State::Seated) return;
      if (store == nullptr) {
        auto opened = EtcdStore::open(
            client, {kPrefix, seat->guard(), [this](const std::string&) { over = true; }});
        if (opened) store = std::move(*opened);
        if (!opened && opened.error().code == ErrorCode::Corrupt) story.fault(opened.error());
        return;
      }
      if (story.dice_.next() % 5 == 0 && open.empty()) {
        static_cast<void>(store->snapshot().ok());
        return;
      }
      change(story);
    }
    void change(Story& story) {
      if (open.empty()) {
        for (std::uint64_t n = 1 + story.dice_.next() % 3; n > 0; --n) {
          open.push_back(++story.last_);
          ASSERT_TRUE(store->add(taskRow(story.last_, "t")).ok());
        }
      }
      const Commit done = store->commit();
      if (done == Commit::Unsure) return;
      if (done == Commit::Done) story.told_.insert(open.begin(), open.end());
      if (done == Commit::Undone) story.refused_.insert(open.begin(), open.end());
      open.clear();
    }
    ModelClient client;
    std::optional<Seat> seat;
    std::unique_ptr<EtcdStore> store;
    std::vector<std::uint64_t> open;
    bool over = false;
  };

  Fate fate() {
    switch (dice_.next() % 16) {
      case 0:
        return Fate::AnswerLost;
      case 1:
        return Fate::Lost;
      case 2:
        return Fate::Late;
      case 3:
        return dice_.next() % 4 == 0 ? Fate::Refused : Fate::Answered;
      default:
        return Fate::Answered;
    }
  }
  void fault(const Error& error) { ADD_FAILURE() << error.message; }

  void judge() {
    for (Life& life : lives_) life.client.deliver();
    etcd_.advanceTo(now_ + seconds(10));
    ModelClient client(etcd_);
    Seat seat = seatOf(client, "judge");
    seat.step(now_ + seconds(10));
    auto store = EtcdStore::open(client, {kPrefix, seat.guard(), nullptr});
    ASSERT_TRUE(store.ok()) << store.error().message;
    std::set<std::uint64_t> found;
    const auto rows = (*store)->load();
    for (const StoredRow& row : *rows) found.insert(row.key.id);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), told_.begin(), told_.end()));
    for (const std::uint64_t id : refused_) EXPECT_FALSE(found.contains(id)) << id;
  }

  Prng dice_;
  Nanos now_ = seconds(1);
  ModelEtcd etcd_;
  std::array<Life, 3> lives_{Life(etcd_), Life(etcd_), Life(etcd_)};
  std::set<std::uint64_t> told_;
  std::set<std::uint64_t> refused_;
  std::uint64_t last_ = 0;
  int born_ = 0;
};

TEST(EtcdStory, C1_D1_WhatWasToldIsThereWhoeverWasSeated) {
  for (std::uint64_t seed = 1; seed <= testing::storySeeds(300); ++seed) {
    Story(seed).run();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace qgpu
