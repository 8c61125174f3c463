#include "actors/scheduler/scheduler_actor.h"

#include <algorithm>

#include "runtime/planted.h"
#include "schema/envelope.actor.h"

namespace qgpu {

void SchedulerActor::handle(schema::Envelope::Reader message, Turn& turn) {
  now_ = turn.now();
  dispatch(*this, message, turn);
  finishTurn(turn);
}

void SchedulerActor::tick(Turn& turn, Nanos delay, TickKind kind) {
  turn.after(delay, [kind](schema::Envelope::Builder envelope) {
    envelope.initTick().setKind(static_cast<std::uint32_t>(kind));
  });
}

void SchedulerActor::onStart(schema::Start::Reader, Turn& turn) {
  if (startAsked_) return;
  startAsked_ = true;
  startedAt_ = turn.now();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].sinceUnixMs = unixMs(turn);
    membership_.add(turn.now());
  }
  tick(turn, options_.lookEvery, TickKind::Look);
}

void SchedulerActor::onTick(schema::Tick::Reader message, Turn& turn) {
  switch (TickKind{message.getKind()}) {
    case TickKind::Pump:
      pumpTold_ = false;
      pumpTurn_ = true;
      break;
    case TickKind::Resend: resendArmed_ = false; break;
    case TickKind::Probe:
      probeArmed_ = false;
      probeDue_ = true;
      break;
    case TickKind::Look:
      lookDue_ = true;
      if (started_) lookAtLeases();   // whatever the storage does: nothing durable follows at once
      tellPlan(turn);
      tick(turn, options_.lookEvery, TickKind::Look);
      break;
    case TickKind::Plan: stepPlans(turn); break;
  }
}

// A turn either persists or sends: what a turn sends beside its rows would be lost with them.
void SchedulerActor::finishTurn(Turn& turn) {
  const bool mayDecide = pumpTurn_ || outbox_.empty();
  pumpTurn_ = false;
  if (inFlight_) return;
  bool refused = false;
  if (mayDecide && hasWork()) refused = !decide(turn);
  if (inFlight_) return;
  outbox_.flush(turn);
  if ((refused || !outbox_.empty()) && !resendArmed_) {
    resendArmed_ = true;
    tick(turn, kResend, TickKind::Resend);
  }
  if (!refused && hasWork() && !pumpTold_) {
    pumpTold_ = true;
    turn.sendUrgent(turn.self(), [](schema::Envelope::Builder envelope) {
      envelope.initTick().setKind(static_cast<std::uint32_t>(TickKind::Pump));
    });
  }
}

bool SchedulerActor::hasWork() const {
  if (!startAsked_) return false;
  if (!storageOk_) return probeDue_ || !asked_.empty();
  return !started_ || clusterRowDue() || lookDue_ || !words_.empty() || !asked_.empty() ||
         !gained_.empty() || !losing_.empty();
}

bool SchedulerActor::clusterRowDue() const {
  return nextEvent_ + kEventBlock / 4 > eventCeiling_;
}

// False: the scheduler's own mailbox is full, and it decides nothing whose commit it would not hear
// of. The message is sent first because nothing that was decided could be taken back for want of
// room; where the round turns out to be empty it is ignored.
bool SchedulerActor::decide(Turn& turn) {
  const std::uint64_t serial = ++roundSerial_;
  const SendResult sent = turn.send(turn.self(), [serial](schema::Envelope::Builder envelope) {
    envelope.initCommitted().setChange(serial);
  });
  if (sent == SendResult::Refused) return false;
  round_ = std::make_unique<Round>();
  decideAll(turn);
  if (!round_->empty()) {
    persist(turn);
    inFlight_ = true;
    return true;
  }
  const std::unique_ptr<Round> done = std::move(round_);
  for (const auto& effect : done->effects) effect(turn);
  tellNotes(turn);
  return true;
}

void SchedulerActor::decideAll(Turn& turn) {
  if (!storageOk_) {
    round_->cluster = std::exchange(probeDue_, false);
    if (!round_->cluster) takeRequests(turn);
    return;
  }
  if (!started_) {
    round_->cluster = true;
    return;
  }
  round_->cluster = clusterRowDue();
  takeWords(turn);
  if (!started_) return;               // a node has seen a later term
  if (std::exchange(lookDue_, false)) {
    onOverdue();
    moveDrained(turn);
    evictAtLook();
    judgeAtLook();
  }
  loseTasks();
  wakeWaiting();
  takeRequests(turn);
}

void SchedulerActor::onCommitted(schema::Committed::Reader committed, Turn& turn) {
  if (!inFlight_ || committed.getChange() != roundSerial_) return;
  inFlight_ = false;
  const std::unique_ptr<Round> round = std::move(round_);
  if (!storageOk_) {
    storageOk_ = true;
    storageText_ = "ok";
    note("storage-ok", 0, "", "changes are taken again");
  }
  apply(*round, turn);
  tellNotes(turn);
}

void SchedulerActor::onStorageHealth(schema::StorageHealth::Reader health, Turn& turn) {
  if (!health.getOk()) storageFailed(text(health.getText()), turn);
}

// Exactly the round is undone. What nodes said is taken up again when the storage is back, since
// nobody will say it twice; who asked is told.
void SchedulerActor::storageFailed(const std::string& why, Turn& turn) {
  if (storageOk_) note("storage-failed", 0, "", why);
  storageOk_ = false;
  storageText_ = why.empty() ? "the last commit failed" : why.substr(0, 160);
  if (inFlight_) {
    inFlight_ = false;
    const std::unique_ptr<Round> round = std::move(round_);
    QGPU_MARK(RoundUndone);
    if (!QGPU_PLANTED(RoundNotUndone)) undo(*round);
    const Error error = fail(ErrorCode::Unavailable,
                             "nothing was changed: storage failed (" + storageText_ + ")");
    for (const Asker& asker : round->askers) replyFailed(asker, error);
    for (const auto& [member, corr] : round->forwards) tellForwarded(member, corr, error);
    words_.insert(words_.begin(), round->words.begin(), round->words.end());
  }
  refuseForwards(fail(ErrorCode::Unavailable, "storage failed (" + storageText_ + ")"));
  planTold_ = false;
  tellNotes(turn);
  if (probeArmed_) return;
  probeArmed_ = true;
  tick(turn, options_.probeEvery, TickKind::Probe);
}

const Job* SchedulerActor::task(std::uint64_t id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

// --- events ---

std::uint64_t SchedulerActor::unixMs(Turn& turn) const {
  return static_cast<std::uint64_t>(options_.unixMsAtZero() + turn.now() / millis(1));
}

void SchedulerActor::note(const char* kind, std::uint64_t task, const std::string& where,
                          const std::string& what) {
  if (notes_.size() >= EventLog::kKept) return;
  const auto at = static_cast<std::uint64_t>(options_.unixMsAtZero() + now_ / millis(1));
  notes_.push_back(EventRecord{0, at, kind, task, where, what, "scheduler"});
}

void SchedulerActor::audit(const char* kind, const Who& who, std::uint64_t task,
                           const std::string& where, const std::string& what, Turn& turn) {
  const std::string actor = who.name.empty() ? "uid " + std::to_string(who.uid) + " pid " +
                                                   std::to_string(who.pid)
                                             : "certificate " + who.name;
  round_->audits.push_back(
      EventRecord{nextEvent_++, unixMs(turn), kind, task, where, what, actor});
}

// Numbers that a restart could give out again are not used: the ceiling is raised first.
void SchedulerActor::tellNotes(Turn&) {
  for (EventRecord& event : notes_) {
    if (nextEvent_ >= eventCeiling_) break;
    event.seq = nextEvent_++;
    tellEvent(std::move(event));
  }
  notes_.clear();
}

void SchedulerActor::tellEvent(EventRecord event) {
  for (const ActorId door : watchers_) {
    outbox_.putWithin(door, kEventsPerDoor, [event](schema::Envelope::Builder envelope) {
      writeEvent(event, envelope.initEventTold());
    });
  }
  events_.add(std::move(event));
}

}  // namespace qgpu
