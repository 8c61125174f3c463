#pragma once
// The story that an actor tells: events with growing numbers, kept for readers that come later
// (EventLog), told at once to the clients that watch, and, where they are audits, stored.
//
// Numbers are never given twice, also over a restart: the actor's own row stores a number above all
// that may be told until its next commit (toStore), in blocks, so that an event costs no commit.
//
// Used by the node and the scheduler, each with its own row. Kept here: C5 (a watcher that lags
// sees a gap, watchers are bounded), C7 (audits are stored with the change that they are of).

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/event_log.h"
#include "actors/base/outbox.h"
#include "runtime/actor.h"

namespace qgpu {

class EventSource {
 public:
  static constexpr std::size_t kEventsPerClient = 256;  // then a watcher sees a gap
  static constexpr std::size_t kWatchersMax = 16;       // clients, not people
  static constexpr std::size_t kAuditKept = 1'024;      // audit rows in the store

  // `block`: how many numbers are reserved at a time.
  EventSource(Outbox& outbox, std::uint64_t block) : outbox_(outbox), block_(block) {}

  // --- numbers ---
  std::uint64_t take() { return next_++; }
  void atLeast(std::uint64_t next) { next_ = std::max(next_, next); }
  // Whether the actor's row is to be written soon, so that numbers do not run out.
  bool rowDue() const { return next_ + block_ / 4 > ceiling_; }
  // What the actor's row of this commit says; stored() once it is committed.
  std::uint64_t toStore() { return storing_ = next_ + block_; }
  void stored() { ceiling_ = storing_; }

  // --- telling ---
  // With the number that it has, to all who watch, and into the log.
  void tell(EventRecord event);
  // Numbered now.
  void tellNow(EventRecord event);
  // Numbered and told by one of the next two; beyond EventLog::kKept that wait it is dropped.
  void note(EventRecord event);
  void tellNotes();
  // Those alone that reserved numbers are left for; the others are dropped.
  void tellReservedNotes();

  // --- who reads ---
  // Overloaded where kWatchersMax clients watch already.
  Status watch(ActorId client, bool on);
  std::vector<EventRecord> after(std::uint64_t since) const;

  // --- audits: events with a row of their own, the newest kAuditKept ---
  // In the turn that persists the change. Rows that make room are erased.
  void persistAudits(const std::vector<EventRecord>& audits, Turn& turn) const;
  // Once that is committed.
  void auditsStored(const std::vector<EventRecord>& audits);
  // At the start: what the store has, in any order.
  void load(std::vector<EventRecord> audits);

 private:
  std::size_t surplus(std::size_t added) const;

  Outbox& outbox_;
  const std::uint64_t block_;
  std::uint64_t next_ = 1;
  std::uint64_t storing_ = 0;
  std::uint64_t ceiling_ = 0;  // durable: numbers below it may have been told
  EventLog log_;
  std::vector<EventRecord> notes_;
  std::set<ActorId> watchers_;
  std::deque<std::uint64_t> audits_;  // numbers of the rows in the store
};

}  // namespace qgpu
