#pragma once
// What clients asked of one life of the node and have not been answered yet: judges each answer,
// and says whether a committed row was asked for by somebody who may ask. Part of LedgerCheck.
//
// Judged: C2 (one reply to each request), C7 (what is ill-formed or forbidden changes nothing), P6
// (a request id has one task), P7 and P10 as far as answers show them, D4 (refusals while storage
// is out of order, and only then).

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "schema/envelope.capnp.h"
#include "tests/sim/checkers/ledger_model.h"
#include "tests/sim/watch.h"

namespace qgpu::sim {

class RequestCheck {
 public:
  RequestCheck(Verdict& verdict, const LedgerModel& model) : verdict_(verdict), model_(model) {}

  void boot();
  // The model has tasks that nobody asked this life for.
  void learnTasks();
  // The database of earlier lives is gone, and with it what was promised about their ids.
  void forget();

  // A request reached the node; a reply left it.
  void asked(ActorId client, schema::Request::Reader request);
  void answered(ActorId client, schema::Reply::Reader reply);
  // What no answer can come from any more.
  void storageFailed();
  void storageWorks() { storageOut_ = false; }

  // --- committed rows: who asked for it? ---
  void taskBound(std::uint64_t id, const HeldTask& task);
  void taskErased(const HeldTask& task);
  bool endAsked(std::uint64_t id, const HeldTask& task) const;
  bool policyAsked(std::uint32_t card, Policy policy) const;
  bool markAsked(std::uint32_t card, schema::Request::Which mark) const;
  void permitted() { ++permits_; }
  // Room for those who wait may have become another.
  void modelChanged();

  // Everything that can be answered is.
  void atRest();
  std::size_t open() const { return open_.size(); }

 private:
  struct Ask {
    schema::Request::Which which = schema::Request::INFO;
    std::uint32_t uid = 0;
    bool mayChange = false;
    Want want;  // of a bind
    std::string flaw;
    bool fits = false;       // at some moment since it was asked
    bool hadNoRoom = false;  // does not fit, at some moment since then
    bool bound = false;      // its task's row was committed
    std::uint64_t task = 0;
    std::string card;
    Policy policy = Policy::BestEffort;
    bool storageOut = false;     // when it was asked
    bool storageFailed = false;  // or since
  };
  using RequestKey = std::pair<std::uint32_t, std::string>;  // uid, request id

  void lookForRoom(Ask& ask);
  void judgeBind(const Ask& ask, schema::Reply::Reader reply);
  void judgeBound(const Ask& ask, schema::Bound::Reader bound);
  void judgeRefusedBind(const Ask& ask, const std::string& code);
  void judgeChange(const Ask& ask, schema::Reply::Reader reply);
  bool names(const Ask& ask, std::uint32_t card) const;
  static bool isQuestion(schema::Request::Which which);

  Verdict& verdict_;
  const LedgerModel& model_;
  std::map<std::pair<ActorId, std::uint64_t>, Ask> open_;  // by client and correlation id
  std::set<RequestKey> known_;                             // that ever had a task
  std::set<RequestKey> finished_;  // whose task ended in this life, the newest
  std::deque<RequestKey> finishedInOrder_;
  std::map<std::uint64_t, std::string> tokens_;  // of each task that was ever bound
  std::uint64_t permits_ = 0;
  bool storageOut_ = false;
};

}  // namespace qgpu::sim
