#pragma once
// Judges who holds what: from committed rows alone, with a model of its own, against what cards,
// attach server and clients are told.
//
// Judged: P1, P2, P4 (the views of node and card agree with the rows), P5 (all cards or none), P6
// (a task changes nothing but its end, no id twice), P8, P9 (released once, from every card), D2
// (nobody hears of a task, an end or an incarnation before its row), C7 (each row has somebody who
// may ask for it, each change its audit row). Requests and answers: RequestCheck.

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/checkers/check_requests.h"
#include "tests/sim/checkers/ledger_model.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

class LedgerCheck final : public Watch {
 public:
  explicit LedgerCheck(Verdict& verdict) : verdict_(verdict), requests_(verdict, model_) {}

  const LedgerModel& model() const { return model_; }

  // Everything that somebody waits for has had its time: what is owed now is lost.
  void onPhase(Phase phase, Nanos now) override;
  void onBoot(const Boot& boot, Nanos now) override;
  void onSent(const Carried& message, Nanos now) override;
  void onRefused(ActorId from, ActorId to, Nanos now) override;
  void onTurn(const Carried& message, Nanos now) override;
  void onTurnEnd(ActorId self, Nanos now) override;
  void onAppended(std::uint64_t batch, ActorId self, const std::vector<StoredRow>& rows,
                  Nanos now) override;
  void onAnswered(std::uint64_t batch, const Status& status, Nanos now) override;

 private:
  using CardSet = std::uint64_t;  // a bit for each index
  struct Told {
    CardSet joined = 0;  // cards that were told of the task in this life
    CardSet left = 0;
    CardSet owed = 0;     // of a task whose row is gone: cards that were not told so yet
    bool closed = false;  // attach server or task actor were
  };
  struct Batch {
    std::uint64_t number = 0;
    std::vector<StoredRow> rows;
  };
  struct Audit {
    std::uint64_t seq = 0;
    std::string kind;
    std::string actor;
    int rows = 0;
  };

  void bad(const char* invariant, const std::string& what) { verdict_.violated(invariant, what); }
  void bad(const char* invariant, std::uint64_t task, const std::string& what);
  int cardOf(ActorId id) const;

  // Rows.
  void commit(const std::vector<StoredRow>& rows);
  Audit auditOf(const std::vector<StoredRow>& rows);
  void commitTask(std::uint64_t id, schema::TaskRow::Reader row, const Audit& audit);
  void commitEnd(std::uint64_t id, const Audit& audit);
  void commitCard(schema::CardRow::Reader row, const Audit& audit);
  void commitNode(schema::NodeRow::Reader row);
  bool mayEnd(std::uint64_t id, const HeldTask& task) const;
  void wantAudit(const Audit& audit, const char* kind, const std::string& what);

  // Messages.
  void toldJoined(ActorId to, schema::Joined::Reader joined);
  void toldLeft(ActorId to, std::uint64_t task);
  void toldKnown(std::uint64_t task);
  void toldClosed(const Carried& message);
  void toldReply(ActorId to, schema::Reply::Reader reply);
  void judgeCards(capnp::List<schema::CardStatus>::Reader list);
  void judgeTasks(capnp::List<schema::TaskInfo>::Reader list);
  void judgeCardView(ActorId card, schema::CardReport::Reader report);
  void judgeTurn();
  void atRest();

  Verdict& verdict_;
  Boot boot_;
  LedgerModel model_;
  RequestCheck requests_;
  std::deque<Batch> pending_;
  bool firstBatch_ = true;  // of this life: what the node does at its start
  std::uint64_t lastAudit_ = 0;
  std::uint32_t incarnation_ = 0;   // committed
  std::uint64_t nextTask_ = 0;      // committed
  std::set<std::uint64_t> used_;    // task ids of the whole run
  std::set<std::uint64_t> mayEnd_;  // the owner is gone, or its pages could not be made
  std::set<std::uint64_t> opened_;  // pages exist, as the node was told
  std::map<std::uint64_t, Told> told_;
  std::vector<std::set<std::uint64_t>> onCard_;  // as each card was told, by delivery

  // The node's mailboxes that were full: what is owed to those comes later.
  std::uint32_t firstId_ = 0;
  std::vector<std::uint8_t> lagging_;  // by id - firstId_
  std::vector<ActorId> refusedNow_;    // in this turn of the node
  std::vector<ActorId> sentNow_;
  bool judgeNow_ = false;  // somebody was told of a task in this turn
};

}  // namespace qgpu::sim
