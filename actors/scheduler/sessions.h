#pragma once
// What nodes say. Their messages are taken in order within rounds; beats alone are answered at
// once, since nothing durable follows from them and a lease must not wait for a disk. Nodes own the
// truth of their cards: what they say at hello is taken over what is believed.
//
// Who calls: SchedulerActor. Kept here: C1 (later terms stand this scheduler down), C3 (tasks are
// placed again only after the fence), C4 (a hello makes the views agree), C5 (messages that wait
// are bounded), C7 (what a node says is checked), P3 and P6 (epochs decide who holds a task).

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "actors/scheduler/drains.h"
#include "actors/scheduler/evictions.h"

namespace qgpu {

class Sessions {
 public:
  static constexpr std::size_t kHeardMax = 16'384;   // messages that wait for a round
  static constexpr std::size_t kDuePerLook = 1'024;  // nodes whose lease or fence ran out

  Sessions(const SchedulerOptions& options, SchedulerPeers peers, Rounds& rounds,
           ClusterLedger& ledger, Members& members, FreedRoom& freed, Places& places, Tasks& tasks,
           Evictions& evictions, Drains& drains)
      : options_(options),
        peers_(peers),
        rounds_(rounds),
        ledger_(ledger),
        members_(members),
        freed_(freed),
        places_(places),
        tasks_(tasks),
        evictions_(evictions),
        drains_(drains) {}

  void onFromMember(schema::FromMember::Reader said, Turn& turn);
  // Leases and fences that ran out. Also where nothing can be stored: nothing durable follows at
  // once.
  void lookAtLeases();

  bool hasWork() const { return !heard_.empty() || !losing_.empty(); }
  // In a round: what was heard, and the tasks of nodes that were lost.
  void take();
  void loseTasks();
  // A commit failed: what nodes said in that round is taken up again when the storage is back,
  // since nobody will say it twice.
  void undo(const Round& round);
  void takeAgain(Round& round);
  void tellForwarded(MemberId member, std::uint64_t corr, const Result<std::uint64_t>& result);
  // Those that forward are told now, since they wait for an answer.
  void refuseForwards(const Error& error);
  // How what nodes said differed from what the store had, since the start: one sentence.
  std::string gathered() const;

 private:
  void onBeat(std::uint32_t link, std::uint64_t session, std::uint64_t ns, Turn& turn);
  void onMessage(schema::FromMember::Reader said, Nanos heardAt);
  void onHello(std::uint32_t link, schema::MemberHello::Reader hello, Nanos heardAt);
  void takeFacts(MemberId member, MemberFacts facts);
  std::optional<std::uint64_t> onHeld(MemberId member, const HeldTask& held);
  void takeLater(MemberId member, std::uint64_t task, const HeldTask& held);
  void stillHeld(MemberId member, std::uint64_t task, const HeldTask& held);
  std::uint64_t adopt(MemberId member, const HeldTask& held, std::uint64_t task);
  void dropDouble(std::uint64_t other, std::uint64_t task);
  bool startsPrograms(MemberId member, const Job& job) const;
  void askForToken(std::uint64_t task);
  void noteTaken(MemberId member, std::uint64_t task, const HeldTask& held, const char* why);
  void reconcile(MemberId member, const std::set<std::uint64_t>& said);
  void onBound(MemberId member, schema::MemberBound::Reader bound);
  void onRefused(MemberId member, schema::MemberRefused::Reader refused);
  void onForward(MemberId member, schema::MemberForward::Reader forward);
  void closeLink(std::uint32_t link);
  bool actedElsewhere(std::uint64_t termSeen, const std::string& name) const;
  void standDown(std::uint64_t termSeen);

  const SchedulerOptions& options_;
  const SchedulerPeers peers_;
  Rounds& rounds_;
  ClusterLedger& ledger_;
  Members& members_;
  FreedRoom& freed_;
  Places& places_;
  Tasks& tasks_;
  Evictions& evictions_;
  Drains& drains_;
  std::deque<Heard> heard_;
  std::deque<std::pair<MemberId, std::uint64_t>> losing_;  // tasks of lost nodes
  std::size_t unknown_ = 0;  // tasks that nodes hold and the store did not know
  std::size_t later_ = 0;    // of whose place nodes knew a later decision
  std::size_t over_ = 0;     // that nodes hold no more
};

}  // namespace qgpu
