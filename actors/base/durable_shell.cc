#include "actors/base/durable_shell.h"

#include <utility>

#include "actors/base/tick.h"

namespace qgpu {

bool DurableShell::onTick(std::uint32_t kind) {
  switch (kind) {
    case kTickPump:
      pumpTold_ = false;
      pumpTurn_ = true;
      return true;
    case kTickResend:
      resendArmed_ = false;
      return true;
    case kTickProbe:
      probeArmed_ = false;
      probeDue_ = true;
      return true;
    default:
      return false;
  }
}

// A turn either persists or sends: what a turn sends beside its rows would be lost with them. While
// messages wait, decisions are made in pump turns alone, so that neither starves the other.
void DurableShell::finishTurn(Work& work, Turn& turn) {
  const bool mayDecide = pumpTurn_ || outbox_.empty();
  pumpTurn_ = false;
  if (inFlight_) return;
  bool refused = false;
  if (mayDecide && work.hasWork()) refused = !work.work(turn);
  if (inFlight_) return;
  outbox_.flush(turn);
  if ((refused || !outbox_.empty()) && !resendArmed_) {
    resendArmed_ = true;
    tickAfter(turn, kResend, kTickResend);
  }
  if (!refused && work.hasWork() && !pumpTold_) {
    pumpTold_ = true;
    turn.sendUrgent(turn.self(), [](schema::Envelope::Builder envelope) {
      envelope.initTick().setKind(kTickPump);
    });
  }
}

bool DurableShell::announce(Turn& turn) {
  const std::uint64_t serial = ++serial_;
  const SendResult sent = turn.send(turn.self(), [serial](schema::Envelope::Builder envelope) {
    envelope.initCommitted().setChange(serial);
  });
  return sent == SendResult::Sent;
}

DurableShell::Commit DurableShell::onCommitted(schema::Committed::Reader committed) {
  if (!inFlight_ || committed.getChange() != serial_) return Commit::NotOurs;
  inFlight_ = false;
  if (std::exchange(storageOk_, true)) return Commit::Done;
  storageText_ = "ok";
  return Commit::Back;
}

DurableShell::Failure DurableShell::onFailed(const std::string& why) {
  storageText_ = why.empty() ? "the last commit failed" : why.substr(0, kStorageTextMax);
  return {std::exchange(storageOk_, false), std::exchange(inFlight_, false)};
}

bool DurableShell::takeProbe() {
  return std::exchange(probeDue_, false);
}

void DurableShell::armProbe(Turn& turn) {
  if (std::exchange(probeArmed_, true)) return;
  tickAfter(turn, probeEvery_, kTickProbe);
}

}  // namespace qgpu
