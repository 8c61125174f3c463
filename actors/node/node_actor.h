#pragma once
// The node actor: one per machine. It admits and ends tasks, keeps them durable, introduces them to
// their card, task actor and attach server, and answers the clients (admin socket, RPC, HTTP). What
// it knows stands in parts, each with its own state, header and test:
//
//   NodeNumbers  the node's own row: incarnation, numbers, term   Ledger        who holds what
//   NodeCards    cards: policies, marks, drains, reports          Bindings      tasks: begin, end
//   TaskLife     what happens to a task in between                NodeRecovery  the start
//   NodeReports  answers to questions    NodeRequests  what clients and the scheduler ask
//   NodeContext  what every part may do in a turn                 EventSource   the story
//
// Parts know one another only downwards, in the order of the members below. Durable changes are
// made one at a time over a DurableShell by the part that owns what changes (ChangeOwner): checked,
// persisted, and applied once their commit is known. A commit that fails leaves nothing to undo.
// While a change is in flight every other message waits in the outbox, so that none is lost with
// it.
//
// Kept here, over what the parts keep: D2, D4 (storage out of order: changes are refused, the rest
// goes on), C7 (every change is audited).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/durable_shell.h"
#include "actors/base/event_source.h"
#include "actors/ledger/ledger.h"
#include "actors/node/node_recovery.h"
#include "actors/node/node_requests.h"
#include "actors/node/task_life.h"
#include "runtime/actor.h"

namespace qgpu {

class NodeActor final : public Actor, private DurableShell::Work {
 public:
  static constexpr std::uint64_t kEventBlock = 1'024;  // event numbers reserved at a time

  // `rows`: what the store had at the start. Tasks in it are taken as they are, but for those
  // whose card is not there any more, which are given up. `cards`, `peers.cards`: same length.
  // `survivors`: tasks that live while the store knows nothing of them. They are taken in the same
  // way; their rows are committed with the node's first one, before anybody hears of them (D5).
  NodeActor(NodeOptions options, NodePeers peers, std::vector<CardFacts> cards, TokenSource& tokens,
            const std::vector<StoredRow>& rows, const std::vector<StoredRow>& survivors = {});

  void handle(schema::Envelope::Reader message, Turn& turn) override;

  const Ledger& ledger() const { return ledger_; }
  std::size_t tasks() const { return bindings_.all().size(); }

  // --- messages; see schema/envelope.capnp for who sends them ---
  void onStart(schema::Start::Reader start, Turn& turn);
  void onTick(schema::Tick::Reader tick, Turn& turn);
  void onCommitted(schema::Committed::Reader committed, Turn& turn);
  void onStorageHealth(schema::StorageHealth::Reader health, Turn& turn);
  void onRequest(schema::Request::Reader request, Turn& turn) {
    requests_.onRequest(request, turn);
  }
  void onGateOpened(schema::GateRegistered::Reader opened, Turn& turn) {
    life_.onGateOpened(opened, turn);
  }
  void onTaskFact(schema::TaskFact::Reader fact, Turn&) { life_.onTaskFact(fact); }
  void onOwnerGone(schema::Left::Reader gone, Turn& turn) { life_.onOwnerGone(gone, turn); }
  void onEventTold(schema::Event::Reader told, Turn&) { life_.onEventTold(told); }
  void onRoomNeeded(schema::RoomNeeded::Reader room, Turn&) { life_.onRoomNeeded(room); }
  void onSuspendLost(schema::SuspendLost::Reader lost, Turn&) { cards_.onSuspendLost(lost); }
  void onReportRead(schema::ReportRead::Reader read, Turn&) { cards_.onReportRead(read); }
  // What the label of the node says, where NodeOptions.labelled. Not stored, since the API server
  // keeps it.
  void onNodeLabelled(schema::NodeLabelled::Reader label, Turn&) {
    bindings_.setMixed(label.getMixed());
  }
  void onIncarnationSeen(schema::Incarnation::Reader seen, Turn&) {
    numbers_.onIncarnationSeen(seen.getValue());
  }
  void onCardReport(schema::CardReport::Reader report, Turn&) { reports_.onCardReport(report); }
  void onTaskReport(schema::TaskReport::Reader report, Turn&) { reports_.onTaskReport(report); }
  void onUnexpected(schema::Envelope::Which, Turn&) {}

 private:
  // DurableShell::Work
  bool hasWork() const override;
  bool work(Turn& turn) override;

  void load(const std::vector<StoredRow>& rows, const std::vector<StoredRow>& survivors);
  ChangeOwner& ownerOf(const NodeChange& change);
  std::optional<NodeChange> nextChange();
  bool begin(NodeChange change, Turn& turn);
  Result<Need> check(NodeChange& change);
  void persist(const NodeChange& change, Turn& turn);
  void storageFailed(const std::string& why, Turn& turn);

  const NodeOptions options_;
  const NodePeers peers_;
  DurableShell shell_;
  EventSource feed_;
  NodeContext node_;
  Ledger ledger_;
  NodeNumbers numbers_;
  NodeCards cards_;
  Bindings bindings_;
  TaskLife life_;
  NodeRecovery recovery_;
  NodeReports reports_;
  NodeRequests requests_;
  bool startAsked_ = false;
  std::optional<NodeChange> inFlight_;  // what shell_ commits
};

}  // namespace qgpu
