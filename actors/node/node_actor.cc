#include "actors/node/node_actor.h"

#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {

void NodeActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
  shell_.finishTurn(*this, turn);
}

void NodeActor::tick(Turn& turn, Nanos delay, TickKind kind, std::uint64_t value) {
  turn.after(delay, [kind, value](schema::Envelope::Builder envelope) {
    auto tick = envelope.initTick();
    tick.setKind(static_cast<std::uint32_t>(kind));
    tick.setValue(value);
  });
}

void NodeActor::onStart(schema::Start::Reader, Turn& turn) {
  if (startAsked_) return;
  startAsked_ = true;
  startedAt_ = turn.now();
}

void NodeActor::onTick(schema::Tick::Reader tick, Turn& turn) {
  if (shell_.onTick(tick.getKind())) return;
  switch (TickKind{tick.getKind()}) {
    case TickKind::Introduce:
      onIntroduceDue(tick.getValue());
      break;
    case TickKind::OwnerCheck:
      onOwnerCheck(tick.getValue(), turn);
      break;
    case TickKind::Kill:
      onKillDue(tick.getValue());
      break;
    case TickKind::Gather: {
      const auto found = gathers_.find(tick.getValue());
      if (found == gathers_.end()) break;
      QGPU_MARK(GatherTimedOut);
      answer(found->second);
      gathers_.erase(found);
      break;
    }
  }
}

bool NodeActor::hasWork() const {
  if (!startAsked_) return false;
  if (!shell_.storageOk()) return shell_.probeDue();
  return nodeRowDue() || !toClose_.empty() || !toEvict_.empty() || !queue_.empty();
}

bool NodeActor::nodeRowDue() const {
  return !started_ || feed_.rowDue() || incarnationSeen_ >= incarnation_;
}

std::optional<Change> NodeActor::nextChange() {
  if (!hasWork()) return std::nullopt;
  Change change;
  if (!shell_.storageOk() || nodeRowDue()) {
    shell_.takeProbe();
    change.kind = Change::Kind::Node;
  } else if (!toClose_.empty()) {
    change.kind = Change::Kind::Close;
    change.task = *toClose_.begin();
  } else if (!toEvict_.empty()) {
    change.kind = Change::Kind::End;
    change.task = toEvict_.front();
    change.text = "its card is drained";
    toEvict_.pop_front();
  } else {
    change = std::move(queue_.front());
    queue_.pop_front();
  }
  return change;
}

// Where the own mailbox is full the change waits, and the shell comes back at once.
bool NodeActor::work(Turn& turn) {
  while (std::optional<Change> change = nextChange()) {
    const Result<Need> need = check(*change, turn);
    if (!need) {
      replyFailed(change->asker, need.error());
      continue;
    }
    if (*need == Need::Nothing) continue;
    if (!begin(std::move(*change), turn)) return true;
    if (inFlight_) return true;
  }
  return true;
}

// False: the node's own mailbox is full, the change waits.
bool NodeActor::begin(Change change, Turn& turn) {
  if (!shell_.announce(turn)) {
    if (change.kind == Change::Kind::End && !change.asker) toEvict_.push_front(change.task);
    if (!shell_.storageOk()) shell_.armProbe(turn);  // nobody else would look again
    if (change.asker) {
      replyFailed(change.asker,
                  fail(ErrorCode::Overloaded, "the node's mailbox is full: try again in a moment"));
    }
    return false;
  }
  persist(change, turn);
  inFlight_ = std::move(change);
  shell_.persisted();
  return true;
}

void NodeActor::enqueue(Change change) {
  if (!shell_.storageOk()) {
    return replyFailed(change.asker, fail(ErrorCode::Unavailable, "nothing can be stored now (" +
                                                                      shell_.storageText() +
                                                                      "): try again when it can"));
  }
  if (queue_.size() >= kChangesMax || shell_.outbox().size() > kOutboxMax) {
    return replyFailed(change.asker,
                       fail(ErrorCode::Overloaded, std::to_string(queue_.size()) +
                                                       " changes wait already: try again later"));
  }
  queue_.push_back(std::move(change));
}

void NodeActor::onCommitted(schema::Committed::Reader committed, Turn& turn) {
  const DurableShell::Commit commit = shell_.onCommitted(committed);
  if (commit == DurableShell::Commit::NotOurs) return;
  Change change = std::move(*inFlight_);
  inFlight_.reset();
  if (change.event.seq != 0) feed_.tell(change.event);
  if (commit == DurableShell::Commit::Back) {
    QGPU_MARK(StorageBack);
    note("storage-ok", 0, "", "changes are taken again", turn);
  }
  apply(change, turn);
  feed_.tellNotes();
}

void NodeActor::onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
  if (!health.getOk()) storageFailed(text(health.getText()), turn);
}

// Nothing was applied, so there is nothing to undo but the wish itself.
void NodeActor::storageFailed(const std::string& why, Turn& turn) {
  QGPU_MARK(CommitFailed);
  const DurableShell::Failure failure = shell_.onFailed(why);
  const Error error = fail(ErrorCode::Unavailable,
                           "nothing was changed: storage failed (" + shell_.storageText() + ")");
  if (inFlight_) {
    if (inFlight_->kind == Change::Kind::End && !inFlight_->asker) {
      toEvict_.push_front(inFlight_->task);
    }
    replyFailed(inFlight_->asker, error);
    inFlight_.reset();
  }
  for (const Change& change : queue_) replyFailed(change.asker, error);
  queue_.clear();
  feed_.tellNotes();
  if (failure.first) note("storage-failed", 0, "", shell_.storageText(), turn);
  if (!QGPU_PLANTED(LostWakeUpAfterFailure)) shell_.armProbe(turn);
}

// --- events ---

std::uint64_t NodeActor::unixMs(Turn& turn) const {
  return static_cast<std::uint64_t>(options_.unixMsAtZero() + turn.now() / millis(1));
}

void NodeActor::note(EventKind kind, std::uint64_t task, const std::string& card,
                     const std::string& what, Turn& turn) {
  EventRecord event{0, unixMs(turn), kind.name(), task, card, what, "node"};
  if (inFlight_) return feed_.note(std::move(event));
  feed_.tellNow(std::move(event));
}

}  // namespace qgpu
