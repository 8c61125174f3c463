#include "actors/node/node_actor.h"

#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {

void NodeActor::handle(schema::Envelope::Reader message, Turn& turn) {
  dispatch(*this, message, turn);
  finishTurn(turn);
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
  switch (TickKind{tick.getKind()}) {
    case TickKind::Pump:
      pumpTold_ = false;
      pumpTurn_ = true;
      break;
    case TickKind::Resend: resendArmed_ = false; break;
    case TickKind::Probe:
      probeArmed_ = false;
      probeDue_ = true;
      break;
    case TickKind::Introduce: onIntroduceDue(tick.getValue()); break;
    case TickKind::OwnerCheck: onOwnerCheck(tick.getValue(), turn); break;
    case TickKind::Kill: onKillDue(tick.getValue()); break;
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

// A turn either persists or sends: what a turn sends beside its rows would be lost with them.
void NodeActor::finishTurn(Turn& turn) {
  const bool mayBegin = pumpTurn_ || outbox_.empty();
  pumpTurn_ = false;
  if (inFlight_) return;
  if (mayBegin) pump(turn);
  if (inFlight_) return;
  outbox_.flush(turn);
  if (!outbox_.empty() && !resendArmed_) {
    resendArmed_ = true;
    tick(turn, kResend, TickKind::Resend, 0);
  }
  if (hasChange() && !pumpTold_) {
    pumpTold_ = true;
    turn.sendUrgent(turn.self(), [](schema::Envelope::Builder envelope) {
      envelope.initTick().setKind(static_cast<std::uint32_t>(TickKind::Pump));
    });
  }
}

bool NodeActor::hasChange() const {
  if (!startAsked_) return false;
  if (!storageOk_) return probeDue_;
  return nodeRowDue() || !toClose_.empty() || !toEvict_.empty() || !queue_.empty();
}

bool NodeActor::nodeRowDue() const {
  return !started_ || nextEvent_ + kEventBlock / 4 > eventCeiling_ ||
         incarnationSeen_ >= incarnation_;
}

std::optional<Change> NodeActor::nextChange() {
  if (!hasChange()) return std::nullopt;
  Change change;
  if (!storageOk_ || nodeRowDue()) {
    probeDue_ = false;
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

void NodeActor::pump(Turn& turn) {
  while (std::optional<Change> change = nextChange()) {
    const Result<Need> need = check(*change, turn);
    if (!need) {
      replyFailed(change->asker, need.error());
      continue;
    }
    if (*need == Need::Nothing) continue;
    if (!begin(std::move(*change), turn)) return;
    if (inFlight_) return;
  }
}

// False: the node's own mailbox is full, the change waits.
bool NodeActor::begin(Change change, Turn& turn) {
  const std::uint64_t serial = ++changeSerial_;
  const SendResult sent = turn.send(turn.self(), [serial](schema::Envelope::Builder envelope) {
    envelope.initCommitted().setChange(serial);
  });
  if (sent == SendResult::Refused) {
    if (change.kind == Change::Kind::End && !change.asker) toEvict_.push_front(change.task);
    if (!storageOk_) armProbe(turn);   // nobody else would look again
    if (change.asker) {
      replyFailed(change.asker,
                  fail(ErrorCode::Overloaded, "the node's mailbox is full: try again in a moment"));
    }
    return false;
  }
  persist(change, turn);
  inFlight_ = std::move(change);
  return true;
}

void NodeActor::enqueue(Change change) {
  if (!storageOk_) {
    return replyFailed(change.asker,
                       fail(ErrorCode::Unavailable, "nothing can be stored now (" + storageText_ +
                                                        "): try again when it can"));
  }
  if (queue_.size() >= kChangesMax || outbox_.size() > kOutboxMax) {
    return replyFailed(change.asker,
                       fail(ErrorCode::Overloaded, std::to_string(queue_.size()) +
                                                       " changes wait already: try again later"));
  }
  queue_.push_back(std::move(change));
}

void NodeActor::onCommitted(schema::Committed::Reader committed, Turn& turn) {
  if (!inFlight_ || committed.getChange() != changeSerial_) return;
  Change change = std::move(*inFlight_);
  inFlight_.reset();
  if (change.event.seq != 0) tellEvent(change.event);
  if (!storageOk_) {
    QGPU_MARK(StorageBack);
    storageOk_ = true;
    storageText_ = "ok";
    note("storage-ok", 0, "", "changes are taken again", turn);
  }
  apply(change, turn);
  tellDeferred();
}

void NodeActor::onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
  if (!health.getOk()) storageFailed(text(health.getText()), turn);
}

// Nothing was applied, so there is nothing to undo but the wish itself.
void NodeActor::storageFailed(const std::string& why, Turn& turn) {
  QGPU_MARK(CommitFailed);
  const bool wasOk = storageOk_;
  storageOk_ = false;
  storageText_ = why.empty() ? "the last commit failed" : why.substr(0, 160);
  const Error error = fail(ErrorCode::Unavailable,
                           "nothing was changed: storage failed (" + storageText_ + ")");
  if (inFlight_) {
    if (inFlight_->kind == Change::Kind::End && !inFlight_->asker) {
      toEvict_.push_front(inFlight_->task);
    }
    replyFailed(inFlight_->asker, error);
    inFlight_.reset();
  }
  for (const Change& change : queue_) replyFailed(change.asker, error);
  queue_.clear();
  tellDeferred();
  if (wasOk) note("storage-failed", 0, "", storageText_, turn);
  if (!QGPU_PLANTED(LostWakeUpAfterFailure)) armProbe(turn);
}

void NodeActor::armProbe(Turn& turn) {
  if (probeArmed_) return;
  probeArmed_ = true;
  tick(turn, options_.probeEvery, TickKind::Probe, 0);
}

// --- events ---

std::uint64_t NodeActor::unixMs(Turn& turn) const {
  return static_cast<std::uint64_t>(options_.unixMsAtZero() + turn.now() / millis(1));
}

void NodeActor::note(const char* kind, std::uint64_t task, const std::string& card,
                     const std::string& what, Turn& turn) {
  EventRecord event{0, unixMs(turn), kind, task, card, what, "node"};
  if (inFlight_) {
    if (deferred_.size() < EventLog::kKept) deferred_.push_back(std::move(event));
    return;
  }
  event.seq = nextEvent_++;
  tellEvent(std::move(event));
}

void NodeActor::tellDeferred() {
  for (EventRecord& event : deferred_) {
    event.seq = nextEvent_++;
    tellEvent(std::move(event));
  }
  deferred_.clear();
}

void NodeActor::tellEvent(EventRecord event) {
  for (const ActorId door : watchers_) {
    outbox_.putWithin(door, kEventsPerDoor, [event](schema::Envelope::Builder envelope) {
      writeEvent(event, envelope.initEventTold());
    });
  }
  events_.add(std::move(event));
}

}  // namespace qgpu
