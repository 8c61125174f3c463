#pragma once
// The shell of an actor whose changes are durable: one commit is in flight at a time, what leaves
// waits for it in the outbox, and after a commit that failed the storage is probed until it takes
// rows again. The actor over it says what there is to do (Work); the shell says when it may.
//
// How a commit is known: before anything is persisted, the actor sends itself a Committed message
// with a serial number. The output gate lets it pass only after the commit, so its arrival is the
// commit. It is sent first because what was decided could not be taken back for want of room in the
// own mailbox; where nothing is persisted it arrives with an old serial and is ignored.
//
// Kept here: D2 (nothing that follows from a change leaves before its commit: a turn either
// persists or sends), D4 (a failed commit ends one round and arms a probe, and the actor goes on),
// C5 (what a full mailbox refused is sent again).

#include <cstdint>
#include <string>

#include "actors/base/outbox.h"
#include "runtime/actor.h"

namespace qgpu {

// A row as the store had it at the actor's start.
inline schema::Row::Reader readRow(const StoredRow& row) {
  return capnp::readMessageUnchecked<schema::Row>(row.words.data());
}

class DurableShell {
 public:
  static constexpr Nanos kResend = millis(20);         // of what a full mailbox refused
  static constexpr std::size_t kStorageTextMax = 160;  // bytes of what the storage says

  // Kinds of the actor's Tick messages that are the shell's; the actor's own begin at kTickOwn.
  static constexpr std::uint32_t kTickPump = 0;
  static constexpr std::uint32_t kTickResend = 1;
  static constexpr std::uint32_t kTickProbe = 2;
  static constexpr std::uint32_t kTickOwn = 3;

  // What the actor does in it; called from finishTurn() alone.
  class Work {
   public:
    // Whether there is anything to decide now, storage being as it is.
    virtual bool hasWork() const = 0;
    // Decides, and persists between announce() and persisted(). False: announce() was refused and
    // nothing but time helps, so the shell comes back after kResend.
    virtual bool work(Turn& turn) = 0;

   protected:
    ~Work() = default;
  };

  // `probeEvery`: how long after a failed commit the storage is tried again.
  explicit DurableShell(Nanos probeEvery) : probeEvery_(probeEvery) {}

  // --- messages to the actor, passed on by it ---
  // True where the tick was the shell's own.
  bool onTick(std::uint32_t kind);
  enum class Commit : std::uint8_t {
    NotOurs,  // of a round that failed, or of none
    Done,
    Back,  // done, and the first one after a failure
  };
  Commit onCommitted(schema::Committed::Reader committed);
  // The storage failed, for this reason. The actor undoes what was in flight and calls armProbe().
  struct Failure {
    bool first = false;        // the storage was well until now
    bool wasInFlight = false;  // a commit was lost
  };
  Failure onFailed(const std::string& why);
  // At the end of every turn: decides, or sends what waits.
  void finishTurn(Work& work, Turn& turn);

  // --- within Work::work() ---
  // False: the actor's own mailbox is full, and it would not hear of the commit.
  bool announce(Turn& turn);
  void persisted() { inFlight_ = true; }
  // Whether this round is to try the storage. It is taken by asking.
  bool takeProbe();

  void armProbe(Turn& turn);

  bool inFlight() const { return inFlight_; }
  bool storageOk() const { return storageOk_; }
  bool probeDue() const { return probeDue_; }
  // "ok", or why nothing can be stored now.
  const std::string& storageText() const { return storageText_; }
  Outbox& outbox() { return outbox_; }
  const Outbox& outbox() const { return outbox_; }

 private:
  const Nanos probeEvery_;
  Outbox outbox_;
  bool inFlight_ = false;
  std::uint64_t serial_ = 0;  // of the last announcement
  bool storageOk_ = true;
  std::string storageText_ = "ok";
  bool probeDue_ = false;
  bool probeArmed_ = false;
  bool pumpTold_ = false;  // a tick to go on is on its way
  bool pumpTurn_ = false;  // this turn is that tick
  bool resendArmed_ = false;
};

}  // namespace qgpu
