#pragma once
// Who holds what of which card of one node. The ledger is the pure core of the node actor: it says
// whether a task may be bound, on which card, and why not. It has no clock and no I/O; the same
// ledger and the same ask give the same answer (P7).
//
// A refusal is NoRoom, Cordoned or Conflict when it may help to wait or to change something, and
// Infeasible only if the task would not fit on this node with every card empty.
//
// Kept here: P1 (memory; beyond the card's own only what may leave it), P2 (shares of both pools),
// P4 (sums agree), P5 (several cards: all or none), P7, P8 (eligible cards only), P9 (released
// once), P10 (more room never hurts).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/ledger/fit.h"
#include "actors/model.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct LedgerConfig {
  bool mixed = false;  // online and offline tasks are allowed on this node
  TaskLimit tasks{};
  Permille overcommit{0};  // of each card's memory, so much more for what may leave it
};

struct LedgerCard {
  std::string id;
  std::uint32_t index = 0;  // position on the node, as people see it
  Bytes mem{0};
  CardPlace place{};
};

// What a task gets: the same of each of `cards`, which are positions in the ledger, ascending.
struct Placement {
  TaskClass taskClass = TaskClass::Ordinary;
  bool exclusive = false;  // whole cards
  Permille share{0};
  std::vector<Bytes> mem;  // of each card
  std::vector<std::size_t> cards;
  Bytes pageable{0};  // of the memory of its one card
};

// What of each card a placement holds; `n` counts its cards.
inline CardAsk cardAsk(const Placement& placement, std::size_t n) {
  return {placement.taskClass, placement.mem[n], placement.share, placement.exclusive,
          placement.pageable};
}

class Ledger {
 public:
  Ledger(LedgerConfig config, std::vector<LedgerCard> cards, Policy policy);

  // --- questions ---
  // Whether and where `ask` fits now. Errors: InvalidArgument, NotFound (card), NoRoom, Cordoned,
  // Conflict, Infeasible; the message has each card's reason and what would help.
  Result<Placement> place(const LedgerAsk& ask) const;
  // By any of its names (card_name.h). NotFound names the cards that exist.
  Result<std::size_t> findCard(const std::string& text) const;
  // Conflict where tasks without a share sit on the card and `policy` needs one.
  Status mayChoosePolicy(std::size_t card, Policy policy) const;
  std::vector<TaskId> tasksOn(std::size_t card) const;
  // Whether what was bound before fits beside what is held: its sums, its kind of tenancy and the
  // number of tasks, whatever marks and policies say now.
  bool admits(const Placement& placement) const;

  // --- changes; the caller has made them durable ---
  // Also used for what a restart finds, which is taken as it is: a restart stops nobody.
  void bind(TaskId task, const Placement& placement);
  // False where nothing was held: a second release changes nothing.
  bool release(TaskId task);
  void choosePolicy(std::size_t card, Policy policy) { at(card).room.policy = policy; }
  void mark(std::size_t card, CardMark mark) { at(card).room.mark = mark; }

  // --- status ---
  std::size_t cards() const { return cards_.size(); }
  const LedgerCard& card(std::size_t card) const { return at(card).info; }
  const CardRoom& use(std::size_t card) const { return at(card).room; }
  Policy policy(std::size_t card) const { return at(card).room.policy; }
  CardMark mark(std::size_t card) const { return at(card).room.mark; }
  Tenancy tenancy(std::size_t card) const { return at(card).room.tenancy(); }
  std::uint32_t tasksMax(std::size_t card) const { return at(card).room.tasksMax; }
  std::size_t tasks() const { return held_.size(); }
  const Placement* placement(TaskId task) const;
  // Equal digests: the same tasks hold the same, and the same is refused.
  std::uint64_t digest() const;

 private:
  struct Slot {
    LedgerCard info;
    CardRoom room;
  };

  Slot& at(std::size_t card);
  const Slot& at(std::size_t card) const;
  Status check(const LedgerAsk& ask) const;
  Error refuse(const LedgerAsk& ask, const std::vector<std::size_t>& among) const;
  std::size_t best(const CardAsk& ask, const std::vector<std::size_t>& fitting) const;
  std::vector<std::size_t> nearOnes(const std::vector<std::size_t>& fitting,
                                    std::size_t count) const;
  std::vector<std::size_t> wanted(const LedgerAsk& ask, Status& found) const;
  void account(const Placement& placement, std::int64_t sign);

  LedgerConfig config_;
  std::vector<Slot> cards_;
  std::map<TaskId, Placement> held_;
};

}  // namespace qgpu
