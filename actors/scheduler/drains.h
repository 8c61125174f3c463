#pragma once
// What operators say of nodes and cards: cordon, uncordon, drain. A drain moves what can go
// elsewhere, online tasks first: room is kept for a task at its new place, its node is told to end
// it, and it is bound there once that is done. A process does not migrate, so its owner starts it
// again at its new place. What fits nowhere else stays until the time is over, and is then ended.
//
// Who calls: Requests (mark), SchedulerActor (at its looks), Sessions (a node that came back). Kept
// here: P8 (nothing new goes to what is marked), C7 (each mark is audited).

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "actors/scheduler/tasks.h"

namespace qgpu {

class Drains {
 public:
  static constexpr std::size_t kMovesPerLook = 64;                      // tasks
  static constexpr std::uint64_t kDrainMsMax = 30ull * 24 * 3'600'000;  // a month

  struct Mark {  // of a node or card, as an operator gives it
    CardMark mark;
    std::uint64_t untilUnixMs;  // of a drain
    EventKind said;             // in answers too
  };

  Drains(Rounds& rounds, ClusterLedger& ledger, Members& members, FreedRoom& freed, Tasks& tasks)
      : rounds_(rounds), ledger_(ledger), members_(members), freed_(freed), tasks_(tasks) {}

  // Durable with this round; the asker is answered after it. NotFound; Unavailable where a card is
  // named of a node that is not connected, since a node marks its cards itself.
  Status mark(const Asker& asker, const Who& who, schema::Target::Reader target, const Mark& mark);
  // Moves what can go elsewhere, of kMovesPerLook tasks, and ends what is left of drains whose time
  // is over.
  void look();
  // A node that came back may not know of the drains of its cards.
  void tellMarks(MemberId member);

 private:
  void cardMarked(MemberId member, const std::string& card, CardMark mark);
  void tellMark(MemberId member, const std::string& card, CardMark mark);
  bool moveFrom(MemberId member, const std::string& card, bool late, std::size_t& moves);

  Rounds& rounds_;
  ClusterLedger& ledger_;
  Members& members_;
  FreedRoom& freed_;
  Tasks& tasks_;
  std::size_t next_ = 0;                                // where the next look begins
  std::set<std::pair<MemberId, std::string>> drained_;  // told of
  std::set<std::pair<MemberId, std::string>> over_;     // whose time is over; told of
};

}  // namespace qgpu
