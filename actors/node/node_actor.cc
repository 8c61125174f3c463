#include "actors/node/node_actor.h"

#include <utility>

#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {
namespace {

std::vector<LedgerCard> ledgerCards(const std::vector<CardFacts>& cards) {
  std::vector<LedgerCard> list;
  for (const CardFacts& facts : cards) {
    list.push_back({facts.id, facts.index, facts.mem, facts.place});
  }
  return list;
}

std::string actorOf(const NodeChange& change) {
  if (!change.asker) return "node";
  if (change.ordered) return "scheduler";
  return "uid " + std::to_string(change.who.uid) + " pid " + std::to_string(change.who.pid);
}

}  // namespace

NodeActor::NodeActor(NodeOptions options, NodePeers peers, std::vector<CardFacts> cards,
                     TokenSource& tokens, const std::vector<StoredRow>& rows,
                     const std::vector<StoredRow>& survivors)
    : options_(std::move(options)),
      peers_(std::move(peers)),
      shell_(options_.probeEvery),
      feed_(shell_.outbox(), kEventBlock),
      node_(options_, peers_, shell_, feed_),
      ledger_({options_.mixed || options_.labelled, taskLimitOf(options_), options_.overcommit},
              ledgerCards(cards), options_.policy),
      numbers_(node_),
      cards_(node_, ledger_, std::move(cards)),
      bindings_(node_, ledger_, numbers_, tokens),
      life_(node_, cards_, bindings_),
      recovery_(node_, numbers_, cards_, bindings_, life_),
      reports_(node_, numbers_, cards_, bindings_),
      requests_(node_, reports_) {
  load(rows, survivors);
}

// Tasks that are taken over are on no list of a drained card: the list is of what the store has.
void NodeActor::load(const std::vector<StoredRow>& rows, const std::vector<StoredRow>& survivors) {
  std::vector<EventRecord> audits;
  for (const StoredRow& row : rows) {
    if (readRow(row).isAudit()) audits.push_back(readEvent(readRow(row).getAudit()));
  }
  feed_.load(std::move(audits));
  numbers_.load(rows);
  cards_.load(rows);
  recovery_.load(rows, options_.living);
  cards_.queueDrained();
  recovery_.takeOver(survivors);
  recovery_.loadRest();
  recovery_.findOutlived(options_.living);
}

void NodeActor::onStart(schema::Start::Reader, Turn& turn) {
  if (std::exchange(startAsked_, true)) return;
  reports_.start(turn.now());
}

void NodeActor::handle(schema::Envelope::Reader message, Turn& turn) {
  node_.setNow(turn.now());
  dispatch(*this, message, turn);
  shell_.finishTurn(*this, turn);
}

void NodeActor::onTick(schema::Tick::Reader tick, Turn&) {
  if (shell_.onTick(tick.getKind())) return;
  const NodeTick kind{tick.getKind()};
  if (kind == NodeTick::Gather) return reports_.onGatherDue(tick.getValue());
  life_.onTick(kind, tick.getValue());
}

// --- one change at a time ---

bool NodeActor::hasWork() const {
  if (!startAsked_) return false;
  if (!shell_.storageOk()) return shell_.probeDue();
  return numbers_.rowDue() || life_.anyToClose() || life_.anyEndsForRoom() || cards_.anyLeaves() ||
         requests_.anyChange();
}

std::optional<NodeChange> NodeActor::nextChange() {
  if (!hasWork()) return std::nullopt;
  NodeChange change;
  if (!shell_.storageOk() || numbers_.rowDue()) {
    shell_.takeProbe();
    change.kind = NodeChange::Kind::Node;
  } else if (life_.anyToClose()) {
    change.kind = NodeChange::Kind::Close;
    change.task = life_.nextToClose();
  } else if (life_.anyEndsForRoom()) {
    change = life_.takeEndForRoom();
  } else if (cards_.anyLeaves()) {
    change.kind = NodeChange::Kind::End;
    change.task = cards_.takeLeaving();
    change.text = NodeCards::kEndOfDrained;
  } else {
    return requests_.takeChange();
  }
  return change;
}

// Where the own mailbox is full the change waits, and the shell comes back at once.
bool NodeActor::work(Turn& turn) {
  while (std::optional<NodeChange> change = nextChange()) {
    const Result<Need> need = check(*change);
    if (!need) {
      node_.replyFailed(change->asker, need.error());
      continue;
    }
    if (*need == Need::Nothing) continue;
    if (!begin(std::move(*change), turn)) return true;
    if (inFlight_) return true;
  }
  return true;
}

// False: the node's own mailbox is full, the change waits.
bool NodeActor::begin(NodeChange change, Turn& turn) {
  if (!shell_.announce(turn)) {
    if (change.isOwnEnd()) cards_.leavesAgain(change.task);
    if (change.forRoom) life_.endsForRoom(change.task, change.text);
    if (!shell_.storageOk()) shell_.armProbe(turn);  // nobody else would look again
    node_.replyFailed(change.asker, fail(ErrorCode::Overloaded,
                                         "the node's mailbox is full: try again in a moment"));
    return false;
  }
  persist(change, turn);
  inFlight_ = std::move(change);
  shell_.persisted();
  return true;
}

ChangeOwner& NodeActor::ownerOf(const NodeChange& change) {
  switch (change.kind) {
    case NodeChange::Kind::Node:
      return recovery_;
    case NodeChange::Kind::Bind:
    case NodeChange::Kind::End:
    case NodeChange::Kind::Close:
      return life_;
    case NodeChange::Kind::Policy:
    case NodeChange::Kind::Mark:
    case NodeChange::Kind::Report:
      return cards_;
    case NodeChange::Kind::Term:
      return numbers_;
    case NodeChange::Kind::Permit:
      break;
  }
  return requests_;
}

Result<Need> NodeActor::check(NodeChange& change) {
  Result<Need> need = ownerOf(change).check(change);
  if (!need || *need == Need::Nothing) return need;
  change.incarnation = numbers_.incarnationToStore();
  if (!change.event.kind.empty()) {
    change.event.seq = feed_.take();
    change.event.unixMs = node_.unixMs();
    change.event.actor = actorOf(change);
  }
  return need;
}

void NodeActor::persist(const NodeChange& change, Turn& turn) {
  numbers_.write(change, turn);
  if (change.event.seq != 0 && !(QGPU_PLANTED(NoAudit) && change.kind == NodeChange::Kind::Mark)) {
    feed_.persistAudits({change.event}, turn);
  }
  ownerOf(change).persist(change, turn);
}

void NodeActor::onCommitted(schema::Committed::Reader committed, Turn& turn) {
  const DurableShell::Commit commit = shell_.onCommitted(committed);
  if (commit == DurableShell::Commit::NotOurs) return;
  const NodeChange change = *std::exchange(inFlight_, std::nullopt);
  if (change.event.seq != 0) feed_.tell(change.event);
  if (commit == DurableShell::Commit::Back) {
    QGPU_MARK(StorageBack);
    node_.note("storage-ok", 0, "", "changes are taken again");
  }
  numbers_.stored(change);
  if (change.event.seq != 0) feed_.auditsStored({change.event});
  ownerOf(change).apply(change, turn);
  feed_.tellNotes();
}

// --- storage that failed ---

void NodeActor::onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
  if (!health.getOk()) storageFailed(text(health.getText()), turn);
}

// Nothing was applied, so there is nothing to undo but the wish itself.
void NodeActor::storageFailed(const std::string& why, Turn& turn) {
  QGPU_MARK(CommitFailed);
  const DurableShell::Failure failure = shell_.onFailed(why);
  const Error error = fail(ErrorCode::Unavailable,
                           "nothing was changed: storage failed (" + shell_.storageText() + ")");
  if (const auto change = std::exchange(inFlight_, std::nullopt)) {
    if (change->isOwnEnd()) cards_.leavesAgain(change->task);
    if (change->forRoom) life_.endsForRoom(change->task, change->text);
    node_.replyFailed(change->asker, error);
  }
  requests_.refuseChanges(error);
  feed_.tellNotes();
  if (failure.first) node_.note("storage-failed", 0, "", shell_.storageText());
  if (!QGPU_PLANTED(LostWakeUpAfterFailure)) shell_.armProbe(turn);
}

}  // namespace qgpu
