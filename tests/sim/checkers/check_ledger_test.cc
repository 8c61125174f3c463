// Those who judge ledger, requests, storage and mail: each lets a sound history pass and finds the
// one that is not.
#include "tests/sim/checkers/check_ledger.h"

#include <gtest/gtest.h>

#include "tests/sim/checkers/check_mail.h"
#include "tests/sim/checkers/check_storage.h"
#include "tests/unit/store/make_row.h"

namespace qgpu::sim::check_ledger_test {
namespace {

constexpr ActorId kNode{1}, kAttach{2}, kCard{3}, kOtherCard{4}, kSlot{5}, kClient{6};

class CheckTest : public ::testing::Test, public Verdict {
 protected:
  CheckTest() { boot({}); }
  ~CheckTest() override { EXPECT_EQ(found_, expected_); }

  void violated(const char* invariant, const std::string&) override {
    if (found_.empty()) found_ = invariant;
  }
  void expect(const char* invariant) { expected_ = invariant; }

  void boot(std::vector<StoredRow> rows, bool lost = false) {
    Boot boot;
    boot.life = ++lives_;
    boot.node = kNode;
    boot.attach = kAttach;
    boot.clients = {kClient};
    boot.cards = {{kCard, gibibytes(16), false}, {kOtherCard, gibibytes(16), false}};
    boot.tasks = {kSlot};
    boot.mailboxMax = 2;
    boot.rows = rows;
    boot.rowsAgain = std::move(rows);
    boot.databaseLost = lost;
    each([&](Watch& watch) { watch.onBoot(boot, now_); });
  }

  template <typename Call>
  void each(Call&& call) {
    call(mail_);
    call(storage_);
    call(ledger_);
  }

  static StoredRow nodeRow(std::uint64_t nextTask = 100) {
    return makeRow({RowKind::Node, 0}, [&](auto r) {
      r.initNode().setIncarnation(1);
      r.getNode().setNextTask(nextTask);
    });
  }
  static StoredRow taskRow(std::uint64_t id, std::int64_t gib, std::uint32_t share, int cards = 1) {
    return makeRow({RowKind::Task, id}, [&](auto r) {
      auto task = r.initTask();
      task.setId(id);
      task.setToken("token");
      fillSpec(task.initSpec(), id, gib, share, cards);
      auto list = task.initCards(static_cast<unsigned>(cards));
      for (int i = 0; i < cards; ++i) {
        list.set(static_cast<unsigned>(i), i == 0 ? "sim-0" : "sim-1");
      }
    });
  }
  static StoredRow endRow(std::uint64_t id) {
    return makeRow({RowKind::Task, id}, [](auto r) { r.setErased(); });
  }
  StoredRow auditRow(const char* kind) {
    const std::uint64_t seq = ++audits_;
    return makeRow({RowKind::Audit, seq}, [&](auto r) {
      r.initAudit().setSeq(seq);
      r.getAudit().setKind(kind);
      r.getAudit().setActor("uid 0 pid 1");
    });
  }
  static void fillSpec(schema::TaskSpec::Builder spec, std::uint64_t id, std::int64_t gib,
                       std::uint32_t share, int cards) {
    spec.setName("job");
    spec.setClass(schema::TaskClass::ORDINARY);
    spec.setMemBytes(static_cast<std::uint64_t>(gibibytes(gib).value));
    spec.setSharePermille(share);
    spec.setCards(static_cast<std::uint32_t>(cards));
    spec.setRequestId("request " + std::to_string(id));
  }

  std::uint64_t append(const std::vector<StoredRow>& rows) {
    each([&](Watch& watch) { watch.onAppended(batches_ + 1, kNode, rows, now_); });
    return ++batches_;
  }
  void answer(std::uint64_t batch, const Status& status = ok()) {
    each([&](Watch& watch) { watch.onAnswered(batch, status, now_); });
  }
  void commit(const std::vector<StoredRow>& rows) { answer(append(rows)); }

  template <typename Fill>
  void send(ActorId from, ActorId to, Lane lane, Fill&& fill, std::uint64_t serial = 0) {
    carry(from, to, lane, fill, serial,
          [&](const Carried& m) { each([&](Watch& watch) { watch.onSent(m, now_); }); });
  }
  template <typename Fill>
  void turn(ActorId from, ActorId to, Lane lane, Fill&& fill, std::uint64_t serial = 0) {
    carry(from, to, lane, fill, serial, [&](const Carried& m) {
      each([&](Watch& watch) { watch.onTurn(m, now_); });
      each([&](Watch& watch) { watch.onTurnEnd(to, now_); });
    });
  }
  template <typename Fill, typename Call>
  void carry(ActorId from, ActorId to, Lane lane, Fill&& fill, std::uint64_t serial, Call&& call) {
    capnp::MallocMessageBuilder builder;
    fill(builder.initRoot<schema::Envelope>());
    Carried message{from, to, lane, false, serial != 0 ? serial : ++serial_, {}};
    message.message = builder.getRoot<schema::Envelope>().asReader();
    call(message);
  }

  void ask(std::uint64_t corr, std::uint64_t id, std::int64_t gib, std::uint32_t share,
           int cards = 1) {
    const auto fill = [&](schema::Envelope::Builder e) {
      auto request = e.initRequest();
      request.setCorr(corr);
      request.setMayChange(true);
      fillSpec(request.initBind(), id, gib, share, cards);
    };
    deliver(kClient, kNode, fill);
  }
  template <typename Fill>
  void deliver(ActorId from, ActorId to, Fill&& fill) {
    const std::uint64_t serial = ++serial_;
    send(from, to, Lane::Ordinary, fill, serial);
    turn(from, to, Lane::Ordinary, fill, serial);
  }
  void askEnd(std::uint64_t corr, std::uint64_t task) {
    deliver(kClient, kNode, [&](schema::Envelope::Builder e) {
      e.initRequest().setCorr(corr);
      e.getRequest().setMayChange(true);
      e.getRequest().setUnbind(task);
    });
  }
  void fail(std::uint64_t corr, const char* code) {
    deliver(kNode, kClient, [&](schema::Envelope::Builder e) {
      e.initReply().setCorr(corr);
      e.getReply().initFailed().setCode(code);
    });
  }
  void told(std::uint64_t corr, std::uint64_t task, const char* token = "token") {
    deliver(kNode, kClient, [&](schema::Envelope::Builder e) {
      e.initReply().setCorr(corr);
      auto bound = e.getReply().initBound();
      bound.setTask(task);
      bound.setToken(token);
      bound.initCards(1).set(0, "sim-0");
    });
  }
  void done(std::uint64_t corr) {
    deliver(kNode, kClient, [&](schema::Envelope::Builder e) {
      e.initReply().setCorr(corr);
      e.getReply().setDone("done");
    });
  }
  void joined(ActorId card, std::uint64_t task, std::int64_t gib, std::uint32_t share,
              bool whole = false) {
    deliver(kNode, card, [&](schema::Envelope::Builder e) {
      auto joins = e.initJoined();
      joins.setTask(task);
      joins.setClass(schema::TaskClass::ORDINARY);
      joins.setSharePermille(share);
      joins.setExclusive(whole);
      joins.setQuotaBytes(static_cast<std::uint64_t>(gibibytes(gib).value));
    });
  }
  void left(ActorId card, std::uint64_t task) {
    deliver(kNode, card, [&](schema::Envelope::Builder e) { e.initLeft().setTask(task); });
  }
  void nodeTurnEnds() {
    each([&](Watch& watch) { watch.onTurnEnd(kNode, now_); });
  }
  void start() { commit({nodeRow()}); }
  void bind(std::uint64_t id, std::int64_t gib, std::uint32_t share) {
    ask(id, id, gib, share);
    commit({nodeRow(), auditRow("task-bound"), taskRow(id, gib, share)});
  }
  void rest() {
    each([&](Watch& watch) { watch.onPhase(Phase::Restart, now_); });
  }

  MailCheck mail_{*this};
  StorageCheck storage_{*this};
  LedgerCheck ledger_{*this};
  Nanos now_ = seconds(1);
  std::uint32_t lives_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t audits_ = 0;
  std::string found_;
  std::string expected_;
};

TEST_F(CheckTest, ATaskIsBoundAndEnds) {
  start();
  bind(1, 4, 300);
  joined(kCard, 1, 4, 300);
  told(1, 1);
  askEnd(2, 1);
  commit({nodeRow(), auditRow("task-ended"), endRow(1)});
  left(kCard, 1);
  done(2);
  rest();
  EXPECT_EQ(ledger_.model().cards()[0].mem, 0);
}

TEST_F(CheckTest, P1_MemoryBeyondTheCardIsFound) {
  start();
  bind(1, 9, 100);
  bind(2, 7, 100);
  bind(3, 1, 100);
  expect("P1");
}
TEST_F(CheckTest, P2_SharesBeyondTheCardAreFound) {
  start();
  bind(1, 1, 700);
  bind(2, 1, 400);
  expect("P2");
}
TEST_F(CheckTest, P5_ATaskOfTwoCardsThatJoinsOneIsFound) {
  start();
  ask(1, 1, 1, 1000, 2);
  commit({nodeRow(), auditRow("task-bound"), taskRow(1, 16, 1000, 2)});
  joined(kCard, 1, 16, 1000, true);
  nodeTurnEnds();
  expect("P5");
}
TEST_F(CheckTest, P6_ATokenThatTheRowDoesNotHaveIsFound) {
  start();
  bind(1, 1, 100);
  told(1, 1, "another");
  expect("P6");
}
TEST_F(CheckTest, P7_InfeasibleThatWouldFitAnEmptyNodeIsFound) {
  start();
  ask(1, 1, 16, 100);
  fail(1, "infeasible");
  expect("P7");
}
TEST_F(CheckTest, P10_ARefusalWithRoomAllTheTimeIsFound) {
  start();
  ask(1, 1, 16, 100);
  fail(1, "no-room");
  expect("P10");
}
TEST_F(CheckTest, P7_ARefusalWithoutRoomIsSound) {
  start();
  bind(1, 16, 100);
  ask(2, 2, 17, 100);
  fail(2, "infeasible");
}
TEST_F(CheckTest, P9_ACardThatIsNeverToldOfTheEndIsFound) {
  start();
  bind(1, 1, 100);
  joined(kCard, 1, 1, 100);
  askEnd(2, 1);
  commit({nodeRow(), auditRow("task-ended"), endRow(1)});
  told(1, 1);
  done(2);
  rest();
  expect("P9");
}
TEST_F(CheckTest, C7_AnEndThatNobodyAskedForIsFound) {
  start();
  bind(1, 1, 100);
  commit({nodeRow(), auditRow("task-ended"), endRow(1)});
  expect("C7");
}
TEST_F(CheckTest, C7_AChangeWithoutAuditIsFound) {
  start();
  ask(1, 1, 1, 100);
  commit({nodeRow(), taskRow(1, 1, 100)});
  expect("C7");
}
TEST_F(CheckTest, C2_ASecondReplyIsFound) {
  start();
  ask(1, 1, 32, 100);
  fail(1, "infeasible");
  fail(1, "infeasible");
  expect("C2");
}
TEST_F(CheckTest, C2_ARequestWithoutReplyIsFoundAtRest) {
  start();
  ask(1, 1, 1, 100);
  rest();
  expect("C2");
}
TEST_F(CheckTest, D4_ARefusalForStorageThatWorksIsFound) {
  start();
  ask(1, 1, 1, 100);
  fail(1, "unavailable");
  expect("D4");
}
TEST_F(CheckTest, D4_AStorageThatNobodyTriesAgainIsFound) {
  answer(append({nodeRow()}), qgpu::fail(ErrorCode::Unavailable, "full"));
  now_ = now_ + StorageCheck::kTriesAgain + millis(1);
  ask(1, 1, 32, 100);
  expect("D4");
}

TEST_F(CheckTest, D1_TheRowsAfterAnUnansweredBatchAreLegal) {
  start();
  append({nodeRow(7)});
  each([&](Watch& watch) { watch.onEnd(Ending::PowerLoss, now_); });
  boot({nodeRow(7)});
}
TEST_F(CheckTest, D1_WhatALifeFoundAndTheNextOneDoesNotIsFound) {
  start();
  append({nodeRow(7)});
  each([&](Watch& watch) { watch.onEnd(Ending::Crash, now_); });
  boot({nodeRow(7)});
  each([&](Watch& watch) { watch.onEnd(Ending::PowerLoss, now_); });
  boot({nodeRow()});
  expect("D1");
}
TEST_F(CheckTest, D1_AnAcknowledgedBatchThatIsLostIsFound) {
  start();
  commit({nodeRow(107)});
  boot({nodeRow()});
  expect("D1");
}
TEST_F(CheckTest, D2_AMessageThatLeavesBeforeTheCommitIsFound) {
  append({nodeRow()});
  send(kNode, kClient, Lane::Ordinary, [](schema::Envelope::Builder e) { e.initEventTold(); });
  expect("D2");
}
TEST_F(CheckTest, D2_AnUrgentMessageMayLeaveBeforeTheCommit) {
  append({nodeRow()});
  send(kNode, kNode, Lane::Control, [](schema::Envelope::Builder e) { e.initTick(); });
}

TEST_F(CheckTest, C5_AMailboxBeyondItsBoundIsFound) {
  const auto event = [](schema::Envelope::Builder e) { e.initEventTold(); };
  for (int i = 0; i < 3; ++i) send(kClient, kNode, Lane::Ordinary, event);
  expect("C5");
}
TEST_F(CheckTest, C6_MailThatOvertakesIsFound) {
  const auto event = [](schema::Envelope::Builder e) { e.initEventTold(); };
  send(kClient, kNode, Lane::Ordinary, event, 11);
  send(kClient, kNode, Lane::Ordinary, event, 12);
  turn(kClient, kNode, Lane::Ordinary, event, 12);
  turn(kClient, kNode, Lane::Ordinary, event, 11);
  expect("C6");
}
TEST_F(CheckTest, C8_ATurnAfterTheEndIsFound) {
  each([&](Watch& watch) { watch.onEnd(Ending::Stop, now_); });
  turn(kClient, kSlot, Lane::Control, [](schema::Envelope::Builder e) { e.initTick(); });
  expect("C8");
}

}  // namespace
}  // namespace qgpu::sim::check_ledger_test
