#pragma once
// Who holds what of which card of one node. The ledger is the pure core of the node actor: it says
// whether a task may be bound, on which card, and why not. It has no clock and no I/O; the same
// ledger and the same ask give the same answer (P7).
//
// A refusal is NoRoom, Cordoned or Conflict when it may help to wait or to change something, and
// Infeasible only if the task would not fit on this node with every card empty.
//
// Kept here: P1 (memory), P2 (shares of both pools), P4 (sums agree), P5 (several cards: all or
// none), P7, P8 (eligible cards only), P9 (released once), P10 (more room never hurts).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/arbiter.h"
#include "actors/fit.h"
#include "runtime/result.h"
#include "runtime/units.h"

namespace qgpu {

struct LedgerConfig {
  bool mixed = false;                  // online and offline tasks are allowed on this node
  std::uint32_t maxTasksPerCard = 0;   // 0: nominal GiB / 4 of each card, at least 1
};

struct LedgerCard {
  std::string id;
  std::uint32_t index = 0;   // position on the node, as people see it
  Bytes mem{0};
};

// What is asked, in the units of the contract: memory per card, share in permille of one card.
struct LedgerAsk {
  TaskClass taskClass = TaskClass::Ordinary;
  Bytes mem{0};
  Permille share{0};
  std::uint32_t cards = 1;
  std::string card;          // id or index wanted; empty: the ledger chooses
};

// What a task gets: the same of each of `cards`, which are positions in the ledger, ascending.
struct Placement {
  TaskClass taskClass = TaskClass::Ordinary;
  bool exclusive = false;    // whole cards
  Permille share{0};
  std::vector<Bytes> mem;    // of each card
  std::vector<std::size_t> cards;
};

// The sums of one card.
struct CardUse {
  Bytes memBound{0};
  Permille ordinary{0};      // qgpu-core, at most 1000
  Permille greedy{0};        // of offline tasks, at most 1000, a pool of its own
  std::uint32_t tasks = 0;
  std::uint32_t online = 0;
  std::uint32_t offline = 0;
  std::uint32_t shareless = 0;   // ordinary and offline tasks with share 0
  bool exclusive = false;
};

// The size that a card is sold as: what drivers report (15,109 MiB) rounded up (16 GiB).
std::int64_t nominalGib(Bytes mem);

class Ledger {
 public:
  Ledger(LedgerConfig config, std::vector<LedgerCard> cards, Policy policy);

  // --- questions ---
  // Whether and where `ask` fits now. Errors: InvalidArgument, NotFound (card), NoRoom, Cordoned,
  // Conflict, Infeasible; the message has each card's reason and what would help.
  Result<Placement> place(const LedgerAsk& ask) const;
  // Id or index, as people write them. NotFound names the cards that exist.
  Result<std::size_t> findCard(const std::string& text) const;
  // Conflict where tasks without a share sit on the card and `policy` is fixed-share.
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
  void choosePolicy(std::size_t card, Policy policy) { at(card).policy = policy; }
  void mark(std::size_t card, CardMark mark) { at(card).mark = mark; }

  // --- status ---
  std::size_t cards() const { return cards_.size(); }
  const LedgerCard& card(std::size_t card) const { return at(card).info; }
  const CardUse& use(std::size_t card) const { return at(card).use; }
  Policy policy(std::size_t card) const { return at(card).policy; }
  CardMark mark(std::size_t card) const { return at(card).mark; }
  Tenancy tenancy(std::size_t card) const;
  std::uint32_t tasksMax(std::size_t card) const;
  std::size_t tasks() const { return held_.size(); }
  const Placement* placement(TaskId task) const;
  // Equal digests: the same tasks hold the same, and the same is refused.
  std::uint64_t digest() const;

 private:
  struct Slot {
    LedgerCard info;
    CardUse use;
    Policy policy = Policy::BestEffort;
    CardMark mark = CardMark::Ready;
  };
  enum class Why : std::uint8_t { Fits, Mem, Share, Tasks, Kind, Busy, Cordoned, Policy, Never };
  struct Verdict {
    Why why = Why::Fits;
    std::string text;
  };

  Slot& at(std::size_t card);
  const Slot& at(std::size_t card) const;
  Status check(const LedgerAsk& ask) const;
  Verdict judge(const Slot& slot, const LedgerAsk& ask, bool whole) const;
  Verdict judgeRoom(const Slot& slot, const LedgerAsk& ask) const;
  Error refuse(const LedgerAsk& ask, bool whole, const std::vector<std::size_t>& among) const;
  std::size_t best(const LedgerAsk& ask, const std::vector<std::size_t>& fitting) const;
  std::vector<std::size_t> wanted(const LedgerAsk& ask, Status& found) const;
  void account(const Placement& placement, std::int64_t sign);

  LedgerConfig config_;
  std::vector<Slot> cards_;
  std::map<TaskId, Placement> held_;
};

}  // namespace qgpu
