#pragma once
// The scheduler actor: one acting for a cluster. It decides where tasks go, keeps its decisions
// durable, and answers the clients (admin socket, RPC, HTTP). What it knows stands in parts, each
// with its own state, header and test:
//
//   Members   the nodes: names, facts, marks, life, the term      ClusterLedger  their cards
//   Tasks     the tasks, living and ended, and their orders       Waiting        why some wait
//   Places    where a task may go; earlier epochs on nodes        FreedRoom      who gained room
//   Groups    tasks that start together
//   Evictions room made for a task by ending others               Drains         marks of operators
//   Sessions  what nodes say    JoinTokens      by which machines may join
//   Requests, Reports, Plans    what clients ask                EventSource  the story
//
// Parts know one another only downwards, in the order of the members below. What they change in
// one turn is one round (Rounds): applied at once, so that the next decision sees it, and committed
// together over a DurableShell; nothing that follows from it leaves before, and messages that would
// decide more wait until then. A commit that fails undoes exactly its round.
//
// Kept here, over what the parts keep: D2 and D4 (rounds), C2 (one answer for each request).

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/durable_shell.h"
#include "actors/base/event_source.h"
#include "actors/join/join_tokens.h"
#include "actors/scheduler/cluster_view.h"
#include "actors/scheduler/requests.h"
#include "actors/scheduler/sessions.h"
#include "runtime/actor.h"

namespace qgpu {

class SchedulerActor final : public Actor, public ClusterView, private DurableShell::Work {
 public:
  static constexpr std::uint64_t kEventBlock = 65'536;  // event numbers reserved at a time

  // `rows`: what the store had at the start. Tasks in it that a node holds, or was told to, are
  // believed until that node says hello or is lost; the others wait again.
  SchedulerActor(SchedulerOptions options, SchedulerPeers peers,
                 const std::vector<StoredRow>& rows);

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  const ClusterLedger& ledger() const override { return ledger_; }
  const Membership& membership() const { return members_.membership(); }
  std::size_t tasks() const { return tasks_.all().size(); }
  std::size_t waiting() const { return waiting_.queue().size(); }
  // Nothing is placed until nodes had the time to say what they hold.
  bool gathers() const { return places_.gathers(); }
  const Job* task(std::uint64_t id) const override { return tasks_.find(id); }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onStart(schema::Start::Reader start, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onCommitted(schema::Committed::Reader committed, Turn& turn);
  void onStorageHealth(schema::StorageHealth::Reader health, Turn& turn);
  void onFromMember(schema::FromMember::Reader said, Turn& turn) {
    sessions_.onFromMember(said, turn);
  }
  void onClusterRequest(schema::ClusterRequest::Reader request, Turn& turn) {
    requests_.onClusterRequest(request, turn);
  }
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  static constexpr std::uint32_t kTickLook = DurableShell::kTickOwn;
  static constexpr std::uint32_t kTickPlan = DurableShell::kTickOwn + 1;

  // DurableShell::Work
  bool hasWork() const override;
  bool work(Turn& turn) override;

  void load(const std::vector<StoredRow>& rows);
  void lookLater(Turn& turn) const;
  void endGathering();
  void decide();
  void persist(Turn& turn);
  void apply(const Round& round, Turn& turn);
  void undo(const Round& round);
  void storageFailed(const std::string& why, Turn& turn);

  const SchedulerOptions options_;
  DurableShell shell_;
  EventSource feed_;
  Rounds rounds_;
  ClusterLedger ledger_;
  FreedRoom freed_;
  Members members_;
  Places places_;
  Groups groups_;
  Waiting waiting_;
  Tasks tasks_;
  Evictions evictions_;
  Drains drains_;
  Plans plans_;
  Reports reports_;
  Sessions sessions_;
  JoinTokens joinTokens_;
  Requests requests_;
  bool startAsked_ = false;
  bool lookDue_ = false;
  Nanos begunAt_{0};  // since then nodes are served
};

}  // namespace qgpu
