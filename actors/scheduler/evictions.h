#pragma once
// Offline tasks that make room for others which may evict them. The least set is chosen, its nodes
// are told to end it, and until the last of it has ended the cards are closed to everybody else:
// what is freed goes to the task that it was freed for, in the turn in which that is known. The
// victims wait again. Who evicts is tried when it comes, and again at a look once rooms have
// changed. For whom the victims end is committed with their end (Job.making), so a restart evicts
// nobody twice and keeps the cards closed until the last victim has ended, or its node is lost.
//
// Who calls: Tasks (as RoomMaker), SchedulerActor (at its looks and after its start), Sessions
// (facts of a node), Plans and Reports (questions). Kept here: P9 (no room is kept for a task that
// does not wait), C5 (claims and searches are bounded).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/placement/preemption.h"
#include "actors/scheduler/tasks.h"

namespace qgpu {

class Evictions final : public RoomMaker {
 public:
  static constexpr std::size_t kClaimsMax = 256;          // tasks that others make room for
  static constexpr std::size_t kSearchesPerRound = 2;     // for tasks to evict
  static constexpr std::size_t kEvictorsPerLook = 1'024;  // tasks that may evict, looked at

  Evictions(Rounds& rounds, ClusterLedger& ledger, Members& members, FreedRoom& freed,
            Places& places, Tasks& tasks);

  // Which tasks leastEviction() may end.
  MayEvict mayEvict() const;
  // Room is being made for it.
  bool makesRoomFor(std::uint64_t task) const { return claims_.contains(task); }
  std::size_t claims() const { return claims_.size(); }

  // All that may evict, in their order, a few in each look; of those that ask for the same, one.
  void look();
  // As the tasks have it: after a start, and where a round was undone.
  void openClaims();
  // What is free of the node's processors and memory is kept anew, since its facts changed.
  void keepHosts(MemberId member);

  // --- RoomMaker ---
  void waits(std::uint64_t task, const Job& job) override;
  void waitsNoMore(std::uint64_t task, const Job& job) override;
  void came(std::uint64_t task) override;
  void isGone(std::uint64_t task) override;
  void isUndone(std::uint64_t task) override;

 private:
  struct Claim {  // of a task for which room is made
    MemberId member{};
    std::vector<std::string> cards;
    std::set<std::uint64_t> victims;  // that have not ended yet
  };

  bool mayTry() const;
  bool evictFor(std::uint64_t task);
  void openClaim(std::uint64_t task);
  void keepHost(std::uint64_t task);
  void dropClaim(std::uint64_t task);

  Rounds& rounds_;
  ClusterLedger& ledger_;
  Members& members_;
  FreedRoom& freed_;
  Places& places_;
  Tasks& tasks_;
  std::set<WaitQueue::Place> evictors_;             // those that wait and may evict
  std::optional<WaitQueue::Place> next_;            // behind it the next look goes on
  std::map<std::uint64_t, Claim> claims_;           // by the task that waits
  std::map<std::uint64_t, std::uint64_t> victims_;  // who ends, and for whom
};

}  // namespace qgpu
